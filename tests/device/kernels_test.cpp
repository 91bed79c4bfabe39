// Kernels of the device beside those of the CPU: the same arguments, at any strides and in every type, give
// the same results, and the host waits for none of them.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "ops/elementwise/ternary_kernel.h"
#include "ops/kernels.h"
#include "ops/loss/loss_kernels.h"
#include "ops/matmul/linear_kernel.h"
#include "ops/norm/norm_kernels.h"
#include "ops/ops.h"
#include "ops/reduce/merge_kernel.h"
#include "ops/reduce/reduce_kernels.h"
#include "tests/device/kernel_support.h"

using namespace tessera;
using namespace tessera::device_kernels;

TEST_CASE("softmax and norms over rows", "[device]") {
  Random random = test_random(11);
  for (int trial = 0; trial < 40; ++trial) {
    const DType t = kFloating[random_int(random, 0, 3)];
    const Dims sizes{size_up_to(random, 40), size_up_to(random, 300), size_up_to(random, 40)};
    const int dim = static_cast<int>(random_int(random, 0, 2));
    const bool log = trial % 2 == 1;
    check(kernels::softmax,
          cpu::SoftmaxArgs{scattered(random, sizes, t), scattered(random, sizes, t), dim, log});
    check(kernels::softmax_backward,
          cpu::SoftmaxBackwardArgs{scattered(random, sizes, t), scattered(random, sizes, t),
                                   scattered(random, sizes, t), dim, log});
    const std::int64_t rows = size_up_to(random, 900);
    const std::int64_t cols = size_up_to(random, 700);
    const auto data = [&] { return filled(random, {rows, cols}, t); };
    const auto vector = [&] { return trial % 4 == 0 ? Array() : filled(random, {cols}, t); };
    const auto stats = [&] { return filled(random, {rows}, statistic(t), 0.5, 2); };
    check(kernels::layer_norm,
          cpu::LayerNormArgs{data(), stats(), stats(), data(), vector(), vector(), 1e-3});
    check(kernels::layer_norm_backward,
          cpu::LayerNormBackwardArgs{data(), vector(), vector(), data(), data(), stats(), stats(), vector()});
    check(kernels::row_squares, cpu::RowSquaresArgs{stats(), data()});
    check(kernels::row_dots, cpu::RowDotsArgs{stats(), data(), data(), vector()});
    const Array sums = log ? stats() : Array();
    check(kernels::rms_norm, cpu::RmsNormArgs{data(), stats(), data(), vector(), sums, double(cols), 1e-3});
    check(kernels::rms_norm_backward,
          cpu::RmsNormBackwardArgs{data(), vector(), data(), data(), stats(), vector(), sums, double(cols)});
    const Array mean = filled(random, {rows}, DType::F64);
    const Array both = filled(random, {2, rows}, statistic(t));
    check(kernels::layer_norm_sums, cpu::NormSumsArgs{both, data(), data(), mean, stats(), vector()});
    check(kernels::layer_norm_gradient,
          cpu::NormGradientArgs{data(), vector(), vector(), data(), data(), mean, stats(), vector(), both,
                                2.0 * double(cols)});
    if (is_half(t)) continue;
    check(kernels::exp_rows, cpu::ExpRowsArgs{filled(random, {rows}, t), filled(random, {rows}, t),
                                              filled(random, {rows}, t), data(), log});
  }
}

