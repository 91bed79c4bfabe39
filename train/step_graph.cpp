#include "train/step_graph.h"

#include <exception>

#include "comm/device_link.h"
#include "runtime/device.h"
#include "runtime/error.h"

namespace tessera::train {
namespace {

constexpr const char* kOp = "StepGraph";

}  // namespace

StepGraph::StepGraph(const Communicator& comm, int warmup) : comm_(comm), warmup_(warmup) {
  TS_CHECK(comm.defined(), kOp, "the communicator is undefined");
  TS_CHECK(warmup >= 1, kOp, "{} steps of warm-up were given, allowed are 1 and more", warmup);
  require_device(kOp, Device::Cuda);
}

bool StepGraph::captured(int kind) const {
  const auto found = kinds_.find(kind);
  return found != kinds_.end() && found->second.graph.captured();
}

Tensor StepGraph::run(const std::function<Tensor()>& step, int kind) {
  Kind& k = kinds_[kind];
  if (k.runs < warmup_) {
    ++k.runs;  // also where the step is refused: ranks count alike
    const std::int64_t before = works_by_mpi(comm_).all();
    Tensor result = step();
    by_mpi_ = works_by_mpi(comm_).all() - before;
    return result;
  }
  if (!k.graph.captured()) capture(k, step);
  k.graph.replay();
  return k.result;
}

void StepGraph::capture(Kind& kind, const std::function<Tensor()>& step) {
  agree(comm_, kOp,
        by_mpi_ == 0
            ? std::string()
            : fmt::format("the step's messages go by MPI, which the host calls, {} times in the last run; "
                          "a CUDA graph holds messages between devices only (NCCL, a device for "
                          "every rank)",
                          by_mpi_));
  std::string failure;
  const auto give_up = [&] {
    kind.graph.reset();
    kind.result = Tensor();
  };
  try {
    kind.graph.capture_begin(pool_);
    kind.result = step();
    kind.graph.capture_end();
  } catch (const Error& e) {
    failure = e.message();
  } catch (const std::exception& e) {  // of the step's own
    failure = fmt::format("the captured step threw \"{}\"", e.what());
  } catch (...) {
    failure = "the captured step threw what is no std::exception";
  }
  if (!failure.empty()) give_up();
  try {
    agree(comm_, kOp, failure);
  } catch (...) {  // also of another rank: the next run is a capture on all of them
    give_up();
    throw;
  }
  kind.result = kind.result.detach();  // what backward needed may go
  pool_ = kind.graph.pool();
}

}  // namespace tessera::train
