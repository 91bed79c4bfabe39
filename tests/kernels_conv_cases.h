// Convolutions against double loops, for the tests of their kernels.
#pragma once
#include "ops/cpu/activation_ops.h"
#include "ops/cpu/conv.h"
#include "ops/cpu/pointwise.h"
#include "tests/kernels_support.h"

namespace tessera::kernel_tests {

struct ConvCase {
  std::int64_t n = 1, c = 3, o = 4, groups = 1;
  Dims in, kernel, stride, lo, hi, dilation;
  Dims out() const {
    Dims sizes;
    for (int d = 0; d < in.size(); ++d)
      sizes.push_back((in[d] + lo[d] + hi[d] - dilation[d] * (kernel[d] - 1) - 1) / stride[d] + 1);
    return sizes;
  }
  std::string text() const {
    return "n " + std::to_string(n) + " c " + std::to_string(c) + " o " + std::to_string(o) + " groups " +
           std::to_string(groups) + " in " + in.str() + " kernel " + kernel.str() + " stride " +
           stride.str() + " padding " + lo.str() + hi.str() + " dilation " + dilation.str();
  }
};

inline ConvCase random_conv(int spatial, Random& random) {
  ConvCase c;
  c.n = pick(random, 1, 3);
  c.groups = pick(random, 0, 3) == 0 ? pick(random, 2, 4) : 1;
  c.c = c.groups * pick(random, 1, 9);
  c.o = c.groups * pick(random, 1, 9);
  if (pick(random, 0, 5) == 0) c.groups = c.c = c.o = 16;  // depthwise
  for (int d = 0; d < spatial; ++d) {
    c.kernel.push_back(pick(random, 1, 4));
    c.stride.push_back(pick(random, 1, 3));
    c.dilation.push_back(pick(random, 1, 2));
    c.lo.push_back(pick(random, 0, 2));
    c.hi.push_back(pick(random, 0, 2));
    const std::int64_t range = c.dilation[d] * (c.kernel[d] - 1) + 1;
    c.in.push_back(std::max<std::int64_t>(1, range - c.lo[d] - c.hi[d]) +
                   pick(random, 0, spatial == 3 ? 4 : 9));
  }
  return c;
}

// f(output index, input index, weight index) for all products of the convolution, row-major indices.
template <class F>
void for_each_product(const ConvCase& c, const F& f) {
  const Dims out = c.out();
  const std::int64_t outs = numel_of(out), taps = numel_of(c.kernel), ins = numel_of(c.in);
  const std::int64_t cg = c.c / c.groups, og = c.o / c.groups;
  for (std::int64_t w = 0; w < outs; ++w)
    for (std::int64_t t = 0; t < taps; ++t) {
      std::int64_t rw = w, rt = t, at = 0, step = 1;
      bool inside = true;
      for (int d = out.size() - 1; d >= 0; --d) {
        const std::int64_t x = rw % out[d] * c.stride[d] - c.lo[d] + rt % c.kernel[d] * c.dilation[d];
        inside = inside && x >= 0 && x < c.in[d];
        at += x * step;
        step *= c.in[d];
        rw /= out[d];
        rt /= c.kernel[d];
      }
      if (!inside) continue;
      for (std::int64_t n = 0; n < c.n; ++n)
        for (std::int64_t o = 0; o < c.o; ++o)
          for (std::int64_t i = 0; i < cg; ++i)
            f(static_cast<std::size_t>((n * c.o + o) * outs + w),
              static_cast<std::size_t>((n * c.c + o / og * cg + i) * ins + at),
              static_cast<std::size_t>((o * cg + i) * taps + t));
    }
}

inline Dims with_spatial(std::int64_t a, std::int64_t b, const Dims& spatial) {
  Dims sizes{a, b};
  for (std::int64_t s : spatial) sizes.push_back(s);
  return sizes;
}

// An image in a layout that the kernels meet: channels-last, plain, a slab of a larger channels-last one,
// anything.
inline Array image(const Dims& sizes, DType dtype, Random& random) {
  Array x;
  switch (pick(random, 0, 3)) {
    case 0:
      x = Array::empty(sizes, dtype);
      break;
    case 1: {
      Dims larger = sizes;
      const int d = static_cast<int>(pick(random, 2, sizes.size() - 1));
      larger[d] += 3;
      x = Array::empty_strided(larger, cpu::channels_last_strides(larger), dtype, Device::Cpu)
              .slice(d, 2, sizes[d]);
      break;
    }
    case 2:
      x = awkward(sizes, dtype, random);
      break;
    default:
      x = Array::empty_strided(sizes, cpu::channels_last_strides(sizes), dtype, Device::Cpu);
  }
  x.copy_(random_array(sizes, dtype, random, 1.0));
  return x;
}

inline void check_conv(const ConvCase& c, DType dtype, Random& random) {
  const Dims x_sizes = with_spatial(c.n, c.c, c.in);
  const Dims y_sizes = with_spatial(c.n, c.o, c.out());
  const Dims w_sizes = with_spatial(c.o, c.c / c.groups, c.kernel);
  const Array x = image(x_sizes, dtype, random);
  const Array y = image(y_sizes, dtype, random);
  const Array dy = image(y_sizes, dtype, random);
  const Array dx = image(x_sizes, dtype, random);
  const Array w =
      coin(random) ? random_array(w_sizes, dtype, random, 1.0).clone() : image(w_sizes, dtype, random);
  const Array dw = coin(random) ? Array::empty(w_sizes, dtype) : awkward(w_sizes, dtype, random);
  const Array bias = coin(random) ? random_array({c.o}, dtype, random) : Array();
  INFO(name_of(dtype) << " " << c.text() << " x " << x.strides().str() << " y " << y.strides().str() << " w "
                      << w.strides().str());
  const cpu::ConvGeometry g{c.stride, c.lo, c.hi, c.dilation, c.groups};
  const std::vector<double> xv = x.to_vector(), wv = w.to_vector(), gv = dy.to_vector();
  std::vector<double> ey(static_cast<std::size_t>(y.numel())), edx(xv.size()), edw(wv.size());
  for_each_product(c, [&](std::size_t o, std::size_t i, std::size_t k) {
    ey[o] += xv[i] * wv[k];
    edx[i] += gv[o] * wv[k];
    edw[k] += gv[o] * xv[i];
  });
  if (bias.defined()) {
    const std::vector<double> bv = bias.to_vector();
    const std::size_t outs = static_cast<std::size_t>(numel_of(c.out()));
    for (std::size_t i = 0; i < ey.size(); ++i) ey[i] += bv[i / outs % bv.size()];
  }
  const double e = epsilon(dtype);
  const double a = is_half(dtype) ? 1e-3 : e;
  const auto tolerance = [&](const std::vector<double>& v) {
    return Tolerance{4 * e, 60 * a * std::max(1.0, largest(v))};
  };
  cpu::conv_forward({y, x, w, bias, g});
  check_close(y.to_vector(), ey, tolerance(ey));
  const auto activation = static_cast<cpu::Activation>(pick(random, 1, 4));
  const Array z = coin(random) ? image(y_sizes, dtype, random) : Array();
  cpu::conv_forward({y, x, w, bias, g, activation, z});
  if (z.defined()) check_close(z.to_vector(), ey, tolerance(ey));
  const Array after = Array::from(ey, y_sizes, DType::F64);
  cpu::unary({after, after, cpu::forward_op(activation)});
  const auto [relative, absolute] = tolerance(ey);
  check_close(y.to_vector(), after.to_vector(), {2 * relative, 2 * absolute + relative * largest(ey)});
  if (coin(random)) {  // as a transposed convolution's
    const Array of_channels = random_array({c.c}, dtype, random);
    const std::vector<double> bv = of_channels.to_vector();
    for (std::size_t i = 0; i < edx.size(); ++i)
      edx[i] += bv[i / static_cast<std::size_t>(numel_of(c.in)) % bv.size()];
    cpu::conv_backward_data({dx, dy, w, g, of_channels});
  } else {
    cpu::conv_backward_data({dx, dy, w, g});
  }
  check_close(dx.to_vector(), edx, tolerance(edx));
  cpu::conv_backward_weight({dw, dy, x, g});
  check_close(dw.to_vector(), edw, tolerance(edw));
}

}  // namespace tessera::kernel_tests
