#include "comm/host_channel.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "comm/placing.h"
#include "runtime/environment.h"

namespace tessera {

namespace {

int size_of(MPI_Comm comm) {
  int size = 1;
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  return size;
}

// The ranks of one communicator, as ranks of the other.
std::vector<int> ranks_in(MPI_Comm host, MPI_Comm comm) {
  std::vector<int> ranks(static_cast<std::size_t>(size_of(host)));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<int> others(ranks.size());
  MPI_Group of_host = MPI_GROUP_NULL;
  MPI_Group of_comm = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(host, &of_host), "MPI_Comm_group");
  check_mpi(MPI_Comm_group(comm, &of_comm), "MPI_Comm_group");
  check_mpi(MPI_Group_translate_ranks(of_host, static_cast<int>(ranks.size()), ranks.data(), of_comm,
                                      others.data()),
            "MPI_Group_translate_ranks");
  MPI_Group_free(&of_host);
  MPI_Group_free(&of_comm);
  return others;
}

// In a container, or where ranks are bound, these are fewer than the host has.
int cores_of(MPI_Comm host) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) std::memset(&cores, 0xff, sizeof cores);
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &cores, sizeof cores, MPI_BYTE, MPI_BOR, host), "MPI_Allreduce");
  return CPU_COUNT(&cores);
}

std::string lengths_differ(std::int64_t came, std::int64_t expected) {
  return fmt::format("{} bytes came, but {} were expected", came, expected);
}

std::unique_ptr<char[]> copy_of(const RingReader::Message& message) {
  if (message.data == nullptr) return nullptr;
  auto data = std::make_unique_for_overwrite<char[]>(static_cast<std::size_t>(message.bytes));
  std::memcpy(data.get(), message.data, static_cast<std::size_t>(message.bytes));
  return data;
}

}  // namespace

bool HostChannel::wanted_by_environment() { return environment_switch("TESSERA_SHARED_MEMORY", true); }

HostChannel::HostChannel(MpiRequests& requests, const Options& options)
    : requests_(requests),
      longest_(std::min(options.longest, longest_in_ring(options.capacity))),
      longest_in_pieces_(std::min(2 * options.longest, longest_in_ring(options.capacity))),
      shortest_read_(options.shortest_read),
      peers_at_(static_cast<std::size_t>(size_of(requests.comm()))) {
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(requests.comm(), MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
            "MPI_Comm_split_type");
  ranks_ = size_of(host);
  cores_ = cores_of(host);
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(host, options.part, 0, &part), "MPI_Comm_split");
  open(part, options);
  MPI_Comm_free(&part);
  MPI_Comm_free(&host);
}

void HostChannel::open(MPI_Comm host, const Options& options) {
  const int count = size_of(host);
  if (count == 1 || count > options.most_ranks) return;
  const std::int64_t pair = bytes_of_pair(options);
  const std::int64_t row = pair * count;
  pages_ = std::make_unique<SharedPages>(host, static_cast<std::size_t>(row * count), options.wanted);
  if (!is_open()) return;
  memory_ = PeerMemory(host, options.may_read);
  int self = 0;
  check_mpi(MPI_Comm_rank(host, &self), "MPI_Comm_rank");
  const std::vector<int> ranks = ranks_in(host, requests_.comm());
  for (int r = 0; r < count; ++r) {
    if (r == self) continue;
    auto peer = std::make_unique<Peer>();
    char* const to = pages_->data() + row * self + pair * r;
    char* const from = pages_->data() + row * r + pair * self;
    peer->rank = r;
    peer->to = RingWriter(to, options.capacity);
    peer->from = RingReader(from, options.capacity);
    peer->offered = Offers(to + ring_bytes(options.capacity));
    peer->to_read = Offers(from + ring_bytes(options.capacity));
    peers_at_[static_cast<std::size_t>(ranks[static_cast<std::size_t>(r)])] = peer.get();
    peers_.push_back(std::move(peer));
  }
}

bool HostChannel::is_offered(const Message& m) const {
  return memory_.is_readable() && m.bytes > (m.at_once     ? shortest_read_ - 1
                                             : m.in_pieces ? longest_in_pieces_
                                                           : longest_);
}

bool HostChannel::offer(Peer& peer, const Posted& posted, int slot) {
  const Message& m = posted.message;
  if (!peer.to.offer(m.tag, m.bytes, {reinterpret_cast<std::uint64_t>(m.data), slot})) return false;
  peer.offered.make(slot, posted.ticket);
  return true;
}

