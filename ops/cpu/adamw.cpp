#include "ops/cpu/adamw.h"

#include <cmath>
#include <vector>

#include "ops/cpu/block_io.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/pointwise_ops.h"
#include "runtime/error.h"

namespace tessera::cpu {

void check_flat(const char* op, const Array& a) {
  TS_CHECK(a.dtype() == DType::F32 || a.dtype() == DType::F64, op,
           "tensor of type {}; f32 and f64 are supported", name_of(a.dtype()));
  TS_CHECK(a.numel() == 0 || a.is_contiguous() || a.is_dense(), op,
           "tensor of sizes {} and strides {}; it must be dense in memory", a.sizes().str(),
           a.strides().str());
}

namespace {

void check_parallel(const char* op, std::span<const Array> params, std::span<const Array> others) {
  TS_CHECK(params.size() == others.size(), op, "{} parameters beside {} tensors of the same role",
           params.size(), others.size());
  for (std::size_t i = 0; i < params.size(); ++i) {
    const Array& p = params[i];
    const Array& o = others[i];
    check_flat(op, p);
    TS_CHECK(p.sizes() == o.sizes() && p.dtype() == o.dtype() &&
                 (p.strides() == o.strides() || (p.is_contiguous() && o.is_contiguous())),
             op, "tensor {}: parameter {} {} beside {} {}; sizes, type and memory order must be equal", i,
             name_of(p.dtype()), p.sizes().str(), name_of(o.dtype()), o.sizes().str());
  }
}

constexpr std::int64_t kPiece = 32768;

struct Piece {
  std::size_t array;
  std::int64_t lo;
  std::int64_t n;
};

// All arrays cut into pieces of at most kPiece elements, so that many small tensors cost one loop.
std::vector<Piece> cut(std::span<const Array> arrays) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < arrays.size(); ++i)
    for (std::int64_t lo = 0; lo < arrays[i].numel(); lo += kPiece)
      pieces.push_back({i, lo, std::min(kPiece, arrays[i].numel() - lo)});
  return pieces;
}

std::int64_t total(std::span<const Array> arrays) {
  std::int64_t n = 0;
  for (const Array& a : arrays) n += a.numel();
  return n;
}

template <class T>
AdamWCoefficients<T> adamw_coefficients(const AdamWArgs& a) {
  const double c1 = 1.0 - std::pow(a.beta1, static_cast<double>(a.step));
  const double c2 = 1.0 - std::pow(a.beta2, static_cast<double>(a.step));
  const auto t = [](double x) { return static_cast<T>(x); };
  return {t(1.0 - a.lr * a.weight_decay),
          t(a.beta1),
          t(a.beta2),
          t(1.0 - a.beta1),
          t(1.0 - a.beta2),
          t(a.lr / c1),
          t(1.0 / std::sqrt(c2)),
          t(a.eps),
          t(a.grad_scale)};
}

template <class T>
SgdCoefficients<T> sgd_coefficients(const SgdArgs& a) {
  return {static_cast<T>(a.lr),
          static_cast<T>(a.momentum),
          static_cast<T>(1.0 - a.dampening),
          static_cast<T>(a.weight_decay),
          static_cast<T>(a.grad_scale),
          a.nesterov,
          a.first_step};
}

}  // namespace

void check_adamw(const AdamWArgs& args) {
  check_parallel("adamw", args.params, args.grads);
  check_parallel("adamw", args.params, args.exp_avg);
  check_parallel("adamw", args.params, args.exp_avg_sq);
  TS_CHECK(args.step >= 1, "adamw", "step {}; steps are counted from 1", args.step);
}

void check_sgd(const SgdArgs& args) {
  check_parallel("sgd", args.params, args.grads);
  const bool buffers = !args.momentum_buffers.empty();
  if (buffers) check_parallel("sgd", args.params, args.momentum_buffers);
  TS_CHECK(buffers || args.momentum == 0.0, "sgd", "momentum {} without momentum buffers", args.momentum);
}

