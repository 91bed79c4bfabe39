#include "emulated/nccl.h"

#include <mpi.h>
#include <nccl.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "emulated/memory.h"
#include "emulated/mutation.h"
#include "emulated/nccl_comm.h"
#include "emulated/streams.h"

namespace emu = tessera::emulated;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNoteTag = 1;
constexpr int kFirstDataTag = 2;
constexpr std::uint64_t kDataTags = 1 << 20;
constexpr std::size_t kPiece = std::size_t{1} << 30;

emu::NcclFault fault = emu::NcclFault::None;

struct Note {
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;
  emu::NcclPlace before;  // in whatever communicator
};

struct Call {
  std::shared_ptr<ncclComm> comm;
  emu::Stream* stream = nullptr;
  bool send = false;
  int peer = 0;
  char* data = nullptr;
  std::size_t bytes = 0;
};

// The calls of a group to one communicator and stream: a task that is asked until all its messages are over.
class Batch {
 public:
  explicit Batch(std::vector<Call> calls) : comm_(calls.front().comm), calls_(std::move(calls)) {
    waiting_.resize(calls_.size());
    for (std::size_t i = 0; i < calls_.size(); ++i) {  // numbers are given in the order of the calls
      const auto peer = static_cast<std::size_t>(calls_[i].peer);
      Waiting& w = waiting_[i];
      w.note.number = calls_[i].send ? comm_->sent[peer]++ : comm_->received[peer]++;
      w.note.bytes = calls_[i].bytes;
      w.note.before = emu::nccl_place_before(comm_->table[peer], calls_[i].send, {comm_->id, w.note.number});
    }
  }

  bool operator()() {
    int main_thread = 0;
    MPI_Is_thread_main(&main_thread);
    if (main_thread == 0) return false;
    if (comm_->aborted) return true;
    if (fault == emu::NcclFault::Fails || fault == emu::NcclFault::Stalls) {
      if (fault == emu::NcclFault::Fails) comm_->state = ncclRemoteError;
      return false;
    }
    if (fault == emu::NcclFault::Slow && !slept()) return false;
    if (!begun_) begin();
    for (std::size_t i = 0; i < calls_.size(); ++i) take_note(i);
    const bool all = std::all_of(waiting_.begin(), waiting_.end(), [](const Waiting& w) { return w.moving; });
    if (all && emu::complete(requests_)) return true;
    if (emu::seconds_since(start_) > emu::nccl_patience()) end_waiting();
    sched_yield();
    return false;
  }

 private:
  struct Waiting {
    Note note;    // of this side
    Note theirs;  // of a sender
    MPI_Request came = MPI_REQUEST_NULL;
    bool moving = false;  // its data has been given to MPI
  };

  static int data_tag(const Note& note) { return kFirstDataTag + static_cast<int>(note.number % kDataTags); }

  bool slept() {
    constexpr double kSeconds = 0.1;
    if (asked_ == Clock::time_point{}) asked_ = Clock::now();
    return emu::seconds_since(asked_) >= kSeconds;
  }

