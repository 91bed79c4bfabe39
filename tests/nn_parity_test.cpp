// Layers and models on sharded inputs against the same on one rank, in float64: outputs, input gradients and
// every parameter's gradient, for random uneven and empty cuts and a random cotangent.
#include "nn/nn.h"
#include "ops/ops.h"
#include "tests/nn_cases.h"

namespace tessera {
namespace {

constexpr double kTolerance = 1e-11;

struct Parity {
  nn::Module& sharded;
  nn::Module& serial;
  Dims sizes;                          // of the input
  std::vector<std::vector<int>> dims;  // each: which dim every mesh axis cuts
};

void check_once(std::mt19937_64& random, const Parity& p, const DeviceMesh& mesh,
                const std::vector<int>& dims) {
  const Tensor values = random_tensor(random, p.sizes);
  Tensor x = Tensor(values.local().clone()).set_requires_grad();
  Tensor x1 = Tensor(values.local().clone()).set_requires_grad();
  const SpecPtr spec = random_spec(random, mesh, p.sizes, dims);
  INFO(spec->str());
  p.sharded.zero_grad();
  p.serial.zero_grad();
  const Tensor y = p.sharded(redistribute(x, spec));
  const Tensor expected = p.serial(x1);
  REQUIRE(y.sizes() == expected.sizes());
  CHECK(error_of(y, expected) < kTolerance);
  const Tensor cotangent = random_tensor(random, expected.sizes());
  y.backward(cotangent);
  expected.backward(cotangent);
  CHECK(error_of(x.grad(), x1.grad()) < kTolerance);
  check_gradients(p.sharded, p.serial, kTolerance);
}

void check_parity(const Parity& p, std::uint64_t stream, int rounds = 4) {
  auto random = test_random(stream);
  for (const DeviceMesh& mesh : domain_meshes())
    for (const std::vector<int>& dims : p.dims)
      for (int i = 0; i < rounds; ++i) check_once(random, p, mesh, dims);
}

GeneratorPtr seeded() { return std::make_shared<Generator>(11); }

nn::TransformerOptions block_options() {
  return {.width = 6, .heads = 2, .dtype = DType::F64, .generator = seeded()};
}

// Blocks and a norm, as models have them. `fused`: every norm makes the sum before it; else the sums are ops
// of their own.
class Chain : public nn::Module {
 public:
  explicit Chain(bool fused) : norm({6}, {.dtype = DType::F64}), fused_(fused) {
    for (int i = 0; i < 3; ++i) blocks.add(block_options());
    register_module("blocks", blocks);
    register_module("norm", norm);
    initialize(5);
  }
  Tensor forward(const Tensor& x) override {
    nn::ResidualSum stream{.x = x};
    Tensor y = x;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (fused_) {
        stream = blocks[i].forward_residual(std::move(stream));
        continue;
      }
      y = y + blocks[i].attn(blocks[i].norm1(y));
      y = y + blocks[i].mlp(blocks[i].norm2(y));
    }
    return fused_ ? stream.normed(norm).norm : norm(y);
  }

  nn::ModuleList<nn::TransformerBlock> blocks;
  nn::LayerNorm norm;

 private:
  bool fused_;
};

}  // namespace

TEST_CASE("Linear, sharded and serial", "[nn][parity]") {
  nn::Linear a(5, 3, {.dtype = DType::F64, .generator = seeded()});
  nn::Linear b(5, 3, {.dtype = DType::F64, .generator = seeded()});
  check_parity({a, b, {3, 7, 5}, {{0}, {1}, {0, 1}, {2}}}, 1);
}

TEST_CASE("Conv, sharded and serial", "[nn][parity]") {
  const nn::ConvLayerOptions same{.kernel_size = {3}, .padding = {1}, .dtype = DType::F64};
  nn::Conv1d a1(2, 3, same);
  nn::Conv1d b1(2, 3, same);
  check_parity({a1, b1, {2, 2, 11}, {{2}, {0, 2}}}, 2);

  const nn::ConvLayerOptions strided{.kernel_size = {3, 5},
                                     .stride = {2, 1},
                                     .padding = {1, 4},
                                     .dilation = {1, 2},
                                     .groups = 2,
                                     .padding_mode = PaddingMode::Circular,
                                     .dtype = DType::F64};
  nn::Conv2d a2(4, 6, strided);
  nn::Conv2d b2(4, 6, strided);
  check_parity({a2, b2, {2, 4, 9, 10}, {{2}, {3}, {2, 3}}}, 3);

  const nn::ConvLayerOptions cube{
      .kernel_size = {3, 2, 1}, .padding = {1, 0, 0}, .bias = false, .dtype = DType::F64};
  nn::Conv3d a3(1, 2, cube);
  nn::Conv3d b3(1, 2, cube);
  check_parity({a3, b3, {1, 1, 5, 4, 6}, {{2}, {3, 4}}}, 4, 2);
}

