#include "comm/exchange_check.h"

namespace tessera {

namespace {

// One message per peer and direction: a second one would have to be told apart from the first.
class PeerSet {
 public:
  explicit PeerSet(int size) : many_(size > 64 ? static_cast<std::size_t>(size) : 0) {}
  bool insert(int peer) {
    if (!many_.empty()) {
      const bool fresh = !many_[static_cast<std::size_t>(peer)];
      many_[static_cast<std::size_t>(peer)] = true;
      return fresh;
    }
    const std::uint64_t bit = std::uint64_t{1} << static_cast<unsigned>(peer);
    const bool fresh = (few_ & bit) == 0;
    few_ |= bit;
    return fresh;
  }

 private:
  std::uint64_t few_ = 0;
  std::vector<bool> many_;
};

template <class Buffer>
std::int64_t check_side(const Group& group, const Call& call, std::span<const Buffer> buffers,
                        const char* side) {
  PeerSet peers(group.size());
  std::int64_t own = 0;
  for (const Buffer& b : buffers) {
    COMM_CHECK(b.peer >= 0 && b.peer < group.size(), call, "{} names rank {} in a group of {}", side, b.peer,
               group.size());
    COMM_CHECK(b.bytes >= 0, call, "{} for rank {} has {} bytes", side, b.peer, b.bytes);
    if (b.bytes == 0) continue;
    COMM_CHECK(peers.insert(b.peer), call,
               "{} names rank {} twice; one message per peer and direction is allowed", side, b.peer);
    if (b.peer == group.rank()) own = b.bytes;
  }
  return own;
}

}  // namespace

void check_exchange(const Group& group, const Call& call, std::span<const SendBuffer> sends,
                    std::span<const RecvBuffer> recvs) {
  const std::int64_t sent = check_side(group, call, sends, "a send");
  const std::int64_t received = check_side(group, call, recvs, "a receive");
  COMM_CHECK(sent == received, call, "this rank sends itself {} bytes but receives {}", sent, received);
}

}  // namespace tessera
