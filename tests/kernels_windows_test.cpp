// Pooling and sparse matrices along dims against loops over single elements, in any memory order.
#include "tests/kernels_support.h"

#include <limits>
#include <optional>

#include "ops/window/max_pool_kernels.h"

using namespace tessera;
using namespace tessera::kernel_tests;
using cpu::SparseRows;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Windows over the positions of a buffer, some of which reach beyond it.
struct DrawnWindows {
  SparseRows rows;
  std::int64_t inputs = 1;
};
DrawnWindows draw_windows(Random& random, std::int64_t most, bool may_miss) {
  DrawnWindows drawn;
  drawn.inputs = pick(random, 1, most);
  const std::int64_t kernel = pick(random, 1, 4);
  const std::int64_t stride = pick(random, 1, 4);
  const std::int64_t dilation = coin(random) ? 1 : pick(random, 1, 3);
  const std::int64_t padding = pick(random, 0, kernel / 2);
  for (std::int64_t begin = -padding; begin < drawn.inputs; begin += stride) {
    std::int64_t taps = 0;
    for (std::int64_t k = 0; k < kernel; ++k) {
      const std::int64_t i = begin + k * dilation;
      if (i >= 0 && i < drawn.inputs) drawn.rows.add(i, 1), ++taps;
    }
    if (taps == 0 && !may_miss) drawn.rows.add(pick(random, 0, drawn.inputs - 1), 1);
    drawn.rows.end_row();
  }
  return drawn;
}

// Few values, so that many are equal; now and then NaN and infinities.
std::vector<double> draw_values(Random& random, std::int64_t count) {
  const std::int64_t special = coin(random) ? pick(random, 2, 30) : 0;
  const bool steps = coin(random);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& v : values) {
    v = static_cast<double>(steps ? pick(random, -2, 2) : pick(random, -100, 100));
    if (special != 0 && pick(random, 0, special) == 0)
      v = pick(random, 0, 2) == 0 ? kNaN : coin(random) ? kInf : -kInf;
  }
  return values;
}

// Such values in row-major order, in memory with channels innermost or in any other way.
Array draw_array(Random& random, const Dims& sizes, DType dtype) {
  const Array plain = Array::from(draw_values(random, numel_of(sizes)), sizes, dtype);
  const std::int64_t layout = pick(random, 0, 3);
  if (layout == 0) return plain.permute({0, 2, 3, 4, 1}).contiguous().permute({0, 4, 1, 2, 3});
  if (layout == 1) {
    const Array x = awkward(sizes, dtype, random);
    x.copy_(plain);
    return x;
  }
  return plain;
}
Array draw_room(Random& random, const Array& x, const Dims& sizes, DType dtype) {
  if (pick(random, 0, 3) == 0) return awkward(sizes, dtype, random);
  if (x.stride(1) == 1 && x.size(1) > 1)
    return Array::full({sizes[0], sizes[2], sizes[3], sizes[4], sizes[1]}, 7, dtype).permute({0, 4, 1, 2, 3});
  return Array::full(sizes, 7, dtype);
}

std::span<const std::int64_t> taps_of(const SparseRows& rows, std::int64_t o) {
  const auto begin = static_cast<std::size_t>(rows.first[static_cast<std::size_t>(o)]);
  const auto end = static_cast<std::size_t>(rows.first[static_cast<std::size_t>(o) + 1]);
  return std::span(rows.index).subspan(begin, end - begin);
}

// What PyTorch takes of each window: the first of equal values, the last NaN.
struct Found {
  std::vector<double> values, indices;
};
Found found_by_loops(const cpu::MaxPoolArgs& a) {
  Found found;
  const std::vector<double> x = a.x.to_vector();
  const Dims& in = a.x.sizes();
  const auto window = [&](std::int64_t plane, std::int64_t d_out, std::int64_t h_out, std::int64_t w_out) {
    double best = -kInf;
    std::int64_t at = -1;
    for (std::int64_t d : taps_of(*a.rows[0], d_out))
      for (std::int64_t h : taps_of(*a.rows[1], h_out))
        for (std::int64_t w : taps_of(*a.rows[2], w_out)) {
          const double v = x[static_cast<std::size_t>(((plane * in[2] + d) * in[3] + h) * in[4] + w)];
          if (at >= 0 && !(v > best) && !std::isnan(v)) continue;
          best = v;
          at = ((d + a.at.base[0]) * a.at.map[1] + h + a.at.base[1]) * a.at.map[2] + w + a.at.base[2];
        }
    found.values.push_back(best);
    found.indices.push_back(static_cast<double>(at));
  };
  for (std::int64_t plane = 0; plane < in[0] * in[1]; ++plane)
    for (std::int64_t d = 0; d < a.rows[0]->rows(); ++d)
      for (std::int64_t h = 0; h < a.rows[1]->rows(); ++h)
        for (std::int64_t w = 0; w < a.rows[2]->rows(); ++w) window(plane, d, h, w);
  return found;
}

