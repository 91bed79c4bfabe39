#include "ops/reduce/groups.h"

#include "mesh/mesh_state.h"
#include "ops/kernels.h"
#include "ops/reduce/merge_kernel.h"

namespace tessera {

Kernel<void(const cpu::MergeMomentsArgs&)> kernels::merge_moments{"merge_moments", &cpu::merge_moments};

unsigned cutting_axes(const ShardSpec& spec, const Dims& dims) {
  unsigned mask = 0;
  for (std::int64_t d : dims)
    if (const CutPtr& cut = spec.cut(static_cast<int>(d)))
      for (int a : cut->axes) mask |= 1U << static_cast<unsigned>(a);
  return mask;
}

std::vector<int> group_ranks(const ShardSpec& spec, unsigned mask) {
  const MeshCore& core = *spec.mesh_core();
  std::vector<int> ranks;
  for (int r = 0; r < core.size; ++r)
    if (core.same_coordinates(~mask, r, core.rank)) ranks.push_back(r);
  return ranks;
}

Array gather_over(const ShardSpec& spec, unsigned mask, const Array& mine) {
  const Communicator& group = spec.mesh_core()->groups[mask];
  Dims sizes = mine.sizes();
  sizes.insert(0, group.size());
  Array all = Array::empty(sizes, mine.dtype(), mine.device());
  group.all_gather(all, mine.unsqueeze(0)).wait();
  return all;
}

Dims reduction_dims(const char* op, const Dims& dims, int ndim) {
  Dims out;
  if (dims.empty()) {
    for (int d = 0; d < ndim; ++d) out.push_back(d);
    return out;
  }
  for (std::int64_t d : dims) {
    const int w = wrap_dim(op, d, ndim);
    if (ndim == 0) continue;
    TS_CHECK(std::find(out.begin(), out.end(), w) == out.end(), op, "dim {} appears twice in {}", w,
             dims.str());
    out.push_back(w);
  }
  std::sort(out.begin(), out.end());
  return out;
}

Dims reduced_sizes(const Dims& sizes, const Dims& dims, bool keepdim) {
  Dims out;
  for (int d = 0; d < sizes.size(); ++d) {
    const bool reduced = std::find(dims.begin(), dims.end(), d) != dims.end();
    if (reduced && keepdim) out.push_back(1);
    if (!reduced) out.push_back(sizes[d]);
  }
  return out;
}

SpecPtr reduced_spec(const ShardSpec& x, const Dims& dims, bool keepdim) {
  const Dims sizes = reduced_sizes(x.sizes(), dims, keepdim);
  Placements placements(x.placements().size());
  std::vector<std::optional<DimCut>> cuts(static_cast<std::size_t>(sizes.size()));
  int out = 0;
  for (int d = 0; d < x.dim(); ++d) {
    const bool reduced = std::find(dims.begin(), dims.end(), d) != dims.end();
    if (!reduced && x.cut(d)) {
      cuts[static_cast<std::size_t>(out)] = *x.cut(d);
      for (int a : x.cut(d)->axes) placements[static_cast<std::size_t>(a)] = Shard(out);
    }
    if (!reduced || keepdim) ++out;
  }
  return ShardSpec::make(x.mesh(), placements, sizes, std::move(cuts));
}

Moments global_moments(const Array& x, const ShardSpec* spec, const Dims& dims) {
  const DType acc = x.dtype() == DType::F64 ? DType::F64 : DType::F32;
  const Dims sizes = reduced_sizes(x.sizes(), dims, true);
  const auto empty = [&] { return Array::empty(sizes, acc, x.device()); };
  const unsigned mask = spec == nullptr ? 0 : cutting_axes(*spec, dims);
  if (mask == 0) {
    Moments own{empty(), Array(), empty()};
    kernels::moments(x.device(), {own.mean, own.m2, x});
    return own;
  }
  // The own part's mean in two terms: of x, and of what x is apart from that.
  const Array local = Array::empty({3, numel_of(sizes)}, acc, x.device());
  const auto term = [&](std::int64_t i) { return local.slice(0, i, 1).reshape(sizes); };
  const Array unused = empty();
  kernels::moments(x.device(), {term(0), unused, x});
  const Array wide = x.to(acc);
  const Array apart = Array::empty(x.sizes(), acc, x.device());
  kernels::binary(x.device(), {apart, wide, term(0).expand(x.sizes()), cpu::BinaryOp::Sub});
  kernels::moments(x.device(), {term(1), term(2), apart});

  std::vector<double> counts;
  for (int r : group_ranks(*spec, mask)) {
    double n = 1;
    const Dims theirs = spec->local_sizes(r);
    for (std::int64_t d : dims) n *= static_cast<double>(theirs[static_cast<int>(d)]);
    counts.push_back(n);
  }
  const Array parts = gather_over(*spec, mask, local);
  Moments merged{empty(), empty(), empty()};
  kernels::merge_moments(x.device(), {merged.mean, merged.rest, merged.m2, parts, counts});
  return merged;
}

}  // namespace tessera
