#include "ops/cpu/pointwise_scalar.h"

#include <cmath>

#include "ops/cpu/integer_power.h"
#include "runtime/error.h"

namespace tessera::cpu {

namespace {

template <class Op>
[[noreturn]] void refuse_type(Op op, DType given) {
  TS_FAIL(Dtype, name_of(op), "takes {} tensors, given {}", types_of(op), tessera::name_of(given));
}

constexpr std::int64_t kPiece = 32768;

template <class R, class T, class F>
void map1(const UnaryArgs& args, const StridedLoop& loop, int threads, F f) {
  R* out = args.out.data<R>();
  const T* x = args.x.data<T>();
  const std::int64_t so = loop.inner_stride(0);
  const std::int64_t sx = loop.inner_stride(1);
  for_each_run(loop, threads, kPiece, [&](const Offsets& at, std::int64_t n) {
    R* o = out + at[0];
    const T* p = x + at[1];
    if (so == 1 && sx == 1) {
      for (std::int64_t i = 0; i < n; ++i) o[i] = f(p[i]);
    } else {
      for (std::int64_t i = 0; i < n; ++i) o[i * so] = f(p[i * sx]);
    }
  });
}

template <class R, class T, class F>
void map2(const BinaryArgs& args, const StridedLoop& loop, int threads, F f) {
  R* out = args.out.data<R>();
  const T* a = args.a.data<T>();
  const T* b = args.b.data<T>();
  const std::int64_t so = loop.inner_stride(0);
  const std::int64_t sa = loop.inner_stride(1);
  const std::int64_t sb = loop.inner_stride(2);
  for_each_run(loop, threads, kPiece, [&](const Offsets& at, std::int64_t n) {
    R* o = out + at[0];
    const T* p = a + at[1];
    const T* q = b + at[2];
    if (so == 1 && sa == 1 && sb == 1) {
      for (std::int64_t i = 0; i < n; ++i) o[i] = f(p[i], q[i]);
    } else if (so == 1 && sa == 1 && sb == 0) {
      for (std::int64_t i = 0; i < n; ++i) o[i] = f(p[i], *q);
    } else {
      for (std::int64_t i = 0; i < n; ++i) o[i * so] = f(p[i * sa], q[i * sb]);
    }
  });
}

template <class T>
using Wide = std::conditional_t<kHalf<T>, float, T>;

template <class T>
void unary_to_bool(const UnaryArgs& args, const StridedLoop& loop, int threads) {
  using W = Wide<T>;
  const auto run = [&](auto f) { map1<bool, T>(args, loop, threads, f); };
  if (args.op == UnaryOp::LogicalNot) return run([](T x) { return static_cast<W>(x) == W(0); });
  const bool nan_only = args.op == UnaryOp::IsNan;
  if constexpr (is_floating(dtype_of<T>())) {
    if (nan_only) return run([](T x) { return std::isnan(static_cast<W>(x)); });
    return run([](T x) { return std::isfinite(static_cast<W>(x)); });
  }
  run([nan_only](T) { return !nan_only; });
}

// Arithmetic that may overflow goes through unsigned numbers, which wrap as PyTorch's do.
template <class T>
T wrap(std::make_unsigned_t<T> x) {
  return static_cast<T>(x);
}

template <class T>
void unary_integer(const UnaryArgs& args, const StridedLoop& loop, int threads) {
  using U = std::make_unsigned_t<T>;
  const auto run = [&](auto f) { map1<T, T>(args, loop, threads, f); };
  const auto alpha = static_cast<T>(args.alpha);
  const auto beta = static_cast<T>(args.beta);
  switch (args.op) {
    case UnaryOp::Neg:
      return run([](T x) { return wrap<T>(U(0) - static_cast<U>(x)); });
    case UnaryOp::Abs:
      return run([](T x) { return x < 0 ? wrap<T>(U(0) - static_cast<U>(x)) : x; });
    case UnaryOp::Square:
      return run([](T x) { return wrap<T>(static_cast<U>(x) * static_cast<U>(x)); });
    case UnaryOp::Sign:
      return run([](T x) { return static_cast<T>((x > 0) - (x < 0)); });
    case UnaryOp::Relu:
      return run([](T x) { return x < 0 ? T(0) : x; });
    case UnaryOp::Step:
      return run([](T x) { return static_cast<T>(x > 0); });
    case UnaryOp::Affine:
      return run([alpha, beta](T x) {
        return wrap<T>(static_cast<U>(alpha) * static_cast<U>(x) + static_cast<U>(beta));
      });
    case UnaryOp::Clamp:
      return run([alpha, beta](T x) { return x < alpha ? alpha : x > beta ? beta : x; });
    case UnaryOp::Floor:
    case UnaryOp::Ceil:
    case UnaryOp::Round:
      return run([](T x) { return x; });
    default:
      refuse_type(args.op, args.x.dtype());
  }
}

template <class T>
void compare(const BinaryArgs& args, const StridedLoop& loop, int threads) {
  using W = Wide<T>;
  const auto run = [&](auto f) {
    map2<bool, T>(args, loop, threads, [f](T a, T b) { return f(static_cast<W>(a), static_cast<W>(b)); });
  };
  switch (args.op) {
    case BinaryOp::Eq:
      return run([](W a, W b) { return a == b; });
    case BinaryOp::Ne:
      return run([](W a, W b) { return a != b; });
    case BinaryOp::Lt:
      return run([](W a, W b) { return a < b; });
    case BinaryOp::Le:
      return run([](W a, W b) { return a <= b; });
    case BinaryOp::Gt:
      return run([](W a, W b) { return a > b; });
    default:
      return run([](W a, W b) { return a >= b; });
  }
}

template <class T>
T divide(T a, T b) {
  using U = std::make_unsigned_t<T>;
  if (b == 0) TS_FAIL(Usage, "div", "integer division by zero");
  return b == T(-1) ? wrap<T>(U(0) - static_cast<U>(a)) : static_cast<T>(a / b);
}

template <class T>
void binary_integer(const BinaryArgs& args, const StridedLoop& loop, int threads) {
  using U = std::make_unsigned_t<T>;
  const auto run = [&](auto f) { map2<T, T>(args, loop, threads, f); };
  const auto alpha = static_cast<U>(static_cast<T>(args.alpha));
  switch (args.op) {
    case BinaryOp::Add:
      return run([alpha](T a, T b) { return wrap<T>(static_cast<U>(a) + alpha * static_cast<U>(b)); });
    case BinaryOp::Sub:
      return run([alpha](T a, T b) { return wrap<T>(static_cast<U>(a) - alpha * static_cast<U>(b)); });
    case BinaryOp::Mul:
      return run([](T a, T b) { return wrap<T>(static_cast<U>(a) * static_cast<U>(b)); });
    case BinaryOp::Div:
      return run([](T a, T b) { return divide(a, b); });
    case BinaryOp::Maximum:
      return run([](T a, T b) { return a > b ? a : b; });
    case BinaryOp::Minimum:
      return run([](T a, T b) { return a < b ? a : b; });
    case BinaryOp::Pow:
      return run([](T a, T b) { return integer_power(a, b); });
    default:
      refuse_type(args.op, args.a.dtype());
  }
}

void binary_bool(const BinaryArgs& args, const StridedLoop& loop, int threads) {
  const auto run = [&](auto f) { map2<bool, bool>(args, loop, threads, f); };
  switch (args.op) {
    case BinaryOp::Add:
    case BinaryOp::Maximum:
      return run([](bool a, bool b) { return a || b; });
    case BinaryOp::Mul:
    case BinaryOp::Minimum:
      return run([](bool a, bool b) { return a && b; });
    default:
      refuse_type(args.op, DType::Bool);
  }
}

// Of elements as bit patterns. Both are read and masks choose: no branch to guess.
template <class T>
void where_sized(const WhereArgs& args, const StridedLoop& loop, int threads) {
  auto* out = static_cast<T*>(args.out.raw());
  const auto* cond = static_cast<const std::uint8_t*>(args.cond.raw());
  const auto* a = static_cast<const T*>(args.a.raw());
  const auto* b = static_cast<const T*>(args.b.raw());
  const std::int64_t so = loop.inner_stride(0);
  const std::int64_t sc = loop.inner_stride(1);
  const std::int64_t sa = loop.inner_stride(2);
  const std::int64_t sb = loop.inner_stride(3);
  for_each_run(loop, threads, kPiece, [&](const Offsets& at, std::int64_t n) {
    T* o = out + at[0];
    const std::uint8_t* c = cond + at[1];
    const T* p = a + at[2];
    const T* q = b + at[3];
    const auto run = [&](auto of_a, auto of_b) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < n; ++i) {
        const T mask = c[i] != 0 ? static_cast<T>(-1) : T(0);
        o[i] = static_cast<T>((of_a(i) & mask) | (of_b(i) & ~mask));
      }
    };
    const bool dense = so == 1 && sc == 1;
    if (dense && sa == 1 && sb == 1) {
      run([p](std::int64_t i) { return p[i]; }, [q](std::int64_t i) { return q[i]; });
    } else if (dense && sa == 1 && sb == 0) {
      run([p](std::int64_t i) { return p[i]; }, [v = *q](std::int64_t) { return v; });
    } else if (dense && sa == 0 && sb == 1) {
      run([u = *p](std::int64_t) { return u; }, [q](std::int64_t i) { return q[i]; });
    } else {
      for (std::int64_t i = 0; i < n; ++i) o[i * so] = c[i * sc] != 0 ? p[i * sa] : q[i * sb];
    }
  });
}

}  // namespace

