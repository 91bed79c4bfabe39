#include "train/program.h"

#include <unistd.h>

#include <cstdio>
#include <functional>

#include "comm/device_link.h"
#include "runtime/error.h"
#include "runtime/threads.h"
#include "runtime/trace.h"

namespace tessera {
namespace {

// Ranks above 0 give rank 0 the time to say the same line first and end the job; on a busy machine the
// launcher may take a second or two to do so.
[[noreturn]] void end_job(const Communicator& world, const std::string& line) {
  constexpr useconds_t kHeadStart = 4'000'000;
  if (world.defined() && world.rank() > 0) usleep(kHeadStart);
  abort_job(world, line);
}

}  // namespace

Runtime::Runtime(int& argc, char**& argv) : session_(&argc, &argv), world_(session_.world()) { set_up(); }
Runtime::Runtime(MPI_Comm comm) : world_(communicator_from_mpi(comm)) { set_up(); }

void Runtime::set_up() {
  set_rank_label({world_.rank(), world_.size()});
  set_default_threads(ranks_on_this_host(world_), cores_of_this_host(world_));
  select_device_of_rank(world_, Device::Cuda);
}

int run_program(int argc, char** argv, const ProgramBody& body) {
  Runtime runtime(argc, argv);
  try {
    const int status = body(runtime, argc, argv);
    trace_stop();
    return status;
  } catch (const Error& e) {
    end_job(runtime.world(), e.message());
  } catch (const std::exception& e) {
    end_job(runtime.world(), e.what());
  }
}

}  // namespace tessera
