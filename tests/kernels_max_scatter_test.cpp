// The gradient of max pooling, against a loop: windows that tile the map, that leave some of it out, that
// overlap.
#include "ops/window/max_pool_kernels.h"
#include "tests/kernels_support.h"

using namespace tessera;
using namespace tessera::kernel_tests;
using cpu::SparseRows;

namespace {

// Windows of `kernel` positions every `stride` ones.
SparseRows windows(std::int64_t size, std::int64_t kernel, std::int64_t stride) {
  SparseRows rows;
  for (std::int64_t first = 0; first + kernel <= size; first += stride) {
    for (std::int64_t i = 0; i < kernel; ++i) rows.add(first + i, 1.0);
    rows.end_row();
  }
  return rows;
}

Array map_of(const Dims& s, DType dtype, bool last) {
  if (!last) return Array::full(s, 7, dtype);
  return Array::full({s[0], s[2], s[3], s[4], s[1]}, 7, dtype).permute({0, 4, 1, 2, 3});
}

// Multiples of a quarter, whose sums are exact, and zeros of either sign.
Array quarters(const Dims& sizes, DType dtype, bool last, Random& random) {
  std::vector<double> values(static_cast<std::size_t>(numel_of(sizes)));
  for (double& v : values)
    v = pick(random, 0, 5) == 0 ? -0.0 : 0.25 * static_cast<double>(pick(random, -9, 9));
  const Array map = map_of(sizes, dtype, last);
  map.copy_(Array::from(values, sizes, dtype));
  return map;
}

void check_scatter(Random& random, DType dtype, bool last) {
  const Dims in{pick(random, 1, 2), pick(random, 1, 70), pick(random, 1, 4), pick(random, 3, 9),
                pick(random, 3, 40)};
  const std::int64_t kernel = pick(random, 1, 3);
  const std::int64_t stride = std::max<std::int64_t>(1, kernel + pick(random, -1, 1));
  const std::array<SparseRows, 3> rows{windows(in[2], 1, 1), windows(in[3], kernel, stride),
                                       windows(in[4], kernel, stride)};
  const Dims out{in[0], in[1], rows[0].rows(), rows[1].rows(), rows[2].rows()};
  INFO(name_of(dtype) << " " << in.str() << " channels last " << last << " windows of " << kernel << " every "
                      << stride);
  const cpu::PooledMap at{{0, 0, 0}, {in[2], in[3], in[4]}};
  const Array y = map_of(out, dtype, last);
  const Array indices = map_of(out, DType::I64, last);
  cpu::max_pool({y, indices, quarters(in, dtype, last, random), {&rows[0], &rows[1], &rows[2]}, at});
  const Array dy = quarters(out, dtype, last, random);
  const Array buffer = map_of(in, dtype, last);
  cpu::scatter_max({buffer, dy, indices, at, {&rows[0], &rows[1], &rows[2]}});

  const std::int64_t plane = in[2] * in[3] * in[4];
  std::vector<double> expected(static_cast<std::size_t>(numel_of(in)), 0.0);
  const std::vector<double> from = dy.to_vector();
  const std::vector<double> where = indices.to_vector();
  const std::int64_t outputs = out[2] * out[3] * out[4];
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::int64_t of_plane = static_cast<std::int64_t>(i) / outputs * plane;
    expected[static_cast<std::size_t>(of_plane + static_cast<std::int64_t>(where[i]))] += from[i];
  }
  const std::vector<double> got = buffer.to_vector();
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    if (got[i] != expected[i] || std::signbit(got[i]) != std::signbit(expected[i]))
      FAIL("element " << i << " is " << got[i] << ", not " << expected[i]);
}

}  // namespace

TEST_CASE("the gradient of max_pool goes where indices point, in every memory order", "[kernels]") {
  Random random(seed());
  for_each_isa([&] {
    for (const DType dtype : {DType::F32, DType::F64})
      for (const bool last : {false, true})
        for (int trial = 0; trial < 60; ++trial) check_scatter(random, dtype, last);
  });
}
