#include "comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "comm/check.h"
#include "comm/device_link.h"
#include "comm/exchange_check.h"
#include "comm/gather_blocks.h"
#include "comm/work_state.h"
#include "runtime/device.h"
#include "runtime/trace.h"

namespace tessera {

namespace {

// What every rank of the parent tells the others when groups are made.
struct GroupRequest {
  std::int64_t first = 0;  // split: color; subgroup: hash of the lists
  std::int64_t second = 0;
  ContextSet used;
};

std::vector<GroupRequest> gather_requests(const std::shared_ptr<Group>& parent, const Call& call,
                                          const GroupRequest& mine) {
  const std::string all =
      gather_blocks(parent, call, std::string(reinterpret_cast<const char*>(&mine), sizeof mine));
  std::vector<GroupRequest> requests(static_cast<std::size_t>(parent->size()));
  std::memcpy(static_cast<void*>(requests.data()), all.data(), all.size());
  parent->record(call, parent->size() > 1 ? 1 : 0, parent->size() > 1 ? std::int64_t{sizeof mine} : 0);
  return requests;
}

// Groups made by one call have no rank in common, so they share a number. It must be free on all ranks.
int agree_on_context(const std::vector<GroupRequest>& requests, const Call& call) {
  ContextSet used;
  for (const GroupRequest& request : requests) used |= request.used;
  for (int context = 0; context < kMaxContexts; ++context) {
    if (!used[static_cast<std::size_t>(context)]) return context;
  }
  fail(ErrorKind::Comm, call.op,
       fmt::format("{} groups are alive over one transport, more are not possible", kMaxContexts), call.site);
}

std::vector<int> world_ranks(const Group& parent, const std::vector<int>& members) {
  std::vector<int> ranks;
  ranks.reserve(members.size());
  for (const int r : members) ranks.push_back(parent.world_rank(r));
  return ranks;
}

void check_disjoint(const std::vector<std::vector<int>>& groups, int size, const Call& call) {
  std::vector<bool> taken(static_cast<std::size_t>(size));
  for (const auto& members : groups) {
    for (const int r : members) {
      COMM_CHECK(r >= 0 && r < size, call, "rank {} does not exist in a group of {}", r, size);
      COMM_CHECK(!taken[static_cast<std::size_t>(r)], call, "rank {} is listed twice", r);
      taken[static_cast<std::size_t>(r)] = true;
    }
  }
}

std::int64_t hash_of(const std::vector<std::vector<int>>& groups) {
  std::size_t hash = groups.size();
  for (const auto& members : groups) {
    hash_combine(hash, members.size());
    for (const int r : members) hash_combine(hash, static_cast<std::size_t>(r));
  }
  return static_cast<std::int64_t>(hash);
}

struct Payload {
  std::int64_t messages = 0;
  std::int64_t bytes = 0;
  bool moved = true;  // false: memory of the meta device
};

Payload payload_of(std::span<const SendBuffer> sends, std::span<const RecvBuffer> recvs, int rank) {
  Payload p;
  for (const SendBuffer& s : sends) {
    if (s.bytes == 0) continue;
    p.moved = p.moved && s.data != nullptr;
    if (s.peer == rank) continue;
    ++p.messages;
    p.bytes += s.bytes;
  }
  for (const RecvBuffer& r : recvs) p.moved = p.moved && (r.bytes == 0 || r.data != nullptr);
  return p;
}

bool has_peer(std::span<const RecvBuffer> recvs, int rank) {
  return std::any_of(recvs.begin(), recvs.end(),
                     [&](const RecvBuffer& r) { return r.bytes > 0 && r.peer != rank; });
}

void copy_own(std::span<const SendBuffer> sends, std::span<const RecvBuffer> recvs, int rank, Device device) {
  const auto own = [&](const auto& buffer) { return buffer.peer == rank && buffer.bytes > 0; };
  const auto send = std::find_if(sends.begin(), sends.end(), own);
  const auto recv = std::find_if(recvs.begin(), recvs.end(), own);
  if (send == sends.end() || recv == recvs.end()) return;
  copy_bytes(device, recv->data, send->data, send->bytes);
}

std::vector<std::string> gather_strings(const std::shared_ptr<Group>& group, const Call& call,
                                        const std::string& mine) {
  const int size = group->size();
  if (group->records_only()) return std::vector<std::string>(static_cast<std::size_t>(size), mine);
  const std::uint64_t length = mine.size();
  const std::string lengths =
      gather_blocks(group, call, std::string(reinterpret_cast<const char*>(&length), sizeof length));
  std::vector<std::string> all(static_cast<std::size_t>(size));
  Work::State state(group, call);
  Phase& phase = state.add_phase(0);
  for (int r = 0; r < size; ++r) {
    std::string& theirs = all[static_cast<std::size_t>(r)];
    std::uint64_t n = 0;
    std::memcpy(&n, lengths.data() + static_cast<std::size_t>(r) * sizeof n, sizeof n);
    theirs.resize(n);
    if (r == group->rank()) {
      theirs = mine;
      continue;
    }
    phase.recv(r, theirs.data(), static_cast<std::int64_t>(n));
    phase.send(r, mine.data(), static_cast<std::int64_t>(mine.size()));
  }
  state.start();
  state.wait();
  return all;
}

std::vector<std::string> recorded_gather(const std::shared_ptr<Group>& group, const Call& call,
                                         const std::string& mine) {
  const CommTimer timer(*group);
  check_same_call(group, call, {});
  const bool alone = group->size() == 1;
  group->record(call, alone ? 0 : 1, alone ? 0 : static_cast<std::int64_t>(mine.size()));
  return gather_strings(group, call, mine);
}

}  // namespace

int Communicator::rank() const { return required(group_).rank(); }
int Communicator::size() const { return required(group_).size(); }

std::vector<int> Communicator::ranks_in(const Communicator& other) const {
  const Group& here = required(group_);
  const Group& there = required(other.group_);
  if (here.shared_endpoint() != there.shared_endpoint() || here.size() != there.size()) return {};
  std::unordered_map<int, int> places;
  for (int r = 0; r < there.size(); ++r) places.emplace(there.world_rank(r), r);
  std::vector<int> ranks;
  for (int r = 0; r < here.size(); ++r) {
    const auto place = places.find(here.world_rank(r));
    if (place == places.end()) return {};
    ranks.push_back(place->second);
  }
  return ranks;
}

Communicator Communicator::split(int color, int key, Site site) const {
  const Call call{"split", site};
  const CommTimer timer(required(group_));
  COMM_CHECK(!group_->records_only() || size() == 1, call,
             "a recording communicator does not know the other ranks' colors; use subgroup");
  check_same_call(group_, call, {});
  const auto requests = gather_requests(group_, call, {color, key, group_->endpoint().contexts});
  const int context = agree_on_context(requests, call);
  if (color < 0) return {};
  std::vector<int> members;
  for (int r = 0; r < size(); ++r) {
    if (requests[static_cast<std::size_t>(r)].first == color) members.push_back(r);
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
    return requests[static_cast<std::size_t>(a)].second < requests[static_cast<std::size_t>(b)].second;
  });
  return Communicator(
      std::make_shared<Group>(group_->shared_endpoint(), world_ranks(*group_, members), context));
}

