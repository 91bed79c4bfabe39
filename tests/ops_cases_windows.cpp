#include "tests/ops_cases.h"

// What a window slides over: transposed convolution, pooling, interpolation, padding by the map itself.
namespace tessera::ops_cases {
namespace {

using namespace mesh_cases;

std::int64_t small(Random& random, std::int64_t most) { return random_int(random, 1, most); }

// A function of 1, 2 or 3 spatial dims.
template <class F>
const F& by_spatial(int n, const F& one, const F& two, const F& three) {
  return n == 1 ? one : n == 2 ? two : three;
}

std::int64_t draw_size(Random& random, int spatial) {
  return random_int(random, 1, spatial == 1 ? 11 : spatial == 2 ? 6 : 3);
}

OpCase draw_conv_transpose(Random& random, int spatial) {
  ConvTransposeOptions o;
  o.stride = o.padding = o.output_padding = o.dilation = Dims();
  o.groups = chance(random, 35) ? random_int(random, 2, 3) : 1;
  const bool depthwise = o.groups > 1 && chance(random, 50);
  Dims x{small(random, 3), o.groups * (depthwise ? 1 : small(random, 2))};
  Dims w{x[1], depthwise ? 1 : small(random, 2)};
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

// [N, C, spatial…], now and then without N.
Dims draw_map(Random& random, int spatial) {
  Dims x{small(random, 3), small(random, 3)};
  for (int d = 0; d < spatial; ++d) x.push_back(draw_size(random, spatial));
  if (chance(random, 20)) x.erase(0);
  return x;
}

// Windows that fit a map of `spatial` dims, for any of the pools.
struct DrawnPool {
  Dims kernel, stride, padding, dilation;
  bool ceil_mode = false;
  std::string str() const {
    return fmt::format("kernel {} stride {} padding {} dilation {}{}", kernel.str(), stride.str(),
                       padding.str(), dilation.str(), ceil_mode ? " ceil" : "");
  }
};
DrawnPool draw_pool(Random& random, Dims& x, int spatial, bool dilated) {
  DrawnPool p;
  p.ceil_mode = chance(random, 40);
  for (int d = 0; d < spatial; ++d) {
    p.kernel.push_back(small(random, spatial == 1 ? 5 : 3));
    p.stride.push_back(small(random, 4));
    p.padding.push_back(random_int(random, 0, p.kernel[d] / 2));
    p.dilation.push_back(dilated ? small(random, 2) : 1);
    std::int64_t& n = x[x.size() - spatial + d];
    n = std::max(n, p.dilation[d] * (p.kernel[d] - 1) + 1 - 2 * p.padding[d]);
  }
  if (chance(random, 25)) p.stride = Dims();
  return p;
}

OpCase draw_avg_pool(Random& random, int spatial) {
  Dims x = draw_map(random, spatial);
  const DrawnPool p = draw_pool(random, x, spatial, false);
  AvgPoolOptions o{p.stride, p.padding, p.ceil_mode, chance(random, 50)};
  if (chance(random, 15)) o.divisor_override = random_int(random, 1, 5);
  auto* f = by_spatial(spatial, &avg_pool1d, &avg_pool2d, &avg_pool3d);
  return {fmt::format("avg_pool x {} {}{}", x.str(), p.str(), o.count_include_pad ? "" : " without padding"),
          {{x}},
          [f, o, k = p.kernel](const Tensors& t) { return Tensors{f(t[0], k, o)}; }};
}

OpCase draw_max_pool(Random& random, int spatial) {
  Dims x = draw_map(random, spatial);
  const DrawnPool p = draw_pool(random, x, spatial, true);
  const MaxPoolOptions o{p.stride, p.padding, p.dilation, p.ceil_mode};
  const bool indices = chance(random, 40);
  const bool ties = chance(random, 30);
  auto* values = by_spatial(spatial, &max_pool1d, &max_pool2d, &max_pool3d);
  auto* both =
      by_spatial(spatial, &max_pool1d_with_indices, &max_pool2d_with_indices, &max_pool3d_with_indices);
  OpCase c{fmt::format("max_pool x {} {}{}", x.str(), p.str(), indices ? " indices" : ""),
           {{x, ties ? InputKind::Steps : InputKind::Any}},
           [=, k = p.kernel](const Tensors& t) -> Tensors {
             if (!indices) return {values(t[0], k, o)};
             const MaxPoolResult r = both(t[0], k, o);
             return {r.values, r.indices};
           }};
  // A dilated window may miss the map: minus infinity, which has no finite differences.
  c.smooth = !ties && (p.dilation == Dims::filled(spatial, 1) || p.padding == Dims::filled(spatial, 0));
  return c;
}

OpCase draw_adaptive_pool(Random& random, int spatial) {
  const Dims x = draw_map(random, spatial);
  Dims size;
  for (int d = 0; d < spatial; ++d)
    size.push_back(d > 0 && chance(random, 20) ? kKeepSize : random_int(random, d == 0 ? 1 : 0, 4));
  auto* f = by_spatial(spatial, &adaptive_avg_pool1d, &adaptive_avg_pool2d, &adaptive_avg_pool3d);
  return {fmt::format("adaptive_avg_pool x {} size {}", x.str(), size.str()),
          {{x}},
          [f, size](const Tensors& t) { return Tensors{f(t[0], size)}; }};
}

OpCase draw_interpolate(Random& random, int spatial) {
  Dims x = draw_map(random, spatial);
  if (x.size() == spatial + 1) x.insert(0, 2);
  InterpolateOptions o;
  std::vector<InterpolateMode> modes{
      InterpolateMode::Nearest, InterpolateMode::NearestExact, InterpolateMode::Area,
      by_spatial(spatial, InterpolateMode::Linear, InterpolateMode::Bilinear, InterpolateMode::Trilinear)};
  if (spatial == 2) modes.insert(modes.end(), {InterpolateMode::Bicubic, InterpolateMode::Bicubic});
  modes.push_back(modes.back());
  o.mode = pick(random, modes);
  const bool aligns = o.mode != InterpolateMode::Nearest && o.mode != InterpolateMode::NearestExact &&
                      o.mode != InterpolateMode::Area;
  if (aligns && chance(random, 70)) o.align_corners = chance(random, 60);
  for (int d = 0; d < spatial; ++d) o.size.push_back(small(random, spatial == 3 ? 5 : 12));
  if (chance(random, 40)) {
    o.size = Dims();
    o.scale_factor = {pick(random, std::vector<double>{1.0, 1.5, 2.0, 2.7})};
    o.recompute_scale_factor = chance(random, 30);
  }
  return {fmt::format("interpolate x {} size {} scale {} mode {} align {}", x.str(), o.size.str(),
                      o.scale_factor.empty() ? 0 : o.scale_factor[0], static_cast<int>(o.mode),
                      o.align_corners.value_or(false)),
          {{x}},
          [o](const Tensors& t) { return Tensors{interpolate(t[0], o)}; }};
}

OpCase draw_inside_pad(Random& random, int spatial) {
  Dims x = draw_map(random, spatial);
  const PadMode mode = chance(random, 50) ? PadMode::Reflect : PadMode::Replicate;
  std::vector<std::int64_t> amounts;
  for (int d = x.size() - 1; d >= x.size() - spatial; --d) {
    const std::int64_t most = mode == PadMode::Reflect ? std::min<std::int64_t>(x[d] - 1, 4) : 4;
    amounts.push_back(random_int(random, -std::min<std::int64_t>(1, x[d] - 1), most));
    amounts.push_back(random_int(random, 0, most));
  }
  return {fmt::format("pad x {} {} {}", x.str(), mode == PadMode::Reflect ? "reflect" : "replicate",
                      Dims(amounts).str()),
          {{x}},
          [amounts, mode](const Tensors& t) { return Tensors{pad(t[0], amounts, mode)}; }};
}

using DrawSpatial = OpCase (*)(Random& random, int spatial);

}  // namespace

// A family for each number of dims, so that each operation gets as many trials as the rest.
void add_windows(std::vector<OpFamily>& list) {
  struct Named {
    std::array<const char*, 3> names;
    DrawSpatial draw;
  };
  for (const auto& [names, draw] : std::initializer_list<Named>{
           {{"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}, &draw_conv_transpose},
           {{"avg_pool1d", "avg_pool2d", "avg_pool3d"}, &draw_avg_pool},
           {{"max_pool1d", "max_pool2d", "max_pool3d"}, &draw_max_pool},
           {{"adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"}, &draw_adaptive_pool},
           {{"interpolate 1d", "interpolate 2d", "interpolate 3d"}, &draw_interpolate},
           {{"pad from inside 1d", "pad from inside 2d", "pad from inside 3d"}, &draw_inside_pad}})
    for (int n = 1; n <= 3; ++n)
      list.push_back({names[static_cast<std::size_t>(n - 1)],
                      [draw = draw, n](Random& random) { return draw(random, n); }});
}

}  // namespace tessera::ops_cases
