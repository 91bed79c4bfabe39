#include "ops/cuda/reduce_kernels.h"

#include <limits>
#include <type_traits>

#include "runtime/cuda/block_reduce.h"
#include "runtime/cuda/elements.h"

namespace tessera::cuda {
namespace {

// Sums of f32, bf16 and f16 are kept in double, integers in 64 bits, as on the CPU.
template <class T>
using Accumulated = std::conditional_t<is_floating(dtype_of<T>()), double, std::int64_t>;

// What an empty reduction of T gives.
template <class T>
Accumulated<T> start_of(Combine kind) {
  using Limits = std::numeric_limits<Wide<T>>;
  constexpr bool kInfinite = Limits::has_infinity;
  switch (kind) {
    case Combine::Max:
      return static_cast<Accumulated<T>>(kInfinite ? -Limits::infinity() : Limits::lowest());
    case Combine::Min:
      return static_cast<Accumulated<T>>(kInfinite ? Limits::infinity() : Limits::max());
    case Combine::Product:
      return 1;
    default:
      return 0;
  }
}

// What is reduced of an element.
struct Itself {
  template <class A>
  TS_DEVICE A operator()(A value) const {
    return value;
  }
};
struct Raised {
  double power;
  TS_DEVICE double operator()(double value) const {
    return power == 2.0 ? value * value : ::pow(::fabs(value), power);
  }
};

template <class In, class Out, class A, class Map = Itself>
struct ReduceRows : Cooperative {
  Walk<2> rows;
  Walk<1> inner;
  Ptr<Out> out;
  Ptr<const In> x;
  Combine kind;
  A start;
  std::int64_t pieces;  // of a row; with more than one, out is [rows, pieces]
  std::int64_t length;  // of a piece
  Map map = {};
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t row = block.index() / pieces;
    const std::int64_t piece = block.index() % pieces;
    std::int64_t at[2];
    rows.offsets(row, at);
    const std::int64_t end = (piece + 1) * length < inner.numel ? (piece + 1) * length : inner.numel;
    A value = start;
    for (std::int64_t i = piece * length + block.thread(); i < end; i += block.threads()) {
      std::int64_t in[1];
      inner.offsets(i, in);
      value = combined<A>(kind, value, map(static_cast<A>(load(x[at[1] + in[0]]))));
    }
    value = block_reduce(block, value, [this](A a, A b) { return combined<A>(kind, a, b); });
    if (block.thread() == 0) out[pieces > 1 ? block.index() : at[0]] = convert<Out>(value);
  }
};

template <class T, class S>
struct MomentRows : Cooperative {
  Walk<3> rows;
  Walk<1> inner;
  Ptr<S> mean;
  Ptr<S> m2;
  Ptr<const T> x;
  TS_DEVICE void operator()(const Block& block) const {
    std::int64_t at[3];
    rows.offsets(block.index(), at);
    double sum = 0;
    for (std::int64_t i = block.thread(); i < inner.numel; i += block.threads()) sum += value(at[2], i);
    sum = block_reduce(block, sum, Plus<double>());
    const double middle = inner.numel > 0 ? sum / static_cast<double>(inner.numel) : 0.0;
    double squares = 0;
    for (std::int64_t i = block.thread(); i < inner.numel; i += block.threads()) {
      const double d = value(at[2], i) - middle;
      squares += d * d;
    }
    squares = block_reduce(block, squares, Plus<double>());
    if (block.thread() == 0) {
      mean[at[0]] = static_cast<S>(middle);
      m2[at[1]] = static_cast<S>(squares);
    }
  }
  TS_DEVICE double value(std::int64_t row, std::int64_t i) const {
    std::int64_t in[1];
    inner.offsets(i, in);
    return static_cast<double>(load(x[row + in[0]]));
  }
};

constexpr std::int64_t kFewRows = 512;
constexpr std::int64_t kPieceElements = 8192;

std::int64_t piece_length(std::int64_t n, std::int64_t pieces) { return (n + pieces - 1) / pieces; }

std::int64_t pieces_of(std::int64_t rows, std::int64_t n) {
  if (rows >= kFewRows || n <= 2 * kPieceElements) return 1;
  const std::int64_t wanted = (n + kPieceElements - 1) / kPieceElements;
  const std::int64_t most = kFewRows / (rows < 1 ? 1 : rows) + 1;
  return piece_length(n, piece_length(n, wanted < most ? wanted : most));
}

template <class In, class Out, class A, class Map>
void launch_rows(ReduceRows<In, Out, A, Map> kernel, StreamHandle stream) {
  const std::int64_t blocks = kernel.rows.numel * kernel.pieces;
  launch(kernel, {blocks, threads_for_row(kernel.length), kReduceBytes}, stream);
}

// The pieces of a row, one after another: rows and inner of their reduction.
void join_pieces(std::int64_t pieces, Walk<2>& rows, Walk<1>& inner) {
  std::int64_t pitch = pieces;
  for (int d = 0; d < rows.dims; ++d) {
    rows.stride[1][d] = pitch;
    pitch *= rows.size[d];
  }
  inner = Walk<1>();
  inner.dims = 1;
  inner.numel = pieces;
  inner.size[0] = pieces;
  inner.stride[0][0] = 1;
}

template <class T, class Out>
void reduce_typed(const ReduceElements& r, std::int64_t pieces, void* partial, StreamHandle stream) {
  using A = Accumulated<T>;
  const A start = start_of<T>(r.kind);
  auto* out = static_cast<Out*>(r.out.data);
  const auto* x = static_cast<const T*>(r.x.data);
  const std::int64_t length = piece_length(r.inner.numel, pieces);
  if (pieces == 1) {
    launch_rows(ReduceRows<T, Out, A>{{}, r.rows, r.inner, out, x, r.kind, start, 1, length}, stream);
    return;
  }
  auto* sums = static_cast<A*>(partial);
  launch_rows(ReduceRows<T, A, A>{{}, r.rows, r.inner, sums, x, r.kind, start, pieces, length}, stream);
  Walk<2> rows = r.rows;
  Walk<1> inner;
  join_pieces(pieces, rows, inner);
  launch_rows(ReduceRows<A, Out, A>{{}, rows, inner, out, sums, r.kind, start, 1, pieces}, stream);
}

}  // namespace

