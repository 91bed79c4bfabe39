// Redistribute against what a program would write by hand: a bare MPI_Alltoallv of the same bytes on buffers
// that are there already, with packing and placing where a part is not one piece of memory.
#include <mpi.h>

#include <cstring>

#include <fmt/format.h>

#include "bench/groups.h"
#include "comm/mpi.h"
#include "ops/ops.h"
#include "runtime/error.h"

namespace tessera::bench {
namespace {

constexpr double kLimit = 1.1;

// One length per rank. Uneven: 5:3 on two ranks, and in general less and less towards the last.
std::vector<std::int64_t> even_lengths(std::int64_t n, int ranks) {
  std::vector<std::int64_t> lengths;
  for (const Interval& i : default_partition(n, ranks)) lengths.push_back(i.length());
  return lengths;
}
std::vector<std::int64_t> uneven_lengths(std::int64_t n, int ranks) {
  std::vector<std::int64_t> lengths = even_lengths(n, ranks);
  const std::int64_t shift = n / ranks / 4;
  lengths.front() += shift;
  lengths.back() -= shift;
  return lengths;
}

std::vector<std::int64_t> starts_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> starts{0};
  for (std::int64_t l : lengths) starts.push_back(starts.back() + l);
  return starts;
}

// A matrix of floats that changes from one cut to another.
struct Change {
  const char* name;
  int from_dim = 0;
  std::vector<std::int64_t> from;
  int to_dim = 0;
  std::vector<std::int64_t> to;
};

// A piece of the local matrix that goes to (or comes from) one rank.
struct Piece {
  Interval rows, cols;  // local
  int count() const { return static_cast<int>(rows.length() * cols.length()); }
};

// MPI_Alltoallv by hand.
class ByHand {
 public:
  ByHand(const Communicator& world, const Change& c, std::int64_t n)
      : ranks_(world.size()), rank_(world.rank()) {
    for (int peer = 0; peer < ranks_; ++peer) {
      out_.push_back(piece(n, {c.from_dim, part(c.from, rank_)}, {c.to_dim, part(c.to, peer)}));
      in_.push_back(piece(n, {c.to_dim, part(c.to, rank_)}, {c.from_dim, part(c.from, peer)}));
    }
    from_cols_ = width(c.from_dim, c.from, n);
    to_cols_ = width(c.to_dim, c.to, n);
    // Where the pieces lie one after another in memory, there is nothing to pack or to place.
    pack_ = in_one_piece(out_, from_cols_) == 0;
    place_ = in_one_piece(in_, to_cols_) == 0;
    lay_out(out_, send_counts_, send_at_);
    lay_out(in_, recv_counts_, recv_at_);
    const std::int64_t sent = send_at_.back() + send_counts_.back();
    const std::int64_t received = recv_at_.back() + recv_counts_.back();
    packed_.resize(pack_ ? static_cast<std::size_t>(sent) : 0);
    arrived_.resize(place_ ? static_cast<std::size_t>(received) : 0);
    result_.resize(static_cast<std::size_t>(received));
  }

  bool copies() const { return pack_ || place_; }
  void run(const float* local) {
    if (pack_) copy_pieces(local, packed_.data());
    MPI_Alltoallv(pack_ ? packed_.data() : local, send_counts_.data(), send_at_.data(), MPI_FLOAT,
                  place_ ? arrived_.data() : result_.data(), recv_counts_.data(), recv_at_.data(), MPI_FLOAT,
                  MPI_COMM_WORLD);
    if (!place_) return;
    for (int p = 0; p < ranks_; ++p) {
      const Piece& piece = in_[static_cast<std::size_t>(p)];
      const float* source = arrived_.data() + recv_at_[static_cast<std::size_t>(p)];
      for (std::int64_t r = piece.rows.lo; r < piece.rows.hi; ++r, source += piece.cols.length())
        copy(result_.data() + r * to_cols_ + piece.cols.lo, source, piece.cols.length());
    }
  }
  const std::vector<float>& result() const { return result_; }

