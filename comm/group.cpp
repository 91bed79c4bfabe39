#include "comm/group.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "comm/device_link.h"
#include "comm/device_phase.h"
#include "runtime/environment.h"
#include "runtime/graph_capture.h"
#include "runtime/one_line.h"
#include "runtime/threads.h"

namespace tessera {

namespace {

constexpr int kSpins = 64;

bool calls_checked() { return environment_switch("TESSERA_CHECK_CALLS", false); }
// The mode sends messages of its own, which ranks without it would read as theirs.
[[maybe_unused]] const bool compared =
    (add_common_setting("TESSERA_CHECK_CALLS", [] { return std::string(calls_checked() ? "1" : "0"); }),
     true);

double default_deadline() {
  constexpr double kSeconds = 300;
  const char* text = std::getenv("TESSERA_DEADLINE");
  if (text == nullptr || *text == '\0') return kSeconds;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  TS_CHECK(*end == '\0' && seconds > 0, "communicator",
           "TESSERA_DEADLINE is '{}', but must be a positive number of seconds", text);
  return seconds;
}

bool links_wanted() {
  const char* text = std::getenv("TESSERA_CUDA_COMM");
  const std::string_view way = text == nullptr || *text == '\0' ? "nccl" : text;
  TS_CHECK(way == "nccl" || way == "mpi", "communicator",
           "TESSERA_CUDA_COMM is '{}', but must be nccl or mpi", way);
  return way == "nccl";
}

CudaAwareMpi cuda_aware_mpi_wanted() {
  const char* text = std::getenv("TESSERA_CUDA_AWARE_MPI");
  const std::string_view choice = text == nullptr || *text == '\0' ? "auto" : text;
  if (choice == "0") return CudaAwareMpi::Never;
  if (choice == "1") return CudaAwareMpi::Always;
  TS_CHECK(choice == "auto", "communicator", "TESSERA_CUDA_AWARE_MPI is '{}', but must be auto, 0 or 1",
           choice);
  return CudaAwareMpi::Auto;
}

CommRecord record_of(const Group& group, const Call& call, std::int64_t messages, std::int64_t bytes) {
  return {.kind = call.op,
          .group_size = group.size(),
          .messages = messages,
          .bytes = bytes,
          .scope = CommScope::current(),
          .file = call.site.file_name(),
          .line = call.site.line()};
}

}  // namespace

int Transport::cores_on_host() const { return available_cores(); }

// With more ranks than cores, the rank that we wait for may need this very core.
void Transport::idle(int idle_polls) {
  if (idle_polls > kSpins) sched_yield();
}

Endpoint::Endpoint(std::unique_ptr<Transport> t)
    : transport(std::move(t)),
      deadline(default_deadline()),
      check_calls(calls_checked()),
      overlap(environment_switch("TESSERA_OVERLAP", true)),
      device_links(links_wanted()),
      cuda_aware_mpi(cuda_aware_mpi_wanted()) {}

Endpoint::~Endpoint() {
  try {
    rethrow_lost_error(*this);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", one_line(e.what()).c_str());
  }
}

void rethrow_lost_error(Endpoint& endpoint) {
  if (const std::exception_ptr lost = std::exchange(endpoint.lost_error, nullptr))
    std::rethrow_exception(lost);
}

Group::Group(std::shared_ptr<Endpoint> endpoint, std::vector<int> ranks, int context)
    : endpoint_(std::move(endpoint)), ranks_(std::move(ranks)), context_(context) {
  const auto self = std::find(ranks_.begin(), ranks_.end(), endpoint_->transport->rank());
  TS_CHECK(self != ranks_.end(), "communicator", "rank {} is not a member of the group",
           endpoint_->transport->rank());
  rank_ = static_cast<int>(self - ranks_.begin());
  endpoint_->contexts.set(static_cast<std::size_t>(context_));
}

Group::~Group() {
  device_way_.link.reset();
  if (!spoiled_) endpoint_->contexts.reset(static_cast<std::size_t>(context_));
}

void Group::set_device_way(DeviceWay way) {
  knows_device_way_ = true;
  device_way_ = std::move(way);
}

int Group::tag(std::uint32_t sequence, int step) const {
  const std::uint32_t wrapped = sequence & ((1U << kSequenceBits) - 1U);
  const auto context = static_cast<std::uint32_t>(context_);
  return static_cast<int>((context << (kSequenceBits + kStepBits)) | (wrapped << kStepBits) |
                          static_cast<std::uint32_t>(step));
}

void Group::record(const Call& call, std::int64_t messages, std::int64_t bytes, Device device) const {
  const CommRecord record = record_of(*this, call, messages, bytes);
  GraphCapture* graph = device == Device::Cpu ? nullptr : GraphCapture::current();
  if (graph == nullptr) return endpoint_->recorder.add(record);
  graph->before_replay([endpoint = endpoint_, record] { endpoint->recorder.add(record); });
}

void Group::record_check(const Call& call, std::int64_t bytes) const {
  endpoint_->checks.add(record_of(*this, call, 1, bytes));
}

Group& required(const std::shared_ptr<Group>& group) {
  TS_CHECK(group != nullptr, "communicator",
           "the communicator is undefined (this rank is in none of the groups)");
  return *group;
}

std::shared_ptr<Group> make_world_group(std::unique_ptr<Transport> transport) {
  std::vector<int> ranks(static_cast<std::size_t>(transport->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_shared<Group>(std::make_shared<Endpoint>(std::move(transport)), std::move(ranks), 0);
}

}  // namespace tessera
