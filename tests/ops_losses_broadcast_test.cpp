// Losses of operands of different sizes.
#include <catch2/catch.hpp>

#include <cmath>

#include "ops/ops.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

DeviceMesh domain() { return DeviceMesh(test_world(), {{"domain", test_world().size()}}); }

}  // namespace

TEST_CASE("losses of differences broadcast, and the mean is over all pairs", "[ops][losses]") {
  using Each = std::function<double(double)>;
  using Named = std::pair<Each, Tensor (*)(const Tensor&, const Tensor&, Reduction)>;
  const std::vector<Named> losses{
      {[](double d) { return d * d; }, &mse_loss},
      {[](double d) { return std::abs(d); }, &l1_loss},
      {[](double d) { return std::abs(d) < 1 ? d * d / 2 : std::abs(d) - 0.5; },
       [](const Tensor& x, const Tensor& y, Reduction r) { return smooth_l1_loss(x, y, r); }},
      {[](double d) { return std::abs(d) < 2 ? d * d / 2 : 2 * (std::abs(d) - 1); },
       [](const Tensor& x, const Tensor& y, Reduction r) { return huber_loss(x, y, r, 2.0); }}};
  auto random = test_random(53);
  const DeviceMesh mesh = domain();
  const Dims wide{3, 4, 5};
  for (const auto& [each, loss] : losses)
    for (const Dims& narrow : {Dims{4, 1}, Dims{3, 1, 5}, Dims{}, Dims{1, 4, 5}})
      for (const bool wide_first : {true, false}) {
        Generator g(static_cast<std::uint64_t>(random_int(random, 0, 1000)));
        const Tensor a = randn(wide, g, DType::F64);
        const Tensor b = randn(narrow, g, DType::F64);
        // By hand: every element of the larger one beside the one that is stretched to it.
        const std::vector<double> av = a.to_vector();
        const std::vector<double> bv = expand(b, wide).to_vector();
        double total = 0;
        std::vector<double> by_wide(av.size());
        for (std::size_t i = 0; i < av.size(); ++i) {
          const double d = wide_first ? av[i] - bv[i] : bv[i] - av[i];
          total += each(d);
          by_wide[i] = (each(d + 1e-6) - each(d - 1e-6)) / 2e-6 * (wide_first ? 1 : -1);
        }
        const auto held = [&](const Tensor& t) {
          return redistribute(t, random_spec(random, mesh, t.sizes())).detach().set_requires_grad();
        };
        Tensor x = held(a);
        Tensor y = held(b);
        const Tensor got = wide_first ? loss(x, y, Reduction::Sum) : loss(y, x, Reduction::Sum);
        CHECK(got.item() == Approx(total));
        CHECK((wide_first ? loss(x, y, Reduction::Mean) : loss(y, x, Reduction::Mean)).item() ==
              Approx(total / 60));
        CHECK(loss(x, y, Reduction::None).sizes() == wide);
        got.backward();
        const std::vector<double> dx = x.grad().to_vector();
        for (std::size_t i = 0; i < dx.size(); ++i)
          CHECK(dx[i] == Approx(by_wide[i]).epsilon(1e-4).margin(1e-4));
        CHECK(y.grad().sizes() == narrow);
        double all = 0;
        for (const double v : y.grad().to_vector()) all += v;
        for (const double v : dx) all += v;
        CHECK(all == Approx(0).margin(1e-9));  // moved together they change nothing
      }
}

// Values of PyTorch 2.15.0 in float64.
TEST_CASE("kl_div broadcasts, and its batch is the prediction's own", "[ops][losses]") {
  auto random = test_random(54);
  const DeviceMesh mesh = domain();
  const auto held = [&](const std::vector<double>& values, const Dims& sizes) {
    const Tensor t(Array::from(values, sizes, DType::F64));
    return redistribute(t, random_spec(random, mesh, sizes)).detach().set_requires_grad();
  };
  const std::vector<std::pair<Reduction, double>> wanted{{Reduction::Mean, 0.0620668768464411},
                                                         {Reduction::Sum, 0.3724012610786466},
                                                         {Reduction::BatchMean, 0.1241337536928822}};
  for (const auto& [reduction, value] : wanted) {
    Tensor x = held({-1.0, -2.0, -0.5}, {3});
    Tensor y = held({0.2, 0.3, 0.5, 0.6, 0.3, 0.1}, {2, 3});
    const Tensor loss = kl_div(x, y, reduction);
    CHECK(loss.item() == Approx(value));
    loss.backward();
    const double scale = value / wanted[1].second;
    const std::vector<double> dx{-0.8, -0.6, -0.6};
    const std::vector<double> dy{0.3905620875658997, 1.7960271956740639, 0.8068528194400547,
                                 1.4891743762340093, 1.7960271956740639, -0.8025850929940455};
    for (std::size_t i = 0; i < dx.size(); ++i) CHECK(x.grad().to_vector()[i] == Approx(dx[i] * scale));
    for (std::size_t i = 0; i < dy.size(); ++i) CHECK(y.grad().to_vector()[i] == Approx(dy[i] * scale));
  }
}
