// Weight gradient of depthwise convolutions: a few taps' sums stay in registers while the row of outputs
// passes.
#include "ops/cpu/simd/conv_table.h"
#include "ops/cpu/simd/vector.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

namespace {

using i64 = std::int64_t;
constexpr int kTaps = 8;

struct Range {
  i64 lo, hi;
};
// Outputs whose tap t lies inside the input.
template <class T>
Range inside(const DepthwiseRow<T>& r, i64 t) {
  const i64 shift = r.padding - t * r.dilation;
  const i64 lo = shift > 0 ? (shift + r.stride - 1) / r.stride : 0;
  const i64 last = r.inputs - 1 + shift;
  const i64 hi = last < 0 ? 0 : last / r.stride + 1;
  return {lo, hi < r.outputs ? hi : r.outputs};
}

// One tap over outputs [lo, hi), `width` channels from c on.
template <class T>
void one_tap(const DepthwiseRow<T>& r, i64 t, i64 c, i64 width, Range o) {
  for (i64 i = o.lo; i < o.hi; ++i) {
    const T* dy = r.dy + i * r.dy_step + c;
    const T* x = r.x + (i * r.stride - r.padding + t * r.dilation) * r.x_step + c;
    for (i64 j = 0; j < width; ++j) r.acc[t * r.channels + c + j] += dy[j] * x[j];
  }
}

// Taps [t0, t0 + taps) over outputs that are inside for all of them, one vector of channels.
template <int taps, class T>
void several_taps(const DepthwiseRow<T>& r, i64 t0, i64 c, Range o) {
  Vector<T> acc[taps];
#pragma GCC unroll 8
  for (int t = 0; t < taps; ++t) acc[t] = load(r.acc + (t0 + t) * r.channels + c);
  const T* dy = r.dy + o.lo * r.dy_step + c;
  const T* x = r.x + (o.lo * r.stride - r.padding + t0 * r.dilation) * r.x_step + c;
  const i64 tap = r.dilation * r.x_step;
  for (i64 i = o.lo; i < o.hi; ++i) {
    const Vector<T> g = load(dy);
#pragma GCC unroll 8
    for (int t = 0; t < taps; ++t) acc[t] += g * load(x + t * tap);
    dy += r.dy_step;
    x += r.stride * r.x_step;
  }
#pragma GCC unroll 8
  for (int t = 0; t < taps; ++t) store(r.acc + (t0 + t) * r.channels + c, acc[t]);
}

template <class T>
void taps_of(const DepthwiseRow<T>& r, i64 t0, i64 taps, i64 c, Range o) {
  switch (taps) {
    case 8:
      return several_taps<8>(r, t0, c, o);
    case 7:
      return several_taps<7>(r, t0, c, o);
    case 6:
      return several_taps<6>(r, t0, c, o);
    case 5:
      return several_taps<5>(r, t0, c, o);
    case 4:
      return several_taps<4>(r, t0, c, o);
    case 3:
      return several_taps<3>(r, t0, c, o);
    case 2:
      return several_taps<2>(r, t0, c, o);
    default:
      return several_taps<1>(r, t0, c, o);
  }
}

template <class T>
void depthwise_row(const DepthwiseRow<T>& r) {
  for (i64 t0 = 0; t0 < r.taps; t0 += kTaps) {
    const i64 taps = r.taps - t0 < kTaps ? r.taps - t0 : kTaps;
    Range common = inside(r, t0);
    for (i64 t = t0; t < t0 + taps; ++t) {
      const Range own = inside(r, t);
      common.lo = own.lo > common.lo ? own.lo : common.lo;
      common.hi = own.hi < common.hi ? own.hi : common.hi;
    }
    if (common.hi < common.lo) common.hi = common.lo;
    i64 c = 0;
    for (; c + kWidth<T> <= r.channels; c += kWidth<T>) taps_of(r, t0, taps, c, common);
    for (i64 t = t0; t < t0 + taps; ++t) {
      const Range own = inside(r, t);
      one_tap(r, t, c, r.channels - c, own);  // channels that fill no vector
      const i64 left = common.lo < own.hi ? common.lo : own.hi;
      one_tap(r, t, 0, c, {own.lo, left});
      one_tap(r, t, 0, c, {common.hi > left ? common.hi : left, own.hi});
    }
  }
}

}  // namespace

const DepthwiseTable& depthwise_table() {
  static constexpr DepthwiseTable table{&depthwise_row<float>};
  return table;
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