void check_max_pool(Random& random, DType dtype) {
  const bool may_miss = pick(random, 0, 9) == 0;
  const std::array<DrawnWindows, 3> windows{draw_windows(random, 3, may_miss),
                                            draw_windows(random, 6, may_miss),
                                            draw_windows(random, 90, may_miss)};
  Dims in{pick(random, 1, 2), pick(random, 1, 4)};
  Dims out = in;
  cpu::MaxPoolArgs args;
  args.at = {Dims(), Dims()};
  for (std::size_t d = 0; d < 3; ++d) {
    in.push_back(windows[d].inputs);
    out.push_back(windows[d].rows.rows());
    args.rows[d] = &windows[d].rows;
    args.at.base.push_back(pick(random, 0, 2));
    args.at.map.push_back(args.at.base[static_cast<int>(d)] + windows[d].inputs + pick(random, 0, 2));
  }
  args.x = draw_array(random, in, dtype);
  args.y = draw_room(random, args.x, out, dtype);
  if (coin(random)) args.indices = draw_room(random, args.x, out, DType::I64);
  INFO(name_of(dtype) << " " << in.str() << " strides " << args.x.strides().str() << " to " << out.str()
                      << " strides " << args.y.strides().str());
  cpu::max_pool(args);
  const Found found = found_by_loops(args);
  check_close(args.y.to_vector(), found.values, {});
  if (args.indices.defined()) check_close(args.indices.to_vector(), found.indices, {});
}

// Any sparse matrix: windows with weights, some of them 0, as many taps in every row or not.
DrawnWindows draw_matrix(Random& random) {
  DrawnWindows drawn;
  drawn.inputs = pick(random, 1, 120);
  const std::int64_t outputs = pick(random, 1, 150);
  const std::int64_t most = pick(random, 1, 9);
  const std::int64_t least = coin(random) ? most : pick(random, 0, most);
  const double scale = coin(random) ? static_cast<double>(drawn.inputs) / static_cast<double>(outputs)
                                    : static_cast<double>(pick(random, 1, 4));
  for (std::int64_t o = 0; o < outputs; ++o) {
    const auto begin = static_cast<std::int64_t>(static_cast<double>(o) * scale) - 1;
    for (std::int64_t t = pick(random, least, most); t > 0; --t) {
      const bool anywhere = least < most && pick(random, 0, 60) == 0;
      const std::int64_t at = anywhere ? pick(random, 0, drawn.inputs - 1) : begin + t;
      drawn.rows.add(
          std::clamp<std::int64_t>(at, 0, drawn.inputs - 1),
          std::array<double, 4>{0.0, 1.0, 0.25, -0.7}[static_cast<std::size_t>(pick(random, 0, 3))]);
    }
    drawn.rows.end_row();
  }
  return drawn;
}

// [outer, inputs, inner] times the matrix, by the definition.
std::vector<double> products_by_loops(const SparseRows& rows, const Array& x, double* largest_sum) {
  const std::vector<double> from = x.to_vector();
  const std::int64_t inner = x.size(2);
  std::vector<double> y;
  for (std::int64_t i = 0; i < x.size(0); ++i)
    for (std::int64_t o = 0; o < rows.rows(); ++o)
      for (std::int64_t j = 0; j < inner; ++j) {
        double sum = 0;
        double size = 0;
        auto entry = static_cast<std::size_t>(rows.first[static_cast<std::size_t>(o)]);
        for (std::int64_t at : taps_of(rows, o)) {
          const double v = from[static_cast<std::size_t>((i * x.size(1) + at) * inner + j)];
          sum += rows.weight[entry] * v;
          if (std::isfinite(v)) size += std::abs(rows.weight[entry] * v);
          ++entry;
        }
        *largest_sum = std::max(*largest_sum, size);
        y.push_back(sum);
      }
  return y;
}

