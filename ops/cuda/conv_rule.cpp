#include "ops/cuda/conv_rule.h"

#include <algorithm>
#include <limits>

namespace tessera::cuda {
namespace {

void set_channels_last(GraphTensor& t, int dims) {
  std::int64_t next = t.size[1];
  t.stride[1] = 1;
  for (int d = dims - 1; d >= 2; --d) {
    t.stride[d] = next;
    next *= t.size[d];
  }
  t.stride[0] = next;
}

// One dim of the windows in cuDNN's terms.
struct Padded {
  std::int64_t padding;  // at both ends
  std::int64_t size;     // of the map
  std::int64_t front;
  std::int64_t taken;
};
Padded padded_dim(const cpu::ConvProblem& p, int d) {
  const std::int64_t in = p.in[d];
  const std::int64_t lo = p.padding_lo[d];
  const std::int64_t hi = p.reach_hi[d];
  const std::int64_t span = in + lo + hi;  // from the first window's beginning to the last one's end
  // As much at the end as at the front; what no window comes to does no harm.
  if (hi <= lo && lo < hi + p.stride[d]) return {lo, in, 0, in};
  // Without padding; elements that are left over at the end stay out.
  const std::int64_t taken = std::min(in, span - lo);
  if (lo == 0 && hi <= 0) return {0, taken, 0, taken};
  const std::int64_t padding = std::max<std::int64_t>(0, std::min(lo, hi));
  const std::int64_t size = span - 2 * padding;
  return {padding, size, std::min(lo - padding, size), std::max<std::int64_t>(0, taken)};
}

}  // namespace

bool takes_activation(const ConvGraph& g) {
  if (g.activation == cpu::Activation::Relu && g.bias && !g.keeps) return true;
  const bool one_group = g.w.size[1] == g.x.size[1];
  const std::int64_t unit = 16 / size_of(g.dtype);
  return one_group && (is_half(g.dtype) || g.tf32) && g.x.size[1] % unit == 0 && g.y.size[1] % unit == 0;
}

ConvForm conv_form(ConvKind kind, const cpu::ConvProblem& p, const ConvAfter& after, bool tf32) {
  ConvForm form;
  ConvGraph& g = form.graph;
  g.kind = kind;
  g.dtype = p.dtype;
  g.tf32 = tf32 && p.dtype == DType::F32;
  g.spatial = std::max(2, p.spatial);
  const int first = g.spatial - p.spatial;  // one spatial dim is the second of two
  for (GraphTensor* t : {&g.x, &g.w, &g.y}) std::fill(t->size, t->size + 2 + g.spatial, 1);
  std::fill(g.stride, g.stride + g.spatial, 1);
  std::fill(g.dilation, g.dilation + g.spatial, 1);
  g.x.size[0] = g.y.size[0] = p.samples;
  g.x.size[1] = p.in_channels;
  g.y.size[1] = g.w.size[0] = p.out_channels;
  g.w.size[1] = p.group_in();
  for (int d = 0; d < p.spatial; ++d) {
    const Padded dim = padded_dim(p, d);
    const int at = first + d;
    g.x.size[2 + at] = dim.size;
    g.w.size[2 + at] = p.kernel[d];
    g.y.size[2 + at] = p.out[d];
    g.padding[at] = dim.padding;
    g.stride[at] = p.stride[d];
    g.dilation[at] = p.dilation[d];
    form.front.push_back(dim.front);
    form.taken.push_back(dim.taken);
    form.whole = form.whole && dim.size == p.in[d] && dim.front == 0;
  }
  for (GraphTensor* t : {&g.x, &g.w, &g.y}) set_channels_last(*t, 2 + g.spatial);
  if (kind == ConvKind::Forward) {
    g.bias = after.bias;
    g.activation = after.activation;
    g.keeps = after.keeps;
    if (!takes_activation(g)) {
      g.activation = cpu::Activation::None;
      g.keeps = false;
    }
  }
  return form;
}

const char* why_own_kernel(const ConvGraph& g) {
  std::int64_t weights = 1;
  for (int d = 0; d < 2 + g.spatial; ++d) weights *= g.w.size[d];
  if (weights > std::numeric_limits<std::int32_t>::max()) return "more weights than cuDNN counts in 32 bits";
  return nullptr;
}

}  // namespace tessera::cuda
