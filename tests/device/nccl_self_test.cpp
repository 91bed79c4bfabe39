// What one device alone can show of NCCL: each rank makes a communicator of its own, with the library's
// calls, and sends to itself, as they come and in a graph.
#include <catch2/catch.hpp>

#include "comm/cuda/nccl_calls.h"
#include "runtime/copy.h"
#include "runtime/cuda/api.h"
#include "runtime/device.h"
#include "runtime/graph.h"
#include "tests/support/world.h"

using namespace tessera;

namespace {

// One group of messages from this rank to itself, on a stream of its own as in comm/cuda/nccl_link.cpp. Of
// several the first one sent is the first one received.
class Loop {
 public:
  static constexpr std::int64_t kLengths[] = {1000, 1, 30'000};

  Loop() : alone_(test_world().split(test_world().rank(), 0)) {
    comm_ = cuda::make_nccl(*alone_.group(), {"loop", std::source_location::current()});
    stream_ = cuda::make_stream();
    for (const std::int64_t n : kLengths) {
      in_.push_back(Array::full({n}, 0, DType::F64, Device::Cuda));
      out_.push_back(Array::full({n}, 0, DType::F64, Device::Cuda));
    }
  }
  ~Loop() {
    synchronize(Device::Cuda);
    cuda::end_nccl(comm_, 10);
    cuda::drop_stream(stream_);
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void set(double value) const {
    for (std::size_t i = 0; i < in_.size(); ++i) in_[i].fill_(value + static_cast<double>(i));
  }
  // Asynchronous; what follows in the compute stream comes after it.
  void run() const {
    Phase phase;
    for (const Array& a : out_) phase.recv(0, a.raw(), a.nbytes());
    for (const Array& a : in_) phase.send(0, a.raw(), a.nbytes());
    cuda::Event begin;
    begin.record(cuda::compute_stream());
    begin.hold(stream_);
    CHECK(cuda::post_messages(comm_, phase, stream_, alone_.deadline()) == "");
    cuda::Event end;
    end.record(stream_);
    end.hold(cuda::compute_stream());
  }
  void check(double value) const {
    for (std::size_t i = 0; i < out_.size(); ++i)
      CHECK(out_[i].to_vector() ==
            std::vector<double>(static_cast<std::size_t>(kLengths[i]), value + static_cast<double>(i)));
    CHECK(cuda::failure_of(comm_) == "");
  }
  const std::vector<Array>& results() const { return out_; }

 private:
  Communicator alone_;
  ncclComm_t comm_ = nullptr;
  cuda::StreamHandle stream_ = nullptr;
  std::vector<Array> in_, out_;
};

}  // namespace

TEST_CASE("a communicator of one rank sends to itself", "[nccl]") {
  const Loop loop;
  const std::int64_t waits = cuda::host_waits();
  for (int i = 1; i <= 3; ++i) {
    loop.set(i);
    loop.run();
  }
  CHECK(cuda::host_waits() == waits);
  loop.check(3);
}

TEST_CASE("messages of a communicator are captured and replayed", "[nccl][graph]") {
  const Loop loop;
  loop.set(1);
  loop.run();  // the first messages may not be captured
  loop.check(1);
  const Array sum = Array::zeros({Loop::kLengths[0]}, DType::F64).to(Device::Cuda);
  CudaGraph graph;
  graph.capture_begin();
  loop.run();
  add_into(sum, loop.results()[0]);
  graph.capture_end();
  loop.set(2);
  loop.check(1);  // the capture sent nothing
  const std::int64_t waits = cuda::host_waits();
  for (int i = 3; i <= 6; ++i) {
    loop.set(i);
    graph.replay();
  }
  CHECK(cuda::host_waits() == waits);
  loop.check(6);
  CHECK(sum.to_vector() == std::vector<double>(1000, 3 + 4 + 5 + 6));
  loop.set(9);
  loop.run();  // eager again, between replays
  loop.check(9);
  graph.replay();
  CHECK(sum.to_vector() == std::vector<double>(1000, 3 + 4 + 5 + 6 + 9));
}
