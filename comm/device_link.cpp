#include "comm/device_link.h"

#include <unistd.h>

#include <array>

#include "comm/gather_blocks.h"
#include "runtime/graph_capture.h"

namespace tessera {
namespace {

LinkBackend& backend_of(Device device) {
  static std::array<LinkBackend, kDeviceCount> table;
  return table[static_cast<std::size_t>(device)];
}

}  // namespace

void set_link_backend(Device device, LinkBackend backend) { backend_of(device) = backend; }

void prepare_device_link(Group& group, Device device, const Call& call) {
  if (device == Device::Cpu || group.knows_device_way()) return;
  const LinkBackend& backend = backend_of(device);
  if (backend.choose == nullptr || group.size() == 1 || group.records_only()) return;
  refuse_in_capture(call.op, "a group meets for its first messages between devices",
                    "run the step once before the capture");
  group.set_device_way(backend.choose(group, call));
}

void poll_device_links() {
  const LinkBackend& backend = backend_of(Device::Cuda);
  if (backend.poll != nullptr) backend.poll();
}

void select_device_of_rank(const Communicator& world, Device device) {
  Group& group = required(world.group());
  if (backend_of(device).choose == nullptr)
    return;  // the same on all ranks, other than what their hosts have
  char host[128] = {};
  gethostname(host, sizeof host - 1);
  const std::string all =
      gather_blocks(group.shared_from_this(), {"select_device", std::source_location::current()},
                    std::string(host, sizeof host));
  int before = 0;
  for (int r = 0; r < group.rank(); ++r)
    before +=
        all.compare(static_cast<std::size_t>(r) * sizeof host, sizeof host, host, sizeof host) == 0 ? 1 : 0;
  select_device(device, before);
}

MpiWorks works_by_mpi(const Communicator& comm) { return required(comm.group()).endpoint().mpi_works; }

void use_device_links(const Communicator& comm, bool on) {
  required(comm.group()).endpoint().device_links = on;
}

void use_cuda_aware_mpi(const Communicator& comm, CudaAwareMpi choice) {
  required(comm.group()).endpoint().cuda_aware_mpi = choice;
}

bool may_hand_over(const Group& group) {
  const TakesDeviceMemory takes = group.transport().takes_device_memory();
  switch (group.endpoint().cuda_aware_mpi) {
    case CudaAwareMpi::Auto:
      return takes == TakesDeviceMemory::Yes;
    case CudaAwareMpi::Always:
      return takes != TakesDeviceMemory::No;
    case CudaAwareMpi::Never:
      break;
  }
  return false;
}

}  // namespace tessera
