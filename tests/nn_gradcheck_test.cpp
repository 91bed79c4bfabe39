// Layers and whole models against central differences in float64, with respect to inputs and parameters:
// plain, and sharded in random uneven and empty cuts.
#include "autograd/gradcheck.h"
#include "nn/nn.h"
#include "tests/nn_cases.h"

namespace tessera {
namespace {

struct Check {
  Dims sizes;                          // of the input
  std::vector<std::vector<int>> dims;  // each: which dim every mesh axis cuts
  bool second = false;
  GeneratorPtr dropout = nullptr;  // starts again with every call
};

void check_once(std::mt19937_64& random, nn::Module& model, const Check& c, const SpecPtr& spec) {
  Generator generator(random());
  Tensors inputs{randn(c.sizes, generator, DType::F64, spec).set_requires_grad()};
  for (const Tensor& p : model.parameters()) {
    normal_(p, 0.3, 0.5, generator);  // initial values are zero or one in places, where errors hide
    inputs.push_back(p);
  }
  const auto forward = [&](const Tensors& in) {
    if (c.dropout) c.dropout->set_stream(7);
    return Tensors{model(in[0])};
  };
  INFO((spec ? spec->str() : "plain"));
  const GradcheckResult result =
      gradcheck(forward, inputs,
                {.step = 1e-5, .tolerance = 2e-6, .max_elements = 8, .second = c.second, .seed = random()});
  INFO(result.message << ", worst " << result.worst);
  CHECK(result.ok);
  model.zero_grad();
}

void check(nn::Module& model, const Check& c) {
  auto random = test_random(90);
  check_once(random, model, c, nullptr);
  for (const DeviceMesh& mesh : domain_meshes())
    for (const std::vector<int>& dims : c.dims)
      check_once(random, model, c, random_spec(random, mesh, c.sizes, dims));
}

nn::TransformerOptions block_options() {
  return {.width = 4, .heads = 2, .mlp_ratio = 2, .dtype = DType::F64};
}

nn::ViTOptions vit_options() {
  return {.channels = 2,
          .image = {6, 8},
          .patch = {2, 2},
          .width = 4,
          .depth = 1,
          .heads = 2,
          .mlp_ratio = 2,
          .out_channels = 1,
          .dtype = DType::F64};
}

}  // namespace

TEST_CASE("finite differences through Linear", "[nn]") {
  nn::Linear model(3, 2, {.dtype = DType::F64});
  check(model, {.sizes = {2, 5, 3}, .dims = {{0}, {1}, {2}, {0, 1}}, .second = true});
}

TEST_CASE("finite differences through Conv", "[nn]") {
  nn::Conv1d line(2, 3, {.kernel_size = {3}, .stride = {2}, .padding = {2}, .dtype = DType::F64});
  check(line, {.sizes = {2, 2, 9}, .dims = {{2}, {0, 2}}, .second = true});
  nn::Conv2d map(2, 2,
                 {.kernel_size = {3, 2},
                  .padding = {1, 1},
                  .dilation = {1, 2},
                  .groups = 2,
                  .padding_mode = PaddingMode::Circular,
                  .dtype = DType::F64});
  check(map, {.sizes = {1, 2, 5, 6}, .dims = {{2}, {3}, {2, 3}}});
  nn::Conv3d cube(1, 2, {.kernel_size = {2, 1, 3}, .padding = {0, 0, 1}, .bias = false, .dtype = DType::F64});
  check(cube, {.sizes = {1, 1, 4, 3, 5}, .dims = {{2}, {3, 4}}});
}

TEST_CASE("finite differences through LayerNorm", "[nn]") {
  nn::LayerNorm model({3, 4}, {.dtype = DType::F64});
  check(model, {.sizes = {2, 3, 4}, .dims = {{0}, {1}, {2}, {0, 2}}, .second = true});
}

TEST_CASE("finite differences through MultiheadAttention", "[nn]") {
  nn::TransformerOptions options = block_options();
  nn::MultiheadAttention model(options);
  check(model, {.sizes = {2, 5, 4}, .dims = {{1}, {0, 1}}, .second = true});
  options.is_causal = true;
  nn::MultiheadAttention causal(options);
  check(causal, {.sizes = {1, 6, 4}, .dims = {{1}}});
  options.attention_dropout = 0.4;
  options.dropout_generator = std::make_shared<Generator>(6);
  nn::MultiheadAttention dropping(options);
  check(dropping,
        {.sizes = {2, 5, 4}, .dims = {{1}, {0, 1}}, .second = true, .dropout = options.dropout_generator});
}

TEST_CASE("finite differences through Mlp", "[nn]") {
  nn::TransformerOptions options = block_options();
  nn::Mlp model(options);
  check(model, {.sizes = {2, 5, 4}, .dims = {{1}, {2}, {0, 1}}, .second = true});
}

TEST_CASE("finite differences through a transformer block, with and without dropout", "[nn]") {
  nn::TransformerOptions options = block_options();
  nn::TransformerBlock model(options);
  check(model, {.sizes = {2, 5, 4}, .dims = {{1}, {0, 1}}});
  options.dropout = 0.3;
  options.attention_dropout = 0.2;
  options.dropout_generator = std::make_shared<Generator>(5);
  nn::TransformerBlock dropping(options);
  check(dropping, {.sizes = {2, 5, 4}, .dims = {{1}, {0, 1}}, .dropout = options.dropout_generator});
}

TEST_CASE("finite differences through a ViT, maps and classes", "[nn]") {
  nn::ViTOptions options = vit_options();
  nn::ViT map(options);
  check(map, {.sizes = {1, 2, 6, 8}, .dims = {{2}, {3}, {2, 3}}});
  options.out_channels = 0;
  options.classes = 3;
  nn::ViT classes(options);
  check(classes, {.sizes = {2, 2, 6, 8}, .dims = {{2}, {0, 3}}});
}

TEST_CASE("finite differences through a UNet", "[nn]") {
  nn::UNet model(
      {.in_channels = 2, .widths = {2, 4}, .groups = 2, .periodic = {1}, .seed = 4, .dtype = DType::F64});
  check(model, {.sizes = {1, 2, 4, 6}, .dims = {{2}, {3}, {2, 3}}});
}

TEST_CASE("finite differences through a model notice a gradient that is wrong on one rank", "[nn]") {
  nn::Linear model(3, 2, {.dtype = DType::F64});
  const DeviceMesh mesh = domain_meshes().front();
  const SpecPtr spec = ShardSpec::make(mesh, {Shard(0)}, {2 * mesh.size(), 3});
  Generator generator(test_seed());
  const Tensor x = randn({2 * mesh.size(), 3}, generator, DType::F64, spec).set_requires_grad();
  // The last rank's rows do not reach the tape.
  std::vector<double> seen(static_cast<std::size_t>(2 * mesh.size()), 1.0);
  seen.back() = 0;
  const Tensor mask = tensor(seen, {2 * mesh.size(), 1}, DType::F64);
  const auto forward = [&](const Tensors& in) {
    return Tensors{model(in[0] * mask) + model(in[0] * (1.0 - mask)).detach()};
  };
  CHECK_FALSE(gradcheck(forward, {x, model.weight}).ok);
}

}  // namespace tessera
