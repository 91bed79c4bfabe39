// A stand-in for an MPI that is CUDA-aware (TESSERA_EMULATED_CUDA_AWARE_MPI=1): those of MPI's calls that the
// library makes for memory of a device take its addresses, and go on to the real MPI with the second mapping.
//
// As a real one it knows no streams, and it may do all that MPI allows: what is sent is read when MPI_Isend
// is called, the memory that is received into is written over when MPI_Irecv is. So a wait that is missing
// before either gives a wrong number. What changes while it is being sent ends the job.
//
// Without the setting MPI is that of the host, and whoever gives it an address of the device crashes.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "emulated/memory.h"
#include "emulated/settings.h"

namespace emu = tessera::emulated;

namespace {

bool is_aware() { return emu::settings().cuda_aware_mpi; }

// Memory of a device on its way, by request: MPI may name several by one, whose messages are gone already.
// MPI is called by one thread (MPI_THREAD_FUNNELED).
struct Sent {
  const char* from = nullptr;  // in the second mapping
  std::vector<char> bytes;
};
std::multimap<MPI_Request, Sent>& under_way() {
  static auto* sent = new std::multimap<MPI_Request, Sent>;
  return *sent;
}
// Of requests that the caller has dropped: MPI may still read them.
std::vector<Sent>& dropped() {
  static auto* sent = new std::vector<Sent>;
  return *sent;
}

std::size_t bytes_of(int count, MPI_Datatype type) {
  int size = 0;
  MPI_Type_size(type, &size);
  return static_cast<std::size_t>(size) * static_cast<std::size_t>(count);
}

// As every MPI does that is not CUDA-aware, at the latest when the message moves.
void touch(const void* p) { static_cast<void>(*static_cast<const volatile char*>(p)); }

void finish(MPI_Request request) {
  const auto found = under_way().lower_bound(request);
  if (found == under_way().end() || found->first != request) return;
  const Sent& sent = found->second;
  if (std::memcmp(sent.from, sent.bytes.data(), sent.bytes.size()) != 0) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::fprintf(stderr,
                 "emulated CUDA-aware MPI, rank %d of the job: %zu bytes changed while they were sent\n",
                 rank, sent.bytes.size());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  under_way().erase(found);
}

}  // namespace

extern "C" {

// What makes the linker take these instead of the library's.
bool tessera_emulated_mpi() { return is_aware(); }

int MPIX_Query_cuda_support(void) { return is_aware() ? 1 : 0; }

int MPI_Isend(const void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request* request) {
  if (!emu::is_device_address(data)) return PMPI_Isend(data, count, type, peer, tag, comm, request);
  if (!is_aware()) touch(data);
  const char* from = emu::reach(static_cast<const char*>(data));
  Sent sent{from, std::vector<char>(from, from + bytes_of(count, type))};
  const int code = PMPI_Isend(sent.bytes.data(), count, type, peer, tag, comm, request);
  if (code == MPI_SUCCESS) under_way().emplace(*request, std::move(sent));
  return code;
}

int MPI_Irecv(void* data, int count, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
              MPI_Request* request) {
  if (!emu::is_device_address(data)) return PMPI_Irecv(data, count, type, peer, tag, comm, request);
  if (!is_aware()) touch(data);
  void* to = emu::reach(data);
  std::memset(to, 0xFF, bytes_of(count, type));
  return PMPI_Irecv(to, count, type, peer, tag, comm, request);
}

int MPI_Testsome(int count, MPI_Request* requests, int* done, int* indices, MPI_Status* statuses) {
  if (under_way().empty()) return PMPI_Testsome(count, requests, done, indices, statuses);
  const std::vector<MPI_Request> before(requests, requests + count);
  const int code = PMPI_Testsome(count, requests, done, indices, statuses);
  if (*done == MPI_UNDEFINED) return code;
  for (int i = 0; i < *done; ++i) finish(before[static_cast<std::size_t>(indices[i])]);
  return code;
}

int MPI_Request_free(MPI_Request* request) {
  const auto found = under_way().find(*request);
  if (found != under_way().end()) {
    dropped().push_back(std::move(found->second));
    under_way().erase(found);
  }
  return PMPI_Request_free(request);
}
}