// NaN has many bits.
bool same_bits(const Array& a, const Array& b) {
  const std::vector<double> u = a.to_vector();
  const std::vector<double> v = b.to_vector();
  for (std::size_t i = 0; i < u.size(); ++i)
    if (!(std::isnan(u[i]) && std::isnan(v[i])) && (u[i] != v[i] || std::signbit(u[i]) != std::signbit(v[i])))
      return false;
  return u.size() == v.size();
}

Array applied(const SparseRows& rows, const Array& x) {
  const Array y = Array::full({x.size(0), rows.rows(), x.size(2)}, 7, x.dtype());
  cpu::apply_rows({y, x, &rows});
  return y;
}

Array draw_lines(Random& random, const Dims& sizes, DType dtype) {
  std::vector<double> values = draw_values(random, numel_of(sizes));
  for (double& v : values) v *= 0.37;
  return Array::from(values, sizes, dtype);
}

}  // namespace

TEST_CASE("max_pool finds what loops find, in every memory order", "[kernels]") {
  Random random(seed());
  for_each_isa([&] {
    for (int trial = 0; trial < 60; ++trial)
      for (const DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16})
        check_max_pool(random, dtype);
  });
}

TEST_CASE("sparse rows give the sums of loops, and the same bits in every memory order", "[kernels]") {
  Random random(seed());
  const std::vector<cpu::Isa> isas = [&] {
    std::vector<cpu::Isa> all;
    for_each_isa([&] { all.push_back(cpu::active_isa()); });
    return all;
  }();
  const cpu::Isa before = cpu::active_isa();
  for (int trial = 0; trial < 150; ++trial)
    for (const DType dtype : {DType::F32, DType::F64}) {
      const DrawnWindows drawn = draw_matrix(random);
      const SparseRows& rows = drawn.rows;
      const std::int64_t lines = pick(random, 0, 9) == 0 ? 70 : pick(random, 1, 12);
      const Array x = draw_lines(random, {lines, drawn.inputs, 1}, dtype);
      INFO(name_of(dtype) << " " << x.sizes().str() << " to " << rows.rows() << ", " << rows.index.size()
                          << " taps");
      double size = 0;
      const std::vector<double> expected = products_by_loops(rows, x, &size);
      std::optional<Array> first;
      for (const cpu::Isa isa : isas) {
        INFO(cpu::name_of(isa));
        cpu::set_active_isa(isa);
        const Array y = applied(rows, x);
        check_close(y.to_vector(), expected, {0, 4 * epsilon(dtype) * size});
        // The same numbers side by side with others.
        const Array wide = applied(rows, x.expand({lines, drawn.inputs, 3}).contiguous());
        for (int column = 0; column < 3; ++column) REQUIRE(same_bits(wide.slice(2, column, 1), y));
        if (!first) first = y;
        REQUIRE(same_bits(*first, y));
      }
      cpu::set_active_isa(before);
    }
}

TEST_CASE("two matrices at once give what they give one after the other", "[kernels]") {
  Random random(seed());
  for_each_isa([&] {
    for (int trial = 0; trial < 60; ++trial) {
      const DType dtype = coin(random) ? DType::F32 : DType::F64;
      const DrawnWindows outer = draw_matrix(random);
      const DrawnWindows inner = draw_matrix(random);
      const std::int64_t width = coin(random) ? 1 : pick(random, 2, 9);
      const std::int64_t maps = pick(random, 1, 3);
      const Array x = draw_lines(random, {maps, outer.inputs, inner.inputs, width}, dtype);
      const std::int64_t m = outer.rows.rows();
      const std::int64_t n = inner.rows.rows();
      const Array y = Array::full({maps, m, n, width}, 7, dtype);
      cpu::apply_two_rows({y, x, &outer.rows, &inner.rows});
      const Array between = applied(outer.rows, x.reshape({maps, outer.inputs, inner.inputs * width}));
      const Array expected = applied(inner.rows, between.reshape({maps * m, inner.inputs, width}));
      REQUIRE(same_bits(y.reshape({maps * m, n, width}), expected));
    }
  });
}
