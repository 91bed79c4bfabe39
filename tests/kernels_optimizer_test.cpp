// Optimizer steps over many tensors against scalar formulas.
#include "ops/cpu/adamw.h"
#include "runtime/error.h"
#include "tests/kernels_support.h"

using namespace tessera;
using namespace tessera::kernel_tests;

TEST_CASE("AdamW and SGD follow PyTorch's formulas") {
  Random random(seed());
  for_each_isa([&] {
    for (DType dtype : {DType::F32, DType::F64}) {
      const std::vector<Dims> shapes{{7}, {0}, {40000}, {3, 5}};
      std::vector<Array> p, g, m, v;
      for (const Dims& s : shapes) {
        p.push_back(random_array(s, dtype, random).clone());
        g.push_back(random_array(s, dtype, random).clone());
        m.push_back(Array::zeros(s, dtype));
        v.push_back(Array::zeros(s, dtype));
      }
      std::vector<double> rp = p[3].to_vector();
      std::vector<double> rm(15, 0.0), rv(15, 0.0);
      const std::vector<double> rg = g[3].to_vector();
      for (int t = 1; t <= 3; ++t) {
        cpu::adamw_step({p, g, m, v, 1e-2, 0.9, 0.99, 1e-8, 0.1, t});
        for (std::size_t i = 0; i < 15; ++i) {
          rp[i] *= 1 - 1e-2 * 0.1;
          rm[i] = 0.9 * rm[i] + 0.1 * rg[i];
          rv[i] = 0.99 * rv[i] + 0.01 * rg[i] * rg[i];
          const double denominator = std::sqrt(rv[i]) / std::sqrt(1 - std::pow(0.99, t)) + 1e-8;
          rp[i] -= 1e-2 / (1 - std::pow(0.9, t)) * rm[i] / denominator;
        }
      }
      check_close(p[3].to_vector(), rp, {20 * epsilon(dtype), 4 * epsilon(dtype)});
      std::vector<double> rb(15, 0.0);
      for (int t = 0; t < 3; ++t) {
        cpu::sgd_step({p, g, m, 0.1, 0.9, 0.0, 0.01, true, t == 0});
        for (std::size_t i = 0; i < 15; ++i) {
          const double d = rg[i] + 0.01 * rp[i];
          rb[i] = t == 0 ? d : 0.9 * rb[i] + d;
          rp[i] -= 0.1 * (d + 0.9 * rb[i]);
        }
      }
      check_close(p[3].to_vector(), rp, {60 * epsilon(dtype), 20 * epsilon(dtype)});
      double squares = 0;
      for (const Array& a : g)
        for (double x : a.to_vector()) squares += x * x;
      CHECK(cpu::sum_of_squares(g) == Approx(squares).epsilon(1e-12));
      cpu::scale_all(g, 0.5);
      CHECK(cpu::sum_of_squares(g) == Approx(squares / 4).epsilon(1e-6));
    }
  });
}

TEST_CASE("optimizer steps refuse tensors that do not match") {
  const std::vector<Array> p{Array::zeros({4}, DType::F32)};
  const std::vector<Array> shorter{Array::zeros({3}, DType::F32)};
  const std::vector<Array> wide{Array::zeros({4}, DType::F64)};
  const std::vector<Array> none;
  CHECK_THROWS_AS(cpu::sgd_step({p, shorter, {}, 0.1}), Error);
  CHECK_THROWS_AS(cpu::sgd_step({p, wide, {}, 0.1}), Error);
  CHECK_THROWS_AS(cpu::sgd_step({p, none, {}, 0.1}), Error);
  CHECK_THROWS_AS(cpu::sgd_step({p, p, {}, 0.1, 0.9}), Error);
  CHECK_THROWS_AS(cpu::adamw_step({p, p, p, p, 0.1, 0.9, 0.99, 1e-8, 0.0, 0}), Error);
}