bool HostChannel::put(Peer& peer, const Posted& posted) {
  const Message& m = posted.message;
  if (const int slot = is_offered(m) ? peer.offered.free_slot() : -1; slot >= 0)
    return offer(peer, posted, slot);
  const bool whole = m.bytes <= (m.in_pieces ? longest_in_pieces_ : longest_);
  const void* const data = m.bytes == 0 ? "" : m.data;
  if (!peer.to.put(m.tag, whole ? data : nullptr, m.bytes)) return false;
  if (whole) {
    posted.ticket->complete();
  } else {
    requests_.send(m, posted.ticket);
  }
  return true;
}

void HostChannel::send(const Message& m, Ticket* ticket) {
  Peer& peer = *peers_at_[static_cast<std::size_t>(m.peer)];
  const Posted posted{m, ticket};
  if (!peer.unsent.empty() || !put(peer, posted)) peer.unsent.push_back(posted);
}

void HostChannel::send_waiting(Peer& peer) {
  std::size_t sent = 0;
  while (sent < peer.unsent.size() && put(peer, peer.unsent[sent])) ++sent;
  peer.unsent.erase(peer.unsent.begin(), peer.unsent.begin() + static_cast<std::ptrdiff_t>(sent));
}

void HostChannel::recv(const Message& m, Ticket* ticket) {
  Peer& peer = *peers_at_[static_cast<std::size_t>(m.peer)];
  const auto early = std::find_if(peer.early.begin(), peer.early.end(),
                                  [&](const Early& e) { return e.message.tag == m.tag; });
  if (early == peer.early.end()) {
    peer.expected.push_back({m, ticket});
    return;
  }
  const Early taken = std::move(*early);
  peer.early.erase(early);  // first: placing a message may poll
  deliver(peer, {m, ticket}, taken.message);
}

// Pieces are placed afterwards, from the receiver's own memory.
void HostChannel::read(Peer& peer, const Posted& posted, const RingReader::Message& message) {
  const Message& m = posted.message;
  bool is_read = true;
  if (message.bytes != m.bytes) {
    posted.ticket->error = lengths_differ(message.bytes, m.bytes);
  } else if (!memory_.read(peer.rank, m.data, message.offer.address, m.bytes)) {
    is_read = false;
    posted.ticket->error = "the sender's memory could not be read";
  }
  if (!peer.to_read.answer(message.offer.slot, is_read)) {
    posted.ticket->error = "its sender gave up waiting for it to be read";
    posted.ticket->peer_gave_up = true;
  }
  posted.ticket->complete();
}

void HostChannel::deliver(Peer& peer, const Posted& posted, const RingReader::Message& message) {
  const Message& m = posted.message;
  if (message.offered) {
    read(peer, posted, message);
    return;
  }
  if (message.data == nullptr) {
    requests_.recv(m, posted.ticket);  // which sees whether the lengths agree
    return;
  }
  if (message.bytes == m.bytes && m.placing != nullptr) {
    m.placing->place(message.data);
  } else if (message.bytes == m.bytes) {
    std::memcpy(m.data, message.data, static_cast<std::size_t>(m.bytes));
  } else {
    posted.ticket->error = lengths_differ(message.bytes, m.bytes);
  }
  posted.ticket->complete();
}

void HostChannel::set_aside(Peer& peer, const RingReader::Message& message) {
  Early early{copy_of(message), message};
  early.message.data = early.data.get();
  peer.early.push_back(std::move(early));
}

void HostChannel::take(Peer& peer) {
  RingReader::Message message;
  while (!peer.expected.empty() && peer.from.peek(message)) {
    const auto found = std::find_if(peer.expected.begin(), peer.expected.end(),
                                    [&](const Posted& p) { return p.message.tag == message.tag; });
    if (found != peer.expected.end()) {
      deliver(peer, *found, message);
      peer.expected.erase(found);
    } else {
      set_aside(peer, message);
    }
    peer.from.drop();
  }
}

void HostChannel::poll() {
  for (const auto& peer : peers_) {
    if (peer->offered.any()) peer->offered.poll();
    if (!peer->unsent.empty()) send_waiting(*peer);
    if (!peer->expected.empty()) take(*peer);
  }
}

bool HostChannel::cancel(Ticket* ticket) {
  std::size_t dropped = 0;
  for (const auto& peer : peers_) {
    if (peer->offered.cancel(ticket)) return true;
    for (std::vector<Posted>* list : {&peer->unsent, &peer->expected})
      dropped += std::erase_if(*list, [&](const Posted& p) { return p.ticket == ticket; });
  }
  return dropped > 0;
}

}  // namespace tessera