  void begin() {
    begun_ = true;
    start_ = Clock::now();
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      Waiting& w = waiting_[i];
      if (calls_[i].send) {
        MPI_Isend(&w.note, sizeof w.note, MPI_BYTE, calls_[i].peer, kNoteTag, comm_->mpi,
                  &requests_.emplace_back());
        move(calls_[i], w);
      } else {
        MPI_Irecv(&w.theirs, sizeof w.theirs, MPI_BYTE, calls_[i].peer, kNoteTag, comm_->mpi, &w.came);
      }
    }
  }

  void take_note(std::size_t i) {
    Waiting& w = waiting_[i];
    if (w.moving) return;
    int done = 0;
    MPI_Test(&w.came, &done, MPI_STATUS_IGNORE);
    if (done == 0) return;
    if (w.theirs.number != w.note.number || w.theirs.bytes != w.note.bytes)
      emu::end_job(
          "rank %d of %d receives message %llu of %llu bytes from rank %d, which sends message %llu of %llu "
          "bytes: the ranks' calls differ",
          comm_->rank, comm_->ranks, static_cast<unsigned long long>(w.note.number),
          static_cast<unsigned long long>(w.note.bytes), calls_[i].peer,
          static_cast<unsigned long long>(w.theirs.number), static_cast<unsigned long long>(w.theirs.bytes));
    check_order(i);
    move(calls_[i], w);
  }

  // NCCL wants the calls of all communicators in one order: else each rank's kernel may wait for another.
  void check_order(std::size_t i) const {
    const emu::NcclPlace& own = waiting_[i].note.before;
    const emu::NcclPlace& theirs = waiting_[i].theirs.before;
    if (own == theirs || ncclComm::was_aborted(own.comm) || ncclComm::was_aborted(theirs.comm)) return;
    emu::end_job(
        "rank %d of %d receives message %llu from rank %d, which sent another one of another communicator "
        "before it than this rank received: calls of several communicators differ in their order",
        comm_->rank, comm_->ranks, static_cast<unsigned long long>(waiting_[i].note.number), calls_[i].peer);
  }

  void move(const Call& call, Waiting& w) {
    w.moving = true;
    char* data = emu::reach(call.data);
    for (std::size_t at = 0; at < call.bytes; at += kPiece) {
      const int n = static_cast<int>(std::min(kPiece, call.bytes - at));
      MPI_Request& request = requests_.emplace_back();
      if (call.send) {
        MPI_Isend(data + at, n, MPI_BYTE, call.peer, data_tag(w.note), comm_->mpi, &request);
      } else {
        MPI_Irecv(data + at, n, MPI_BYTE, call.peer, data_tag(w.note), comm_->mpi, &request);
      }
    }
  }

  [[noreturn]] void end_waiting() {
    std::string text;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if (calls_[i].send || waiting_[i].moving) continue;
      text += "; nothing comes from rank " + std::to_string(calls_[i].peer);
    }
    int found = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, kNoteTag, comm_->mpi, &found, &status);
    if (found != 0) text += "; nobody takes what rank " + std::to_string(status.MPI_SOURCE) + " sends";
    if (text.empty()) text = "; what it sends is not taken";
    emu::end_job("rank %d of %d has waited %g s for the messages of one group%s", comm_->rank, comm_->ranks,
                 emu::nccl_patience(), text.c_str());
  }

  std::shared_ptr<ncclComm> comm_;
  std::vector<Call> calls_;
  std::vector<Waiting> waiting_;
  std::vector<MPI_Request> requests_;
  bool begun_ = false;
  Clock::time_point start_;
  Clock::time_point asked_{};
};

thread_local int depth = 0;
thread_local std::vector<Call> grouped;

void count(const std::vector<Call>& calls) {
  emu::NcclCounters& counters = emu::nccl_counters();
  ++counters.groups;
  for (const Call& call : calls) {
    counters.sends += call.send ? 1 : 0;
    const auto bytes = static_cast<long long>(call.bytes);
    counters.sent_bytes += call.send ? bytes : 0;
    if (counters.keep_messages) counters.messages.push_back({call.comm->ranks, call.peer, bytes, call.send});
  }
}

ncclResult_t flush() {
  static const bool wait_at_once = emu::mutated("wait-at-once");
  ncclResult_t answer = ncclSuccess;
  std::vector<Call> calls;
  calls.swap(grouped);
  while (!calls.empty()) {
    const ncclComm* comm = calls.front().comm.get();
    emu::Stream* stream = calls.front().stream;
    const auto same = [&](const Call& c) { return c.comm.get() == comm && c.stream == stream; };
    const auto rest = std::stable_partition(calls.begin(), calls.end(), same);
    const std::vector<Call> together(calls.begin(), rest);
    calls.erase(calls.begin(), rest);
    const ncclResult_t begun = together.front().comm->do_later([together, stream] {
      emu::enqueue_made(
          stream,
          [together] {  // a graph sends anew at every launch
            count(together);
            return [batch = std::make_shared<Batch>(together)] { return (*batch)(); };
          },
          emu::Kind::Messages);
      if (wait_at_once) emu::let_first_wait(stream);
    });
    if (begun != ncclSuccess) answer = begun;
  }
  return answer;
}

