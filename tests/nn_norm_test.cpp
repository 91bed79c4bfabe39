// Norms, activations and losses as modules: names and modes as PyTorch's, running statistics, and the same
// numbers on every mesh.
#include "autograd/adjoints.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "tests/nn_cases.h"
#include "train/sync.h"

namespace tessera {
namespace {

std::vector<std::string> names_of(const std::vector<nn::NamedTensor>& list) {
  std::vector<std::string> names;
  for (const auto& n : list) names.push_back(n.name);
  return names;
}
using Names = std::vector<std::string>;

constexpr nn::RunningNormOptions kWide{.dtype = DType::F64};

// Two modules of one make, one on a cut input and one on the whole: outputs, gradients, buffers.
void check_parity(nn::Module& split, nn::Module& whole, const Dims& sizes, std::uint64_t stream) {
  auto random = test_random(stream);
  std::vector<std::vector<int>> cuts;
  for (int d = 0; d < sizes.size(); ++d) cuts.push_back({d});
  cuts.push_back({0, sizes.size() - 1});
  for (const DeviceMesh& mesh : domain_meshes())
    for (const std::vector<int>& dims : cuts)
      for (const bool training : {true, false}) {
        split.train(training);
        whole.train(training);
        const Tensor values = random_tensor(random, sizes);
        Tensor x = Tensor(values.local().clone()).set_requires_grad();
        Tensor x1 = Tensor(values.local().clone()).set_requires_grad();
        const SpecPtr spec = random_spec(random, mesh, sizes, dims);
        INFO(spec->str() << " training " << training);
        split.zero_grad();
        whole.zero_grad();
        const Tensor y = split(redistribute(x, spec));
        const Tensor expected = whole(x1);
        CHECK(error_of(y, expected) < 1e-11);
        const Tensor cotangent = random_tensor(random, expected.sizes());
        y.backward(cotangent);
        expected.backward(cotangent);
        CHECK(error_of(x.grad(), x1.grad()) < 1e-11);
        check_gradients(split, whole, 1e-11);
        for (const nn::NamedTensor& n : whole.named_buffers()) {
          INFO(n.name);
          CHECK(error_of(split.buffer(n.name), n.tensor) < 1e-12);
        }
        train::check_replicas(split, mesh);
      }
}

}  // namespace

TEST_CASE("norms have the names of their PyTorch modules", "[nn][norms]") {
  nn::BatchNorm2d batch(3);
  CHECK(names_of(batch.state()) ==
        Names{"weight", "bias", "running_mean", "running_var", "num_batches_tracked"});
  CHECK(batch.num_batches_tracked.dtype() == DType::I64);
  CHECK(batch.num_batches_tracked.dim() == 0);
  CHECK(names_of(nn::BatchNorm1d(3, {.affine = false}).state()) ==
        Names{"running_mean", "running_var", "num_batches_tracked"});
  CHECK(names_of(nn::BatchNorm3d(3, {.track_running_stats = false}).state()) == Names{"weight", "bias"});
  CHECK(nn::InstanceNorm2d(3).state().empty());
  CHECK(nn::InstanceNorm1d(3, {}).state().empty());
  CHECK(names_of(nn::InstanceNorm2d(3, {.affine = true}).state()) == Names{"weight", "bias"});
  CHECK(names_of(nn::InstanceNorm3d(3, {.track_running_stats = true}).state()) ==
        Names{"running_mean", "running_var", "num_batches_tracked"});
  CHECK(names_of(nn::InstanceNorm1d(3, {.affine = true, .track_running_stats = true}).state()) ==
        names_of(batch.state()));
  CHECK(names_of(nn::GroupNorm(2, 4).state()) == Names{"weight", "bias"});
  CHECK(names_of(nn::RMSNorm({4, 5}).state()) == Names{"weight"});
  CHECK(nn::RMSNorm({4, 5}).weight.sizes() == Dims{4, 5});
  CHECK(nn::GroupNorm(2, 4, {.affine = false}).state().empty());
  CHECK(nn::LayerNorm({4}, {.elementwise_affine = false}).state().empty());
  CHECK(nn::RMSNorm({4}, {.elementwise_affine = false}).state().empty());

  nn::Sequential net;
  net.add<nn::Linear>(2, 3).add<nn::BatchNorm1d>(3).add<nn::ReLU>();
  CHECK(names_of(net.named_buffers()) == Names{"1.running_mean", "1.running_var", "1.num_batches_tracked"});
  // Conversion leaves the count of batches an integer, and what is written into a buffer stays in it.
  const Tensor mean = net.buffer("1.running_mean");
  net.to(DType::F64);
  CHECK(net.buffer("1.running_mean").same(mean));
  CHECK(mean.dtype() == DType::F64);
  CHECK(net.buffer("1.num_batches_tracked").dtype() == DType::I64);
  std::mt19937_64 random(3);
  net(random_tensor(random, {4, 2}));
  CHECK(largest(mean.to_vector()) > 0);
  CHECK(net.buffer("1.num_batches_tracked").item() == 1);
  net.initialize(5);
  CHECK(largest(mean.to_vector()) == 0);
  CHECK(net.buffer("1.running_var").to_vector() == std::vector<double>{1, 1, 1});
  CHECK(net.buffer("1.num_batches_tracked").item() == 0);
}

TEST_CASE("batch norm remembers while training and uses what it remembers afterwards", "[nn][norms]") {
  const Tensor x = tensor(std::vector<double>{1, 2, 6, 3}, {4, 1}, DType::F64);  // mean 3, variance 14 / 3
  nn::BatchNorm1d norm(1, kWide);
  const Tensor y = norm(x);
  CHECK(norm.running_mean.item() == Approx(0.3));
  CHECK(norm.running_var.item() == Approx(0.9 + 1.4 / 3));
  CHECK(y.to_vector()[2] == Approx(3 / std::sqrt(3.5 + 1e-5)));
  norm.eval();
  CHECK(norm(x).to_vector()[2] == Approx(5.7 / std::sqrt(0.9 + 1.4 / 3 + 1e-5)));
  CHECK(norm.running_mean.item() == Approx(0.3));
  CHECK(norm.num_batches_tracked.item() == 1);

  // Without momentum: the mean over all batches.
  nn::BatchNorm1d mean_of_all(1, {.momentum = std::nullopt, .dtype = DType::F64});
  for (int i = 1; i <= 4; ++i) mean_of_all(x * static_cast<double>(i));
  CHECK(mean_of_all.running_mean.item() == Approx(3.0 * 2.5));
  CHECK(mean_of_all.running_var.item() == Approx(14.0 / 3 * 30.0 / 4));
  CHECK(mean_of_all.num_batches_tracked.item() == 4);
  mean_of_all.reset_running_stats();
  CHECK(mean_of_all.running_mean.item() == 0);

  // Nothing to remember in: by the batch, always.
  nn::BatchNorm1d forgetful(1, {.track_running_stats = false, .dtype = DType::F64});
  const std::vector<double> trained = forgetful(x).to_vector();
  forgetful.eval();
  CHECK(forgetful(x).to_vector() == trained);
}

TEST_CASE("instance norm takes one sample without a batch dim", "[nn][norms]") {
  std::mt19937_64 random(4);
  const Tensor x = random_tensor(random, {3, 7});
  nn::InstanceNorm1d norm(3, {.track_running_stats = true, .dtype = DType::F64});
  const Tensor one = norm(x);
  CHECK(one.sizes() == x.sizes());
  CHECK(error_of(one, reshape(instance_norm(unsqueeze(x, 0)), {3, 7})) < 1e-14);
  CHECK(norm.num_batches_tracked.item() == 0);  // as in PyTorch, it does not count
  CHECK(error_of(norm.running_mean, mean(x, {1}) * 0.1) < 1e-12);
  norm.eval();
  CHECK(error_of(norm(x), one) > 1e-3);  // now by the running statistics
}

TEST_CASE("norms over channels, sharded and serial", "[nn][norms]") {
  {
    nn::BatchNorm2d a(4, kWide);
    nn::BatchNorm2d b(4, kWide);
    check_parity(a, b, {5, 4, 6, 3}, 21);
  }
  {
    nn::BatchNorm1d a(5, {.momentum = std::nullopt, .dtype = DType::F64});
    nn::BatchNorm1d b(5, {.momentum = std::nullopt, .dtype = DType::F64});
    check_parity(a, b, {9, 5}, 22);
  }
  {
    nn::BatchNorm3d a(2, {.affine = false, .dtype = DType::F64});
    nn::BatchNorm3d b(2, {.affine = false, .dtype = DType::F64});
    check_parity(a, b, {2, 2, 3, 4, 5}, 23);
  }
  {
    constexpr nn::InstanceNormLayerOptions all{
        .affine = true, .track_running_stats = true, .dtype = DType::F64};
    nn::InstanceNorm2d a(3, all);
    nn::InstanceNorm2d b(3, all);
    check_parity(a, b, {3, 3, 6, 5}, 24);
  }
  {
    nn::GroupNorm a(2, 6, {.dtype = DType::F64});
    nn::GroupNorm b(2, 6, {.dtype = DType::F64});
    check_parity(a, b, {3, 6, 7, 4}, 25);
  }
  {
    nn::RMSNorm a({6, 5}, {.eps = 1e-4, .dtype = DType::F64});
    nn::RMSNorm b({6, 5}, {.eps = 1e-4, .dtype = DType::F64});
    check_parity(a, b, {4, 6, 5}, 26);
  }
}

TEST_CASE("activations as modules are their functions", "[nn]") {
  std::mt19937_64 random(5);
  const Tensor x = random_tensor(random, {3, 5});
  const auto same = [&](nn::Module& m, const Tensor& y) { return m(x).to_vector() == y.to_vector(); };
  nn::LeakyReLU leaky(0.3);
  CHECK(same(leaky, leaky_relu(x, 0.3)));
  nn::ELU exponential(0.7);
  CHECK(same(exponential, elu(x, 0.7)));
  nn::Softmax soft(-1);
  CHECK(same(soft, softmax(x, 1)));
  nn::LogSoftmax log_soft(0);
  CHECK(same(log_soft, log_softmax(x, 0)));
  nn::Softmax2d over_channels;
  for (const Dims& sizes : {Dims{2, 3, 4, 5}, Dims{3, 4, 5}}) {
    const Tensor map = random_tensor(random, sizes);
    CHECK(over_channels(map).to_vector() == softmax(map, sizes.size() - 3).to_vector());
  }
  CHECK_THROWS_WITH(over_channels(x), Catch::Contains("[N, C, H, W] or [C, H, W] is needed, given [3, 5]"));
  nn::Identity nothing;
  CHECK(nothing(x).same(x));
  nn::SiLU swish;
  CHECK(same(swish, silu(x)));
  nn::GELU gate(GeluKind::Tanh);
  CHECK(same(gate, gelu(x, GeluKind::Tanh)));
  nn::Softplus plus;
  CHECK(same(plus, softplus(x)));
  nn::Softplus steep(2.0, 1.5);
  CHECK(same(steep, softplus(x, 2.0, 1.5)));
  nn::Sigmoid squash;
  CHECK(same(squash, sigmoid(x)));
  nn::Tanh turn;
  CHECK(same(turn, tessera::tanh(x)));
  // Parts of any kind in one list.
  nn::ModuleList<nn::Module> parts;
  parts.add<nn::Linear>(5, 2, nn::LinearOptions{.dtype = DType::F64}).weight.local().fill_(1.0);
  parts.add<nn::ReLU>();
  CHECK(parts.size() == 2);
  CHECK(names_of(parts.state()) == Names{"0.weight", "0.bias"});
  CHECK(error_of(parts[1](parts[0](x)),
                 relu(linear(x, ones({2, 5}, DType::F64), parts.parameter("0.bias")))) == 0);
}

TEST_CASE("losses as modules are their functions, weights are buffers", "[nn][losses]") {
  std::mt19937_64 random(6);
  const Tensor x = random_tensor(random, {4, 3});
  const Tensor y = sigmoid(random_tensor(random, {4, 3}));
  const auto sum = Reduction::Sum;
  const auto item = [](const Tensor& t) { return t.item(); };
  CHECK(item(nn::MSELoss()(x, y)) == item(mse_loss(x, y)));
  CHECK(item(nn::L1Loss(sum)(x, y)) == item(l1_loss(x, y, sum)));
  CHECK(item(nn::SmoothL1Loss(sum, 0.3)(x, y)) == item(smooth_l1_loss(x, y, sum, 0.3)));
  CHECK(item(nn::HuberLoss(sum, 0.3)(x, y)) == item(huber_loss(x, y, sum, 0.3)));
  CHECK(item(nn::KLDivLoss(Reduction::BatchMean, true)(x, y)) ==
        item(kl_div(x, y, Reduction::BatchMean, true)));
  const Tensor w = tensor(std::vector<double>{0.5, 1, 2}, {3}, DType::F64);
  nn::BCELoss chances(sum, w);
  CHECK(item(chances(y, y)) == item(binary_cross_entropy(y, y, w, sum)));
  nn::BCEWithLogitsLoss logits(sum, Tensor(), w);
  CHECK(item(logits(x, y)) == item(binary_cross_entropy_with_logits(x, y, Tensor(), sum, w)));
  CHECK(names_of(logits.state()) == Names{"pos_weight"});
  const Tensor t = tensor(std::vector<double>{0, 2, 1, -1}, {4}, DType::I64);
  const ClassLossOptions options{.ignore_index = -1, .label_smoothing = 0.1};
  nn::CrossEntropyLoss classes(options, w);
  CHECK(item(classes(x, t)) == item(cross_entropy(x, t, w, options)));
  CHECK(names_of(classes.state()) == Names{"weight"});
  CHECK(item(nn::NLLLoss({.reduction = sum, .ignore_index = -1})(x, t)) ==
        item(nll_loss(x, t, Tensor(), {.reduction = sum, .ignore_index = -1})));
}

TEST_CASE("norm layers refuse inputs that do not fit", "[nn][norms]") {
  nn::BatchNorm2d batch(3);
  CHECK_THROWS_WITH(batch(zeros({2, 3, 4})),
                    Catch::Contains("BatchNorm2d: needs an input of 4 dims, given [2, 3, 4]"));
  CHECK_THROWS_WITH(batch(zeros({2, 4, 2, 2})), Catch::Contains("has 3 channels, given input [2, 4, 2, 2]"));
  CHECK_THROWS_WITH(nn::BatchNorm1d(3)(zeros({2, 3, 2, 2})), Catch::Contains("of 3 dims or 2"));
  CHECK_THROWS_WITH(nn::BatchNorm1d(3)(zeros({1, 3})), Catch::Contains("more than one value per channel"));
  CHECK(batch.num_batches_tracked.item() == 0);
  CHECK_THROWS_WITH(nn::InstanceNorm2d(3)(zeros({3, 4})), Catch::Contains("needs an input of 4 or"));
  CHECK_THROWS_WITH(nn::InstanceNorm1d(3)(zeros({2, 5})), Catch::Contains("has 3 channels"));
  CHECK_THROWS_WITH(nn::BatchNorm1d(0), Catch::Contains("0 channels given"));
  CHECK_THROWS_WITH(nn::GroupNorm(4, 6), Catch::Contains("6 channels cannot be divided into 4 groups"));
}

TEST_CASE("a norm's activation follows it, in training and out of it", "[nn][norms]") {
  auto random = test_random(179);
  const Tensor x = random_tensor(random, {3, 6, 4, 5});
  nn::GroupNorm group(2, 6, {.dtype = DType::F64});
  nn::GroupNorm group_silu(2, 6, {.dtype = DType::F64, .activation = NormActivation::Silu});
  CHECK(error_of(group_silu(x), silu(group(x))) < 1e-12);
  nn::BatchNorm2d batch(6, kWide);
  nn::BatchNorm2d batch_relu(6, {.dtype = DType::F64, .activation = NormActivation::Relu});
  nn::InstanceNorm2d instance(6, {.track_running_stats = true, .dtype = DType::F64});
  nn::InstanceNorm2d instance_gelu(
      6, {.track_running_stats = true, .dtype = DType::F64, .activation = NormActivation::Gelu});
  for (const bool training : {true, false}) {
    for (nn::Module* m : std::initializer_list<nn::Module*>{&batch, &batch_relu, &instance, &instance_gelu})
      m->train(training);
    CHECK(error_of(batch_relu(x), relu(batch(x))) < 1e-12);
    CHECK(error_of(batch_relu.running_mean, batch.running_mean) == 0);
    CHECK(error_of(instance_gelu(x), gelu(instance(x))) < 1e-12);
  }
}

}  // namespace tessera
