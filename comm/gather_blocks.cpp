#include "comm/gather_blocks.h"

#include <algorithm>
#include <cstring>

namespace tessera {

void BlockGather::add_phases(Work::State& state, char* buffer) const {
  if (!rotated()) {
    Phase& phase = state.add_phase(0);
    for (int i = 1; i < size_; ++i) {
      const int to = (rank_ + i) % size_;
      const int from = (rank_ - i + size_) % size_;
      phase.recv(from, buffer + place(from), block_);
      phase.send(to, buffer + place(rank_), block_);
    }
    return;
  }
  int step = 0;
  for (int have = 1; have < size_; have *= 2) {
    const int count = std::min(have, size_ - have);
    Phase& phase = state.add_phase(step++);
    phase.recv((rank_ + have) % size_, buffer + block_ * have, block_ * count);
    phase.send((rank_ - have + size_) % size_, buffer, block_ * count);
  }
}

std::string gather_blocks(const std::shared_ptr<Group>& group, const Call& call, const std::string& mine) {
  const auto block = static_cast<std::int64_t>(mine.size());
  const int size = group->size();
  std::string all;
  if (group->records_only()) {
    for (int r = 0; r < size; ++r) all += mine;
    return all;
  }
  const BlockGather gather(group->rank(), size, block);
  std::string buffer(static_cast<std::size_t>(gather.total_bytes()), '\0');
  std::memcpy(buffer.data() + gather.place(group->rank()), mine.data(), mine.size());
  Work::State state(group, call);
  gather.add_phases(state, buffer.data());
  state.start();
  state.wait();
  for (int r = 0; r < size; ++r) all.append(buffer, static_cast<std::size_t>(gather.place(r)), mine.size());
  return all;
}

}  // namespace tessera
