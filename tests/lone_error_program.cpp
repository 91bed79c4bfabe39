// One rank meets an error that the others know nothing of, and they wait for it.
#include "runtime/error.h"
#include "train/program.h"

int main(int argc, char** argv) {
  return tessera::run_program(argc, argv, [](tessera::Runtime& runtime, int, char**) {
    if (runtime.rank() == runtime.size() - 1) TS_FAIL(Io, "reader", "the last rank cannot go on");
    runtime.world().barrier();
    return 0;
  });
}
