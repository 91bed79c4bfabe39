// What a Communicator points at: ranks over a transport, and what all groups of one transport share.
//
// Messages are matched by a tag of 31 bits: context (which group), sequence (which call of that group) and
// step (which phase of that call). So two calls, two groups and two phases never catch each other's messages,
// however far one rank is ahead of another. A context is agreed by the ranks of the parent when a group is
// made, and is free again when the group is gone.
#pragma once
#include <bitset>
#include <chrono>
#include <exception>
#include <memory>
#include <source_location>
#include <utility>
#include <vector>

#include "comm/recorder.h"
#include "comm/transport.h"
#include "runtime/array.h"
#include "runtime/seconds.h"

namespace tessera {

constexpr int kContextBits = 11;
constexpr int kSequenceBits = 15;
constexpr int kStepBits = 5;
constexpr int kMaxContexts = 1 << kContextBits;
using ContextSet = std::bitset<kMaxContexts>;

// The call that a work, a record or an error stems from.
struct Call {
  const char* op = "";
  std::source_location site;
};

// Refuses a call in the caller's name and at the caller's line.
#define COMM_CHECK(condition, call, ...)                                                                \
  do {                                                                                                  \
    if (!(condition)) [[unlikely]]                                                                      \
      ::tessera::fail(::tessera::ErrorKind::Usage, (call).op, ::fmt::format(__VA_ARGS__), (call).site); \
  } while (false)

// Whether MPI is given addresses of device memory (device_link.h). Auto: where it says that it takes them.
enum class CudaAwareMpi : std::uint8_t { Auto, Never, Always };

// How many calls moved memory of a device by MPI.
struct MpiWorks {
  std::int64_t staged = 0;  // by way of page-locked memory of the host
  std::int64_t handed = 0;  // MPI was given the device's addresses
  std::int64_t all() const { return staged + handed; }
};

class DeviceLink;
class DevicePhase;

// One rank's end of a transport.
struct Endpoint {
  explicit Endpoint(std::unique_ptr<Transport> t);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  std::unique_ptr<Transport> transport;
  Recorder recorder;
  Recorder checks;  // messages that only the mode that checks calls sends: no part of what a program sends
  double deadline = 0;
  bool check_calls = false;
  bool overlap = true;
  bool timed = false;  // a CommTimer lives
  bool device_links = true;
  CudaAwareMpi cuda_aware_mpi = CudaAwareMpi::Auto;
  MpiWorks mpi_works;
  std::int64_t message_limit = std::int64_t{1} << 30;
  ContextSet contexts;
  // All works that one exception drops may wait until then, together.
  std::chrono::steady_clock::time_point unwinding_until{};
  // How many works have begun, and the number of the last when a failure was thrown to somebody who waited:
  // what had begun by then and fails too is no news.
  std::uint64_t works_begun = 0;
  std::uint64_t works_excused = 0;
  // The first failure of a work for which nobody waited any more. Who runs the program asks for it; otherwise
  // it is printed at the end.
  std::exception_ptr lost_error;
  // Memory that messages of abandoned works may still touch.
  std::vector<Array> graveyard;
  std::vector<std::unique_ptr<DevicePhase>> unfinished;
};

// Throws the endpoint's lost error if there is one, which is gone then.
void rethrow_lost_error(Endpoint& endpoint);

// How messages between the devices of a group go: by the link; without one by MPI.
struct DeviceWay {
  std::unique_ptr<DeviceLink> link;
  bool hands_over = false;  // MPI is given the device's addresses
};

class Group : public std::enable_shared_from_this<Group> {
 public:
  // `ranks` are the transport's, `rank` is this rank's place among them.
  Group(std::shared_ptr<Endpoint> endpoint, std::vector<int> ranks, int context);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int world_rank(int r) const { return ranks_[static_cast<std::size_t>(r)]; }
  Endpoint& endpoint() const { return *endpoint_; }
  const std::shared_ptr<Endpoint>& shared_endpoint() const { return endpoint_; }
  Transport& transport() const { return *endpoint_->transport; }
  bool records_only() const { return transport().records_only(); }
  std::uint32_t next_sequence() { return sequence_++; }
  std::uint32_t sequence() const { return sequence_; }
  int tag(std::uint32_t sequence, int step) const;
  // A work of this group was given up: its context is not used again, because a late message may still come.
  void spoil() { spoiled_ = true; }
  // Between the ranks' devices (device_link.h); null where there is none, or not yet.
  DeviceLink* device_link() const { return device_way_.link.get(); }
  // Without a link: MPI is given addresses of the devices.
  bool hands_over() const { return device_way_.hands_over; }
  bool knows_device_way() const { return knows_device_way_; }
  void set_device_way(DeviceWay way);
  // Of memory of `device`: what a graph captures is counted at every replay instead.
  void record(const Call& call, std::int64_t messages, std::int64_t bytes, Device device = Device::Cpu) const;
  void record_check(const Call& call, std::int64_t bytes) const;

 private:
  std::shared_ptr<Endpoint> endpoint_;
  std::vector<int> ranks_;
  int rank_ = 0;
  int context_ = 0;
  std::uint32_t sequence_ = 0;
  bool spoiled_ = false;
  bool knows_device_way_ = false;
  DeviceWay device_way_;
};

// Refuses an undefined communicator.
Group& required(const std::shared_ptr<Group>& group);
std::shared_ptr<Group> make_world_group(std::unique_ptr<Transport> transport);

// Adds the time of its life to the recorder's seconds; one within another's life adds nothing to it.
class CommTimer {
 public:
  using Clock = std::chrono::steady_clock;
  explicit CommTimer(const Group& group)
      : endpoint_(group.endpoint()), outermost_(!std::exchange(endpoint_.timed, true)) {
    if (outermost_) start_ = Clock::now();
  }
  ~CommTimer() {
    if (!outermost_) return;
    endpoint_.timed = false;
    endpoint_.recorder.add_seconds(seconds_since(start_));
  }
  CommTimer(const CommTimer&) = delete;
  CommTimer& operator=(const CommTimer&) = delete;

 private:
  Endpoint& endpoint_;
  bool outermost_;
  Clock::time_point start_;
};

}  // namespace tessera
