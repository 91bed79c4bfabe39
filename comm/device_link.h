// Messages from device to device, without the host: a backend's own transport (NCCL), beside the group's.
//
// A link runs the whole program of a work (work_state.h) in stream order: the link's stream goes on after
// what the caller's stream holds, messages and local steps of all phases follow one another there, and who
// waits makes a stream wait, never the host. Messages have no tags: between two ranks they match in the order
// of the calls, which is the same on both.
//
// Local steps may launch kernels and copy, but take no memory of the device: what they gave back would be
// used again at once by a stream that knows nothing of theirs.
#pragma once
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/group.h"
#include "comm/phase.h"
#include "runtime/device.h"

namespace tessera {

class LinkedWork {
 public:
  LinkedWork() = default;
  virtual ~LinkedWork() = default;
  LinkedWork(const LinkedWork&) = delete;
  LinkedWork& operator=(const LinkedWork&) = delete;
  // Both refuse (kind Comm) when the link has failed, with op and peers.
  virtual bool done() = 0;
  // What this thread launches from now on runs after it.
  virtual void hold() = 0;
};

class DeviceLink {
 public:
  DeviceLink() = default;
  // Waits for what is under way, up to the deadline.
  virtual ~DeviceLink() = default;
  DeviceLink(const DeviceLink&) = delete;
  DeviceLink& operator=(const DeviceLink&) = delete;
  virtual std::unique_ptr<LinkedWork> start(const std::vector<Phase>& phases, const Call& call) = 0;
};

struct LinkBackend {
  // Collective over the group: the same way on all ranks.
  DeviceWay (*choose)(Group& group, const Call& call) = nullptr;
  // What goes on while the host waits for something else; never throws.
  void (*poll)() = nullptr;
};
void set_link_backend(Device device, LinkBackend backend);

// At the first call of a group that names memory of a device, collective: every rank makes the same calls,
// also one that sends nothing, so there all meet. Refuses after the deadline where they do not.
void prepare_device_link(Group& group, Device device, const Call& call);
void poll_device_links();

// Collective, once, before the first array on the device: the rank that is n-th on its host drives the host's
// n-th device (modulo their number). Opens nothing on the device. Nothing to do, and no message, in a build
// without a backend for it.
void select_device_of_rank(const Communicator& world, Device device);

// Calls so far that moved memory of a device by MPI, on this rank, in all groups of this transport. The host
// posts these messages, so no graph can capture them.
MpiWorks works_by_mpi(const Communicator& comm);

// Both are shared by all groups over one transport, for groups that have sent no memory of a device yet.
// Off: messages of device memory go by MPI (environment TESSERA_CUDA_COMM=mpi).
void use_device_links(const Communicator& comm, bool on);
// Whether MPI is given addresses of the device, where messages go by MPI; otherwise they go by way of
// page-locked memory of the host. Ranks of a group that choose differently: as if all had chosen Never
// (environment TESSERA_CUDA_AWARE_MPI=auto, 0 or 1). Always is for an MPI that takes them and does not say
// so; one that does not take them crashes.
void use_cuda_aware_mpi(const Communicator& comm, CudaAwareMpi choice);
// Whether this rank would, as far as it knows alone.
bool may_hand_over(const Group& group);

}  // namespace tessera
