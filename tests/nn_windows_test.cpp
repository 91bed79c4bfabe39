// Convolutions, transposed ones, pooling and resizing as modules: names, sizes and initial values as
// PyTorch's, and the same numbers on every mesh.
#include "autograd/adjoints.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "tests/nn_cases.h"

namespace tessera {
namespace {

using Mode = InterpolateMode;

// One module on a cut input and on the whole: outputs, and gradients of everything.
void check_parity(nn::Module& layer, const Dims& sizes, std::uint64_t stream) {
  auto random = test_random(stream);
  const int last = sizes.size() - 1;
  for (const DeviceMesh& mesh : domain_meshes())
    for (const std::vector<int>& dims :
         std::vector<std::vector<int>>{{last}, {last - 1, last}, {0, last}, {last - 1}}) {
      const Tensor values = random_tensor(random, sizes);
      Tensor x = Tensor(values.local().clone()).set_requires_grad();
      Tensor whole = Tensor(values.local().clone()).set_requires_grad();
      const SpecPtr spec = random_spec(random, mesh, sizes, dims);
      INFO(spec->str());
      layer.zero_grad();
      const Tensor expected = layer(whole);
      const Tensor cotangent = random_tensor(random, expected.sizes());
      expected.backward(cotangent);
      Tensors gradients;
      for (const Tensor& p : layer.parameters()) gradients.push_back(p.grad());
      layer.zero_grad();
      const Tensor y = layer(redistribute(x, spec));
      CHECK(error_of(y, expected) < 1e-11);
      y.backward(cotangent);
      CHECK(error_of(x.grad(), whole.grad()) < 1e-11);
      const Tensors parameters = layer.parameters();
      for (std::size_t i = 0; i < parameters.size(); ++i)
        CHECK(error_of(parameters[i].grad(), gradients[i]) < 1e-11);
    }
}

// Down, across and up again beside a skip, as in a U-Net.
class SmallUNet : public nn::Module {
 public:
  SmallUNet()
      : first(2, 4,
              {.kernel_size = {3}, .padding_mode = PaddingMode::Reflect, .same = true, .dtype = DType::F64}),
        down({2}),
        middle(4, 6, {.kernel_size = {3}, .padding = {1}, .dtype = DType::F64}),
        up(6, 4, {.kernel_size = {2}, .stride = {2}, .dtype = DType::F64}),
        last(8, 1, {.kernel_size = {1}, .dtype = DType::F64}) {
    register_module("first", first);
    register_module("down", down);
    register_module("middle", middle);
    register_module("up", up);
    register_module("last", last);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor skip = relu(first(x));
    return last(cat({skip, up.forward(relu(middle(down(skip))), {x.size(-2), x.size(-1)})}, 1));
  }
  nn::Conv2d first;
  nn::MaxPool2d down;
  nn::Conv2d middle;
  nn::ConvTranspose2d up;
  nn::Conv2d last;
};

std::vector<std::string> names_of(const nn::Module& m) {
  std::vector<std::string> names;
  for (const auto& n : m.state()) names.push_back(n.name);
  return names;
}

}  // namespace

TEST_CASE("transposed convolutions have the names, sizes and initial values of PyTorch's", "[nn]") {
  auto generator = std::make_shared<Generator>(3);
  nn::ConvTranspose2d layer(6, 4, {.kernel_size = {3, 5}, .groups = 2, .generator = generator});
  CHECK(names_of(layer) == std::vector<std::string>{"weight", "bias"});
  CHECK(layer.weight.sizes() == Dims{6, 2, 3, 5});
  CHECK(layer.bias.sizes() == Dims{4});
  const double bound = 1 / std::sqrt(2.0 * 3 * 5);  // what PyTorch calls fan_in: of the weight as it lies
  CHECK(largest(layer.weight.to_vector()) <= bound);
  CHECK(largest(layer.weight.to_vector()) > 0.9 * bound);
  CHECK(largest(layer.bias.to_vector()) <= bound);
  CHECK(largest(layer.bias.to_vector()) > 0);
  CHECK(names_of(nn::ConvTranspose1d(2, 2, {.kernel_size = {2}, .bias = false})) ==
        std::vector<std::string>{"weight"});
  CHECK(nn::ConvTranspose3d(2, 3, {.kernel_size = {2}}).weight.sizes() == Dims{2, 3, 2, 2, 2});
}

TEST_CASE("layers with windows are their functions", "[nn]") {
  auto random = test_random(7);
  const Tensor x = random_tensor(random, {2, 3, 9, 8});
  const auto same = [&](nn::Module& layer, const Tensor& expected) {
    CHECK(layer(x).to_vector() == expected.to_vector());
  };
  nn::AvgPool2d average({3, 2}, {.stride = {2, 1}, .padding = {1, 0}, .count_include_pad = false});
  same(average, avg_pool2d(x, {3, 2}, {.stride = {2, 1}, .padding = {1, 0}, .count_include_pad = false}));
  nn::MaxPool2d most({3}, {.stride = {2}, .dilation = {2}, .ceil_mode = true});
  same(most, max_pool2d(x, {3}, {.stride = {2}, .dilation = {2}, .ceil_mode = true}));
  const MaxPoolResult found = most.with_indices(x);
  CHECK(found.values.to_vector() == most(x).to_vector());
  CHECK(found.indices.to_vector() ==
        max_pool2d_with_indices(x, {3}, {.stride = {2}, .dilation = {2}, .ceil_mode = true})
            .indices.to_vector());
  nn::AdaptiveAvgPool2d adaptive({kKeepSize, 3});
  same(adaptive, adaptive_avg_pool2d(x, {kKeepSize, 3}));
  nn::Upsample up({.scale_factor = {2}, .mode = Mode::Bilinear, .align_corners = true});
  same(up, interpolate(x, {.scale_factor = {2}, .mode = Mode::Bilinear, .align_corners = true}));
  for (const PaddingMode mode :
       {PaddingMode::Zeros, PaddingMode::Circular, PaddingMode::Reflect, PaddingMode::Replicate}) {
    nn::Conv2d layer(3, 2, {.kernel_size = {3, 4}, .padding_mode = mode, .same = true, .dtype = DType::F64});
    same(layer, conv2d(x, layer.weight, layer.bias, {.padding_mode = mode, .same = true}));
    CHECK(layer(x).sizes() == Dims{2, 2, 9, 8});
  }
  nn::Conv2d activated(3, 2, {.kernel_size = {3}, .dtype = DType::F64, .activation = Activation::Silu});
  same(activated, silu(conv2d(x, activated.weight, activated.bias)));
  nn::ConvTranspose2d transposed(3, 2,
                                 {.kernel_size = {3}, .stride = {2}, .padding = {1}, .dtype = DType::F64});
  const ConvTransposeOptions o{.stride = {2}, .padding = {1}};
  same(transposed, conv_transpose2d(x, transposed.weight, transposed.bias, o));
  CHECK(transposed.forward(x, {18, 15}).sizes() == Dims{2, 2, 18, 15});
  CHECK_THROWS_WITH(transposed.forward(x, {19, 15}),
                    Catch::Contains("can have 17 to 18 positions in the output, 19 were asked for"));
  CHECK_THROWS_WITH(transposed.forward(x, {18}),
                    Catch::Contains("one value per spatial dim (2), given [18]"));
  CHECK_THROWS_WITH(nn::ConvTranspose2d(3, 4, {.kernel_size = {3}, .groups = 2}),
                    Catch::Contains("channels in 3 and out 4 must be positive multiples of groups 2"));
  CHECK_THROWS_WITH(nn::ConvTranspose2d(2, 4, {.kernel_size = {3, 3, 3}}),
                    Catch::Contains("for 2 spatial dims"));
}

TEST_CASE("padding, flattening and upsampling as modules are their functions and keep no state", "[nn]") {
  auto random = test_random(8);
  const auto same = [](nn::Module& layer, const Tensor& x, const Tensor& expected) {
    CHECK(layer.state().empty());
    CHECK(layer(x).sizes() == expected.sizes());
    CHECK(layer(x).to_vector() == expected.to_vector());
  };
  const Tensor line = random_tensor(random, {2, 3, 9});
  const Tensor map = random_tensor(random, {2, 3, 5, 6});
  const Tensor volume = random_tensor(random, {2, 3, 4, 5, 6});
  const auto pads = [&](nn::Module&& one, nn::Module&& two, nn::Module&& three, PadMode mode, double value) {
    same(one, line, pad(line, {2, 2}, mode, value));
    same(two, map, pad(map, {1, 3, 2, 0}, mode, value));
    same(three, volume, pad(volume, {1, 1, 1, 1, 1, 1}, mode, value));
  };
  const Dims sides{1, 3, 2, 0};
  pads(nn::ZeroPad1d({2}), nn::ZeroPad2d(sides), nn::ZeroPad3d({1}), PadMode::Constant, 0.0);
  pads(nn::ConstantPad1d({2}, 0.5), nn::ConstantPad2d(sides, 0.5), nn::ConstantPad3d({1}, 0.5),
       PadMode::Constant, 0.5);
  pads(nn::ReflectionPad1d({2}), nn::ReflectionPad2d(sides), nn::ReflectionPad3d({1}), PadMode::Reflect, 0.0);
  pads(nn::ReplicationPad1d({2}), nn::ReplicationPad2d(sides), nn::ReplicationPad3d({1}), PadMode::Replicate,
       0.0);
  pads(nn::CircularPad1d({2}), nn::CircularPad2d(sides), nn::CircularPad3d({1}), PadMode::Circular, 0.0);
  CHECK_THROWS_WITH(nn::ZeroPad2d({1, 2}), Catch::Contains("padding [1, 2] given for 2 spatial dims"));
  nn::Flatten rows;
  same(rows, map, reshape(map, {2, 90}));
  nn::Flatten some(1, 2);
  same(some, map, reshape(map, {2, 15, 6}));
  nn::Unflatten apart(-1, {2, -1});
  same(apart, map, reshape(map, {2, 3, 5, 2, 3}));
  nn::UpsamplingNearest2d nearest({.scale_factor = {2}});
  same(nearest, map, interpolate(map, {.scale_factor = {2}}));
  nn::UpsamplingBilinear2d bilinear({.size = {7, 9}});
  same(bilinear, map, interpolate(map, {.size = {7, 9}, .mode = Mode::Bilinear, .align_corners = true}));
}

TEST_CASE("layers with windows, sharded and whole", "[nn][parity]") {
  nn::MaxPool1d max1({3}, {.stride = {2}, .padding = {1}});
  check_parity(max1, {2, 3, 11}, 20);
  nn::MaxPool3d max3({2}, {.ceil_mode = true});
  check_parity(max3, {1, 2, 3, 5, 6}, 21);
  nn::AvgPool1d average1({2}, {.stride = {3}});
  check_parity(average1, {2, 2, 13}, 22);
  nn::AvgPool3d average3({3}, {.stride = {1}, .padding = {1}});
  check_parity(average3, {1, 2, 3, 4, 5}, 23);
  nn::AdaptiveAvgPool1d adaptive1({3});
  check_parity(adaptive1, {2, 2, 10}, 24);
  nn::AdaptiveAvgPool3d adaptive3({1});
  check_parity(adaptive3, {1, 2, 3, 4, 5}, 25);
  nn::Upsample trilinear({.size = {4, 7, 9}, .mode = Mode::Trilinear});
  check_parity(trilinear, {1, 2, 3, 4, 5}, 26);
  nn::Conv3d cube(
      2, 2, {.kernel_size = {3}, .padding_mode = PaddingMode::Replicate, .same = true, .dtype = DType::F64});
  check_parity(cube, {1, 2, 3, 4, 5}, 27);
  nn::ConvTranspose1d line(2, 3,
                           {.kernel_size = {4}, .stride = {3}, .output_padding = {1}, .dtype = DType::F64});
  check_parity(line, {2, 2, 7}, 28);
  nn::ConvTranspose3d volume(2, 1, {.kernel_size = {2, 3, 1}, .dilation = {2}, .dtype = DType::F64});
  check_parity(volume, {1, 2, 3, 4, 5}, 29);
  nn::ReflectionPad2d mirror({2, 1, 0, 3});
  check_parity(mirror, {2, 2, 6, 7}, 33);
  nn::CircularPad3d ring({1});
  check_parity(ring, {1, 2, 3, 4, 5}, 34);
  nn::ConstantPad1d frame({3, 0}, 1.5);
  check_parity(frame, {2, 3, 8}, 35);
  nn::Flatten rows;
  check_parity(rows, {2, 3, 4, 5}, 36);
  nn::Unflatten apart(1, {2, 3});
  check_parity(apart, {2, 6, 4, 5}, 37);
}

TEST_CASE("a UNet knows no seam where a dim is periodic, and says what it takes", "[nn]") {
  nn::UNetOptions o{.in_channels = 2, .widths = {4, 8, 8}, .periodic = {1}, .dtype = DType::F64};
  nn::UNet net(o);
  CHECK(names_of(net).front() == "down.0.conv1.weight");
  CHECK(net.widen[0].weight.sizes() == Dims{8, 4, 2, 2});
  CHECK(net.up[0].conv1.weight.sizes() == Dims{4, 8, 3, 3});
  auto random = test_random(32);
  const Tensor x = random_tensor(random, {1, 2, 8, 12});
  const Tensor y = net(x);
  CHECK(y.sizes() == Dims{1, 1, 8, 12});
  CHECK(error_of(net(roll(x, {4}, {3})), roll(y, {4}, {3})) < 1e-12);
  // A pole is an end: there is nothing beyond.
  CHECK(error_of(net(roll(x, {4}, {2})), roll(y, {4}, {2})) > 1e-3);
  o.zero_head = true;
  nn::UNet silent(o);
  CHECK(largest(silent(x).to_vector()) == 0);
  CHECK_THROWS_WITH(
      net(random_tensor(random, {1, 2, 8, 10})),
      Catch::Contains("3 levels need spatial sizes that are multiples of 4, given [1, 2, 8, 10]"));
  CHECK_THROWS_WITH(net(random_tensor(random, {1, 3, 8, 12})),
                    Catch::Contains("takes [N, 2, 2 spatial dims]"));
  o.groups = 3;
  CHECK_THROWS_WITH(nn::UNet(o), Catch::Contains("width 4 must be a positive multiple of groups 3"));
  o.widths = {};
  CHECK_THROWS_WITH(nn::UNet(o), Catch::Contains("at least one level"));
}

TEST_CASE("max pools tell where in the whole map they found their values, whatever the cut", "[nn][parity]") {
  auto random = test_random(32);
  const Dims sizes{2, 3, 9, 8};
  const Tensor whole = random_tensor(random, sizes);
  nn::MaxPool2d pool({3, 2}, {.stride = {2, 1}, .padding = {1, 0}});
  const MaxPoolResult expected = pool.with_indices(whole);
  const std::vector<double> values = whole.to_vector();
  const std::vector<double> places = expected.indices.to_vector();
  for (std::size_t i = 0; i < places.size(); ++i) {  // of a map of 72 positions each
    const std::size_t map = i / (places.size() / 6);
    CHECK(values[72 * map + static_cast<std::size_t>(places[i])] == expected.values.to_vector()[i]);
  }
  for (const DeviceMesh& mesh : domain_meshes())
    for (const std::vector<int>& dims : std::vector<std::vector<int>>{{0}, {1}, {2}, {3}, {2, 3}}) {
      const SpecPtr spec = random_spec(random, mesh, sizes, dims);
      INFO(spec->str());
      const MaxPoolResult got = pool.with_indices(redistribute(whole, spec));
      CHECK(got.values.to_vector() == expected.values.to_vector());
      CHECK(got.indices.to_vector() == places);
    }
}

TEST_CASE("a small U-Net, sharded and whole", "[nn][parity]") {
  SmallUNet net;
  net.initialize(5);
  CHECK(names_of(net).size() == 8);
  check_parity(net, {2, 2, 10, 12}, 30);
  check_parity(net, {1, 2, 9, 7}, 31);
}

}  // namespace tessera
