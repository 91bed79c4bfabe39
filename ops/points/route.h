// Exchanges that only values decide.
//
// Everywhere else in the library a plan follows from specs, so every rank knows all of it without asking.
// Which rows of a point cloud another rank needs is known to nobody before the coordinates are looked at.
// Such an exchange has three steps here, each taken by all ranks:
//
//   1. publish   every rank tells all others a few boxes: where its points are, or where its queries are and
//                how far they reach. One small message, whatever the number of points. From here on both
//                ranks of a pair know whether anything may pass between them.
//   2. counts    eight bytes between the ranks of such pairs, nothing between others. (Twice: the finer boxes
//   with
//                which a rank asks, then the points that answer.)
//   3. rows      between the ranks of such pairs, in messages of the size that step 2 told.
//
// Steps 2 and 3 are a RowRoute: who gives which of its rows to whom. Answers to rows that were given come
// back the same way, with no further count. (Gradients need no route: they go by the neighbours' numbers, as
// every indexing operation does: ops/indexing/rows.h.)
#pragma once
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace tessera::points {

// Boxes with a number each.
struct Cells {
  Array boxes;    // [n, 2, dims], of the coordinates' type; undefined: none
  Array weights;  // [n] f64: the points in a box, or how far the queries in it reach
  std::int64_t count() const { return boxes.defined() ? boxes.size(0) : 0; }
};

struct Summary {
  // First rows (global) with a coordinate that is not finite, or -1.
  std::int64_t bad_point = -1;
  std::int64_t bad_query = -1;
  Cells points;
  Cells queries;
};
// Collective: every rank's summary, in rank order.
std::vector<Summary> publish(const Communicator& comm, const Summary& mine);

// By rank of the communicator: may this rank give it anything, may it take anything from it? Both sides of a
// pair must answer alike, and this rank may name itself.
struct Partners {
  std::vector<bool> give;
  std::vector<bool> take;
};

class RowRoute {
 public:
  using Lists = std::vector<std::vector<std::int64_t>>;  // by rank: rows of this rank

  // Collective. This rank gives the rows gives[r] of its own to rank r (which may be itself).
  static RowRoute giving(const Communicator& comm, const Lists& gives, const Partners& partners);

  // Rows given and taken, one rank's after another's.
  const Array& given() const { return given_; }
  std::int64_t taken() const;
  std::int64_t taken(int rank) const { return takes_[static_cast<std::size_t>(rank)]; }
  // Collective: the taken rows of each array [rows, ...], contiguous; one message a pair and array.
  std::vector<Array> forward(std::span<const Array> arrays) const;
  // Collective: table[row] = what the taker of the row has at the place where it took it. Every row that is
  // given goes to one rank.
  void put_back(const Array& taken, const Array& table) const;
  // No message. Where each taken row is the head of a list, the route of the lists' entries back to the rows'
  // givers, given as many for each taken row and for each row of this rank as the counts (i64) say. Lists
  // come in the order of given().
  RowRoute lists_back(const Array& of_taken, const Array& of_rows) const;

 private:
  Communicator comm_;
  Array given_;                      // i64
  std::vector<std::int64_t> gives_;  // rows for each rank
  std::vector<std::int64_t> takes_;  // rows from each rank
};

}  // namespace tessera::points
