// The seam of runtime/rng_device.h: the box of global indices as strides, one launch per box of intervals.
#include "runtime/cuda/array_walk.h"
#include "runtime/cuda/random_kernels.h"
#include "runtime/cuda/register.h"
#include "runtime/rng_device.h"

namespace tessera::cuda {
namespace {

// A part of the arrays whose global indices are first + sum of coordinate times stride.
struct Part {
  Array out;
  Array in;
  Dims index_strides;
  std::int64_t first = 0;
};

// Intervals of one length at one distance (the tokens of a map that is cut across) are two dims in one.
bool regular(const std::vector<Interval>& list) {
  for (std::size_t i = 1; i < list.size(); ++i)
    if (list[i].length() != list[0].length() || list[i].lo - list[i - 1].lo != list[1].lo - list[0].lo)
      return false;
  return true;
}

Array split_dim(const Array& a, int dim, std::int64_t outer, std::int64_t inner) {
  Dims sizes = a.sizes();
  Dims strides = a.strides();
  sizes[dim] = outer;
  sizes.insert(dim + 1, inner);
  strides.insert(dim + 1, strides[dim]);
  strides[dim] *= inner;
  return a.as_strided(sizes, strides, a.offset());
}

// Cuts `parts` along the dim (counted from the end, so that dims split before do not shift it).
std::vector<Part> cut(const std::vector<Part>& parts, int from_end, const std::vector<Interval>& list,
                      std::int64_t stride) {
  std::vector<Part> result;
  for (const Part& p : parts) {
    const int d = p.out.dim() - from_end;
    const bool fits = p.out.dim() < Dims::kMax;
    if (list.size() > 1 && fits && regular(list) && list[0].length() > 0) {
      Part q = p;
      const auto n = static_cast<std::int64_t>(list.size());
      q.out = split_dim(p.out, d, n, list[0].length());
      q.in = split_dim(p.in, d, n, list[0].length());
      q.index_strides[d] = (list[1].lo - list[0].lo) * stride;
      q.index_strides.insert(d + 1, stride);
      q.first += list[0].lo * stride;
      result.push_back(q);
      continue;
    }
    std::int64_t at = 0;
    for (const Interval i : list) {
      if (i.empty()) continue;
      Part q = p;
      q.out = p.out.slice(d, at, i.length());
      q.in = p.in.slice(d, at, i.length());
      q.index_strides[d] = stride;
      q.first += i.lo * stride;
      at += i.length();
      result.push_back(q);
    }
  }
  return result;
}

void random_fill_cuda(const RandomFill& fill) {
  const Dims strides = contiguous_strides(fill.box.global_sizes);
  std::vector<Part> parts{{fill.out, fill.in, strides, fill.box.index_offset}};
  for (int d = 0; d < fill.out.dim(); ++d)
    parts = cut(parts, fill.out.dim() - d, fill.box.intervals[static_cast<std::size_t>(d)], strides[d]);
  for (const Part& p : parts) {
    RandomElements e;
    e.walk = make_walk<3>(p.out.dim(), p.out.sizes().begin(),
                          {p.out.strides().begin(), p.in.strides().begin(), p.index_strides.begin()});
    e.out = p.out.raw();
    e.in = p.in.raw();
    e.dtype = p.out.dtype();
    e.first_index = p.first;
    e.key = fill.key;
    e.kind = fill.kind;
    e.a = fill.a;
    e.b = fill.b;
    e.lo = fill.lo;
    e.hi = fill.hi;
    fill_random(e, current_stream());
  }
  check_launch("random_fill");
}

}  // namespace

void register_random() { random_fill_kernel.set(Device::Cuda, &random_fill_cuda); }

}  // namespace tessera::cuda
