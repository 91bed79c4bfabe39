#include "train/program.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <optional>

#include "comm/device_link.h"
#include "comm/group.h"
#include "comm/transport.h"
#include "runtime/allocator.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/threads.h"
#include "runtime/trace.h"

namespace tessera {
namespace {

constexpr int kSecondsToCome = 4;
constexpr double kHoweverLong = std::numeric_limits<double>::infinity();

// Who knows only that a peer has failed gives the peer, which knows why, the time to say it: that rank may
// have to wait for its turn.
[[noreturn]] void end_job(const std::string& line, bool peer_knows_why = false) {
  constexpr unsigned kForPeer = 10;
  if (peer_knows_why) sleep(kForPeer);
  abort_job({}, line);
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

struct Failure {
  std::string line;
  bool peer_knows_why = false;
};

// The exception that is being handled.
Failure failure_at_hand() {
  try {
    throw;
  } catch (const PeerFailed& e) {
    return {e.message(), true};
  } catch (const Error& e) {
    return {e.message()};
  } catch (const std::bad_alloc&) {
    return {"run_program: out of memory: the system gave the C++ library no more"};
  } catch (const std::exception& e) {
    const std::string what = e.what();
    return {what.empty() ? fmt::format("run_program: the program threw {} without a message", thrown_type())
                         : what};
  } catch (...) {
    return {fmt::format("run_program: the program threw {}, which is no std::exception", thrown_type())};
  }
}

// Says what exception is being handled, and what a work had failed of for which nobody waited: that came
// first, and may be the cause.
[[noreturn]] void end_job_by_exception(const std::optional<Runtime>& runtime) {
  Failure failure = failure_at_hand();
  try {
    if (runtime) rethrow_lost_error(required(runtime->world().group()).endpoint());
  } catch (...) {
    const Failure before = failure_at_hand();
    failure = {failure.line + "; before that, " + before.line,
               failure.peer_knows_why && before.peer_knows_why};
  }
  end_job(failure.line, failure.peer_knows_why);
}

// Ranks that wait for one that has left its body learn of it here. After a status of 0 nothing is wrong with
// the others, and they take what time they need; another one ends the job.
void leave_together(const Communicator& world, int status) {
  if (world.size() == 1) return;
  if (all_ranks_come(status == 0 ? kHoweverLong : kSecondsToCome, status)) return;
  end_job(
      fmt::format("run_program: rank {} of {} returned status {}, and not all others returned within {} s",
                  world.rank(), world.size(), status, kSecondsToCome));
}

}  // namespace

Runtime::Runtime(int& argc, char**& argv) : session_(&argc, &argv), world_(session_.world()) { set_up(); }
Runtime::Runtime(MPI_Comm comm) : world_(communicator_from_mpi(comm)) { set_up(); }

void Runtime::set_up() {
  log_level();  // what the environment says of logs and memory is refused now if it is wrong, not in between
  allocator_stats(Device::Cpu);
  set_rank_label({world_.rank(), world_.size()});
  set_default_threads(ranks_on_this_host(world_), cores_of_this_host(world_));
  select_device_of_rank(world_, Device::Cuda);
}

int run_program(int argc, char** argv, const ProgramBody& body) {
  std::optional<Runtime> runtime;
  try {
    runtime.emplace(argc, argv);
    const int status = body(*runtime, argc, argv);
    rethrow_lost_error(required(runtime->world().group()).endpoint());
    trace_stop();
    leave_together(runtime->world(), status);
    return status;
  } catch (...) {
    end_job_by_exception(runtime);
  }
}

}  // namespace tessera