namespace {

struct ChannelCase {
  Dims sizes;
  bool innermost;
  DType t;
  cpu::ChannelGroups groups;
  std::int64_t rows() const { return groups.rows(sizes[0]); }
  Array data(Random& random, double shift = 0) const {
    const Dims order{sizes[0], sizes[2], sizes[1]};
    const Array a = innermost ? filled(random, order, t, shift - 2, shift + 2).transpose(1, 2)
                              : filled(random, sizes, t, shift - 2, shift + 2);
    return a;
  }
  Array vector(Random& random) const {
    return random_int(random, 0, 3) == 0 ? Array() : filled(random, {sizes[1]}, t, 0.5, 2);
  }
  Array stats(Random& random, std::int64_t terms) const {
    return filled(random, {terms, rows()}, statistic(t), 1, 3);
  }
};

ChannelCase channel_case(Random& random, int trial) {
  ChannelCase c;
  c.sizes = {random_int(random, 1, 5), random_int(random, 2, 12), size_up_to(random, 9000)};
  if (trial % 5 == 0) c.sizes[0] = random_int(random, 100, 400);
  if (trial % 5 == 0) c.sizes[2] = random_int(random, 2, 5);
  c.innermost = trial % 2 == 0;
  c.t = kFloating[random_int(random, 0, 3)];
  c.groups.per_sample = random_int(random, 0, 1) == 0;
  // Whole groups, groups cut at both ends, or scattered ones.
  const std::int64_t per = random_int(random, 1, c.sizes[1]);
  const std::int64_t first = random_int(random, 0, per - 1);
  for (std::int64_t i = 0; i < c.sizes[1]; ++i) {
    c.groups.of_channel.push_back(trial % 7 == 3 ? random_int(random, 0, 2) : (i + first) / per);
    c.groups.groups = std::max(c.groups.groups, c.groups.of_channel.back() + 1);
  }
  c.groups.groups += random_int(random, 0, 1);
  return c;
}

}  // namespace

TEST_CASE("norms of channels", "[device]") {
  Random random = test_random(12);
  for (int trial = 0; trial < 48; ++trial) {
    const ChannelCase c = channel_case(random, trial);
    INFO("sizes " << c.sizes.str() << (c.innermost ? " innermost" : "") << " per sample "
                  << c.groups.per_sample);
    check(kernels::channel_moments,
          cpu::ChannelMomentsArgs{c.stats(random, 3), c.data(random, trial % 4 * 50.0), c.groups});
    const auto activation = static_cast<cpu::NormActivation>(trial % 5);
    check(kernels::channel_norm,
          cpu::ChannelNormArgs{c.data(random), c.data(random), c.stats(random, 4), c.vector(random),
                               c.vector(random), 1e-5, c.groups, activation});
    const Array sums = trial % 3 == 0 ? Array() : c.stats(random, 2);
    check(kernels::channel_norm_sums,
          cpu::ChannelSumsArgs{sums, c.vector(random), c.vector(random), c.data(random), c.data(random),
                               c.stats(random, 4), c.vector(random), 1e-5, c.groups, c.vector(random),
                               activation});
    check(kernels::channel_norm_gradient,
          cpu::ChannelGradientArgs{c.data(random), c.data(random), c.data(random), c.stats(random, 4),
                                   c.vector(random), sums, 1e-5, c.groups, c.vector(random), activation});
  }
}

