#include "train/program.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>

#include "comm/device_link.h"
#include "runtime/error.h"
#include "runtime/threads.h"
#include "runtime/trace.h"

namespace tessera {
namespace {

constexpr int kSecondsToCome = 4;

// Ranks above 0 give rank 0 the time to say the same line first and end the job; on a busy machine the
// launcher may take a second or two to do so.
[[noreturn]] void end_job(const Communicator& world, const std::string& line) {
  constexpr useconds_t kHeadStart = 4'000'000;
  if (world.defined() && world.rank() > 0) usleep(kHeadStart);
  abort_job(world, line);
}

// Of the exception that is being handled.
std::string thrown_type() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type == nullptr) return "something";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(type->name(), nullptr, nullptr, &status), &std::free);
  return status == 0 ? name.get() : type->name();
}

// Others may wait for a rank that has left its body, and learn of it only if the job ends. After a status of
// 0 nothing is wrong, and they take what time they need.
void leave_together(const Communicator& world, int status) {
  if (world.size() == 1) return;
  if (all_ranks_come(status == 0 ? std::numeric_limits<double>::infinity() : kSecondsToCome)) return;
  end_job(world, fmt::format("run_program: rank {} of {} returned status {}, and not all others returned "
                             "within {} s",
                             world.rank(), world.size(), status, kSecondsToCome));
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
    leave_together(runtime.world(), status);
    return status;
  } catch (const Error& e) {
    end_job(runtime.world(), e.message());
  } catch (const std::exception& e) {
    end_job(runtime.world(), e.what());
  } catch (...) {
    end_job(runtime.world(),
            fmt::format("run_program: the program threw {}, which is no std::exception", thrown_type()));
  }
}

}  // namespace tessera
