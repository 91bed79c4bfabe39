// Exchange plans: which pieces of whose buffer go where.
//
// A plan is a pure function of the layouts before and after, worked out by every rank alone. Running it is
// one `Communicator::exchange`: at most one message per peer and direction. A plan is a linear map y = F x;
// its adjoint x += Fᵀ y is the same plan run backwards, adding at the owner (in rank order, so that the bits
// never vary).
//
// Where several ranks hold an element (replicated axes), a rank takes it from the one with its own
// coordinates.
#pragma once
#include <functional>
#include <memory>

#include "mesh/layout.h"

namespace tessera {

struct ExchangePiece {
  Dims from;  // first element in the source buffer
  Dims to;    // first element in the destination buffer
  Dims extent;
};
struct PeerPieces {
  int peer = 0;
  std::int64_t elements = 0;
  std::vector<ExchangePiece> pieces;
  bool one_run_there = false;  // all of it is one run of a row-major destination buffer
};

struct ExchangePlan {
  int rank = 0;
  std::vector<PeerPieces> sends;  // by peer, this rank left out
  std::vector<PeerPieces> recvs;
  PeerPieces own;   // copied locally
  Dims from_sizes;  // local buffers on this rank
  Dims to_sizes;
  bool covers = false;  // every destination element is written
  // No rank sends anything: the same on every rank. A rank without peers must take part in an exchange of the
  // others all the same (calls of a group are counted), so only this may decide to leave it out.
  bool silent = true;

  bool local_only() const { return silent; }
  std::int64_t sent_elements() const;
  std::int64_t received_elements() const;
};

struct ExchangeProblem {
  int ranks = 1;
  int rank = 0;
  std::function<LocalLayout(int)> from;
  std::function<LocalLayout(int)> to;
  // Whether rank `to` takes elements from rank `from` (both hold them). Exactly one source per element unless
  // contributions are to be added up (Partial to Shard).
  std::function<bool(int from, int to)> matches;
};
ExchangePlan plan_exchange(const ExchangeProblem& problem);

// An exchange under way. Both buffers are kept alive. `order` permutes the dims for packing (all ranks the
// same); buffers that are row-major in that order travel without a copy.
class ExchangeInFlight {
 public:
  void finish();

 private:
  friend ExchangeInFlight start_exchange(const ExchangePlan&, const Communicator&, const Array&, const Array&,
                                         const Dims&);
  friend ExchangeInFlight start_adjoint(const ExchangePlan&, const Communicator&, const Array&, const Array&,
                                        const Dims&);
  friend void run_exchange(const ExchangePlan&, const Communicator&, const Array&, const Array&, const Dims&);
  friend void run_adjoint(const ExchangePlan&, const Communicator&, const Array&, const Array&, const Dims&);
  friend ExchangeInFlight start_arrivals(const ExchangePlan&, const Communicator&, const Array&, const Array&,
                                         const Dims&);
  friend ExchangeInFlight start_returns(const ExchangePlan&, const Communicator&, const Array&, const Array&,
                                        const Dims&);
  struct Messages;
  struct Pending;  // a message that does not arrive in place
  struct Buffers;
  void start(const ExchangePlan& plan, const Communicator& comm, const Buffers& buffers, const Dims& order);
  void start_back(const ExchangePlan& plan, const Communicator& comm, const Buffers& buffers,
                  const Dims& order);
  // Makes ready for a message from `peer` whose pieces belong into `targets`.
  void await(int peer, std::vector<Array> targets, std::int64_t elements, Messages& messages);
  void launch(const ExchangePlan& plan, const Communicator& comm, Messages& messages);
  Work work_;
  std::vector<std::shared_ptr<Pending>> pending_;
  std::vector<std::pair<Array, Array>> own_;  // destination, source: added in rank order with the rest
  int rank_ = 0;
  bool add_ = false;
};

// to = F from on the covered elements; others keep their values. Local copies are made at once.
ExchangeInFlight start_exchange(const ExchangePlan& plan, const Communicator& comm, const Array& to,
                                const Array& from, const Dims& order = {});
// from += Fᵀ to.
ExchangeInFlight start_adjoint(const ExchangePlan& plan, const Communicator& comm, const Array& from,
                               const Array& to, const Dims& order = {});
// Both from start to finish. The ranks that wait read long messages from each other's memory.
void run_exchange(const ExchangePlan& plan, const Communicator& comm, const Array& to, const Array& from,
                  const Dims& order = {});
void run_adjoint(const ExchangePlan& plan, const Communicator& comm, const Array& from, const Array& to,
                 const Dims& order = {});

// The same messages for whoever has no buffer to put them in: `arrivals` [received_elements()] takes them one
// after another, by peer and piece as the plan lists them, each piece dense in `order`. Own pieces stay where
// they are.
ExchangeInFlight start_arrivals(const ExchangePlan& plan, const Communicator& comm, const Array& arrivals,
                                const Array& from, const Dims& order);
// from += Fᵀ of such arrivals, own pieces left out. Nothing is added before `finish`, so that `from` may be
// written until then.
ExchangeInFlight start_returns(const ExchangePlan& plan, const Communicator& comm, const Array& from,
                               const Array& arrivals, const Dims& order);
// to = the sources' contributions combined, in rank order (plans with several sources per element; every
// element of `to` has at least one). bf16 and f16 are summed in float32.
void run_summing(const ExchangePlan& plan, const Communicator& comm, const Array& to, const Array& from,
                 ReduceOp op);

// Every element becomes what changes nothing under `op` (0, 1, the lowest or the highest value).
void fill_identity(const Array& target, ReduceOp op);

}  // namespace tessera
