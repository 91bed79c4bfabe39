// Depthwise convolutions. Outputs: a few of a line stay in registers while all taps pass. Weight gradient: a
// few taps' sums stay there while the row of outputs passes.
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

// Vectors of channels in a chunk, a cache line of most maps, and outputs at a time.
constexpr int kChunkVectors = kVectorBytes == 16 ? 4 : 2;
constexpr int kOutputs = 8;
template <class T>
constexpr i64 kChunk = kChunkVectors* kWidth<T>;

// Adds one line's taps to outputs that lie as close as the taps: every input is loaded once for all outputs
// that it counts for.
template <int outputs, int taps, class T>
inline void add_dense(Vector<T>* acc, const T* x, const T* w, i64 step) {
  Vector<T> f[taps];
#pragma GCC unroll 8
  for (int t = 0; t < taps; ++t) f[t] = load(w + t * kChunk<T>);
#pragma GCC unroll 16
  for (int j = 0; j < outputs + taps - 1; ++j, x += step) {
    const Vector<T> v = load(x);
#pragma GCC unroll 8
    for (int t = 0; t < taps; ++t)
      if (t <= j && j - t < outputs) acc[j - t] += f[t] * v;
  }
}

// One tap.
template <int outputs, class T>
inline void add_tap(Vector<T>* acc, const T* x, const T* w, i64 step) {
  const Vector<T> f = load(w);
#pragma GCC unroll 8
  for (int i = 0; i < outputs; ++i, x += step) acc[i] += f * load(x);
}

// One vector of channels: number v.
struct TileAt {
  i64 output, vector;
};
// `taps`: so many a line, dense; 0: any.
template <int outputs, int taps, class T>
void line_tile(const DepthwiseLine<T>& b, TileAt at) {
  Vector<T> acc[outputs];
  const i64 c = at.vector * kWidth<T>;
  const Vector<T> start = load(b.bias + c);
#pragma GCC unroll 8
  for (int i = 0; i < outputs; ++i) acc[i] = start;
  const i64 step = b.x_step;
  const i64 x_shift = at.output * step + c;
  const i64 w_shift = at.vector / kChunkVectors * b.w_step + at.vector % kChunkVectors * kWidth<T>;
  const T* const* x = b.x;
  const T* const* w = b.w;
  if constexpr (taps > 0) {
    for (i64 l = b.lines; l > 0; --l, x += taps, w += taps)
      add_dense<outputs, taps>(acc, *x + x_shift, *w + w_shift, step);
  } else {
    for (i64 i = b.lines * b.taps; i > 0; --i) add_tap<outputs>(acc, *x++ + x_shift, *w++ + w_shift, step);
  }
  T* y = b.y + at.output * b.y_step + c;
#pragma GCC unroll 8
  for (int i = 0; i < outputs; ++i, y += b.y_step) store(y, acc[i]);
}

// The last tile begins early enough to be whole.
template <int outputs, int taps, class T>
void line_tiles(const DepthwiseLine<T>& b) {
  for (i64 o = 0; o < b.outputs; o += outputs) {
    const i64 first = o + outputs <= b.outputs ? o : b.outputs - outputs;
    for (i64 v = 0; v < b.chunks * kChunkVectors; ++v) line_tile<outputs, taps, T>(b, {first, v});
  }
}
template <int outputs, class T>
void short_line(const DepthwiseLine<T>& b) {
  if constexpr (outputs > 1)
    if (b.outputs < outputs) return short_line<outputs / 2>(b);
  line_tiles<outputs, 0>(b);
}

template <class T>
void depthwise_line(const DepthwiseLine<T>& b) {
  if (b.outputs >= kOutputs && b.dense) {
    if (b.taps == 3) return line_tiles<kOutputs, 3>(b);
    if (b.taps == 5) return line_tiles<kOutputs, 5>(b);
    if (b.taps == 7) return line_tiles<kOutputs, 7>(b);
  }
  short_line<kOutputs>(b);
}

template <class T>
constexpr DepthwiseBlocks<T> kBlocks{kChunk<T>, &depthwise_line<T>};

}  // namespace

const DepthwiseTable& depthwise_table() {
  static constexpr DepthwiseTable table{kBlocks<float>, kBlocks<double>, &depthwise_row<float>};
  return table;
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
