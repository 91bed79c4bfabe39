// Which way messages between the devices of a group go: NCCL, or MPI where two ranks share a device.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "comm/cuda/nccl_link.h"

#include "comm/device_link.h"
#include "comm/gather_blocks.h"
#include "runtime/cuda/api.h"
#include "runtime/log.h"

namespace tessera::cuda {
namespace {

// What tells whether two ranks drive the same device.
struct Place {
  char host[96] = {};
  char device[32] = {};
  bool wants = true;
  bool hands_over = true;  // would, to MPI
};

Place place_of(const Group& group) {
  Place place;
  gethostname(place.host, sizeof place.host - 1);
  int device = 0;
  use_device();
  cuda::check(cudaGetDevice(&device), "cudaGetDevice");
  cuda::check(cudaDeviceGetPCIBusId(place.device, sizeof place.device, device), "cudaDeviceGetPCIBusId");
  place.wants = group.endpoint().device_links;
  place.hands_over = may_hand_over(group);
  return place;
}

bool same_device(const Place& a, const Place& b) {
  return std::strcmp(a.host, b.host) == 0 && std::strcmp(a.device, b.device) == 0;
}

void say_shared(std::size_t a, std::size_t b, const Place& place) {
  static std::atomic<bool> said{false};
  if (!said.exchange(true))
    log_warn("ranks {} and {} of a group share device {} of {}, which NCCL refuses: messages go by MPI", a, b,
             place.device, place.host);
}

DeviceWay by_mpi(const std::vector<Place>& places) {
  const bool all =
      std::all_of(places.begin(), places.end(), [](const Place& place) { return place.hands_over; });
  static std::atomic<bool> said{false};
  if (!said.exchange(true))
    log_info("messages between devices go by MPI, {}",
             all ? "which is given their addresses" : "from page-locked memory of the host");
  return {nullptr, all};
}

DeviceWay choose_way(Group& group, const Call& call) {
  const Place mine = place_of(group);
  const std::string all = gather_blocks(group.shared_from_this(), call,
                                        std::string(reinterpret_cast<const char*>(&mine), sizeof mine));
  std::vector<Place> places(static_cast<std::size_t>(group.size()));
  std::memcpy(static_cast<void*>(places.data()), all.data(), all.size());
  for (std::size_t a = 0; a < places.size(); ++a) {
    if (!places[a].wants) return by_mpi(places);
    for (std::size_t b = 0; b < a; ++b) {
      if (!same_device(places[a], places[b])) continue;
      say_shared(b, a, places[a]);
      return by_mpi(places);
    }
  }
  return {make_nccl_link(group, call), false};
}

}  // namespace

void register_nccl() { set_link_backend(Device::Cuda, {&choose_way, &poll_nccl_links}); }

}  // namespace tessera::cuda
