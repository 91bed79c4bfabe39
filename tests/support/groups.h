// What tests do with communicators for a while.
#pragma once
#include <numeric>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "comm/group.h"

namespace tessera {

// All ranks of `comm` once more, as a group of their own. Collective.
inline Communicator group_of_all(const Communicator& comm) {
  std::vector<int> ranks(static_cast<std::size_t>(comm.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return comm.subgroup({ranks});
}

// Another deadline, while it lives, for the endpoint of `comm`.
class Deadline {
 public:
  Deadline(const Communicator& comm, double seconds)
      : endpoint_(comm.group()->shared_endpoint()), before_(std::exchange(endpoint_->deadline, seconds)) {}
  ~Deadline() { endpoint_->deadline = before_; }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  std::shared_ptr<Endpoint> endpoint_;
  double before_;
};

}  // namespace tessera
