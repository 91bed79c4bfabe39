// Every rank's block of equal size to every rank: the one pattern behind small all-reduces, agreement on
// contexts and call checks. Few ranks send directly; many take log2(P) rounds (Bruck), where round k passes
// on all blocks gathered so far to the rank 2^k before.
#pragma once
#include <string>

#include "comm/work_state.h"

namespace tessera {

class BlockGather {
 public:
  static constexpr int kDirectRanks = 8;

  BlockGather(int rank, int size, std::int64_t block) : rank_(rank), size_(size), block_(block) {}
  std::int64_t total_bytes() const { return block_ * size_; }
  // Where rank r's block lies in the buffer once the phases are done; `place(rank)` is to be filled before.
  std::int64_t place(int r) const { return block_ * (rotated() ? (r - rank_ + size_) % size_ : r); }
  void add_phases(Work::State& state, char* buffer) const;

 private:
  bool rotated() const { return size_ > kDirectRanks; }
  int rank_;
  int size_;
  std::int64_t block_;
};

// Blocking: the blocks of all ranks in rank order. On a transport that only records: this rank's block, size
// times.
std::string gather_blocks(const std::shared_ptr<Group>& group, const Call& call, const std::string& mine);

}  // namespace tessera