TEST_CASE("LayerNorm, sharded and serial", "[nn][parity]") {
  nn::LayerNorm a({4, 5}, {.dtype = DType::F64});
  nn::LayerNorm b({4, 5}, {.dtype = DType::F64});
  check_parity({a, b, {3, 6, 4, 5}, {{0}, {1}, {0, 1}, {2}, {3, 1}}}, 5);
}

TEST_CASE("MultiheadAttention, sharded and serial", "[nn][parity]") {
  for (bool causal : {false, true}) {
    nn::TransformerOptions options = block_options();
    options.is_causal = causal;
    nn::MultiheadAttention a(options);
    options.generator = seeded();
    nn::MultiheadAttention b(options);
    check_parity({a, b, {2, 9, 6}, {{1}, {0, 1}}}, 6 + (causal ? 1 : 0));
  }
}

TEST_CASE("TransformerBlock, sharded and serial", "[nn][parity]") {
  nn::TransformerBlock a(block_options());
  nn::TransformerBlock b(block_options());
  check_parity({a, b, {2, 9, 6}, {{1}, {0}, {0, 1}}}, 8);
}

TEST_CASE("a chain of transformer blocks is its sums and norms one after the other", "[nn][parity]") {
  Chain fused(true);
  Chain apart(false);
  check_parity({fused, apart, {2, 9, 6}, {{1}, {0}, {0, 1}, {2}}}, 21, 2);
  auto random = test_random(22);
  const nn::ResidualSum sum{.x = random_tensor(random, {2, 3}), .branch = random_tensor(random, {2, 3})};
  CHECK(sum.value().to_vector() == (sum.x + sum.branch).to_vector());
  CHECK(nn::ResidualSum{.x = sum.x}.value().same(sum.x));
}

TEST_CASE("ViT, sharded and serial, maps and classes", "[nn][parity]") {
  nn::ViTOptions options{.channels = 2,
                         .image = {12, 15},
                         .patch = {4, 3},
                         .width = 6,
                         .depth = 2,
                         .heads = 2,
                         .out_channels = 2,
                         .dtype = DType::F64};
  nn::ViT a(options);
  nn::ViT b(options);
  check_parity({a, b, {2, 2, 12, 15}, {{2}, {3}, {2, 3}, {0, 2}}}, 9, 3);
  options.out_channels = 0;
  options.classes = 4;
  nn::ViT c(options);
  nn::ViT d(options);
  check_parity({c, d, {1, 2, 12, 15}, {{2}, {3}, {2, 3}}}, 10, 3);
}

TEST_CASE("UNet, sharded and serial", "[nn][parity]") {
  nn::UNetOptions options{.in_channels = 2,
                          .out_channels = 3,
                          .widths = {4, 6, 8},
                          .groups = 2,
                          .periodic = {1},
                          .seed = 3,
                          .dtype = DType::F64};
  nn::UNet a(options);
  nn::UNet b(options);
  check_parity({a, b, {2, 2, 8, 12}, {{2}, {3}, {2, 3}, {0, 3}}}, 12, 2);
  options.spatial_dims = 1;
  options.periodic = {};
  nn::UNet c(options);
  nn::UNet d(options);
  check_parity({c, d, {2, 2, 16}, {{2}, {0, 2}}}, 13, 2);
  options.spatial_dims = 3;
  options.widths = {2, 4};
  options.periodic = {0, 2};
  nn::UNet e(options);
  nn::UNet f(options);
  check_parity({e, f, {1, 2, 4, 2, 6}, {{2}, {4}, {2, 4}}}, 14, 1);
}

TEST_CASE("dropout draws the same mask on every mesh", "[nn][parity]") {
  nn::ViTOptions options{.channels = 2,
                         .image = {12, 15},
                         .patch = {4, 3},
                         .width = 6,
                         .depth = 1,
                         .heads = 2,
                         .dropout = 0.3,
                         .attention_dropout = 0.25,
                         .out_channels = 2,
                         .dtype = DType::F64};
  nn::ViT a(options);
  nn::ViT b(options);
  check_parity({a, b, {2, 2, 12, 15}, {{2}, {2, 3}}}, 11, 3);
}

TEST_CASE("a split ViT gathers no activations", "[nn][parity]") {
  const DeviceMesh mesh = domain_meshes().front();
  nn::ViT model({.channels = 2,
                 .image = {16, 12},
                 .patch = {4, 4},
                 .width = 8,
                 .depth = 2,
                 .heads = 2,
                 .out_channels = 2,
                 .dtype = DType::F64});
  auto random = test_random(12);
  const Tensor x = random_tensor(random, {1, 2, 16, 12});
  const SpecPtr spec = ShardSpec::make(mesh, {Shard(2)}, x.sizes());
  Recorder& recorder = mesh.comm().recorder();
  recorder.start();
  const Tensor y = model(redistribute(x, spec));
  mse_loss(y, zeros_like(y)).backward();
  recorder.stop();
  CHECK(recorder.count("all_gather") == 0);
  CHECK(recorder.count("all_gather_v") == 0);
  for (const nn::NamedTensor& n : model.named_parameters()) CHECK(n.tensor.grad().defined());
}

}  // namespace tessera
