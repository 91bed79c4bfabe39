#include "comm/reduce.h"

#include <array>
#include <limits>
#include <type_traits>

namespace tessera {

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return "sum";
    case ReduceOp::Max:
      return "max";
    case ReduceOp::Min:
      return "min";
    case ReduceOp::Product:
      return "product";
  }
  return "?";
}

namespace {

// What T is added up in. Unsigned integers wrap where signed ones would be undefined.
template <class T>
struct Accumulator {
  using type = std::conditional_t<kHalf<T>, float, T>;
};

struct SumOp {
  template <class A>
  A operator()(A a, A b) const {
    if constexpr (std::is_same_v<A, bool>) {
      return (a | b) != 0;
    } else if constexpr (std::is_integral_v<A>) {
      using U = std::make_unsigned_t<A>;
      return static_cast<A>(static_cast<U>(a) + static_cast<U>(b));
    } else {
      return a + b;
    }
  }
};
struct ProductOp {
  template <class A>
  A operator()(A a, A b) const {
    if constexpr (std::is_same_v<A, bool>) {
      return (a & b) != 0;
    } else if constexpr (std::is_integral_v<A>) {
      using U = std::make_unsigned_t<A>;
      return static_cast<A>(static_cast<U>(a) * static_cast<U>(b));
    } else {
      return a * b;
    }
  }
};
// `a != a`: once NaN, always NaN.
struct MaxOp {
  template <class A>
  A operator()(A a, A b) const {
    return ((a > b) | (a != a)) ? a : b;
  }
};
struct MinOp {
  template <class A>
  A operator()(A a, A b) const {
    return ((a < b) | (a != a)) ? a : b;
  }
};

template <class T, class Op>
void reduce_typed(const BlockReduction& r, Op op) {
  using A = typename Accumulator<T>::type;
  // A chunk of all blocks is read before it is written, and its sums stay in the first-level cache.
  constexpr std::int64_t kChunk = 1024;
  std::array<A, kChunk> sums;
  T* out = static_cast<T*>(r.out);
  for (std::int64_t at = 0; at < r.count; at += kChunk) {
    const std::int64_t n = std::min(kChunk, r.count - at);
    A* sum = sums.data();
    const T* first = static_cast<const T*>(r.blocks[0]) + at;
    for (std::int64_t i = 0; i < n; ++i) sum[i] = static_cast<A>(first[i]);
    for (std::size_t b = 1; b < r.blocks.size(); ++b) {
      const T* next = static_cast<const T*>(r.blocks[b]) + at;
      for (std::int64_t i = 0; i < n; ++i) sum[i] = op(sum[i], static_cast<A>(next[i]));
    }
    for (std::int64_t i = 0; i < n; ++i) out[at + i] = T(sum[i]);
  }
}

void reduce_blocks_cpu(const BlockReduction& r) {
  dispatch(r.dtype, [&]<class T>(TypeTag<T>) {
    switch (r.op) {
      case ReduceOp::Sum:
        return reduce_typed<T>(r, SumOp{});
      case ReduceOp::Max:
        return reduce_typed<T>(r, MaxOp{});
      case ReduceOp::Min:
        return reduce_typed<T>(r, MinOp{});
      case ReduceOp::Product:
        return reduce_typed<T>(r, ProductOp{});
    }
  });
}

}  // namespace

Kernel<void(const BlockReduction&)> reduce_blocks_kernel{"reduce_blocks", &reduce_blocks_cpu};

namespace {

// Asked by backends while static variables are made.
std::array<int, kDeviceCount>& most_blocks() {
  static std::array<int, kDeviceCount> table = [] {
    std::array<int, kDeviceCount> any{};
    any.fill(std::numeric_limits<int>::max());
    return any;
  }();
  return table;
}

}  // namespace

int most_reduction_blocks(Device device) { return most_blocks()[static_cast<std::size_t>(device)]; }
void set_most_reduction_blocks(Device device, int most) {
  most_blocks()[static_cast<std::size_t>(device)] = most;
}

void reduce_blocks(const BlockReduction& reduction) {
  if (reduction.count > 0) reduce_blocks_kernel(reduction.device, reduction);
}

}  // namespace tessera
