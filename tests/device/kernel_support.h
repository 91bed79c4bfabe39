// What the tests of the device's kernels share: random arrays with any strides, and a kernel called on the
// CPU and on the device with the same arguments.
#pragma once
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "ops/cuda/fields.h"
#include "runtime/cuda/api.h"
#include "runtime/kernel.h"
#include "tests/support/world.h"

namespace tessera::device_kernels {

using Random = std::mt19937_64;

constexpr DType kFloating[] = {DType::F32, DType::F64, DType::BF16, DType::F16};
inline DType statistic(DType t) { return t == DType::F64 ? DType::F64 : DType::F32; }

inline Array filled(Random& random, const Dims& sizes, DType dtype, double lo = -2, double hi = 2) {
  std::vector<double> values(static_cast<std::size_t>(numel_of(sizes)));
  std::uniform_real_distribution<double> draw(lo, hi);
  for (double& v : values) v = is_floating(dtype) ? draw(random) : std::floor(draw(random));
  return Array::from(values, sizes, dtype);
}
// The same values in another order of memory, with gaps.
inline Array scattered(Random& random, const Dims& sizes, DType dtype) {
  Dims order;
  for (int d = 0; d < sizes.size(); ++d) order.push_back(d);
  std::shuffle(order.begin(), order.end(), random);
  Dims wide;
  for (const std::int64_t d : order) wide.push_back(sizes[static_cast<int>(d)] + random_int(random, 0, 1));
  Dims back = order;
  for (int i = 0; i < order.size(); ++i) back[static_cast<int>(order[i])] = i;
  Array a = filled(random, wide, dtype).permute(back);
  for (int d = 0; d < sizes.size(); ++d)
    a = a.slice(d, random_int(random, 0, a.size(d) - sizes[d]), sizes[d]);
  return a;
}

// With its strides.
inline Array moved(const Array& a) {
  const std::int64_t n = a.storage()->bytes() / size_of(a.dtype());
  const Array whole = Array::wrap(a.storage()->data(), {n}, {1}, a.dtype());
  return whole.to(Device::Cuda).as_strided(a.sizes(), a.strides(), a.offset());
}
// All arrays of an argument struct.
template <class Args>
Args moved_args(Args args) {
  cuda::for_each_array(args, [](Array& a) {
    if (a.defined()) a = moved(a);
  });
  return args;
}

inline void check_close(const Array& got, const Array& want) {
  const double tolerance = want.dtype() == DType::F64    ? 1e-11
                           : want.dtype() == DType::BF16 ? 2e-2
                           : want.dtype() == DType::F16  ? 3e-3
                                                         : 2e-5;
  const std::vector<double> a = got.to_vector();
  const std::vector<double> b = want.to_vector();
  REQUIRE(a.size() == b.size());
  // Long sums, as those of a weight's gradient, lose digits by the size of their terms.
  double largest = 0;
  for (const double v : b)
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool same =
        a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])) ||
        (std::isfinite(b[i]) && std::abs(a[i] - b[i]) <= tolerance * (1 + std::abs(b[i]) + 0.05 * largest));
    if (!same) FAIL("element " << i << " is " << a[i] << " instead of " << b[i]);
  }
}

// Nothing that a kernel is called for makes the host wait.
template <class Args>
void call_on_device(const Kernel<void(const Args&)>& kernel, const Args& args) {
  const std::int64_t waits = cuda::host_waits();
  kernel(Device::Cuda, args);
  CHECK(cuda::host_waits() == waits);
}

template <class Args>
void check(const Kernel<void(const Args&)>& kernel, Args args) {
  INFO(kernel.name());
  Args there = moved_args(args);
  kernel(Device::Cpu, args);
  call_on_device(kernel, there);
  std::vector<Array> wanted;
  cuda::for_each_array(args, [&](Array& a) { wanted.push_back(a); });
  std::size_t i = 0;
  cuda::for_each_array(there, [&](Array& a) {
    if (a.defined()) check_close(a, wanted[i]);
    ++i;
  });
}

inline std::int64_t size_up_to(Random& random, std::int64_t most) {
  return random_int(random, 0, 3) == 0 ? random_int(random, 1, most) : random_int(random, 1, 6);
}

}  // namespace tessera::device_kernels
