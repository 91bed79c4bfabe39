// Views of an array: new sizes and strides over the same storage, all bounds checked here.
#include <array>
#include <optional>

#include "runtime/array.h"
#include "runtime/error.h"

namespace tessera {
namespace {

// Strides that show `sizes`/`strides` as `target` without moving anything, if there are any. Both shapes are
// cut into groups of dims with equal products; inside a group the old dims must be one run.
std::optional<Dims> reshape_strides(const Dims& sizes, const Dims& strides, const Dims& target) {
  Dims out = Dims::filled(target.size(), 0);
  int t = target.size() - 1;
  int d = sizes.size() - 1;
  while (d >= 0) {
    if (sizes[d] == 1) {
      --d;
      continue;
    }
    // A run of old dims, from the back: as far as each dim continues the one before it.
    const std::int64_t base = strides[d];
    std::int64_t run = sizes[d];
    for (--d; d >= 0 && (sizes[d] == 1 || strides[d] == base * run); --d) run *= sizes[d];
    std::int64_t covered = 1;
    for (; t >= 0 && covered < run; --t) {
      out[t] = base * covered;
      covered *= target[t];
    }
    if (covered != run) return std::nullopt;
  }
  // Only dims of size 1 are left; they may have any stride.
  for (; t >= 0; --t) out[t] = t + 1 < target.size() ? out[t + 1] * target[t + 1] : 1;
  return out;
}

}  // namespace

Array Array::slice(int dim, std::int64_t start, std::int64_t length, std::int64_t step) const {
  TS_CHECK(this->dim() > 0, "slice", "an array of 0 dims cannot be sliced");
  const int d = wrap_dim("slice", dim, this->dim());
  TS_CHECK(step != 0, "slice", "step 0 was given, any other is allowed");
  const std::int64_t last = length > 0 ? start + (length - 1) * step : start;
  const std::int64_t limit = length > 0 ? sizes_[d] - 1 : sizes_[d];
  TS_CHECK(length >= 0 && start >= 0 && start <= limit && last >= 0 && last <= limit, "slice",
           "dim {} has size {}; start {}, length {}, step {} reaches beyond it", d, sizes_[d], start, length,
           step);
  Dims sizes = sizes_;
  Dims strides = strides_;
  sizes[d] = length;
  strides[d] *= step;
  const bool nothing = numel_of(sizes) == 0;
  return {storage_, nothing ? offset_ : offset_ + start * strides_[d], sizes, strides, dtype_};
}

Array Array::box(const Dims& lo, const Dims& extent) const {
  TS_CHECK(lo.size() == dim() && extent.size() == dim(), "box",
           "a corner of {} and an extent of {} dims were given for {} dims", lo.size(), extent.size(), dim());
  std::int64_t offset = offset_;
  for (int d = 0; d < dim(); ++d) {
    TS_CHECK(lo[d] >= 0 && extent[d] >= 0 && lo[d] + extent[d] <= sizes_[d], "box",
             "corner {} and extent {} reach beyond shape {} along dim {}", lo.str(), extent.str(),
             sizes_.str(), d);
    offset += lo[d] * strides_[d];
  }
  return {storage_, numel_of(extent) == 0 ? offset_ : offset, extent, strides_, dtype_};
}

Array Array::permute(const Dims& order) const {
  TS_CHECK(order.size() == dim(), "permute", "order {} was given for {} dims", order.str(), dim());
  Dims sizes = sizes_;
  Dims strides = strides_;
  std::array<bool, Dims::kMax> seen{};
  for (int d = 0; d < dim(); ++d) {
    const int from = wrap_dim("permute", order[d], dim());
    TS_CHECK(!seen[static_cast<std::size_t>(from)], "permute", "order {} names dim {} twice", order.str(),
             from);
    seen[static_cast<std::size_t>(from)] = true;
    sizes[d] = sizes_[from];
    strides[d] = strides_[from];
  }
  return {storage_, offset_, sizes, strides, dtype_};
}

Array Array::transpose(int a, int b) const {
  const int da = wrap_dim("transpose", a, dim());
  const int db = wrap_dim("transpose", b, dim());
  Dims sizes = sizes_;
  Dims strides = strides_;
  if (da != db) {
    std::swap(sizes[da], sizes[db]);
    std::swap(strides[da], strides[db]);
  }
  return {storage_, offset_, sizes, strides, dtype_};
}

Array Array::unsqueeze(int dim) const {
  const int d = wrap_dim("unsqueeze", dim, this->dim() + 1);
  Dims sizes = sizes_;
  Dims strides = strides_;
  strides.insert(d, d < this->dim() ? sizes_[d] * strides_[d] : 1);
  sizes.insert(d, 1);
  return {storage_, offset_, sizes, strides, dtype_};
}

Array Array::squeeze(int dim) const {
  TS_CHECK(this->dim() > 0, "squeeze", "an array of 0 dims has none to remove");
  const int d = wrap_dim("squeeze", dim, this->dim());
  TS_CHECK(sizes_[d] == 1, "squeeze", "dim {} of shape {} has size {}, only size 1 can be removed", d,
           sizes_.str(), sizes_[d]);
  Dims sizes = sizes_;
  Dims strides = strides_;
  sizes.erase(d);
  strides.erase(d);
  return {storage_, offset_, sizes, strides, dtype_};
}

Array Array::expand(const Dims& sizes) const {
  const int lead = sizes.size() - dim();
  TS_CHECK(lead >= 0, "expand", "shape {} cannot be expanded to {}, which has fewer dims", sizes_.str(),
           sizes.str());
  Dims strides = Dims::filled(sizes.size(), 0);
  for (int d = 0; d < sizes.size(); ++d) {
    TS_CHECK(sizes[d] >= 0, "expand", "shape {} was asked for, allowed are sizes of 0 and more", sizes.str());
    if (d < lead) continue;
    const std::int64_t own = sizes_[d - lead];
    TS_CHECK(own == sizes[d] || own == 1, "expand",
             "shape {} cannot be expanded to {}: dim {} has size {}, allowed are {} or 1", sizes_.str(),
             sizes.str(), d - lead, own, sizes[d]);
    if (own == sizes[d]) strides[d] = strides_[d - lead];
  }
  return {storage_, offset_, sizes, strides, dtype_};
}

Array Array::reshape(const Dims& sizes) const {
  for (std::int64_t size : sizes)
    TS_CHECK(size >= 0, "reshape", "sizes {} were given, allowed are 0 and more along each dim", sizes.str());
  TS_CHECK(numel_of(sizes) == numel_, "reshape", "shape {} has {} elements and {} has {}, they must be equal",
           sizes_.str(), numel_, sizes.str(), numel_of(sizes));
  if (contiguous_) return {storage_, offset_, sizes, contiguous_strides(sizes), dtype_};
  if (const auto strides = reshape_strides(sizes_, strides_, sizes))
    return {storage_, offset_, sizes, *strides, dtype_};
  return clone().reshape(sizes);
}

}  // namespace tessera
