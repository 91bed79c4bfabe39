// cumsum: every rank sums its pieces, one message tells the sums, then every rank runs over its own elements.
#include "ops/reduce/scan.h"

#include <numeric>

#include "mesh/mesh_state.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise_call.h"
#include "ops/reduce/groups.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/reduce_kernels.h"
#include "runtime/kernel.h"

namespace tessera {

Kernel<void(const cpu::PieceSumsArgs&)> kernels::piece_sums{"piece_sums", &cpu::piece_sums};
Kernel<void(const cpu::RunningSumsArgs&)> kernels::running_sums{"running_sums", &cpu::running_sums};
namespace {

struct Scan {
  int dim = 0;
  bool reverse = false;
};

DType running_type(DType t) { return is_floating(t) ? DType::F64 : DType::I64; }
// Sums travel as wide as the data.
DType message_type(DType t) {
  return is_floating(t) ? t == DType::F64 ? DType::F64 : DType::F32 : DType::I64;
}
DType result_type(DType t) { return is_floating(t) ? t : DType::I64; }

// The pieces of the scanned dim that the ranks of a group hold, rank after rank.
struct Pieces {
  std::vector<Interval> of_all;
  std::vector<std::int64_t> counts;  // by rank
  std::size_t first_own = 0;
};
Pieces pieces_of(const ShardSpec& spec, unsigned mask, int dim) {
  Pieces list;
  for (int r : group_ranks(spec, mask)) {
    if (r == spec.mesh_core()->rank) list.first_own = list.of_all.size();
    std::int64_t count = 0;
    for (Interval i : spec.intervals(dim, r)) {
      if (i.empty()) continue;
      list.of_all.push_back(i);
      ++count;
    }
    list.counts.push_back(count);
  }
  return list;
}

// What all pieces before each own one sum to (after it, if reverse): [own pieces, A, B].
Array starts_of(const Array& x, const ShardSpec& spec, unsigned mask, const Scan& s,
                const std::vector<std::int64_t>& lengths) {
  const Pieces pieces = pieces_of(spec, mask, s.dim);
  const auto own = static_cast<std::int64_t>(lengths.size());
  const auto all = static_cast<std::int64_t>(pieces.of_all.size());
  const DType acc = running_type(x.dtype());
  const std::int64_t width = x.size(0) * x.size(2);
  const Array sums = Array::empty({own, x.size(0), x.size(2)}, acc, x.device());
  kernels::piece_sums(x.device(), {sums, x, lengths});
  const Array told = Array::empty({all, width}, message_type(x.dtype()), x.device());
  spec.mesh_core()
      ->groups[mask]
      .all_gather_v(told, sums.reshape({own, width}).to(told.dtype()), pieces.counts)
      .wait();
  const Array gathered = told.to(acc);

  std::vector<std::size_t> order(pieces.of_all.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return (pieces.of_all[a].lo < pieces.of_all[b].lo) != s.reverse;
  });
  const Array sorted = Array::empty({1, all, width}, acc, x.device());
  const auto row = [&](const Array& from, std::int64_t i) {
    return from.reshape({all, width}).slice(0, i, 1);
  };
  for (std::int64_t i = 0; i < all; ++i)
    row(sorted, i).copy_(row(gathered, static_cast<std::int64_t>(order[static_cast<std::size_t>(i)])));
  const Array running = Array::empty({1, all, width}, acc, x.device());
  kernels::running_sums(x.device(), {running, sorted, {all}, Array(), false});
  const Array starts = Array::zeros({own, width}, acc, x.device());
  for (std::int64_t i = 1; i < all; ++i) {
    const auto piece = static_cast<std::int64_t>(order[static_cast<std::size_t>(i)] - pieces.first_own);
    if (piece >= 0 && piece < own) starts.slice(0, piece, 1).copy_(row(running, i - 1));
  }
  return starts.reshape({own, x.size(0), x.size(2)});
}

Array scan_local(const Array& given, const ShardSpec* spec, const Scan& s) {
  const Array out = Array::empty(given.sizes(), result_type(given.dtype()), given.device());
  std::int64_t outer = 1;
  std::int64_t inner = 1;
  for (int d = 0; d < given.dim(); ++d)
    if (d != s.dim) (d < s.dim ? outer : inner) *= given.size(d);
  const Dims sizes{outer, given.size(s.dim), inner};
  const Array x = given.numel() == 0 ? Array::empty(sizes, given.dtype(), given.device())
                                     : given.contiguous().reshape(sizes);
  std::vector<std::int64_t> lengths;
  Array starts;
  if (const unsigned mask = spec != nullptr ? cutting_axes(*spec, {s.dim}) : 0; mask != 0) {
    for (Interval i : spec->intervals(s.dim))
      if (!i.empty()) lengths.push_back(i.length());
    starts = starts_of(x, *spec, mask, s, lengths);
  } else {
    lengths.push_back(sizes[1]);
  }
  if (given.numel() > 0)
    kernels::running_sums(x.device(), {out.reshape(sizes), x, lengths, starts, s.reverse});
  return out;
}

Tensor scan(const OpDef& op, const Tensor& x, const Scan& s) {
  const Dims& sizes = x.sizes();
  auto local = [&](LocalCall& l) { l.out[0] = scan_local(l.in[0], l.in_spec(0), s); };
  auto rule = [&] { return broadcast_rule({&x, 1}, sizes, Linearity::Each); };
  auto gradient = [&](std::span<const Tensor>, std::span<const Tensor>) -> GradFunction {
    return [&op, s](const BackwardContext&, const Tensors& g) {
      return Tensors{scan(op, g[0], {s.dim, !s.reverse})};
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = {&x, 1};
  c.output_sizes = {&sizes, 1};
  c.parameters = Hash().add(std::int64_t{s.dim});
  c.rule = rule;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

}  // namespace

Tensor cumsum(const Tensor& x, std::int64_t dim, std::optional<DType> dtype) {
  static const OpDef op{"cumsum"};
  TS_CHECK(x.defined(), op.name, "the input is undefined");
  if (dtype) {
    TS_CHECK(*dtype != DType::Bool, op.name, "dtype bool given; floating and integer dtypes are allowed");
    wrap_dim(op.name, dim, x.dim());
    return to(cumsum(to(x, *dtype), dim), *dtype);
  }
  const int d = wrap_dim(op.name, dim, x.dim());
  const Tensor in = is_floating(x.dtype()) ? x : to(x, DType::I64);
  return x.dim() == 0 ? in : scan(op, in, {d, false});
}

}  // namespace tessera
