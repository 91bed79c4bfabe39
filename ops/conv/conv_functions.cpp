// The public functions: arguments, and what they refuse.
#include <algorithm>

#include "ops/conv/conv_ops.h"
#include "ops/cpu/conv_choice.h"
#include "ops/elementwise/activation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/shape/shape_ops.h"
#include "ops/window/window_args.h"

namespace tessera {
namespace {

void check_bias(const char* op, const Tensor& w, const Tensor& bias) {
  if (!bias.defined()) return;
  TS_CHECK(bias.dim() == 1 && bias.sizes()[0] == w.sizes()[0] && bias.dtype() == w.dtype(), op,
           "the bias must have {} elements of the weight's dtype, given {} {}", w.size(0), bias.sizes().str(),
           name_of(bias.dtype()));
}

void check_conv(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias, const ConvOptions& o) {
  TS_CHECK(x.defined() && w.defined(), op, "an input is undefined");
  const int n = w.dim() - 2;
  TS_CHECK(n >= 1 && n <= 3, op, "the weight must be [out, in / groups, kernel of 1 to 3 dims], given {}",
           w.sizes().str());
  TS_CHECK(x.dim() == w.dim() || x.dim() == w.dim() - 1, op,
           "the weight {} needs an input [N, C, {} spatial dims] or [C, …], given {}", w.sizes().str(), n,
           x.sizes().str());
  TS_CHECK(is_floating(x.dtype()) && x.dtype() == w.dtype(), op,
           "input and weight must have one floating dtype, given "
           "{} and {}",
           name_of(x.dtype()), name_of(w.dtype()));
  const std::int64_t channels = x.size(-n - 1);
  TS_CHECK(o.groups >= 1 && channels == w.size(1) * o.groups && w.size(0) % o.groups == 0, op,
           "the weight {} with {} groups takes {} input channels, the input {} has {}", w.sizes().str(),
           o.groups, w.size(1) * o.groups, x.sizes().str(), channels);
  check_bias(op, w, bias);
}

ConvSetup setup_of(const char* op, const Dims& w, const ConvOptions& o) {
  const int n = w.size() - 2;
  const Dims stride = per_dim(op, "stride", o.stride, n, 1);
  const Dims padding = per_dim(op, "padding", o.padding, n, 0);
  const Dims dilation = per_dim(op, "dilation", o.dilation, n, 1);
  for (std::int64_t d : o.periodic)
    TS_CHECK(d >= 0 && d < n, op, "periodic names spatial dims 0 to {}, given {}", n - 1, o.periodic.str());
  ConvSetup setup;
  setup.groups = o.groups;
  for (int d = 0; d < n; ++d) {
    Window window{w[d + 2], stride[d], padding[d], padding[d], dilation[d]};
    checked_reach(op, window);
    if (o.same) {
      TS_CHECK(stride[d] == 1, op, "padding \"same\" keeps sizes at stride 1 only, given {}", stride.str());
      window.pad_lo = (window.reach() - 1) / 2;
      window.pad_hi = window.reach() - 1 - window.pad_lo;
    }
    checked_padded(op, 0, window);
    const bool periodic = std::find(o.periodic.begin(), o.periodic.end(), d) != o.periodic.end();
    if (window.pad_lo + window.pad_hi > 0) window.mode = periodic ? PaddingMode::Circular : o.padding_mode;
    setup.windows.push_back(window);
  }
  return setup;
}

Tensor conv_batch(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvKnown& known,
                  Activation activation) {
  const ConvSetup& setup = known.setup;
  // A sum that is still owed gets its bias and its activation afterwards, once.
  const bool sums_channels = !setup.depthwise(w.sizes());
  const bool owed = (x.is_sharded() && ((sums_channels && x.spec()->cut(1)) || x.spec()->has_partial())) ||
                    (w.is_sharded() && w.spec()->cut(1));
  if (!owed) return conv_activated(x, w, bias, known, activation);
  const Tensor sums = conv_call(x, w, Tensor(), setup);
  if (!bias.defined()) return activated(sums, activation);
  Dims column{bias.size(0)};
  for (int d = 0; d < setup.spatial(); ++d) column.push_back(1);
  return activated(add(sums, reshape(bias, column)), activation);
}

// The result, and the input with its padding, which some kernels read from a copy.
void check_sizes(const char* op, const Tensor& x, const Dims& w, const ConvSetup& setup) {
  Dims padded = x.sizes();
  for (int d = 0; d < setup.spatial(); ++d)
    padded[d + 2] = checked_padded(op, x.size(d + 2), setup.windows[d]);
  check_storable(op, padded, x.dtype());
  setup.check_fits(op, x.sizes());
  check_storable(op, setup.output_sizes(x.sizes(), w), x.dtype());
}

// Reflected and replicated borders wider than what a window reads are no halo: they are made first, as all
// are in PyTorch.
Tensor with_wide_borders(const Tensor& x, ConvSetup& setup) {
  std::vector<std::int64_t> amounts;
  bool any = false;
  for (int d = setup.spatial(); d-- > 0;) {
    const Window& w = setup.windows[d];
    const bool mirrors = w.mode == PaddingMode::Reflect || w.mode == PaddingMode::Replicate;
    any = any || (mirrors && std::max(w.pad_lo, w.pad_hi) > w.reach());
    amounts.push_back(mirrors ? w.pad_lo : 0);
    amounts.push_back(mirrors ? w.pad_hi : 0);
  }
  if (!any) return x;
  PadMode mode = PadMode::Reflect;
  for (Window& w : setup.windows) {
    if (w.mode != PaddingMode::Reflect && w.mode != PaddingMode::Replicate) continue;
    if (w.mode == PaddingMode::Replicate) mode = PadMode::Replicate;
    w.pad_lo = w.pad_hi = 0;
    w.mode = PaddingMode::Zeros;
  }
  return pad(x, amounts, mode);
}

thread_local KeptCalls<ConvOptions, ConvKnown> kept;

// For the first time.
Tensor conv_checked(const char* op, const ConvAsked<ConvOptions>& a) {
  const auto& [x, w, bias, o] = a;
  ConvSetup setup = setup_of(op, w.sizes(), o);
  check_sizes(op, x, w.sizes(), setup);
  const Tensor bordered = with_wide_borders(x, setup);
  ConvKnown known = known_conv(setup, bordered.sizes(), w.sizes(), a.sharded());
  if (!bordered.same(x)) return conv_batch(bordered, w, bias, known, o.activation);
  return conv_batch(x, w, bias, *kept.keep(a, std::move(known)), o.activation);
}

Tensor conv_named(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias,
                  const ConvOptions& o) {
  cpu::read_conv_environment();
  if (const auto known = kept.find({x, w, bias, o})) {
    check_bias(op, w, bias);
    check_together(op, {&x, &w, &bias});
    return conv_batch(x, w, bias, *known, o.activation);
  }
  check_conv(op, x, w, bias, o);
  check_together(op, {&x, &w, &bias});
  return batched(x, w.dim() - 2, [&](const Tensor& batch) {
    const auto known = kept.find({batch, w, bias, o});
    return known ? conv_batch(batch, w, bias, *known, o.activation) : conv_checked(op, {batch, w, bias, o});
  });
}

Tensor conv_nd(int n, const Tensor& x, const Tensor& w, const Tensor& bias, const ConvOptions& o) {
  constexpr const char* kNames[] = {"conv1d", "conv2d", "conv3d"};
  const char* op = kNames[n - 1];
  TS_CHECK(!w.defined() || w.dim() == n + 2, op, "needs a weight of {} dims, given {}", n + 2,
           w.sizes().str());
  return conv_named(op, x, w, bias, o);
}

}  // namespace

Tensor conv(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvOptions& o) {
  return conv_named("conv", x, w, bias, o);
}
Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& b, const ConvOptions& o) {
  return conv_nd(1, x, w, b, o);
}
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& b, const ConvOptions& o) {
  return conv_nd(2, x, w, b, o);
}
Tensor conv3d(const Tensor& x, const Tensor& w, const Tensor& b, const ConvOptions& o) {
  return conv_nd(3, x, w, b, o);
}

}  // namespace tessera