TEST_CASE("running sums, places of extrema, joined moments, powers", "[device]") {
  Random random = test_random(13);
  constexpr DType kTypes[] = {DType::F32, DType::F64, DType::BF16, DType::F16,
                              DType::I64, DType::I32, DType::Bool};
  for (int trial = 0; trial < 60; ++trial) {
    const DType t = kTypes[trial % 7];
    const std::int64_t outer = size_up_to(random, 30);
    const std::int64_t inner = trial % 3 == 0 ? 1 : size_up_to(random, 200);
    std::vector<std::int64_t> lengths;
    std::int64_t n = 0;
    for (int i = 0; i < 1 + trial % 3; ++i) {
      lengths.push_back(size_up_to(random, 500));
      n += lengths.back();
    }
    const auto pieces = static_cast<std::int64_t>(lengths.size());
    const DType running = is_floating(t) ? DType::F64 : DType::I64;
    const Array x = filled(random, {outer, n, inner}, t);
    const Array sums = filled(random, {pieces, outer, inner}, running);
    check(kernels::piece_sums, cpu::PieceSumsArgs{sums, x, lengths});
    const Array out = Array::zeros(x.sizes(), is_floating(t) ? t : DType::I64);
    const Array starts = trial % 4 == 0 ? Array() : sums;
    check(kernels::running_sums, cpu::RunningSumsArgs{out, x, lengths, starts, trial % 2 == 0});

    cpu::ExtremumIndexArgs e;
    e.key = Array::zeros({outer, inner}, DType::I64);
    e.index = Array::zeros({outer, inner}, DType::I64);
    e.x = x;
    for (std::int64_t i = 0; i < n; ++i) e.positions.push_back(trial % 2 == 0 || i < n / 2 ? i : i + 7);
    for (std::int64_t a = 0; trial % 3 == 1 && a < outer; ++a) e.offsets.push_back(1000 * a);
    e.none = 1000000;
    e.largest = trial % 4 < 2;
    check(kernels::extremum_index, e);
    const Array keys = filled(random, {n, inner}, DType::I64);
    const Array indices = filled(random, {n, inner}, DType::I64, 0, 1000);
    check(kernels::merge_extrema, cpu::MergeExtremaArgs{Array::zeros({inner}, DType::I64),
                                                        Array::zeros({inner}, DType::I64), keys, indices});

    const DType f = trial % 2 == 0 ? DType::F32 : DType::F64;
    const std::int64_t parts = random_int(random, 1, 9);
    const std::int64_t kinds = trial % 5 == 0 ? random_int(random, 1, inner) : 1;
    std::vector<double> counts;
    for (std::int64_t i = 0; i < parts * kinds; ++i) counts.push_back(double(random_int(random, 0, 4)));
    const auto row = [&] { return Array::zeros({inner}, f); };
    check(kernels::merge_moments,
          cpu::MergeMomentsArgs{row(), row(), row(), filled(random, {parts, 3, inner}, f), counts});
    const DType p = kFloating[random_int(random, 0, 3)];
    const Dims kept{trial % 2 == 0 ? outer : 1, trial % 5 == 0 ? n : 1, 1};
    check(kernels::power_sums,
          cpu::PowerSumsArgs{Array::zeros(kept, DType::F64), scattered(random, {outer, n, inner}, p),
                             trial % 3 == 0 ? 2.0 : 1.5});
  }
}

TEST_CASE("gradients of products", "[device]") {
  Random random = test_random(17);
  for (int trial = 0; trial < 60; ++trial) {
    const DType t = kFloating[random_int(random, 0, 3)];
    const Dims sizes{size_up_to(random, 40), size_up_to(random, 300), size_up_to(random, 40)};
    Dims kept = sizes;
    for (int d = 0; d < 3; ++d)
      if (random_int(random, 0, 1) == 0) kept[d] = 1;
    const Array x = scattered(random, sizes, t);
    for (const double special : {0.0, 0.0, 0.0, -HUGE_VAL, HUGE_VAL, std::nan("")}) {
      if (random_int(random, 0, 2) == 0) continue;
      Array at = x;
      for (int d = 0; d < 3; ++d) at = at.slice(d, random_int(random, 0, sizes[d] - 1), 1);
      at.fill_(special);
    }
    const Array zeros = Array::full({}, double(random_int(random, 0, 2)), DType::I64);
    check(kernels::prod_gradient,
          cpu::ProdGradientArgs{scattered(random, sizes, t), x, scattered(random, kept, t),
                                scattered(random, kept, t), zeros, trial % 4 == 0});
    const Array rest = filled(random, kept, DType::F64);
    if (random_int(random, 0, 3) == 0) rest.reshape({rest.numel()}).slice(0, 0, 1).fill_(0);
    check(kernels::prod_gradient,
          cpu::ProdGradientArgs{scattered(random, sizes, t), x, filled(random, kept, t),
                                scattered(random, kept, t), zeros, trial % 4 == 0, rest});
  }
}

