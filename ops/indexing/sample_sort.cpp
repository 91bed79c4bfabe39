#include "ops/indexing/sample_sort.h"

#include <algorithm>
#include <numeric>

#include "mesh/intervals.h"
#include "mesh/mesh_state.h"
#include "ops/indexing/kernels.h"
#include "ops/indexing/rows.h"
#include "ops/reduce/groups.h"
#include "runtime/copy.h"

namespace tessera {
namespace {

using Counts = std::vector<std::int64_t>;

Ranked room(const Dims& sizes, const Array& like) {
  return {Array::empty(sizes, like.dtype(), like.device()), Array::zeros(sizes, DType::I64, like.device())};
}

// The same view of both.
template <class F>
Ranked each(const Ranked& r, F f) {
  return {f(r.values), f(r.numbers)};
}

void copy(const Ranked& to, const Ranked& from) {
  copy_strided(to.values, from.values);
  copy_strided(to.numbers, from.numbers);
}

// Ends of `rows` rows of n items.
Array even_ends(std::int64_t rows, std::int64_t n) {
  Array ends = Array::empty({rows}, DType::I64);
  for (std::int64_t r = 0; r < rows; ++r) ends.data<std::int64_t>()[r] = (r + 1) * n;
  return ends;
}

// Numbers travel as I32 where the dim is short enough.
DType travelling(const CutDim& dim) { return dim.size() <= INT32_MAX ? DType::I32 : DType::I64; }

void exchange(const CutDim& dim, const Ranked& in, const Counts& in_counts, const Ranked& out,
              const Counts& out_counts) {
  const DType type = travelling(dim);
  const Array numbers =
      type == DType::I64 ? in.numbers : Array::zeros(in.numbers.sizes(), type, in.numbers.device());
  Work value_work = exchange_rows(dim.comm(), in.values, in_counts, out.values, out_counts);
  exchange_rows(dim.comm(), numbers, in_counts, out.numbers.to(type), out_counts).wait();
  value_work.wait();
  if (type != DType::I64) in.numbers.copy_(numbers);
}

// `mine` [rows, own] of every member, side by side: [rows, sum of counts].
Ranked gathered(const CutDim& dim, const Ranked& mine, const Counts& counts) {
  const auto columns = [](const Array& a) { return a.transpose(0, 1).contiguous(); };
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const Dims sizes{total, mine.values.size(0)};
  const DType type = travelling(dim);
  const Array values = Array::empty(sizes, mine.values.dtype(), mine.values.device());
  const Array numbers = Array::zeros(sizes, type, mine.values.device());
  Work work = dim.comm().all_gather_v(values, columns(mine.values), counts);
  dim.comm().all_gather_v(numbers, columns(mine.numbers.to(type)), counts).wait();
  work.wait();
  return {columns(values), columns(numbers.to(DType::I64))};
}

// Items in order of [rows, n].
Ranked in_order(const Ranked& items, bool descending) {
  const Dims sizes = items.values.sizes();
  const Ranked flat = each(items, [](const Array& a) { return a.reshape({a.numel()}); });
  return each(order_items(flat, even_ends(sizes[0], sizes[1]), descending),
              [&](const Array& a) { return a.reshape(sizes); });
}

// Samples stand for so many items each; a rank is shown this often on average.
constexpr std::int64_t kSamplesPerRank = 16;

struct Sampling {
  explicit Sampling(const CutDim& dim)
      : spacing(std::max<std::int64_t>(1, dim.size() / (kSamplesPerRank * dim.members()))) {
    for (int m = 0; m < dim.members(); ++m)
      counts.push_back((dim.length(m) + spacing - 1 - spacing / 2) / spacing);
  }
  std::int64_t spacing;
  Counts counts;  // by member
};

// Where this rank's sorted rows are cut for the members: [rows, members + 1], from 0 to n.
Array borders(const CutDim& dim, const Ranked& sorted, bool descending) {
  const Sampling sampling(dim);
  const std::int64_t rows = sorted.values.size(0);
  const std::int64_t n = sorted.values.size(1);
  const std::int64_t own = sampling.counts[static_cast<std::size_t>(dim.comm().rank())];
  const Ranked samples =
      in_order(gathered(dim,
                        each(sorted,
                             [&](const Array& a) {
                               return own == 0 ? a.slice(1, 0, 0)
                                               : a.slice(1, sampling.spacing / 2, own, sampling.spacing);
                             }),
                        sampling.counts),
               descending);
  const std::int64_t shown = samples.values.size(1);
  Array result = Array::full({rows, dim.members() + 1}, static_cast<double>(n), DType::I64);
  std::int64_t before = 0;  // items that the members so far shall have
  for (int m = -1; m + 1 < dim.members(); ++m) {
    if (m >= 0) before += dim.length(m);
    if (before == 0) result.slice(1, m + 1, 1).zero_();
    if (before == 0) continue;
    const std::int64_t sample = (before - sampling.spacing / 2 + sampling.spacing - 1) / sampling.spacing;
    if (sample >= shown) break;  // all that is left goes here
    const Ranked at = each(samples, [&](const Array& a) { return a.slice(1, sample, 1).contiguous(); });
    const Array cuts = Array::zeros({rows, 1}, DType::I64);
    kernels::cut_rows(sorted.values.device(),
                      {cuts, sorted.values, sorted.numbers, at.values, at.numbers, descending});
    result.slice(1, m + 1, 1).copy_(cuts);
  }
  return result;
}

// A piece of a row on its way: items [from, from + length) of the sender's buffer, by row.
struct Piece {
  std::int64_t row = 0;
  std::int64_t start = 0;
  std::int64_t length = 0;
};
using Pieces = std::vector<std::vector<Piece>>;  // by member

Counts counts_of(const Pieces& pieces) {
  Counts counts;
  for (const auto& list : pieces) {
    counts.push_back(0);
    for (const Piece& p : list) counts.back() += p.length;
  }
  return counts;
}

// Sends pieces of `from` and puts what comes at pieces of `to`; `line(buffer, piece)` is where a piece lies.
struct Shift {
  const CutDim& dim;
  const Pieces& sends;
  const Pieces& recvs;

