// Communicator: a group of ranks as a value.
//
// Every collective is built on one primitive, the *exchange*: a list of sends and a list of receives, at most
// one message per peer and direction, receives posted first. Sums are added in rank order, so the result has
// the same bits on every rank and in every run. A group is a list of ranks and a context number over a
// Transport (MPI, threads of one process, or a recorder that moves nothing), so sub-groups cost no
// communicator of the transport's own.
//
// All functions that move data are collective over the group: every rank calls them in the same order.
// Nothing blocks without a deadline: a wait that outlives `deadline()` fails with the call it waited for.
#pragma once
#include <memory>
#include <source_location>
#include <span>
#include <vector>

#include "comm/placing.h"
#include "comm/recorder.h"
#include "runtime/array.h"

namespace tessera {

enum class ReduceOp : std::uint8_t { Sum, Max, Min, Product };
std::string_view name_of(ReduceOp op);

struct SendBuffer {
  int peer = 0;  // rank in the group
  const void* data = nullptr;
  std::int64_t bytes = 0;
  // Hints. The receiver does not want the message as one run of memory:
  bool in_pieces = false;
  // The sender does nothing else before it waits for the message:
  bool at_once = false;
};
struct RecvBuffer {
  int peer = 0;
  void* data = nullptr;
  std::int64_t bytes = 0;
  // Where it is given, a transport that has the whole message in memory calls it, at most once, and leaves
  // `data` alone; one that has not fills `data` and does not call it.
  std::shared_ptr<Placing> placing = nullptr;
};

// A communication under way. The buffers it names must outlive it; `keep` ties arrays to its life.
// Dropping an unfinished Work waits for it, in a CUDA graph's capture that began later when that has ended.
class Work {
 public:
  class State;
  Work() = default;  // already done
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  Work(const Work&) = default;
  Work(Work&&) noexcept = default;
  Work& operator=(Work other) noexcept {
    state_.swap(other.state_);
    return *this;
  }
  ~Work();
  bool done();  // polls
  void wait();  // polls until done or the deadline, then refuses with op, group and peers missing
  void keep(Array array);

 private:
  std::shared_ptr<State> state_;
};

class Group;  // opaque

class Communicator {
 public:
  using Site = std::source_location;

  Communicator() = default;  // undefined
  explicit Communicator(std::shared_ptr<Group> group) : group_(std::move(group)) {}

  bool defined() const { return group_ != nullptr; }
  int rank() const;
  int size() const;
  bool operator==(const Communicator& o) const { return group_ == o.group_; }
  // The ranks in `other` of this group's ranks, in order. Empty unless both are made of the same ranks of one
  // communicator. No messages.
  std::vector<int> ranks_in(const Communicator& other) const;

  // Collective over this group. Ranks of one color form a group, ordered by (key, rank); a negative color
  // takes no part and gets an undefined communicator.
  Communicator split(int color, int key, Site site = Site::current()) const;
  // Collective over this group: all groups of `groups` (disjoint lists of ranks) are made at once; the answer
  // is the one that holds this rank, or undefined.
  Communicator subgroup(const std::vector<std::vector<int>>& groups, Site site = Site::current()) const;

  // ---- the primitive ----
  // A peer may be this rank itself (a plain copy). Empty messages are left out on both sides. All buffers are
  // memory of `device`; what is not the CPU's is read when all that was launched before has run, and waiting
  // for the work makes what is launched later see what came.
  Work exchange(std::span<const SendBuffer> sends, std::span<const RecvBuffer> recvs,
                Device device = Device::Cpu, Site site = Site::current()) const;

  // ---- collectives on contiguous or strided arrays (strided ones are packed and unpacked) ----
  Work all_reduce(const Array& in_place, ReduceOp op, Site site = Site::current()) const;
  // `out` has the ranks' inputs one after another along dim 0; sizes along dim 0 may differ per rank
  // (`counts`, in rows, one per rank, the same list on every rank).
  Work all_gather(const Array& out, const Array& in, Site site = Site::current()) const;
  Work all_gather_v(const Array& out, const Array& in, std::span<const std::int64_t> counts,
                    Site site = Site::current()) const;
  // Reduces `in` over the ranks, rank r keeps its slab of dim 0.
  Work reduce_scatter(const Array& out, const Array& in, ReduceOp op, Site site = Site::current()) const;
  Work reduce_scatter_v(const Array& out, const Array& in, std::span<const std::int64_t> counts, ReduceOp op,
                        Site site = Site::current()) const;
  Work broadcast(const Array& in_place, int root, Site site = Site::current()) const;
  Work all_to_all(const Array& out, const Array& in, Site site = Site::current()) const;
  Work all_to_all_v(const Array& out, std::span<const std::int64_t> recv_counts, const Array& in,
                    std::span<const std::int64_t> send_counts, Site site = Site::current()) const;
  // `out` matters on the root only.
  Work gather(const Array& out, const Array& in, int root, Site site = Site::current()) const;
  Work scatter(const Array& out, const Array& in, int root, Site site = Site::current()) const;
  void barrier(Site site = Site::current()) const;

  // Small host values: every rank's bytes, in rank order (lengths may differ). For agreement, not for data.
  std::vector<std::string> all_gather_bytes(const std::string& mine, Site site = Site::current()) const;

  // Counts and bytes of everything that this rank sent through this group and its sub-groups.
  Recorder& recorder() const;

  // Options are shared by all groups over one transport.
  // Seconds a wait may last (default 300, environment TESSERA_DEADLINE).
  void set_deadline(double seconds) const;
  double deadline() const;
  // Before each collective, checks that all ranks make the same call (op, shape, dtype, call site) and
  // refuses on all ranks, naming the one that differs (environment TESSERA_CHECK_CALLS=1).
  void set_check_calls(bool on) const;
  bool checks_calls() const;
  // Off: whatever starts a communication waits for it at once, so that nothing is computed meanwhile. Same
  // results; for measuring what overlap gains (environment TESSERA_OVERLAP=0). Every rank alike.
  void set_overlap(bool on) const;
  bool overlaps() const;
  // Largest message in bytes before it is split (default 2^30); lower it in tests.
  void set_message_limit(std::int64_t bytes) const;

  const std::shared_ptr<Group>& group() const { return group_; }

 private:
  std::shared_ptr<Group> group_;
};

// Agreement on what only one rank can know. Every rank passes its own failure text ("" = fine); if any
// rank failed, all ranks throw the same Io/Usage error: the text of the lowest failing rank, and which ranks
// failed.
void agree(const Communicator& comm, const char* op, const std::string& failure);

// In the mode that checks calls: every rank says what it is about to do, and all refuse if any differs (an op
// of a layer above, that may not communicate itself). Does nothing otherwise.
void check_same(const Communicator& comm, const std::string& what);

}  // namespace tessera