TEST_CASE("functions of three numbers", "[device]") {
  Random random = test_random(36);
  for (int trial = 0; trial < 16; ++trial) {
    const DType t = kFloating[trial % 4];
    const Dims sizes{size_up_to(random, 4), 1, size_up_to(random, 300)};
    const Dims wide{sizes[0], 3, sizes[2]};
    // Few different numbers, so that there are ties, and some that are none.
    const auto numbers = [&] {
      const Array a = filled(random, sizes, DType::I64, -2, 3).to(t);
      a.slice(2, 0, 1).fill_(trial % 3 == 0 ? std::numeric_limits<double>::quiet_NaN() : 1.0);
      return a.expand(wide);
    };
    for (int op = 0; op < static_cast<int>(cpu::TernaryOp::kCount); ++op) {
      const auto o = static_cast<cpu::TernaryOp>(op);
      INFO(cpu::name_of(o));
      const Array third = o >= cpu::TernaryOp::Share && trial % 2 == 0 ? Array() : numbers();
      check(kernels::ternary, cpu::TernaryArgs{scattered(random, wide, t), scattered(random, wide, t),
                                               numbers(), third, o, 0.75});
      check(kernels::ternary,
            cpu::TernaryArgs{scattered(random, wide, t), numbers(), numbers(), third, o, 0.75});
    }
  }
}

TEST_CASE("running statistics", "[device]") {
  Random random = test_random(37);
  for (int trial = 0; trial < 32; ++trial) {
    const auto any = [&] { return kFloating[random_int(random, 0, 3)]; };
    const std::int64_t channels = random_int(random, 0, 300);
    const std::int64_t samples = random_int(random, 1, 4);
    const Array stats = scattered(random, {4, samples, channels}, trial % 2 == 0 ? DType::F32 : DType::F64);
    const double row = random_int(random, 2, 9);
    stats.slice(0, 3, 1).fill_(trial % 5 == 0 ? 0.0 : row);
    const auto running = [&](int without) {
      return trial % 7 == without ? Array() : scattered(random, {channels}, any());
    };
    check(kernels::move_running,
          cpu::MoveRunningArgs{running(3), running(4), stats, samples == 1 ? 0.0 : row, 0.3});
  }
}

