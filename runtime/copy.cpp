#include "runtime/copy.h"

#include <cstring>
#include <type_traits>

#include "runtime/strided.h"

namespace tessera {
namespace {

using detail::StridedPlan;

// A byte of a wrapped Bool array may hold any value; read as such, not as a C++ bool.
template <class S>
auto load(const S& value) {
  if constexpr (std::is_same_v<S, bool>) {
    unsigned char byte = 0;
    std::memcpy(&byte, &value, 1);
    return byte != 0;
  } else if constexpr (kHalf<S>) {
    return static_cast<float>(value);
  } else {
    return value;
  }
}

template <class D, class S>
D convert(const S& source) {
  const auto value = load(source);
  if constexpr (std::is_same_v<D, bool>) {
    return value != 0;
  } else if constexpr (kHalf<D>) {
    return D(static_cast<float>(value));
  } else {
    return static_cast<D>(value);
  }
}

template <class D, class S>
void convert_row(D* to, const S* from, std::int64_t n, std::int64_t to_stride, std::int64_t from_stride) {
  if (to_stride == 1 && from_stride == 1) {
    for (std::int64_t i = 0; i < n; ++i) to[i] = convert<D>(from[i]);
  } else if (to_stride == 1 && from_stride == 0) {
    const D value = convert<D>(*from);
    for (std::int64_t i = 0; i < n; ++i) to[i] = value;
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i * to_stride] = convert<D>(from[i * from_stride]);
  }
}

// A call of the C library takes longer than these.
template <class T>
void move_few(T* to, const T* from, std::int64_t n) {
  switch (n) {
    case 4:
      to[3] = from[3];
      [[fallthrough]];
    case 3:
      to[2] = from[2];
      [[fallthrough]];
    case 2:
      to[1] = from[1];
      [[fallthrough]];
    case 1:
      to[0] = from[0];
      [[fallthrough]];
    default:
      return;
  }
}

template <class T>
void move_row(T* to, const T* from, std::int64_t n, std::int64_t to_stride, std::int64_t from_stride) {
  if (to_stride == 1 && from_stride == 1) {
    if (n <= 4) return move_few(to, from, n);
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
  } else if (to_stride == 1 && from_stride == 0) {
    std::fill_n(to, n, *from);
  } else {
    for (std::int64_t i = 0; i < n; ++i) to[i * to_stride] = from[i * from_stride];
  }
}

// Equal dtypes are moved as bit patterns of their size.
template <class T>
void move_elements(const StridedPlan& plan, void* target, const void* source) {
  auto* to = static_cast<T*>(target) + plan.to_shift;
  const auto* from = static_cast<const T*>(source) + plan.from_shift;
  if (plan.tiled) {
    detail::walk_tiles(plan, to, from, detail::Assign{});
  } else {
    detail::walk_rows(plan, to, from, [](T* a, const T* b, std::int64_t n, std::int64_t da, std::int64_t db) {
      move_row(a, b, n, da, db);
    });
  }
}

void move_by_size(std::int64_t size, const StridedPlan& plan, void* to, const void* from) {
  switch (size) {
    case 1:
      return move_elements<std::uint8_t>(plan, to, from);
    case 2:
      return move_elements<std::uint16_t>(plan, to, from);
    case 4:
      return move_elements<std::uint32_t>(plan, to, from);
    default:
      return move_elements<std::uint64_t>(plan, to, from);
  }
}

// The source in the order in which the target is written, one element after another; `plan` then reads that.
// So the loops of a transpose are not compiled for every pair of dtypes.
Array in_target_order(StridedPlan& plan, const Array& src) {
  const Array moved = Array::empty({plan.numel()}, src.dtype());
  StridedPlan move = plan;
  move.to_shift = 0;
  std::int64_t run = 1;
  for (int d = plan.n - 1; d >= 0; --d) {
    const auto i = static_cast<std::size_t>(d);
    move.to[i] = run;
    run *= plan.size[i];
  }
  move_by_size(size_of(src.dtype()), move, moved.raw(), src.raw());
  plan.from = move.to;
  plan.from_shift = 0;
  plan.tiled = false;
  return moved;
}

void copy_cpu(const Array& dst, const Array& src) {
  StridedPlan plan = detail::plan_pair(dst.sizes(), dst.strides(), src.strides());
  if (dst.dtype() == src.dtype()) return move_by_size(size_of(dst.dtype()), plan, dst.raw(), src.raw());
  const Array source = plan.tiled ? in_target_order(plan, src) : src;
  dispatch(dst.dtype(), [&](auto d) {
    dispatch(source.dtype(), [&](auto s) {
      using D = typename decltype(d)::type;
      using S = typename decltype(s)::type;
      if constexpr (!std::is_same_v<D, S>)
        detail::walk_rows(plan, dst.data<D>() + plan.to_shift, source.data<S>() + plan.from_shift,
                          &convert_row<D, S>);
    });
  });
}

void fill_cpu(const Array& dst, double value) {
  const Dims none = Dims::filled(dst.dim(), 0);
  const StridedPlan plan = detail::plan_pair(dst.sizes(), dst.strides(), none);
  dispatch(dst.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T element = convert<T>(value);
    detail::walk_rows(plan, dst.data<T>() + plan.to_shift, &element,
                      [](T* to, const T* from, std::int64_t n, std::int64_t stride, std::int64_t) {
                        const T v = *from;
                        if (stride == 1) {
                          std::fill_n(to, n, v);
                        } else {
                          for (std::int64_t i = 0; i < n; ++i) to[i * stride] = v;
                        }
                      });
  });
}