void unary_scalar(const UnaryArgs& args, const StridedLoop& loop, int threads) {
  dispatch(args.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (writes_bool(args.op)) return unary_to_bool<T>(args, loop, threads);
    if constexpr (std::is_same_v<T, std::int32_t> || std::is_same_v<T, std::int64_t>) {
      unary_integer<T>(args, loop, threads);
    } else {
      refuse_type(args.op, args.x.dtype());
    }
  });
}

void binary_scalar(const BinaryArgs& args, const StridedLoop& loop, int threads) {
  dispatch(args.a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (is_comparison(args.op)) return compare<T>(args, loop, threads);
    if constexpr (std::is_same_v<T, std::int32_t> || std::is_same_v<T, std::int64_t>) {
      binary_integer<T>(args, loop, threads);
    } else {
      binary_bool(args, loop, threads);
    }
  });
}

void where(const WhereArgs& args) {
  for (const Array* x : {&args.cond, &args.a, &args.b})
    TS_CHECK(x->sizes() == args.out.sizes(), "where", "operand of sizes {} for an output of sizes {}",
             x->sizes().str(), args.out.sizes().str());
  TS_CHECK(args.cond.dtype() == DType::Bool, "where", "condition of type {}; it must be bool",
           tessera::name_of(args.cond.dtype()));
  TS_CHECK(args.a.dtype() == args.out.dtype() && args.b.dtype() == args.out.dtype(), "where",
           "operands of types {} and {} for an output of type {}; they must be equal",
           tessera::name_of(args.a.dtype()), tessera::name_of(args.b.dtype()),
           tessera::name_of(args.out.dtype()));
  const StridedLoop loop = make_loop(
      args.out.sizes(), {&args.out.strides(), &args.cond.strides(), &args.a.strides(), &args.b.strides()});
  const int threads = threads_for(static_cast<double>(loop.numel));
  switch (size_of(args.out.dtype())) {
    case 1:
      return where_sized<std::uint8_t>(args, loop, threads);
    case 2:
      return where_sized<std::uint16_t>(args, loop, threads);
    case 4:
      return where_sized<std::uint32_t>(args, loop, threads);
    default:
      return where_sized<std::uint64_t>(args, loop, threads);
  }
}

}  // namespace tessera::cpu