std::int64_t reduce_pieces(const ReduceElements& r) { return pieces_of(r.rows.numel, r.inner.numel); }
std::int64_t reduce_pieces(const PowerElements& p) { return pieces_of(p.rows.numel, p.inner.numel); }

void power_elements(const PowerElements& p, std::int64_t pieces, double* partial, StreamHandle stream) {
  const std::int64_t length = piece_length(p.inner.numel, pieces);
  double* first = pieces == 1 ? p.out : partial;
  const Raised raised{p.power};
  dispatch_floating(p.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto* x = static_cast<const T*>(p.x.data);
    launch_rows(
        ReduceRows<T, double, double, Raised>{
            {}, p.rows, p.inner, first, x, Combine::Sum, 0.0, pieces, length, raised},
        stream);
  });
  if (pieces == 1) return;
  Walk<2> rows = p.rows;
  Walk<1> inner;
  join_pieces(pieces, rows, inner);
  launch_rows(
      ReduceRows<double, double, double>{{}, rows, inner, p.out, partial, Combine::Sum, 0.0, 1, pieces},
      stream);
}

void reduce_elements(const ReduceElements& r, std::int64_t pieces, void* partial, StreamHandle stream) {
  dispatch(r.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (is_floating(dtype_of<T>())) {
      reduce_typed<T, T>(r, pieces, partial, stream);
    } else if (r.out.dtype == DType::I64) {
      reduce_typed<T, std::int64_t>(r, pieces, partial, stream);
    } else {
      reduce_typed<T, T>(r, pieces, partial, stream);
    }
  });
}

void moment_elements(const MomentElements& m, StreamHandle stream) {
  const LaunchShape shape{m.rows.numel, threads_for_row(m.inner.numel), kReduceBytes};
  dispatch_floating(m.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto* x = static_cast<const T*>(m.x.data);
    if (m.mean.dtype == DType::F64) {
      launch(
          MomentRows<T, double>{
              {}, m.rows, m.inner, static_cast<double*>(m.mean.data), static_cast<double*>(m.m2.data), x},
          shape, stream);
    } else {
      launch(
          MomentRows<T, float>{
              {}, m.rows, m.inner, static_cast<float*>(m.mean.data), static_cast<float*>(m.m2.data), x},
          shape, stream);
    }
  });
}

}  // namespace tessera::cuda
