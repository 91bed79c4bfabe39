#include "tests/ops_cases.h"

// What a window slides over: transposed convolution.
namespace tessera::ops_cases {
namespace {

using namespace mesh_cases;

std::int64_t small(Random& random, std::int64_t most) { return random_int(random, 1, most); }

// A function of 1, 2 or 3 spatial dims.
template <class F>
const F& by_spatial(int n, const F& one, const F& two, const F& three) {
  return n == 1 ? one : n == 2 ? two : three;
}

int draw_spatial(Random& random) {
  return chance(random, 10) ? 3 : static_cast<int>(random_int(random, 1, 2));
}

std::int64_t draw_size(Random& random, int spatial) {
  return random_int(random, 1, spatial == 1 ? 11 : spatial == 2 ? 6 : 3);
}

OpCase draw_conv_transpose(Random& random) {
  const int spatial = draw_spatial(random);
  ConvTransposeOptions o;
  o.stride = o.padding = o.output_padding = o.dilation = Dims();
  o.groups = chance(random, 25) ? 2 : 1;
  Dims x{small(random, 3), o.groups * small(random, 2)};
  Dims w{x[1], small(random, 2)};
  for (int d = 0; d < spatial; ++d) {
    const std::int64_t kernel = small(random, spatial == 1 ? 5 : 3);
    const std::int64_t n = draw_size(random, spatial);
    o.stride.push_back(small(random, 3));
    o.dilation.push_back(small(random, 2));
    o.output_padding.push_back(random_int(random, 0, std::max(o.stride[d], o.dilation[d]) - 1));
    const std::int64_t full = (n - 1) * o.stride[d] + o.dilation[d] * (kernel - 1) + o.output_padding[d] + 1;
    o.padding.push_back(std::min(random_int(random, 0, 3), (full - 1) / 2));
    w.push_back(kernel);
    x.push_back(n);
  }
  if (chance(random, 20)) x.erase(0);
  OpCase c{
      fmt::format("conv_transpose x {} w {} stride {} padding {} output_padding {} dilation {} groups {}",
                  x.str(), w.str(), o.stride.str(), o.padding.str(), o.output_padding.str(), o.dilation.str(),
                  o.groups),
      {{x}, {w}},
      {}};
  const bool bias = chance(random, 50);
  if (bias) c.inputs.push_back({{w[1] * o.groups}});
  auto* f = by_spatial(spatial, &conv_transpose1d, &conv_transpose2d, &conv_transpose3d);
  c.call = [o, bias, f](const Tensors& t) { return Tensors{f(t[0], t[1], bias ? t[2] : Tensor(), o)}; };
  return c;
}

}  // namespace

void add_windows(std::vector<OpFamily>& list) { list.push_back({"conv_transpose", &draw_conv_transpose}); }

}  // namespace tessera::ops_cases
