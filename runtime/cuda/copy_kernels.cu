#include "runtime/cuda/copy_kernels.h"

#include <cstdint>
#include <type_traits>

#include "runtime/cuda/elements.h"

namespace tessera::cuda {
namespace {

template <class D, class S>
struct Convert : Independent {
  Walk<2> walk;
  Ptr<D> to;
  Ptr<S> from;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= walk.numel) return;
    std::int64_t at[2];
    walk.offsets(i, at);
    if constexpr (std::is_same_v<D, S>) {
      to[at[0]] = from[at[1]];
    } else {
      to[at[0]] = convert<D>(from[at[1]]);
    }
  }
};

template <class T>
TS_DEVICE T sum_of(const T& a, const T& b) {
  if constexpr (std::is_same_v<T, bool>) {
    return load(a) || load(b);
  } else if constexpr (kHalf<T>) {
    return T(load(a) + load(b));
  } else if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}

template <class T>
struct AddInto : Independent {
  Walk<2> walk;
  Ptr<T> to;
  Ptr<T> from;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= walk.numel) return;
    std::int64_t at[2];
    walk.offsets(i, at);
    to[at[0]] = sum_of<T>(to[at[0]], from[at[1]]);
  }
};

template <class T>
struct Fill : Independent {
  Walk<1> walk;
  Ptr<T> to;
  double value;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= walk.numel) return;
    std::int64_t at[1];
    walk.offsets(i, at);
    to[at[0]] = convert<T>(value);
  }
};

template <class T>
Ptr<T> pointer(const Elements& e) {
  return Ptr<T>(static_cast<T*>(e.data));
}

template <class D, class S>
void launch_copy(const Walk<2>& walk, Elements to, Elements from, StreamHandle stream) {
  launch(Convert<D, S>{{}, walk, pointer<D>(to), pointer<S>(from)}, one_each(walk.numel), stream);
}

}  // namespace

void copy_elements(const Walk<2>& walk, Elements to, Elements from, StreamHandle stream) {
  if (to.dtype == from.dtype) {  // as bit patterns of their size
    switch (size_of(to.dtype)) {
      case 1:
        return launch_copy<std::uint8_t, std::uint8_t>(walk, to, from, stream);
      case 2:
        return launch_copy<std::uint16_t, std::uint16_t>(walk, to, from, stream);
      case 4:
        return launch_copy<std::uint32_t, std::uint32_t>(walk, to, from, stream);
      default:
        return launch_copy<std::uint64_t, std::uint64_t>(walk, to, from, stream);
    }
  }
  dispatch(to.dtype, [&](auto d) {
    dispatch(from.dtype, [&](auto s) {
      using D = typename decltype(d)::type;
      using S = typename decltype(s)::type;
      if constexpr (!std::is_same_v<D, S>) launch_copy<D, S>(walk, to, from, stream);
    });
  });
}

void add_elements(const Walk<2>& walk, Elements to, Elements from, StreamHandle stream) {
  dispatch(to.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(AddInto<T>{{}, walk, pointer<T>(to), pointer<T>(from)}, one_each(walk.numel), stream);
  });
}

void fill_elements(const Walk<1>& walk, Elements to, double value, StreamHandle stream) {
  dispatch(to.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(Fill<T>{{}, walk, pointer<T>(to), value}, one_each(walk.numel), stream);
  });
}

}  // namespace tessera::cuda
