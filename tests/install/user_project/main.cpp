#include <tessera/tessera.h>

#include <cstdio>

namespace ts = tessera;

int main(int argc, char** argv) {
  ts::MpiSession mpi(&argc, &argv);
  const ts::Communicator world = mpi.world();
  const ts::Array sum = ts::Array::full({2, 3}, world.rank() + 1.0, ts::DType::F32);
  world.all_reduce(sum, ts::ReduceOp::Sum).wait();
  const double expected = world.size() * (world.size() + 1) / 2.0;
  if (world.rank() == 0) std::printf("%d ranks: %g\n", world.size(), sum.at(5));
  return sum.at(5) == expected ? 0 : 1;
}