template <class T>
void add_one(T& a, const T& b) {
  if constexpr (std::is_same_v<T, bool>) {
    a = load(a) || load(b);
  } else if constexpr (kHalf<T>) {
    a = T(static_cast<float>(a) + static_cast<float>(b));
  } else if constexpr (std::is_integral_v<T>) {
    // Wraps around like the hardware does, without undefined overflow.
    using U = std::make_unsigned_t<T>;
    a = static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    a += b;
  }
}

template <class T>
void add_row(T* to, const T* from, std::int64_t n, std::int64_t to_stride, std::int64_t from_stride) {
  if (to_stride == 1 && from_stride == 1) {
    for (std::int64_t i = 0; i < n; ++i) add_one(to[i], from[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) add_one(to[i * to_stride], from[i * from_stride]);
  }
}

void add_into_cpu(const Array& dst, const Array& src) {
  const StridedPlan plan = detail::plan_pair(dst.sizes(), dst.strides(), src.strides());
  dispatch(dst.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* to = dst.data<T>() + plan.to_shift;
    const T* from = src.data<T>() + plan.from_shift;
    if (plan.tiled) {
      detail::walk_tiles(plan, to, from, [](T& a, const T& b) { add_one(a, b); });
    } else {
      detail::walk_rows(plan, to, from, &add_row<T>);
    }
  });
}

void check_writable(const char* op, const Array& dst) {
  TS_CHECK(dst.defined(), op, "the target is undefined");
  for (int d = 0; d < dst.dim(); ++d)
    TS_CHECK(dst.stride(d) != 0 || dst.size(d) <= 1 || dst.numel() == 0, op,
             "the target of shape {} is expanded along dim {} (stride 0), it cannot be written",
             dst.sizes().str(), d);
}

void check_pair(const char* op, const Array& dst, const Array& src) {
  check_writable(op, dst);
  TS_CHECK(src.defined(), op, "the source is undefined");
  TS_CHECK(dst.sizes() == src.sizes(), op, "the target has shape {} and the source {}, they must be equal",
           dst.sizes().str(), src.sizes().str());
}

// The device whose kernel does a two-operand operation.
Device working_device(const Array& dst, const Array& src) {
  if (dst.device() == Device::Meta || src.device() == Device::Meta) return Device::Meta;
  return dst.device() == Device::Cpu ? src.device() : dst.device();
}

struct AddressRange {
  std::intptr_t lo;
  std::intptr_t hi;
};
AddressRange address_range(const Array& a) {
  std::int64_t lo = 0;
  std::int64_t hi = 0;
  for (int d = 0; d < a.dim(); ++d) (a.stride(d) < 0 ? lo : hi) += a.stride(d) * (a.size(d) - 1);
  const auto base = reinterpret_cast<std::intptr_t>(a.raw());
  const std::int64_t item = size_of(a.dtype());
  return {base + lo * item, base + (hi + 1) * item};
}

}  // namespace

Kernel<void(const Array&, const Array&)> copy_kernel{"copy", &copy_cpu};
Kernel<void(const Array&, double)> fill_kernel{"fill", &fill_cpu};
Kernel<void(const Array&, const Array&)> add_into_kernel{"add_into", &add_into_cpu};

void copy_strided(const Array& dst, const Array& src) {
  check_pair("copy", dst, src);
  if (dst.numel() > 0) copy_kernel(working_device(dst, src), dst, src);
}

void copy_box(const Array& dst, const Dims& dst_at, const Array& src, const Dims& src_at,
              const Dims& extent) {
  if (dst.device() != Device::Cpu || dst.dtype() != src.dtype() || src.device() != Device::Cpu)
    return copy_strided(dst.box(dst_at, extent), src.box(src_at, extent));
  if (numel_of(extent) == 0) return;
  const StridedPlan plan = detail::plan_pair(extent, dst.strides(), src.strides());
  const std::int64_t item = size_of(dst.dtype());
  const auto element = [item](const Array& a, const Dims& at) {
    std::int64_t offset = 0;
    for (int d = 0; d < at.size(); ++d) offset += at[d] * a.stride(d);
    return static_cast<char*>(a.raw()) + offset * item;
  };
  move_by_size(item, plan, element(dst, dst_at), element(src, src_at));
}

void fill(const Array& dst, double value) {
  check_writable("fill", dst);
  if (dst.numel() > 0) fill_kernel(dst.device(), dst, value);
}

void add_into(const Array& dst, const Array& src) {
  check_pair("add_into", dst, src);
  if (dst.numel() == 0) return;
  if (dst.dtype() == src.dtype()) {
    add_into_kernel(working_device(dst, src), dst, src);
  } else {
    add_into_kernel(working_device(dst, src), dst, src.to(dst.dtype()));
  }
}

bool may_overlap(const Array& a, const Array& b) {
  if (a.numel() == 0 || b.numel() == 0 || a.device() != b.device()) return false;
  if (a.device() != Device::Cpu) return a.storage() == b.storage();
  const AddressRange x = address_range(a);
  const AddressRange y = address_range(b);
  return x.lo < y.hi && y.lo < x.hi;
}

bool same_view(const Array& a, const Array& b) {
  if (a.dtype() != b.dtype() || a.sizes() != b.sizes() || a.device() != b.device()) return false;
  if (a.device() == Device::Cpu ? a.raw() != b.raw() : a.storage() != b.storage() || a.offset() != b.offset())
    return false;
  for (int d = 0; d < a.dim(); ++d)
    if (a.size(d) > 1 && a.stride(d) != b.stride(d)) return false;
  return true;
}

}  // namespace tessera