void adamw_step(const AdamWArgs& args) {
  check_adamw(args);
  const auto c32 = adamw_coefficients<float>(args);
  const auto c64 = adamw_coefficients<double>(args);
  const std::vector<Piece> pieces = cut(args.params);
  const OptimizerTable& table = optimizer_table();
  const int threads = threads_for(10.0 * static_cast<double>(total(args.params)));
  parallel_for(static_cast<std::int64_t>(pieces.size()), threads, [&](std::int64_t i) {
    const Piece piece = pieces[static_cast<std::size_t>(i)];
    const auto at = [&](auto tag, std::span<const Array> arrays) {
      return arrays[piece.array].template data<typename decltype(tag)::type>() + piece.lo;
    };
    const auto run = [&](auto tag, const auto& kernels, const auto& c) {
      kernels.adamw(at(tag, args.params), at(tag, args.grads), at(tag, args.exp_avg),
                    at(tag, args.exp_avg_sq), piece.n, c);
    };
    if (args.params[piece.array].dtype() == DType::F32) {
      run(TypeTag<float>{}, table.f32, c32);
    } else {
      run(TypeTag<double>{}, table.f64, c64);
    }
  });
}

void sgd_step(const SgdArgs& args) {
  check_sgd(args);
  const bool buffers = !args.momentum_buffers.empty();
  const auto c32 = sgd_coefficients<float>(args);
  const auto c64 = sgd_coefficients<double>(args);
  const std::vector<Piece> pieces = cut(args.params);
  const OptimizerTable& table = optimizer_table();
  const int threads = threads_for(4.0 * static_cast<double>(total(args.params)));
  parallel_for(static_cast<std::int64_t>(pieces.size()), threads, [&](std::int64_t i) {
    const Piece piece = pieces[static_cast<std::size_t>(i)];
    const auto run = [&](auto tag, const auto& kernels, const auto& c) {
      using T = typename decltype(tag)::type;
      T* buffer = buffers ? args.momentum_buffers[piece.array].template data<T>() + piece.lo : nullptr;
      kernels.sgd(args.params[piece.array].template data<T>() + piece.lo,
                  args.grads[piece.array].template data<T>() + piece.lo, buffer, piece.n, c);
    };
    if (args.params[piece.array].dtype() == DType::F32) {
      run(TypeTag<float>{}, table.f32, c32);
    } else {
      run(TypeTag<double>{}, table.f64, c64);
    }
  });
}

double sum_of_squares(std::span<const Array> arrays) {
  for (const Array& a : arrays) check_flat("sum_of_squares", a);
  const std::vector<Piece> pieces = cut(arrays);
  std::vector<double> partial(pieces.size());
  const ReduceTable& table = reduce_table();
  parallel_for(static_cast<std::int64_t>(pieces.size()), threads_for(static_cast<double>(total(arrays))),
               [&](std::int64_t i) {
                 const Piece piece = pieces[static_cast<std::size_t>(i)];
                 const Array& a = arrays[piece.array];
                 partial[static_cast<std::size_t>(i)] =
                     a.dtype() == DType::F32 ? table.f32.squares(a.data<float>() + piece.lo, piece.n, 0.0)
                                             : table.f64.squares(a.data<double>() + piece.lo, piece.n, 0.0);
               });
  double sum = 0.0;
  for (double x : partial) sum += x;
  return sum;
}

void scale_all(std::span<const Array> arrays, double factor) {
  for (const Array& a : arrays) check_flat("scale_all", a);
  const std::vector<Piece> pieces = cut(arrays);
  const PointwiseTable& table = pointwise_table();
  constexpr auto kAffine = static_cast<std::size_t>(UnaryOp::Affine);
  parallel_for(static_cast<std::int64_t>(pieces.size()), threads_for(static_cast<double>(total(arrays))),
               [&](std::int64_t i) {
                 const Piece piece = pieces[static_cast<std::size_t>(i)];
                 const Array& a = arrays[piece.array];
                 if (a.dtype() == DType::F32) {
                   float* x = a.data<float>() + piece.lo;
                   table.f32.unary[kAffine](x, x, piece.n, static_cast<float>(factor), 0.0F);
                 } else {
                   double* x = a.data<double>() + piece.lo;
                   table.f64.unary[kAffine](x, x, piece.n, factor, 0.0);
                 }
               });
}

}  // namespace tessera::cpu
