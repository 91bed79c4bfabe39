#include "ops/reduce/extremum_index.h"

#include <limits>

#include "ops/reduce/groups.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/reduce_kernels.h"
#include "ops/reduce/reduction.h"
#include "runtime/kernel.h"

namespace tessera {

Kernel<void(const cpu::ExtremumIndexArgs&)> kernels::extremum_index{"extremum_index", &cpu::extremum_index};
Kernel<void(const cpu::MergeExtremaArgs&)> kernels::merge_extrema{"merge_extrema", &cpu::merge_extrema};
namespace {

// Keys and indices stacked, so that both travel in one message.
struct Candidates {
  Array both;  // [2, rows]
  explicit Candidates(std::int64_t rows, Device device) : both(Array::empty({2, rows}, DType::I64, device)) {}
  Array key() const { return both.slice(0, 0, 1).squeeze(0); }
  Array index() const { return both.slice(0, 1, 1).squeeze(0); }
};

// Keys and indices [P, rows].
Candidates merged(const Array& keys, const Array& indices) {
  const Candidates best(keys.size(1), keys.device());
  kernels::merge_extrema(keys.device(), {best.key(), best.index(), keys.contiguous(), indices.contiguous()});
  return best;
}

// Global positions of what this rank holds of a dim.
std::vector<std::int64_t> positions_of(const Array& x, const ShardSpec* spec, int dim) {
  const Intervals own = spec != nullptr ? spec->intervals(dim) : Intervals{{0, x.size(dim)}};
  std::vector<std::int64_t> list;
  list.reserve(static_cast<std::size_t>(x.size(dim)));
  for (Interval i : own)
    for (std::int64_t p = i.lo; p < i.hi; ++p) list.push_back(p);
  return list;
}

Array as_three_dims(const Array& x, const Dims& sizes) {
  return x.numel() == 0 ? Array::empty(sizes, x.dtype(), x.device()) : x.contiguous().reshape(sizes);
}

struct Search {
  bool largest = true;
  std::int64_t none = 0;  // above every index
};

Candidates along(const Array& x, const ShardSpec* spec, int dim, const Search& s) {
  std::int64_t outer = 1;
  std::int64_t inner = 1;
  for (int d = 0; d < x.dim(); ++d)
    if (d != dim) (d < dim ? outer : inner) *= x.size(d);
  const Candidates best(outer * inner, x.device());
  kernels::extremum_index(x.device(), {best.key().reshape({outer, inner}),
                                       best.index().reshape({outer, inner}),
                                       as_three_dims(x, {outer, x.size(dim), inner}),
                                       positions_of(x, spec, dim),
                                       {},
                                       s.none,
                                       s.largest});
  return best;
}

// Over all dims: the rows of the last dim first, then their winners. Indices are those of the flattened
// global tensor.
Candidates over_all(const Array& x, const ShardSpec* spec, const Search& s) {
  const int last = x.dim() - 1;
  std::vector<std::int64_t> offsets{0};
  for (int d = 0; d < last; ++d) {
    const std::int64_t size = spec != nullptr ? spec->sizes()[d + 1] : x.size(d + 1);
    std::vector<std::int64_t> next;
    for (std::int64_t row : offsets)
      for (std::int64_t p : positions_of(x, spec, d)) next.push_back((row + p) * size);
    offsets = std::move(next);
  }
  if (x.numel() == 0) offsets = {0};  // one row without elements
  const auto rows = static_cast<std::int64_t>(offsets.size());
  const std::int64_t columns = x.numel() / rows;
  const Candidates of_rows(rows, x.device());
  kernels::extremum_index(x.device(), {of_rows.key().reshape({rows, 1}), of_rows.index().reshape({rows, 1}),
                                       as_three_dims(x, {rows, columns, 1}), positions_of(x, spec, last),
                                       offsets, s.none, s.largest});
  return merged(of_rows.key().unsqueeze(1), of_rows.index().unsqueeze(1));
}

Tensor extremum_index(const OpDef& op, const Tensor& x, std::optional<std::int64_t> dim, bool keepdim,
                      bool largest) {
  TS_CHECK(x.defined(), op.name, "the input is undefined");
  TS_CHECK(x.dtype() != DType::Bool, op.name, "a bool tensor has no order; any other dtype is allowed");
  const Dims dims = reduction_dims(op.name, dim ? Dims{*dim} : Dims(), x.dim());
  for (std::int64_t d : dims)
    TS_CHECK(x.sizes()[static_cast<int>(d)] > 0, op.name, "dim {} of {} is empty; nothing can be pointed at",
             d, x.sizes().str());
  const Search search{largest, x.numel()};
  auto local = [&](const Array& given, const ShardSpec* spec) {
    if (given.dim() == 0) return Array::zeros({}, DType::I64, given.device());
    Candidates best = dims.size() == 1 ? along(given, spec, static_cast<int>(dims[0]), search)
                                       : over_all(given, spec, search);
    if (const unsigned mask = spec != nullptr ? cutting_axes(*spec, dims) : 0; mask != 0) {
      const bool narrow =
          size_of(given.dtype()) <= 4 && search.none <= std::numeric_limits<std::int32_t>::max();
      const Array all =
          gather_over(*spec, mask, best.both.to(narrow ? DType::I32 : DType::I64)).to(DType::I64);
      best = merged(all.slice(1, 0, 1).squeeze(1), all.slice(1, 1, 1).squeeze(1));
    }
    return best.index().reshape(reduced_sizes(given.sizes(), dims, true));
  };
  return complete_reduction({&op, dims, keepdim, 0}, x, local);
}

}  // namespace

Tensor argmax(const Tensor& x, std::optional<std::int64_t> dim, bool keepdim) {
  static const OpDef op{"argmax"};
  return extremum_index(op, x, dim, keepdim, true);
}

Tensor argmin(const Tensor& x, std::optional<std::int64_t> dim, bool keepdim) {
  static const OpDef op{"argmin"};
  return extremum_index(op, x, dim, keepdim, false);
}

}  // namespace tessera
