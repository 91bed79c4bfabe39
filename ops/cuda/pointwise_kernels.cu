#include "ops/cuda/pointwise_kernels.h"

#include <type_traits>
#include <utility>

#include "ops/cpu/integer_power.h"
#include "ops/cuda/device_math.h"
#include "runtime/cuda/elements.h"

namespace tessera::cuda {
namespace {

using cpu::BinaryOp;
using cpu::UnaryOp;

// f(constant) for the op with that number: the choice is the same for all threads of a kernel.
template <class Op, std::size_t... I, class F>
TS_DEVICE void choose(Op op, std::index_sequence<I...>, const F& f) {
  (void)((static_cast<std::size_t>(op) == I && (f(std::integral_constant<Op, static_cast<Op>(I)>{}), true)) ||
         ...);
}

template <class T>
struct UnaryFloating : Independent {
  Walk<2> walk;
  Ptr<T> out;
  Ptr<const T> x;
  UnaryOp op;
  Wide<T> alpha;
  Wide<T> beta;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= walk.numel) return;
    std::int64_t at[2];
    walk.offsets(i, at);
    const Wide<T> value = load(x[at[1]]);
    Wide<T> result = 0;
    constexpr auto kOps = static_cast<std::size_t>(UnaryOp::LogicalNot);
    choose(op, std::make_index_sequence<kOps>{}, [&](auto constant) {
      result = math::unary_element<decltype(constant)::value>(value, alpha, beta);
    });
    out[at[0]] = convert<T>(result);
  }
};

template <class T>
struct UnaryToBool : Independent {
  Walk<2> walk;
  Ptr<bool> out;
  Ptr<const T> x;
  UnaryOp op;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= walk.numel) return;
    std::int64_t at[2];
    walk.offsets(i, at);
    const auto value = load(x[at[1]]);
    if (op == UnaryOp::LogicalNot) {
      out[at[0]] = value == 0;
    } else {
      const bool nan = value != value;
      const bool infinite =
          !nan && std::is_floating_point_v<decltype(load(T()))> && value - value != value - value;
      out[at[0]] = op == UnaryOp::IsNan ? nan : !nan && !infinite;
    }
  }
};

// Integers wrap as PyTorch's do.
template <class T>
struct UnaryInteger : Independent {
  Walk<2> walk;
  Ptr<T> out;
  Ptr<const T> x;
  UnaryOp op;
  T alpha;
  T beta;
  TS_DEVICE T result(T v) const {
    using U = std::make_unsigned_t<T>;
    const T negative = static_cast<T>(U(0) - static_cast<U>(v));
    switch (op) {
      case UnaryOp::Neg:
        return negative;
      case UnaryOp::Abs:
        return v < 0 ? negative : v;
      case UnaryOp::Square:
        return static_cast<T>(static_cast<U>(v) * static_cast<U>(v));
      case UnaryOp::Sign:
        return static_cast<T>((v > 0) - (v < 0));
      case UnaryOp::Relu:
        return v < 0 ? T(0) : v;
      case UnaryOp::Step:
        return static_cast<T>(v > 0);
      case UnaryOp::Affine:
        return static_cast<T>(static_cast<U>(alpha) * static_cast<U>(v) + static_cast<U>(beta));
      case UnaryOp::Clamp:
        return v < alpha ? alpha : v > beta ? beta : v;
      default:
        return v;  // floor, ceil, round
    }
  }
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= walk.numel) return;
    std::int64_t at[2];
    walk.offsets(i, at);
    out[at[0]] = result(x[at[1]]);
  }
};

template <class T>
struct BinaryFloating : Independent {
  Walk<3> walk;
  Ptr<T> out;
  Ptr<const T> a;
  Ptr<const T> b;
  BinaryOp op;
  Wide<T> alpha;
  Wide<T> beta;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= walk.numel) return;
    std::int64_t at[3];
    walk.offsets(i, at);
    const Wide<T> x = load(a[at[1]]);
    const Wide<T> y = load(b[at[2]]);
    Wide<T> result = 0;
    constexpr auto kOps = static_cast<std::size_t>(BinaryOp::Eq);
    choose(op, std::make_index_sequence<kOps>{}, [&](auto constant) {
      result = math::binary_element<decltype(constant)::value>(x, y, alpha, beta);
    });
    out[at[0]] = convert<T>(result);
  }
};

template <class T>
struct Compare : Independent {
  Walk<3> walk;
  Ptr<bool> out;
  Ptr<const T> a;
  Ptr<const T> b;
  BinaryOp op;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= walk.numel) return;
    std::int64_t at[3];
    walk.offsets(i, at);
    const auto x = load(a[at[1]]);
    const auto y = load(b[at[2]]);
    out[at[0]] = op == BinaryOp::Eq   ? x == y
                 : op == BinaryOp::Ne ? x != y
                 : op == BinaryOp::Lt ? x < y
                 : op == BinaryOp::Le ? x <= y
                 : op == BinaryOp::Gt ? x > y
                                      : x >= y;
  }
};

template <class T>
struct BinaryInteger : Independent {
  Walk<3> walk;
  Ptr<T> out;
  Ptr<const T> a;
  Ptr<const T> b;
  BinaryOp op;
  T alpha;
  TS_DEVICE T result(T x, T y) const {
    using U = std::make_unsigned_t<T>;
    const auto u = static_cast<U>(x);
    const auto v = static_cast<U>(y);
    switch (op) {
      case BinaryOp::Add:
        return static_cast<T>(u + static_cast<U>(alpha) * v);
      case BinaryOp::Sub:
        return static_cast<T>(u - static_cast<U>(alpha) * v);
      case BinaryOp::Mul:
        return static_cast<T>(u * v);
      case BinaryOp::Div:  // by zero: all bits
        return y == 0 ? T(-1) : y == T(-1) ? static_cast<T>(U(0) - u) : static_cast<T>(x / y);
      case BinaryOp::Maximum:
        return x > y ? x : y;
      case BinaryOp::Pow:
        return cpu::integer_power(x, y);
      default:
        return x < y ? x : y;
    }
  }
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= walk.numel) return;
    std::int64_t at[3];
    walk.offsets(i, at);
    out[at[0]] = result(a[at[1]], b[at[2]]);
  }
};