TEST_CASE("losses", "[device]") {
  Random random = test_random(14);
  for (int trial = 0; trial < 48; ++trial) {
    const DType t = kFloating[random_int(random, 0, 3)];
    const Dims sizes{size_up_to(random, 50), size_up_to(random, 90), size_up_to(random, 9)};
    const auto data = [&] { return scattered(random, sizes, t); };
    cpu::PairLossArgs p{data(), data(), data(), trial % 2 == 0 ? Array() : data(), {}, {}, {}, 0.25};
    p.kind = {static_cast<cpu::PairLoss>(trial % static_cast<int>(cpu::PairLoss::kCount)), 0.5};
    const bool probabilities =
        p.kind.loss == cpu::PairLoss::Entropy || p.kind.loss == cpu::PairLoss::Divergence;
    if (probabilities) p.x = filled(random, sizes, t, 0.1, 0.9);
    if (probabilities) p.target = filled(random, sizes, t, 0.1, 0.9);
    Array out = Array::zeros({}, t);
    check(kernels::pair_loss_sum, cpu::PairLossArgs{out, p.x, p.target, p.positive, {}, p.kind, {}, 0.25});
    p.part = static_cast<cpu::PairPart>(trial % 3);
    if (trial % 4 == 0) p.factor = filled(random, {}, t);
    check(kernels::pair_loss, p);
    check(kernels::unit_range, cpu::UnitRangeArgs{Array::zeros({1}, DType::F64),
                                                  trial % 5 == 0 ? data() : filled(random, sizes, t, 0, 1),
                                                  trial % 4 == 0 ? data() : filled(random, sizes, t, 0, 1)});

    const std::int64_t classes = size_up_to(random, 300) + 1;
    const std::int64_t rows = sizes[0] * sizes[2];
    cpu::ClassData d;
    d.kind.classes = classes;
    d.kind.logits = trial % 4 != 3;
    d.kind.smoothing = d.kind.logits && trial % 2 == 0 ? 0.1 : 0.0;
    // All classes, those from the second on, or every second one.
    std::int64_t here = 0;
    for (std::int64_t c = 0; trial % 3 != 0 && c < classes; ++c)
      d.here.push_back((trial % 3 == 1 ? c > 0 : c % 2 == 0) ? here++ : -1);
    if (d.here.empty()) here = classes;
    d.x = filled(random, {sizes[0], here, sizes[2]}, t);
    d.target = filled(random, {sizes[0], sizes[2]}, DType::I64, trial % 6 == 0 ? -1 : 0, double(classes));
    if (trial % 2 == 1) {
      d.weight = filled(random, {classes}, statistic(t), 0.5, 2);
      d.weight_here = filled(random, {here}, statistic(t), 0.5, 2);
    }
    const DType s = statistic(t);
    check(kernels::class_rows, cpu::ClassRowsArgs{Array::zeros({d.kind.terms(), sizes[0], sizes[2]}, s), d});
    const std::int64_t ranks = random_int(random, 1, 3);
    const Array parts = filled(random, {ranks, d.kind.terms(), sizes[0], sizes[2]}, s, 0.5, 3);
    const Array losses = trial % 2 == 0 ? Array() : Array::zeros({sizes[0], sizes[2]}, t);
    check(kernels::class_loss, cpu::ClassLossArgs{losses, Array::zeros({sizes[0], sizes[2]}, s),
                                                  Array::zeros({4}, DType::F64), parts, d});
    const bool each = trial % 3 == 2;
    const Array sums = filled(random, {ranks, 4}, DType::F64, 0.5, 2);
    if (trial % 4 != 0) sums.slice(1, 0, 2).fill_(0);  // every target is a class
    check(kernels::class_total,
          cpu::ClassTotalArgs{filled(random, each ? Dims{sizes[0], sizes[2]} : Dims{}, t),
                              Array::zeros({}, DType::F64), sums, trial % 3 == 0, each});
    const Array dy = filled(random, trial % 2 == 0 ? Dims{} : Dims{sizes[0], sizes[2]}, t);
    const Array total = trial % 3 == 0 ? Array() : filled(random, {1}, DType::F64, 1, 2);
    check(kernels::class_loss_gradient, cpu::ClassGradientArgs{Array::zeros(d.x.sizes(), t), dy,
                                                               filled(random, {rows}, s, 1, 3), total, d});
  }
}

TEST_CASE("linear layers with their activation", "[device]") {
  Random random = test_random(19);
  for (int trial = 0; trial < 60; ++trial) {
    const DType t = kFloating[trial % 4];
    // Widths that are multiples of 8 are those for which cuBLASLt writes what its GELU is given.
    const std::int64_t out = trial % 2 == 0 ? 8 * random_int(random, 1, 5) : size_up_to(random, 40);
    const Dims sizes{size_up_to(random, 50), size_up_to(random, 30)};
    const Dims results{sizes[0], out};
    const bool keeps = random_int(random, 0, 2) > 0;
    const Array bias = trial % 5 == 0 ? Array() : scattered(random, {out}, t);
    const Array w = trial % 3 == 0 ? filled(random, {sizes[1], out}, t)
                                   : filled(random, {out, sizes[1]}, t).transpose(0, 1);
    check(kernels::linear,
          cpu::LinearArgs{Array::zeros(results, t), keeps ? Array::zeros(results, t) : Array(),
                          scattered(random, sizes, t), w, bias,
                          static_cast<cpu::Activation>(random_int(random, 0, 4))});
  }
}

