// Modules: names as PyTorch's, state by name, modes, initial values.
#include <set>

#include "nn/nn.h"
#include "ops/ops.h"
#include "tests/nn_cases.h"

namespace tessera {
namespace {

std::vector<std::string> names_of(const std::vector<nn::NamedTensor>& list) {
  std::vector<std::string> names;
  for (const auto& n : list) names.push_back(n.name);
  return names;
}

class Head : public nn::Module {
 public:
  explicit Head(std::int64_t width) : fc1(width, 4), fc2(4, 1) {
    register_module("fc1", fc1);
    register_module("fc2", fc2);
    scale = register_parameter("scale", ones({1}));
    mean = register_buffer("mean", zeros({3}));
  }
  Tensor forward(const Tensor& x) override { return fc2(relu(fc1(x))) * scale; }
  nn::Linear fc1, fc2;
  Tensor scale;
  Tensor mean;
};

class Tied : public nn::Module {
 public:
  Tied() : a(3, 3), b(3, 3) {
    register_module("a", a);
    b.weight = a.weight;  // a handle of b's own: what counts is what was registered
    register_module("b", b);
    tied = register_parameter("tied", a.weight);
  }
  nn::Linear a, b;
  Tensor tied;
};

nn::ViTOptions small_vit() {
  return {.channels = 2,
          .image = {8, 12},
          .patch = {4, 4},
          .width = 8,
          .depth = 2,
          .heads = 2,
          .dropout = 0.1,
          .out_channels = 3,
          .seed = 5};
}

}  // namespace

TEST_CASE("parameters are named in order of registration, own ones first", "[nn]") {
  Head head(2);
  CHECK(names_of(head.named_parameters()) ==
        std::vector<std::string>{"scale", "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"});
  CHECK(names_of(head.named_buffers()) == std::vector<std::string>{"mean"});
  CHECK(names_of(head.state()).back() == "mean");
  CHECK(head.num_parameters() == 1 + 8 + 4 + 4 + 1);
  CHECK(head.parameter("fc1.bias").same(head.fc1.bias));
  CHECK(head.buffer("mean").same(head.mean));
  CHECK_THROWS_WITH(head.parameter("fc3.bias"), Catch::Contains("no parameter named 'fc3.bias'"));
  CHECK(head.parameter("fc1.weight").requires_grad());
}

TEST_CASE("a tied parameter appears once", "[nn]") {
  Tied tied;
  CHECK(names_of(tied.named_parameters()) ==
        std::vector<std::string>{"tied", "a.bias", "b.weight", "b.bias"});
}

TEST_CASE("the vision transformer has the names of its PyTorch model", "[nn]") {
  nn::ViT model(small_vit());
  const auto names = names_of(model.named_parameters());
  CHECK(names.front() == "pos_embed");
  const std::set<std::string> all(names.begin(), names.end());
  for (const char* name : {"embed.weight", "blocks.0.attn.qkv.weight", "blocks.1.attn.proj.bias",
                           "blocks.1.mlp.fc1.weight", "blocks.0.norm2.bias", "norm.weight", "head.bias"})
    CHECK(all.count(name) == 1);
  CHECK(names.size() == 1 + 2 + 2 * 12 + 2 + 2);
  CHECK(model.parameter("embed.weight").sizes() == Dims{8, 2, 4, 4});
  CHECK(model.parameter("pos_embed").sizes() == Dims{1, 6, 8});
  CHECK(model.parameter("head.weight").sizes() == Dims{48, 8});
}

TEST_CASE("state is copied by name, or refused as a whole", "[nn]") {
  Head a(2);
  Head b(2);
  b.initialize(7);
  CHECK(a.fc1.weight.to_vector() != b.fc1.weight.to_vector());
  a.load_state(b.state());
  CHECK(a.fc1.weight.to_vector() == b.fc1.weight.to_vector());
  CHECK(a.mean.to_vector() == b.mean.to_vector());

  auto missing = b.state();
  missing.pop_back();
  CHECK_THROWS_WITH(a.load_state(missing), Catch::Contains("'mean' is missing"));
  auto unknown = b.state();
  unknown.push_back({"extra", ones({1})});
  CHECK_THROWS_WITH(a.load_state(unknown), Catch::Contains("'extra' is not"));
  auto misshapen = b.state();
  misshapen[1].tensor = ones({2, 2});
  CHECK_THROWS_WITH(a.load_state(misshapen), Catch::Contains("'fc1.weight' has sizes [2, 2]"));
}

TEST_CASE("attention drops weights while it trains, and only then", "[nn]") {
  nn::TransformerOptions options{.width = 8, .heads = 2, .generator = std::make_shared<Generator>(3)};
  nn::MultiheadAttention plain(options);
  options.attention_dropout = 0.5;
  CHECK_THROWS_WITH(nn::MultiheadAttention(options), Catch::Contains("attention_dropout = 0.5 needs a gen"));
  options.dropout_generator = std::make_shared<Generator>(4);
  nn::MultiheadAttention dropping(options);
  dropping.load_state(plain.state());
  std::mt19937_64 random(5);
  const Tensor x = random_tensor(random, {2, 5, 8}, DType::F32);
  const std::vector<double> whole = plain(x).to_vector();
  CHECK(dropping(x).to_vector() != whole);
  CHECK(options.dropout_generator->stream() == 1);
  dropping.eval();
  CHECK(dropping(x).to_vector() == whole);
  CHECK(options.dropout_generator->stream() == 1);
  options.attention_dropout = 1.5;
  CHECK_THROWS_WITH(nn::MultiheadAttention(options), Catch::Contains("0 <= attention_dropout <= 1"));
}

TEST_CASE("modes and conversions reach every part", "[nn]") {
  nn::ViT model(small_vit());
  CHECK(model.training());
  model.eval();
  for (const auto& [name, m] : model.named_modules()) CHECK_FALSE(m->training());
  std::mt19937_64 random(3);
  const Tensor x = random_tensor(random, {1, 2, 8, 12}, DType::F32);
  const Tensor y = model(x);
  CHECK(y.sizes() == Dims{1, 3, 8, 12});
  CHECK(model(x).to_vector() == y.to_vector());  // no dropout
  model.train();
  CHECK(model(x).to_vector() != y.to_vector());

  const Tensor handle = model.head.weight;
  model.to(DType::F64);
  CHECK(handle.dtype() == DType::F64);
  CHECK(model.parameter("head.weight").same(handle));
  CHECK(model(to(x, DType::F64)).dtype() == DType::F64);
  CHECK_THROWS_WITH(model.to(DType::I64), Catch::Contains("f32, f64, bf16 or f16"));
}

TEST_CASE("initial values depend on the seed alone and have the right spread", "[nn]") {
  nn::ViT a(small_vit());
  nn::ViT b(small_vit());
  auto options = small_vit();
  options.seed = 6;
  nn::ViT c(options);
  options = small_vit();
  options.dtype = DType::F64;
  nn::ViT wide(options);
  const auto pa = a.named_parameters();
  for (const auto& n : pa) {
    INFO(n.name);
    CHECK(n.tensor.to_vector() == b.parameter(n.name).to_vector());
    CHECK(error_of(wide.parameter(n.name), n.tensor) < 1e-6);
  }
  CHECK(a.head.weight.to_vector() != c.head.weight.to_vector());
  // Layers of equal shape in one model differ.
  CHECK(a.blocks[0].mlp.fc1.weight.to_vector() != a.blocks[1].mlp.fc1.weight.to_vector());

  const auto weight = a.blocks[0].attn.qkv.weight.to_vector();
  const double bound = 1.0 / std::sqrt(8.0);
  CHECK(largest(weight) <= bound);
  CHECK(largest(weight) > 0.9 * bound);
  CHECK(largest(a.norm.weight.to_vector()) == 1.0);

  options = small_vit();
  options.init = nn::ViTInit::TruncatedNormal;
  options.zero_head = true;
  nn::ViT t(options);
  CHECK(largest(t.blocks[0].attn.qkv.weight.to_vector()) <= 0.04);
  CHECK(largest(t.blocks[0].attn.qkv.weight.to_vector()) > 0.02);
  CHECK(largest(t.blocks[0].attn.qkv.bias.to_vector()) == 0.0);
  CHECK(largest(t.head.weight.to_vector()) == 0.0);
  std::mt19937_64 random(3);
  CHECK(largest(t(random_tensor(random, {1, 2, 8, 12}, DType::F32)).to_vector()) == 0.0);
}

TEST_CASE("sequential runs its parts in order", "[nn]") {
  nn::Sequential net;
  auto generator = std::make_shared<Generator>(1);
  net.add<nn::Linear>(3, 5, nn::LinearOptions{.generator = generator})
      .add<nn::Gelu>()
      .add<nn::Linear>(5, 2, nn::LinearOptions{.bias = false, .generator = generator});
  CHECK(names_of(net.named_parameters()) == std::vector<std::string>{"0.weight", "0.bias", "2.weight"});
  std::mt19937_64 random(1);
  const Tensor x = random_tensor(random, {4, 3}, DType::F32);
  const Tensor expected =
      linear(gelu(linear(x, net.parameter("0.weight"), net.parameter("0.bias"))), net.parameter("2.weight"));
  CHECK(net(x).to_vector() == expected.to_vector());
}

TEST_CASE("wrong models and inputs are refused in words", "[nn]") {
  auto options = small_vit();
  options.image = {73, 144};
  CHECK_THROWS_WITH(nn::ViT(options), Catch::Contains("patches of 4x4 do not divide an image of 73x144; pad "
                                                      "the image to 76x144"));
  options = small_vit();
  options.heads = 3;
  CHECK_THROWS_WITH(nn::ViT(options), Catch::Contains("width 8 must be a positive multiple of heads 3"));
  options = small_vit();
  options.classes = 2;
  CHECK_THROWS_WITH(nn::ViT(options), Catch::Contains("either out_channels (a map) or classes"));
  nn::ViT model(small_vit());
  CHECK_THROWS_WITH(model(zeros({1, 2, 8, 8})), Catch::Contains("this model takes [N, 2, 8, 12]"));
  CHECK_THROWS_WITH(nn::Dropout(0.5, nullptr), Catch::Contains("needs a generator"));
  CHECK_THROWS_WITH(nn::Dropout(1.5, nullptr), Catch::Contains("0 <= p <= 1"));
  CHECK_THROWS_WITH(nn::Module().forward(ones({1})), Catch::Contains("no forward of one tensor"));
}

TEST_CASE("dropout of everything leaves zeros, and no gradient", "[nn]") {
  Tensor x = ones({3, 4});
  x.set_requires_grad();
  nn::Dropout all(1.0, std::make_shared<Generator>(1));
  const Tensor y = all(x);
  CHECK(y.to_vector() == std::vector<double>(12, 0.0));
  sum(y).backward();
  CHECK(x.grad().to_vector() == std::vector<double>(12, 0.0));
}

}  // namespace tessera