  template <class From, class To>
  void run(const Ranked& like, const From& from, const To& to) const {
    const Counts out_counts = counts_of(sends);
    const Counts in_counts = counts_of(recvs);
    const auto total = [](const Counts& c) { return std::accumulate(c.begin(), c.end(), std::int64_t{0}); };
    Ranked out = room({total(out_counts)}, like.values);
    const Ranked in = room({total(in_counts)}, like.values);
    walk(sends, out, [&](const Ranked& run, const Piece& p) { copy(run, from(p)); });
    exchange(dim, in, in_counts, out, out_counts);
    walk(recvs, in, [&](const Ranked& run, const Piece& p) { copy(to(p), run); });
  }

 private:
  template <class F>
  static void walk(const Pieces& pieces, const Ranked& buffer, const F& f) {
    std::int64_t at = 0;
    for (const auto& list : pieces)
      for (const Piece& p : list) {
        f(each(buffer, [&](const Array& a) { return a.slice(0, at, p.length); }), p);
        at += p.length;
      }
  }
};

Ranked run_of(const Ranked& flat, std::int64_t start, std::int64_t length) {
  return each(flat, [&](const Array& a) { return a.slice(0, start, length); });
}

Ranked row_run(const Ranked& rows, const Piece& p) {
  return each(rows,
              [&](const Array& a) { return a.slice(0, p.row, 1).squeeze(0).slice(0, p.start, p.length); });
}

// How many items of each row went from whom to whom: known to all.
class Traffic {
 public:
  Traffic(const CutDim& dim, const Array& own_borders) : rows_(own_borders.size(0)), members_(dim.members()) {
    const Array mine = Array::zeros({1, rows_, members_}, DType::I64);
    const std::int64_t* at = own_borders.data<std::int64_t>();
    for (std::int64_t i = 0; i < mine.numel(); ++i) {
      const std::int64_t b = i / members_ * (members_ + 1) + i % members_;
      mine.data<std::int64_t>()[i] = at[b + 1] - at[b];
    }
    all_ = Array::zeros({members_, rows_, members_}, DType::I64);
    dim.comm().all_gather(all_, mine).wait();
  }
  std::int64_t items(int from, std::int64_t row, int to) const {
    return all_.data<std::int64_t>()[(from * rows_ + row) * members_ + to];
  }
  std::int64_t held(std::int64_t row, int by) const {
    std::int64_t n = 0;
    for (int m = 0; m < members_; ++m) n += items(m, row, by);
    return n;
  }
  std::int64_t rows() const { return rows_; }