TEST_CASE("a linear layer's bias need not lie in one piece", "[device]") {
  Random random = test_random(20);
  constexpr std::int64_t kOut = 1024;  // a dense copy is as large as a workspace
  const Dims results{3, kOut};
  for (const cpu::Activation activation :
       {cpu::Activation::None, cpu::Activation::Relu, cpu::Activation::GeluTanh}) {
    const Array w = filled(random, {kOut, 8}, DType::F32).transpose(0, 1);
    const Array bias = filled(random, {2 * kOut}, DType::F32).as_strided({kOut}, {2}, 0);
    check(kernels::linear, cpu::LinearArgs{Array::zeros(results, DType::F32), Array(),
                                           filled(random, {3, 8}, DType::F32), w, bias, activation});
  }
}

TEST_CASE("a linear layer's bias may begin anywhere in memory", "[device]") {
  Random random = test_random(21);
  for (const DType t : kFloating)
    for (const std::int64_t first : {1, 3, 16}) {
      const Array x = filled(random, {5, 12}, t);
      const Array w = filled(random, {12, 24}, t);
      const Array all = filled(random, {24 + first}, t);
      const Array y = Array::zeros({5, 24}, t);
      const Array there = Array::zeros({5, 24}, t, Device::Cuda);
      const auto activation = cpu::Activation::Relu;
      kernels::linear(Device::Cpu, {y, Array(), x, w, all.slice(0, first, 24), activation});
      kernels::linear(Device::Cuda, {there, Array(), x.to(Device::Cuda), w.to(Device::Cuda),
                                     all.to(Device::Cuda).slice(0, first, 24), activation});
      check_close(there, y);
    }
}

TEST_CASE("what a loss cannot take shows as NaN, without a wait, or is refused when asked for", "[device]") {
  const auto there = [](const std::vector<double>& v, const Dims& sizes, DType t) {
    return Tensor(Array::from(v, sizes, t).to(Device::Cuda));
  };
  const Tensor x = there({1, 2, 3, 4, 5, 6}, {2, 3}, DType::F32);
  const Tensor bad = there({1, 3}, {2}, DType::I64);
  const Tensor good = there({1, 2}, {2}, DType::I64);
  const Tensor half = there({0.5, 0.5}, {2}, DType::F32);
  const Tensor outside = there({0.5, 1.5}, {2}, DType::F32);
  const std::int64_t waits = cuda::host_waits();
  std::vector<Tensor> nan;
  for (const Reduction r : {Reduction::Mean, Reduction::Sum, Reduction::None})
    nan.push_back(cross_entropy(x, bad, {}, {.reduction = r}));
  nan.push_back(nll_loss(x, bad));
  nan.push_back(binary_cross_entropy(half, outside));
  nan.push_back(binary_cross_entropy(outside, half));
  const Tensor fine = cross_entropy(x, good);
  const Tensor entropy = binary_cross_entropy(half, half);
  CHECK(cuda::host_waits() == waits);
  for (const Tensor& t : nan)
    for (const double v : t.to_vector()) CHECK(std::isnan(v));
  CHECK(fine.item() == Approx(0.5 * (1.4076059644 + 0.4076059644)));
  CHECK(entropy.item() == Approx(std::log(2.0)));

  const Communicator world = test_world();
  const DeviceMesh mesh(world, {{"domain", world.size()}});
  const auto sharded = [&](const Tensor& t) {
    return Tensor(t.local(), ShardSpec::make(mesh, {Replicate()}, t.sizes()));
  };
  world.set_check_calls(true);
  CHECK_THROWS_WITH(cross_entropy(sharded(x), sharded(bad)),
                    Catch::Contains("target 3 is out of range for 3 classes"));
  CHECK_THROWS_WITH(binary_cross_entropy(sharded(outside), sharded(half)),
                    Catch::Contains("needs inputs between 0 and 1"));
  CHECK(cross_entropy(sharded(x), sharded(good)).item() == Approx(fine.item()));
  world.set_check_calls(false);
}