 private:
  static void copy(float* to, const float* from, std::int64_t n) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(float));
  }
  void copy_pieces(const float* local, float* to) const {
    for (const Piece& p : out_)
      for (std::int64_t r = p.rows.lo; r < p.rows.hi; ++r, to += p.cols.length())
        copy(to, local + r * from_cols_ + p.cols.lo, p.cols.length());
  }
  Interval part(const std::vector<std::int64_t>& lengths, int r) const {
    const auto starts = starts_of(lengths);
    return {starts[static_cast<std::size_t>(r)], starts[static_cast<std::size_t>(r) + 1]};
  }
  std::int64_t width(int dim, const std::vector<std::int64_t>& lengths, std::int64_t n) const {
    return dim == 1 ? lengths[static_cast<std::size_t>(rank_)] : n;
  }
  // What lies in both of two slabs, counted from the first one's start.
  struct Slab {
    int dim;
    Interval part;
  };
  static Piece piece(std::int64_t n, const Slab& mine_of, const Slab& theirs_of) {
    Interval mine[2] = {{0, n}, {0, n}};
    Interval theirs[2] = {{0, n}, {0, n}};
    mine[mine_of.dim] = mine_of.part;
    theirs[theirs_of.dim] = theirs_of.part;
    const Interval rows = intersect(mine[0], theirs[0]);
    const Interval cols = intersect(mine[1], theirs[1]);
    Piece p{{rows.lo - mine[0].lo, rows.hi - mine[0].lo}, {cols.lo - mine[1].lo, cols.hi - mine[1].lo}};
    if (p.rows.empty() || p.cols.empty()) p = {};
    return p;
  }
  // 1 if all pieces are whole rows.
  static int in_one_piece(const std::vector<Piece>& pieces, std::int64_t cols) {
    for (const Piece& p : pieces)
      if (p.count() > 0 && p.cols.length() != cols) return 0;
    return 1;
  }
  static void lay_out(const std::vector<Piece>& pieces, std::vector<int>& counts, std::vector<int>& at) {
    int next = 0;
    for (const Piece& p : pieces) {
      counts.push_back(p.count());
      at.push_back(next);
      next += p.count();
    }
  }

  int ranks_;
  int rank_;
  std::vector<Piece> out_, in_;
  std::int64_t from_cols_ = 0, to_cols_ = 0;
  bool pack_ = false, place_ = false;
  std::vector<int> send_counts_, send_at_, recv_counts_, recv_at_;
  std::vector<float> packed_, arrived_, result_;
};

SpecPtr spec_of(const DeviceMesh& mesh, std::int64_t n, int dim, const std::vector<std::int64_t>& lengths) {
  return ShardSpec::from_lengths(mesh, {Shard(dim)}, {n, n}, {lengths});
}

void measure(const Settings& settings, Report& report, const Change& c, std::int64_t n) {
  const DeviceMesh mesh(settings.world, {{"domain", settings.world.size()}});
  const SpecPtr to = spec_of(mesh, n, c.to_dim, c.to);
  Generator generator(3);
  const Tensor x = randn({n, n}, generator, DType::F32, spec_of(mesh, n, c.from_dim, c.from));
  ByHand hand(settings.world, c, n);
  hand.run(x.local().data<float>());
  const Array ours = redistribute(x, to).local().contiguous();
  TS_CHECK(std::memcmp(ours.raw(), hand.result().data(), static_cast<std::size_t>(ours.nbytes())) == 0,
           "recut", "redistribute and MPI_Alltoallv differ");
  const auto timings =
      interleaved(settings, {repeated(settings, hand.copies() ? "packing, Alltoallv" : "Alltoallv",
                                      [&] { hand.run(x.local().data<float>()); }),
                             repeated(settings, "redistribute", [&] { redistribute(x, to); })});
  report.add({.group = "recut",
              .name = fmt::format("{}, {} KiB", c.name, n * n * 4 / 1024),
              .shape = x.sizes().str(),
              .timings = timings,
              .limit = kLimit});
}

}  // namespace

void recut(const Settings& settings, Report& report) {
  const int ranks = settings.world.size();
  if (ranks == 1) {
    fmt::print("\nrecut: needs 2 ranks or more; left out\n");
    return;
  }
  for (const std::int64_t n : {std::int64_t{128}, std::int64_t{512}, std::int64_t{4096}}) {
    if (settings.quick && n > 1024) continue;
    const auto uneven = uneven_lengths(n, ranks);
    const auto even = even_lengths(n, ranks);
    measure(settings, report, {"cut points of dim 0", 0, uneven, 0, even}, n);
    measure(settings, report, {"cut points of dim 1", 1, uneven, 1, even}, n);
    measure(settings, report, {"dim 0 to dim 1", 0, uneven, 1, even}, n);
    measure(settings, report, {"dim 1 to dim 0", 1, uneven, 0, even}, n);
  }
}

}  // namespace tessera::bench