struct BinaryBool : Independent {
  Walk<3> walk;
  Ptr<bool> out;
  Ptr<const bool> a;
  Ptr<const bool> b;
  bool either;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= walk.numel) return;
    std::int64_t at[3];
    walk.offsets(i, at);
    const bool x = load(a[at[1]]);
    const bool y = load(b[at[2]]);
    out[at[0]] = either ? x || y : x && y;
  }
};

// As bit patterns.
template <class T>
struct Where : Independent {
  Walk<4> walk;
  Ptr<T> out;
  Ptr<const bool> cond;
  Ptr<const T> a;
  Ptr<const T> b;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= walk.numel) return;
    std::int64_t at[4];
    walk.offsets(i, at);
    out[at[0]] = load(cond[at[1]]) ? a[at[2]] : b[at[3]];
  }
};

template <class T>
Ptr<T> pointer(const Elements& e) {
  return Ptr<T>(static_cast<T*>(e.data));
}

bool has_integer(UnaryOp op) {
  switch (op) {
    case UnaryOp::Neg:
    case UnaryOp::Abs:
    case UnaryOp::Square:
    case UnaryOp::Sign:
    case UnaryOp::Relu:
    case UnaryOp::Step:
    case UnaryOp::Affine:
    case UnaryOp::Clamp:
    case UnaryOp::Floor:
    case UnaryOp::Ceil:
    case UnaryOp::Round:
      return true;
    default:
      return false;
  }
}

bool has_integer(BinaryOp op) { return op <= BinaryOp::Pow; }
bool has_bool(BinaryOp op) {
  return op == BinaryOp::Add || op == BinaryOp::Mul || op == BinaryOp::Maximum || op == BinaryOp::Minimum;
}

template <class T>
void launch_where(const WhereElements& w, StreamHandle stream) {
  launch(Where<T>{{},
                  w.walk,
                  pointer<T>(w.out),
                  pointer<const bool>(w.cond),
                  pointer<const T>(w.a),
                  pointer<const T>(w.b)},
         one_each(w.walk.numel), stream);
}

}  // namespace

bool unary_elements(const UnaryElements& u, StreamHandle stream) {
  const LaunchShape shape = one_each(u.walk.numel);
  bool known = true;
  dispatch(u.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (u.op >= UnaryOp::LogicalNot) {
      launch(UnaryToBool<T>{{}, u.walk, pointer<bool>(u.out), pointer<const T>(u.x), u.op}, shape, stream);
    } else if constexpr (is_floating(dtype_of<T>())) {
      launch(UnaryFloating<T>{{},
                              u.walk,
                              pointer<T>(u.out),
                              pointer<const T>(u.x),
                              u.op,
                              static_cast<Wide<T>>(u.alpha),
                              static_cast<Wide<T>>(u.beta)},
             shape, stream);
    } else if constexpr (!std::is_same_v<T, bool>) {
      known = has_integer(u.op);
      if (known)
        launch(UnaryInteger<T>{{},
                               u.walk,
                               pointer<T>(u.out),
                               pointer<const T>(u.x),
                               u.op,
                               static_cast<T>(u.alpha),
                               static_cast<T>(u.beta)},
               shape, stream);
    } else {
      known = false;
    }
  });
  return known;
}

bool binary_elements(const BinaryElements& e, StreamHandle stream) {
  const LaunchShape shape = one_each(e.walk.numel);
  bool known = true;
  dispatch(e.a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto a = pointer<const T>(e.a);
    const auto b = pointer<const T>(e.b);
    if (e.op >= BinaryOp::Eq) {
      launch(Compare<T>{{}, e.walk, pointer<bool>(e.out), a, b, e.op}, shape, stream);
    } else if constexpr (is_floating(dtype_of<T>())) {
      launch(BinaryFloating<T>{{},
                               e.walk,
                               pointer<T>(e.out),
                               a,
                               b,
                               e.op,
                               static_cast<Wide<T>>(e.alpha),
                               static_cast<Wide<T>>(e.beta)},
             shape, stream);
    } else if constexpr (std::is_same_v<T, bool>) {
      known = has_bool(e.op);
      const bool either = e.op == BinaryOp::Add || e.op == BinaryOp::Maximum;
      if (known) launch(BinaryBool{{}, e.walk, pointer<bool>(e.out), a, b, either}, shape, stream);
    } else {
      known = has_integer(e.op);
      if (known)
        launch(BinaryInteger<T>{{}, e.walk, pointer<T>(e.out), a, b, e.op, static_cast<T>(e.alpha)}, shape,
               stream);
    }
  });
  return known;
}

void where_elements(const WhereElements& w, StreamHandle stream) {
  switch (size_of(w.out.dtype)) {
    case 1:
      return launch_where<std::uint8_t>(w, stream);
    case 2:
      return launch_where<std::uint16_t>(w, stream);
    case 4:
      return launch_where<std::uint32_t>(w, stream);
    default:
      return launch_where<std::uint64_t>(w, stream);
  }
}

}  // namespace tessera::cuda