ncclResult_t add(Call call) {
  if (call.comm->state != ncclSuccess || call.comm->aborted || call.comm->finalized) return ncclInvalidUsage;
  if (call.stream == nullptr || call.peer < 0 || call.peer >= call.comm->ranks) return ncclInvalidArgument;
  if (!emu::is_device_address(call.data)) return ncclInvalidArgument;
  if (!emu::is_instant() && emu::device_of(call.stream) != call.comm->device) return ncclInvalidArgument;
  grouped.push_back(std::move(call));
  return depth > 0 ? ncclSuccess : flush();
}

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

struct Message {
  void* data;
  std::size_t count;
  ncclDataType_t type;
  int peer;
};
ncclResult_t add_message(const Message& m, bool send, ncclComm_t comm, cudaStream_t stream) {
  if (!ncclComm::is_in_use(comm) || size_of(m.type) == 0) return ncclInvalidArgument;
  return add({comm->self, reinterpret_cast<emu::Stream*>(stream), send, m.peer, static_cast<char*>(m.data),
              m.count * size_of(m.type)});
}

}  // namespace

namespace tessera::emulated {

void set_nccl_fault(NcclFault f) { fault = f; }
bool never_begins() { return fault == NcclFault::NeverBegins; }
bool never_posts() { return fault == NcclFault::NeverPosts; }

NcclCounters& nccl_counters() {
  static NcclCounters counters;
  return counters;
}

}  // namespace tessera::emulated

const char* ncclGetErrorString(ncclResult_t code) {
  switch (code) {
    case ncclSuccess:
      return "no error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "error of the emulated NCCL";
  }
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::int32_t made = 0;
  emu::NcclId mine{emu::kNcclMagic, 0, made++};
  MPI_Comm_rank(MPI_COMM_WORLD, &mine.root);
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, &mine, sizeof mine);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  auto made = std::make_shared<ncclComm>();
  std::memcpy(&made->id, id.internal, sizeof made->id);
  if (made->id.magic != emu::kNcclMagic || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  made->rank = rank;
  made->ranks = ranks;
  made->self = made;
  made->blocking = config == nullptr || config->blocking != 0;
  made->begin();
  *comm = made.get();
  if (!made->blocking) return ncclInProgress;
  while (made->state == ncclInProgress) made->go_on();
  return made->state;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  if (!ncclComm::is_in_use(comm)) return ncclInvalidArgument;
  comm->go_on();
  *state = comm->state;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  if (!ncclComm::is_in_use(comm)) return ncclInvalidArgument;
  if (comm->state != ncclSuccess) return ncclInvalidUsage;
  return comm->do_later([comm] { comm->finalized = true; });
}

// Whoever ends a communicator has made all its calls: a message that is there now is one too many.
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (!ncclComm::is_in_use(comm)) return ncclInvalidArgument;
  if (comm->state == ncclInProgress)
    emu::end_job("rank %d of %d destroys the communicator before what it was told last is over", comm->rank,
                 comm->ranks);
  constexpr int kProbes = 200;  // each lets MPI go on a little
  int found = 0;
  MPI_Status status;
  for (int i = 0; i < kProbes && found == 0; ++i)
    MPI_Iprobe(MPI_ANY_SOURCE, kNoteTag, comm->mpi, &found, &status);
  if (found != 0)
    emu::end_job("rank %d of %d ends the communicator, but rank %d has sent what it never received",
                 comm->rank, comm->ranks, status.MPI_SOURCE);
  comm->drop();
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (!ncclComm::is_in_use(comm)) return ncclInvalidArgument;
  comm->note_abort();
  // Messages of its beginning may still come: it stays for ever then.
  if (comm->is_begun()) comm->drop();
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (depth == 0) return ncclInvalidUsage;
  return --depth > 0 ? ncclSuccess : flush();
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add_message({const_cast<void*>(data), count, type, peer}, true, comm, stream);
}

ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add_message({data, count, type, peer}, false, comm, stream);
}
