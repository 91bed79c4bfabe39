// Rows of a cut dim by number: who holds them, and the exchange that fetches or delivers them. Internal to
// ops/.
//
// Only rows that are asked for travel, each once to a rank, however often its numbers name it. The ranks that
// share the dim first tell each other how many rows they ask for, then which, then the rows move: three
// exchanges to fetch, two to deliver (numbers and rows go together). Who would send more with the numbers
// than without asks for all that a rank holds, which needs none: so rows and numbers together are never more
// than making the tensor whole would send. All ranks of the group take part whatever their numbers are; sizes
// of messages depend on values, the calls do not. What a rank found wrong with its numbers travels with the
// counts, so that all ranks of the group refuse together.
#pragma once
#include <optional>
#include <vector>

#include "mesh/spec.h"
#include "ops/cpu/indexing.h"

namespace tessera {

// Rows of dim 0 to and from every member, in its order; counts by member. Contiguous arrays, which the work
// keeps.
Work exchange_rows(const Communicator& comm, const Array& in, std::span<const std::int64_t> in_counts,
                   const Array& out, std::span<const std::int64_t> out_counts);

// The rows of dim `dim` as the ranks hold them that differ from this one on the axes in `mask` only. With an
// empty mask that is this rank alone.
class RowOwners {
 public:
  RowOwners(const ShardSpec& spec, int dim, unsigned mask);

  struct Place {
    int member = -1;  // -1: nobody in the group
    std::int64_t row = 0;
  };
  Place find(std::int64_t row) const;
  int members() const { return static_cast<int>(rows_.size()); }
  std::int64_t rows_of(int member) const { return rows_[static_cast<std::size_t>(member)]; }
  bool alone() const { return !comm_.defined(); }
  // What this rank holds, where it is alone.
  std::vector<cpu::HeldRows> own_rows() const;
  const Communicator& comm() const { return comm_; }

 private:
  struct Held {
    Interval rows;
    int member = 0;
    std::int64_t local = 0;  // where the first of them lies
  };
  std::vector<Held> held_;  // ascending
  std::vector<std::int64_t> rows_;
  Communicator comm_;
};

// What one rank wants of the others: for each of its numbers the place of a row. Rows are taken in the order
// of the members.
class RowExchange {
 public:
  using Places = std::vector<RowOwners::Place>;
  struct Held {
    std::vector<std::int64_t> rows;  // of every member
    std::int64_t row_bytes = 0;
  };
  RowExchange(const Communicator& comm, const Places& places, Held held);

  // Exchanges the counts. A rank that found a number wrong gives it; then all ranks of the group refuse, with
  // the text that `refusal` makes of the number (that of the lowest such rank).
  void agree_on_counts(const char* op, std::optional<std::int64_t> wrong,
                       const std::function<std::string(std::int64_t)>& refusal);

  // x [a, rows, b] as this rank holds it -> [a, wanted, b].
  Array fetch(const Array& x);
  // The terms [a, wanted, b] go to the rows that `x` holds and are added there, in rank order.
  void deliver(const Array& terms, const Array& x);

  std::int64_t wanted() const { return static_cast<std::int64_t>(rows_.size()); }
  // Per number the position of its row among the wanted ones, or -1. I64.
  const Array& slots() const { return slots_; }

 private:
  void add_member(std::size_t member, std::vector<std::int64_t>& wishes, const Places& places);
  bool asks_for_all(std::int64_t rows, std::size_t member) const;
  Work exchange_numbers();
  Array their_numbers() const;
  std::int64_t their_total() const;
  Communicator comm_;
  Held held_;
  DType travelling_ = DType::I64;
  std::vector<std::int64_t> rows_;    // by member
  std::vector<std::int64_t> counts_;  // per member
  Array slots_;
  std::vector<std::int64_t> their_counts_;
  Array their_rows_;  // of this rank, that the members want who do not want all
};

}  // namespace tessera