Communicator Communicator::subgroup(const std::vector<std::vector<int>>& groups, Site site) const {
  const Call call{"subgroup", site};
  const CommTimer timer(required(group_));
  check_same_call(group_, call, {});
  check_disjoint(groups, size(), call);
  const auto requests = gather_requests(group_, call, {hash_of(groups), 0, group_->endpoint().contexts});
  for (const GroupRequest& request : requests) {
    COMM_CHECK(request.first == requests.front().first, call, "the ranks give different lists of groups");
  }
  const int context = agree_on_context(requests, call);
  for (const auto& members : groups) {
    if (std::find(members.begin(), members.end(), rank()) == members.end()) continue;
    return Communicator(
        std::make_shared<Group>(group_->shared_endpoint(), world_ranks(*group_, members), context));
  }
  return {};
}

Work Communicator::exchange(std::span<const SendBuffer> sends, std::span<const RecvBuffer> recvs,
                            Device device, Site site) const {
  const Call call{"exchange", site};
  const TraceScope trace("exchange", "comm");
  required(group_);  // no timer: posting takes less than reading the clock twice; the wait is timed
  check_same_call(group_, call, {});
  check_exchange(*group_, call, sends, recvs);
  prepare_device_link(*group_, device, call);  // also where this rank has no peer
  const Payload payload = payload_of(sends, recvs, rank());
  const bool any_peer = payload.messages > 0 || has_peer(recvs, rank());
  if (any_peer) group_->record(call, payload.messages, payload.bytes, device);
  if (group_->records_only() || !payload.moved || !any_peer) {
    group_->next_sequence();  // another rank may have peers
    if (!group_->records_only() && payload.moved) copy_own(sends, recvs, rank(), device);
    return {};
  }
  auto state = std::make_shared<Work::State>(group_, call);
  state->set_device(device);
  Phase& phase = state->add_phase(0);
  phase.recvs.reserve(recvs.size());
  phase.sends.reserve(sends.size());
  for (const RecvBuffer& r : recvs) {
    if (r.peer != rank()) phase.recv(r.peer, r.data, r.bytes, r.placing);
  }
  for (const SendBuffer& s : sends) {
    if (s.peer == rank() || s.bytes == 0) continue;
    phase.send(s.peer, s.data, s.bytes);
    phase.sends.back().in_pieces = s.in_pieces;
    phase.sends.back().at_once = s.at_once;
  }
  state->start();
  copy_own(sends, recvs, rank(), device);
  return Work(std::move(state));
}

