// One round of messages of a work: what is received and sent, and what is done when all of it is there.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace tessera {

class Placing;

struct Transfer {
  int peer = 0;  // rank in the group
  char* data = nullptr;
  std::int64_t bytes = 0;
  std::shared_ptr<Placing> placing = nullptr;  // of receives
  bool in_pieces = false;                      // of sends, see SendBuffer
  bool at_once = false;                        // likewise
};

struct Phase {
  // Part of the tag: equal on both sides of a message.
  int step = 0;
  std::vector<Transfer> recvs;
  std::vector<Transfer> sends;
  std::function<void()> finish;

  // Empty messages are left out on both sides.
  void recv(int peer, void* data, std::int64_t bytes, std::shared_ptr<Placing> placing = {}) {
    if (bytes > 0) recvs.push_back({peer, static_cast<char*>(data), bytes, std::move(placing)});
  }
  void send(int peer, const void* data, std::int64_t bytes) {
    if (bytes > 0) sends.push_back({peer, const_cast<char*>(static_cast<const char*>(data)), bytes, {}});
  }
};

}  // namespace tessera