 private:
  std::int64_t rows_;
  int members_;
  Array all_;
};

// Each item to the member whose part of the order it falls into: rows one after another, with their ends.
std::pair<Ranked, Array> to_parts(const CutDim& dim, const Ranked& sorted, const Array& borders,
                                  const Traffic& traffic) {
  const int me = dim.comm().rank();
  const Array ends = Array::zeros({traffic.rows()}, DType::I64);
  std::int64_t total = 0;
  Counts next;  // where the next items of a row go
  for (std::int64_t r = 0; r < traffic.rows(); ++r) {
    next.push_back(total);
    total += traffic.held(r, me);
    ends.data<std::int64_t>()[r] = total;
  }
  Pieces sends(static_cast<std::size_t>(dim.members()));
  Pieces recvs(sends.size());
  for (std::size_t m = 0; m < sends.size(); ++m)
    for (std::int64_t r = 0; r < traffic.rows(); ++r) {
      const std::int64_t start = borders.data<std::int64_t>()[r * (dim.members() + 1) + static_cast<int>(m)];
      sends[m].push_back({r, start, traffic.items(me, r, static_cast<int>(m))});
      std::int64_t& at = next[static_cast<std::size_t>(r)];
      recvs[m].push_back({r, at, traffic.items(static_cast<int>(m), r, me)});
      at += recvs[m].back().length;
    }
  const Ranked part = room({total}, sorted.values);
  Shift{dim, sends, recvs}.run(
      sorted, [&](const Piece& p) { return row_run(sorted, p); },
      [&](const Piece& p) { return run_of(part, p.start, p.length); });
  return {part, ends};
}

// Position p of a row to the member that holds position p of the dim.
Ranked to_cut(const CutDim& dim, const Ranked& part, const Array& ends, const Traffic& traffic) {
  const int me = dim.comm().rank();
  Pieces sends(static_cast<std::size_t>(dim.members()));
  Pieces recvs(sends.size());
  for (std::int64_t r = 0; r < traffic.rows(); ++r) {
    std::int64_t first = 0;  // position of the first item that member m has now
    for (int m = 0; m < dim.members(); ++m) {
      const Interval now{first, first + traffic.held(r, m)};
      first = now.hi;
      const std::int64_t base = ends.data<std::int64_t>()[r] - now.length();
      for (int to = 0; to < dim.members(); ++to) {
        std::int64_t local = 0;
        for (const Interval wanted : dim.held(to)) {
          const Interval moved = intersect(now, wanted);
          if (!moved.empty() && m == me)
            sends[static_cast<std::size_t>(to)].push_back({r, base + moved.lo - now.lo, moved.length()});
          if (!moved.empty() && to == me)
            recvs[static_cast<std::size_t>(m)].push_back({r, local + moved.lo - wanted.lo, moved.length()});
          local += wanted.length();
        }
      }
    }
  }
  Ranked out = room({traffic.rows(), dim.length(me)}, part.values);
  Shift{dim, sends, recvs}.run(
      part, [&](const Piece& p) { return run_of(part, p.start, p.length); },
      [&](const Piece& p) { return row_run(out, p); });
  return out;
}

// Columns of a row by their numbers along the dim.
Ranked ordered_columns(const CutDim& dim, const Array& x, std::int64_t k, bool descending) {
  const Ranked columns = dim.ascending(x);
  Ranked own = order_rows(columns.values, k, descending);
  const Array numbers = Array::empty(own.numbers.sizes(), DType::I64, x.device());
  kernels::take_rows(x.device(),
                     {numbers.reshape({1, numbers.numel(), 1}), columns.numbers.reshape({1, x.size(1), 1}),
                      own.numbers.reshape({own.numbers.numel()})});
  own.numbers = numbers;
  return own;
}

}  // namespace

Ranked order_rows(const Array& x, std::int64_t k, bool descending) {
  Ranked out = room({x.size(0), k}, x);
  kernels::order_rows(x.device(), {out.values, out.numbers, x.contiguous(), descending});
  return out;
}

Ranked order_items(const Ranked& items, const Array& ends, bool descending) {
  Ranked out = room(items.values.sizes(), items.values);
  kernels::order_items(items.values.device(),
                       {out.values, out.numbers, items.values, items.numbers, ends, descending});
  return out;
}

CutDim::CutDim(const ShardSpec& spec, int dim) : size_(spec.sizes()[dim]) {
  const unsigned mask = cutting_axes(spec, {dim});
  comm_ = spec.mesh_core()->groups[mask];
  for (const int r : group_ranks(spec, mask)) held_.push_back(spec.intervals(dim, r));
}

std::int64_t CutDim::length(int member) const { return total_length(held(member)); }

Ranked CutDim::ascending(const Array& x) const {
  std::vector<std::pair<Interval, std::int64_t>> list;  // and where it lies in x
  std::int64_t local = 0;
  for (const Interval i : own()) {
    list.emplace_back(i, local);
    local += i.length();
  }
  const auto by_start = [](const auto& a, const auto& b) { return a.first.lo < b.first.lo; };
  const bool sorted = std::is_sorted(list.begin(), list.end(), by_start);
  std::sort(list.begin(), list.end(), by_start);
  const Array columns = sorted ? x : Array::empty(x.sizes(), x.dtype(), x.device());
  const Array numbers = Array::zeros({x.size(1)}, DType::I64, x.device());
  std::int64_t at = 0;
  for (const auto& [i, from] : list) {
    if (!sorted) copy_strided(columns.slice(1, at, i.length()), x.slice(1, from, i.length()));
    if (std::int64_t* n = numbers.data<std::int64_t>(); x.device() != Device::Meta)
      std::iota(n + at, n + at + i.length(), i.lo);
    at += i.length();
  }
  return {columns, numbers};
}

Ranked sample_sort(const CutDim& dim, const Array& x, bool descending) {
  const Ranked sorted = ordered_columns(dim, x, x.size(1), descending);
  const Array cuts = borders(dim, sorted, descending);
  const Traffic traffic(dim, cuts);
  const auto [part, ends] = to_parts(dim, sorted, cuts, traffic);
  return to_cut(dim, order_items(part, ends, descending), ends, traffic);
}

Ranked merged_topk(const CutDim& dim, const Array& x, std::int64_t k, bool descending) {
  Counts counts;
  for (int m = 0; m < dim.members(); ++m) counts.push_back(std::min(k, dim.length(m)));
  const std::int64_t own = counts[static_cast<std::size_t>(dim.comm().rank())];
  const Ranked all = in_order(gathered(dim, ordered_columns(dim, x, own, descending), counts), descending);
  return each(all, [&](const Array& a) { return a.slice(1, 0, k); });
}

}  // namespace tessera