void Communicator::barrier(Site site) const {
  const Call call{"barrier", site};
  const CommTimer timer(required(group_));
  check_same_call(group_, call, {});
  group_->record(call, size() > 1 ? 1 : 0, 0);
  gather_blocks(group_, call, std::string(1, '\0'));
}

std::vector<std::string> Communicator::all_gather_bytes(const std::string& mine, Site site) const {
  required(group_);
  return recorded_gather(group_, {"all_gather_bytes", site}, mine);
}

Recorder& Communicator::recorder() const { return required(group_).endpoint().recorder; }

void Communicator::set_deadline(double seconds) const {
  TS_CHECK(seconds > 0, "set_deadline", "{} s is not a positive time", seconds);
  required(group_).endpoint().deadline = seconds;
}
double Communicator::deadline() const { return required(group_).endpoint().deadline; }
void Communicator::set_check_calls(bool on) const { required(group_).endpoint().check_calls = on; }
bool Communicator::checks_calls() const { return required(group_).endpoint().check_calls; }
void Communicator::set_overlap(bool on) const { required(group_).endpoint().overlap = on; }
bool Communicator::overlaps() const { return required(group_).endpoint().overlap; }

void check_same(const Communicator& comm, const std::string& what) {
  if (comm.size() == 1 || !comm.checks_calls()) return;
  const Call call{"check_same", std::source_location::current()};
  const CommTimer timer(*comm.group());
  check_same_call(comm.group(), call, {});
  comm.group()->record_check(call, static_cast<std::int64_t>(what.size()));
  const std::vector<std::string> all = gather_strings(comm.group(), call, what);
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r] != all[0])
      TS_FAIL(Comm, "check_calls", "rank {} of this group of {} calls {}, rank 0 calls {}", r, all.size(),
              all[r], all[0]);
  }
}
void Communicator::set_message_limit(std::int64_t bytes) const {
  TS_CHECK(bytes >= 1 && bytes <= INT32_MAX, "set_message_limit", "{} bytes: from 1 to {} are allowed", bytes,
           INT32_MAX);
  required(group_).endpoint().message_limit = bytes;
}

void agree(const Communicator& comm, const char* op, const std::string& failure) {
  required(comm.group());
  const std::vector<std::string> all =
      recorded_gather(comm.group(), {"agree", std::source_location::current()}, failure);
  std::string who;
  const std::string* first = nullptr;
  std::size_t failed = 0;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty()) continue;
    if (first == nullptr) first = &all[r];
    who += fmt::format("{}{}", failed++ == 0 ? "" : ", ", r);
  }
  if (first == nullptr) return;
  if (all.size() == 1) fail(ErrorKind::Io, op, *first);
  fail(ErrorKind::Io, op,
       failed == all.size()
           ? fmt::format("{} (on all {} ranks)", *first, all.size())
           : fmt::format("{} (on {} {} of {})", *first, failed == 1 ? "rank" : "ranks", who, all.size()));
}

}  // namespace tessera
