#include "ops/cpu/prod_gradient.h"

#include "ops/cpu/block_io.h"
#include "ops/cpu/loops.h"
#include "ops/cpu/row_factors.h"
#include "runtime/error.h"

namespace tessera::cpu {
namespace {

constexpr std::int64_t kPiece = 32768;

// f(offset of x, offset of dx) for every element of a row.
template <class F>
void for_row(const LoopPieces& row, const StridedLoop& loop, const F& f) {
  const auto run = [&](const Offsets& at, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i)
      f(at[0] + i * loop.inner_stride(0), at[1] + i * loop.inner_stride(1));
  };
  for (std::int64_t p = 0; p < row.count(); ++p) row.run(p, run);
}

template <class T>
void typed(const ProdGradientArgs& args, const StridedLoop& kept, const StridedLoop& reduced) {
  const std::int64_t zeros = *args.zeros.data<std::int64_t>();
  const LoopPieces row(reduced, std::numeric_limits<std::int64_t>::max());
  const int threads = threads_for(static_cast<double>(args.x.numel()));
  const std::int64_t group = std::max<std::int64_t>(1, kPiece / std::max<std::int64_t>(reduced.numel, 1));
  for_each_run(kept, threads, group, [&](const Offsets& at, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const auto place = [&](int k) { return at[static_cast<std::size_t>(k)] + i * kept.inner_stride(k); };
      const T* x = args.x.data<T>() + place(0);
      T* dx = args.dx.data<T>() + place(1);
      const T y = args.y.data<T>()[place(2)];
      const T dy = args.dy.data<T>()[place(3)];
      RowFactors factors;
      const auto take = [&](std::int64_t from, std::int64_t) {
        factors.take(static_cast<double>(static_cast<Compute<T>>(x[from])));
      };
      if (zeros > 0) for_row(row, reduced, take);
      if (args.rest.defined()) factors.take(args.rest.data<double>()[place(2)]);
      for_row(row, reduced, [&](std::int64_t from, std::int64_t to) {
        dx[to] = prod_slope<T>(factors, zeros, args.whole, x[from], y, dy);
      });
    }
  });
}

// What lies beside y is found at y's places.
void check_rest(const ProdGradientArgs& a) {
  if (!a.rest.defined()) return;
  bool fits = a.rest.sizes() == a.y.sizes() && a.rest.dtype() == DType::F64;
  for (int d = 0; fits && d < a.y.dim(); ++d) fits = a.y.size(d) == 1 || a.rest.stride(d) == a.y.stride(d);
  TS_CHECK(fits, "prod_gradient", "rest {} {} must be f64 and lie as y {}", name_of(a.rest.dtype()),
           a.rest.sizes().str(), a.y.sizes().str());
}

}  // namespace

void check_prod_gradient(const ProdGradientArgs& a) {
  const char* op = "prod_gradient";
  bool fits = a.dx.sizes() == a.x.sizes() && a.y.sizes() == a.dy.sizes() && a.y.dim() == a.x.dim();
  for (int d = 0; fits && d < a.x.dim(); ++d) fits = a.y.size(d) == a.x.size(d) || a.y.size(d) == 1;
  TS_CHECK(fits, op, "dx {}, x {}, y {} and dy {} do not belong together", a.dx.sizes().str(),
           a.x.sizes().str(), a.y.sizes().str(), a.dy.sizes().str());
  TS_CHECK(is_floating(a.x.dtype()) && a.dx.dtype() == a.x.dtype() && a.y.dtype() == a.x.dtype() &&
               a.dy.dtype() == a.x.dtype() && a.zeros.dtype() == DType::I64 && a.zeros.numel() == 1,
           op, "dx {}, x {}, y {} and dy {} must be of one floating type, and zeros one number of type i64",
           name_of(a.dx.dtype()), name_of(a.x.dtype()), name_of(a.y.dtype()), name_of(a.dy.dtype()));
  check_rest(a);
}

void prod_gradient(const ProdGradientArgs& args) {
  check_prod_gradient(args);
  if (args.x.numel() == 0) return;
  Dims kept = args.x.sizes();
  Dims reduced = args.x.sizes();
  for (int d = 0; d < args.x.dim(); ++d) (args.y.size(d) == 1 && args.x.size(d) != 1 ? kept : reduced)[d] = 1;
  const StridedLoop rows =
      make_loop(kept, {&args.x.strides(), &args.dx.strides(), &args.y.strides(), &args.dy.strides()});
  const StridedLoop row = make_loop(reduced, {&args.x.strides(), &args.dx.strides()});
  dispatch_floating(args.x.dtype(), [&](auto tag) { typed<typename decltype(tag)::type>(args, rows, row); });
}

}  // namespace tessera::cpu
