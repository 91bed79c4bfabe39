#include "tests/comm_storm.h"

#include <fcntl.h>
#include <mpi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "comm/group.h"
#include "tests/support/world.h"

namespace tessera::comm_cases {
namespace {

std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

// One exchange of the storm: every ordered pair of the group has its length and its bytes.
class Exchange {
 public:
  Exchange(const Communicator& comm, std::int64_t limit, std::uint64_t number)
      : comm_(comm), limit_(limit), number_(number) {
    for (int r = 0; r < comm.size(); ++r) {
      out_.emplace_back(static_cast<std::size_t>(length(comm.rank(), r)));
      for (std::size_t i = 0; i < out_.back().size(); ++i) out_.back()[i] = byte(comm.rank(), r, i);
      in_.emplace_back(static_cast<std::size_t>(length(r, comm.rank())), static_cast<unsigned char>(0xee));
    }
  }

  void start() {
    std::vector<SendBuffer> sends;
    std::vector<RecvBuffer> recvs;
    for (int r = 0; r < comm_.size(); ++r) {
      const auto k = static_cast<std::size_t>(r);
      sends.push_back({r, out_[k].data(), static_cast<std::int64_t>(out_[k].size()),
                       seed(comm_.rank(), r) % 3 == 0, seed(comm_.rank(), r) % 5 < 2});
      elsewhere_.push_back((number_ + k) % 2 == 0 ? nullptr : std::make_shared<Elsewhere>(in_[k].size()));
      recvs.push_back({r, in_[k].data(), static_cast<std::int64_t>(in_[k].size()), elsewhere_.back()});
    }
    work_ = comm_.exchange(sends, recvs);
  }

  void finish() {
    work_.wait();
    for (int r = 0; r < comm_.size(); ++r) {
      const auto k = static_cast<std::size_t>(r);
      const unsigned char* data = in_[k].data();
      if (elsewhere_[k]) data = elsewhere_[k]->where(data);
      for (std::size_t i = 0; i < in_[k].size(); ++i)
        expect(data[i] == byte(r, comm_.rank(), i), "byte {} from rank {} of exchange {}", i, r, number_);
    }
  }

 private:
  std::uint64_t seed(int from, int to) const {
    return mixed(test_seed() + number_ * 1000 + static_cast<std::uint64_t>(from * 31 + to));
  }
  // None, short, around the limits of a line, of the channel, or far beyond.
  std::int64_t length(int from, int to) const {
    const std::uint64_t s = seed(from, to);
    const auto little = static_cast<std::int64_t>((s >> 8U) % 5) - 2;
    const auto any = static_cast<std::int64_t>((s >> 16U) % static_cast<std::uint64_t>(3 * limit_));
    const std::int64_t lengths[] = {0,   46 + little, 64 + little,         limit_ + little,
                                    any, any / 8,     2 * limit_ + little, 9 * any / 2};
    return std::max<std::int64_t>(lengths[s % 8], 0);
  }
  unsigned char byte(int from, int to, std::size_t i) const {
    return static_cast<unsigned char>((seed(from, to) >> 40U) + i * 7);
  }

  Communicator comm_;
  std::int64_t limit_;
  std::uint64_t number_;
  std::vector<std::vector<unsigned char>> out_;
  std::vector<std::vector<unsigned char>> in_;
  std::vector<std::shared_ptr<Elsewhere>> elsewhere_;
  Work work_;
};

}  // namespace

HostChannel::Options small_rings(std::int64_t capacity, std::int64_t longest) {
  HostChannel::Options options;
  options.capacity = capacity;
  options.longest = longest;
  options.shortest_read = longest / 2;
  options.wanted = true;
  return options;
}

Communicator with_options(const HostChannel::Options& options) {
  return Communicator(make_world_group(std::make_unique<MpiTransport>(MPI_COMM_WORLD, options)));
}

const MpiTransport& transport_of(const Communicator& comm) {
  return dynamic_cast<const MpiTransport&>(comm.group()->transport());
}
const HostChannel& channel_of(const Communicator& comm) { return transport_of(comm).channel(); }

bool host_lets_share() {
  static const bool lets = [] {
    long at[2] = {getpid(), -1};
    const int file = memfd_create("tessera-test", MFD_CLOEXEC);
    at[1] = file;
    MPI_Bcast(at, 2, MPI_LONG, 0, MPI_COMM_WORLD);
    const std::string path = "/proc/" + std::to_string(at[0]) + "/fd/" + std::to_string(at[1]);
    const int opened = at[1] < 0 ? -1 : open(path.c_str(), O_RDWR | O_CLOEXEC);
    int all = opened >= 0 ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    for (const int f : {file, opened})
      if (f >= 0) close(f);
    if (all == 0) WARN("this host lets no process see another's memory: the rings are not tested");
    return all == 1;
  }();
  return lets;
}

void storm(const Communicator& comm, std::int64_t limit, int exchanges, std::size_t under_way) {
  std::vector<int> backwards(static_cast<std::size_t>(comm.size()));
  for (int r = 0; r < comm.size(); ++r) backwards[static_cast<std::size_t>(r)] = comm.size() - 1 - r;
  const Communicator groups[] = {comm, comm.subgroup({backwards}), comm.split(comm.rank() % 2, comm.rank()),
                                 comm.split(comm.rank() / 2, comm.rank())};
  auto shared = test_random(5);
  std::mt19937_64 own(test_seed() + static_cast<std::uint64_t>(comm.rank()));
  std::vector<std::unique_ptr<Exchange>> open;
  auto finish_one = [&] {
    const auto k = static_cast<std::size_t>(own() % open.size());
    open[k]->finish();
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(k));
  };
  for (int i = 0; i < exchanges; ++i) {
    const auto which = static_cast<std::size_t>(random_int(shared, 0, 3));
    open.push_back(std::make_unique<Exchange>(groups[which], limit, static_cast<std::uint64_t>(i)));
    open.back()->start();
    if (open.size() >= under_way) finish_one();
  }
  while (!open.empty()) finish_one();
}

}  // namespace tessera::comm_cases
