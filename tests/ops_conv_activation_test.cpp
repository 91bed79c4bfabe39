// An activation in the same pass as a convolution, against the two one after the other: values, gradients and
// gradients of gradients, cut in every way, with and without frames.
#include "ops/conv/conv.h"

#include "autograd/node.h"
#include "ops/cpu/conv_choice.h"
#include "runtime/allocator.h"
#include "tests/activation_cases.h"
#include "tests/frames_from.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::activation_cases;

namespace {

Tensor drawn(Generator& g, const Dims& sizes, DType dtype, const SpecPtr& spec) {
  const Tensor whole = randn(sizes, g, dtype);
  return spec ? redistribute(whole, spec) : whole;
}

struct Call {
  const char* name;
  Dims x, w;
  ConvOptions options;
};
struct Cut {
  SpecPtr x, w;  // null: plain
};

void check_all(const Call& call, DType dtype, const Cut& cut) {
  Generator g(test_seed());
  const auto draw_inputs = [&] {
    return Tensors{drawn(g, call.x, dtype, cut.x), drawn(g, call.w, dtype, cut.w),
                   randn({call.w[0]}, g, dtype)};
  };
  Tensors inputs = draw_inputs();
  for (Tensor& t : inputs) t = t.detach().set_requires_grad();
  const Tensors directions = draw_inputs();
  for (const bool bias : {true, false})
    for (const Kind& kind : kKinds) {
      INFO(call.name << ", " << kind.name << ", " << call.x.str() << " by " << call.w.str() << " "
                     << name_of(dtype) << (bias ? "" : " without bias") << (cut.x ? " x " + cut.x->str() : "")
                     << (cut.w ? " w " + cut.w->str() : ""));
      const auto f = [&](const Tensors& t, Activation a) {
        ConvOptions o = call.options;
        o.activation = a;
        return conv(t[0], t[1], bias ? t[2] : Tensor(), o);
      };
      const auto fused = [&](const Tensors& t) { return f(t, kind.fused); };
      const auto apart = [&](const Tensors& t) { return kind.alone(f(t, Activation::None)); };
      const Tensor dy = randn(f(inputs, Activation::None).sizes(), g, dtype);
      check_same(derivatives(inputs, directions, fused, dy), derivatives(inputs, directions, apart, dy),
                 dtype);
    }
}

std::vector<Call> calls() {
  return {
      {"1-D", {3, 4, 11}, {6, 4, 3}, {.padding = {1}}},
      {"plain", {2, 4, 13, 9}, {6, 4, 3, 3}, {.padding = {1}}},
      {"strides", {2, 4, 13, 9}, {6, 4, 3, 3}, {.stride = {2}, .padding = {1}}},
      {"periodic", {2, 4, 12, 10}, {6, 4, 3, 3}, {.padding = {1}, .periodic = {1}}},
      {"reflected", {2, 4, 12, 10}, {6, 4, 3, 3}, {.padding = {1}, .padding_mode = PaddingMode::Reflect}},
      {"depthwise", {2, 6, 12, 9}, {6, 1, 5, 5}, {.padding = {2}, .groups = 6}},
      {"two groups", {2, 4, 12, 9}, {6, 2, 3, 3}, {.padding = {1}, .groups = 2}},
      {"one sample of 3-D", {4, 8, 5, 6}, {6, 4, 3, 3, 3}, {.padding = {1}}},
  };
}

struct ChoiceOf {
  explicit ChoiceOf(cpu::ConvChoice choice) : before(cpu::conv_choice()) { cpu::set_conv_choice(choice); }
  ~ChoiceOf() { cpu::set_conv_choice(before); }
  cpu::ConvChoice before;
};

}  // namespace

TEST_CASE("a convolution with its activation is the two one after the other", "[ops]") {
  for (const DType dtype : {DType::F32, DType::F64})
    for (const auto choice : {cpu::ConvChoice::ChannelsLast, cpu::ConvChoice::Any, cpu::ConvChoice::Own}) {
      const ChoiceOf here(choice);
      for (const Call& call : calls()) check_all(call, dtype, {});
    }
}

TEST_CASE("so it is where maps, channels or weights are cut", "[ops]") {
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  const auto cut = [&](const Dims& sizes, int dim) { return ShardSpec::make(mesh, {Shard(dim)}, sizes); };
  for (const std::int64_t least : {std::int64_t{1}, std::int64_t{1} << 40}) {  // with frames, without
    const FramesFrom frames(least);
    for (const DType dtype : {DType::F32, DType::F64})
      for (const Call& call : calls()) {
        if (call.x.size() < call.w.size()) continue;  // dims would be other ones
        for (int dim = 0; dim < call.x.size(); ++dim) check_all(call, dtype, {cut(call.x, dim), nullptr});
        for (const int dim : {0, 1}) check_all(call, dtype, {nullptr, cut(call.w, dim)});
        check_all(call, dtype, {cut(call.x, 2), cut(call.w, 0)});
      }
  }
}

TEST_CASE("so it is on two mesh axes, on uneven and empty shards, and where sums are owed", "[ops]") {
  const Call call{"plain", {2, 4, 13, 9}, {6, 4, 3, 3}, {.padding = {1}}};
  const int ranks = test_world().size();
  if (ranks % 2 == 0) {
    const DeviceMesh mesh(test_world(), {{"a", 2}, {"b", ranks / 2}});
    for (const auto& p : {Placements{Shard(2), Shard(3)}, Placements{Shard(1), Shard(2)},
                          Placements{Replicate(), Shard(3)}, Placements{Shard(2), Partial()}})
      for (const std::int64_t least : {std::int64_t{1}, std::int64_t{1} << 40}) {
        const FramesFrom frames(least);
        check_all(call, DType::F64, {ShardSpec::make(mesh, p, call.x), nullptr});
      }
  }
  const DeviceMesh mesh(test_world(), {{"domain", ranks}});
  std::vector<std::int64_t> rows(static_cast<std::size_t>(ranks), 0);
  rows.back() = call.x[2];
  check_all(call, DType::F64, {ShardSpec::from_lengths(mesh, {Shard(2)}, call.x, {rows}), nullptr});
  check_all(call, DType::F64, {ShardSpec::make(mesh, {Partial()}, call.x), nullptr});
  check_all(call, DType::F64, {nullptr, ShardSpec::make(mesh, {Partial()}, call.w)});
}

// Their outputs do not fit a cache: they are worked out in slabs, each of which the activation follows.
TEST_CASE("so it is on large channels-last maps", "[ops]") {
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  Generator g(test_seed());
  const std::vector<Call> large{
      {"plain", {2, 8, 150, 130}, {16, 8, 3, 3}, {.padding = {1}}},
      {"strides and gaps", {1, 8, 301, 260}, {16, 8, 3, 3}, {.stride = {2}, .padding = {2}, .dilation = {2}}},
      {"wide padding", {1, 8, 150, 130}, {16, 8, 7, 1}, {.padding = {5, 0}}},
      {"3-D", {1, 4, 40, 40, 40}, {16, 4, 3, 3, 3}, {.padding = {1}}},
  };
  for (const Call& call : large) {
    Dims last{call.x[0]};
    Dims back{0, call.x.size() - 1};
    for (int d = 2; d < call.x.size(); ++d) {
      last.push_back(call.x[d]);
      back.push_back(d - 1);
    }
    last.push_back(call.x[1]);
    const Tensor whole = permute(randn(last, g), back);
    const Tensor w = randn(call.w, g);
    const Tensor b = randn({call.w[0]}, g);
    for (const Tensor& x : {whole, redistribute(whole, ShardSpec::make(mesh, {Shard(2)}, call.x))})
      for (const auto choice : {cpu::ConvChoice::ChannelsLast, cpu::ConvChoice::Any})
        for (const Kind& kind : kKinds) {
          INFO(call.name << ", " << kind.name << ", " << (x.is_sharded() ? "cut" : "plain"));
          const ChoiceOf here(choice);
          ConvOptions o = call.options;
          const Tensors inputs{x.detach().set_requires_grad(), w.detach().set_requires_grad()};
          const Tensor apart = kind.alone(conv(inputs[0], inputs[1], b, o));
          o.activation = kind.fused;
          const Tensor fused = conv(inputs[0], inputs[1], b, o);
          const auto with_gradients = [&](const Tensor& y) {
            std::vector<std::vector<double>> values{y.to_vector()};
            for (const Tensor& t : grad({y}, inputs, {apart.detach()})) values.push_back(t.to_vector());
            return values;
          };
          check_same(with_gradients(fused), with_gradients(apart), DType::F32);
          const NoGrad guard;  // nothing is kept, the activation works in place
          check_same({conv(x, w, b, o).to_vector()}, {apart.to_vector()}, DType::F32);
        }
  }
}

TEST_CASE("NaN and infinities pass an activation as if it came alone", "[ops]") {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> values{std::nan(""), infinity, -infinity, 0, 1, -1, -30, 30};
  const auto n = static_cast<std::int64_t>(values.size());
  for (const DType dtype : {DType::F32, DType::F64, DType::BF16, DType::F16}) {
    const Tensor x(Array::from(values, {1, 1, n, 1}, dtype));
    const Tensor w = ones({16, 1, 1, 1}, dtype);
    for (const auto choice : {cpu::ConvChoice::ChannelsLast, cpu::ConvChoice::Any, cpu::ConvChoice::Own})
      for (const Kind& kind : kKinds) {
        INFO(kind.name << " " << name_of(dtype) << " choice " << static_cast<int>(choice));
        const ChoiceOf here(choice);
        ConvOptions o;
        o.activation = kind.fused;
        const std::vector<double> got = conv(x, w, {}, o).to_vector();
        const std::vector<double> want = kind.alone(conv(x, w, {}, {})).to_vector();
        for (std::size_t i = 0; i < got.size(); ++i) {
          INFO("of " << values[i % values.size()]);
          CHECK((got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])) ||
                 std::abs(got[i] - want[i]) < 1e-2 * (std::abs(want[i]) + 1e-3)));
        }
      }
  }
}

TEST_CASE("16 bits are rounded once, after the activation", "[ops]") {
  Generator g(test_seed());
  for (const DType dtype : {DType::BF16, DType::F16}) {
    const Tensor x = randn({2, 8, 7, 9}, g, dtype);
    const Tensor w = randn({16, 8, 3, 3}, g, dtype);
    const Tensor b = randn({16}, g, dtype);
    for (const Kind& kind : kKinds) {
      ConvOptions o{.padding = {1}};
      const Tensor exact = kind.alone(conv(to(x, DType::F64), to(w, DType::F64), to(b, DType::F64), o));
      o.activation = kind.fused;
      const std::vector<double> got = conv(x, w, b, o).to_vector();
      const std::vector<double> want = exact.to_vector();
      const double step = std::ldexp(1.0, dtype == DType::BF16 ? -8 : -11);
      for (std::size_t i = 0; i < got.size(); ++i) {
        INFO(kind.name << " " << name_of(dtype));
        // oneDNN's bfloat16 rounds ReLU's and GELU's argument too.
        const bool twice = dtype == DType::BF16;
        CHECK(std::abs(got[i] - want[i]) <=
              step * (twice ? 2.5 : 1.0) * (std::abs(want[i]) + (twice ? 1 : 0)) + 2e-5);
      }
    }
  }
}

TEST_CASE("what is kept of a convolution and its activation", "[ops]") {
  Generator g(test_seed());
  const Tensor x = randn({1, 4, 64, 64}, g).set_requires_grad();
  const Tensor w = randn({16, 4, 3, 3}, g);
  const std::int64_t result = 16 * 64 * 64 * 4;
  const auto live = [&](Activation activation) {
    const std::int64_t before = allocator_stats(Device::Cpu).live_bytes;
    const Tensor y = conv2d(x, w, {}, {.padding = {1}, .activation = activation});
    return allocator_stats(Device::Cpu).live_bytes - before;
  };
  CHECK(live(Activation::Relu) < result + result / 8);
  CHECK(live(Activation::Gelu) < 2 * result + result / 8);
  const NoGrad guard;
  CHECK(live(Activation::Gelu) < result + result / 8);
}

TEST_CASE("a second backward pass needs a graph that was kept", "[ops]") {
  Generator g(test_seed());
  const Tensor x = randn({1, 3, 9, 9}, g).set_requires_grad();
  const Tensor w = randn({4, 3, 3, 3}, g).set_requires_grad();
  const Tensor y = conv2d(x, w, {}, {.activation = Activation::Gelu});
  const Tensor dy = ones(y.sizes());
  const Tensors first = grad({y}, {x, w}, {dy}, {.retain_graph = true});
  const Tensors second = grad({y}, {x, w}, {dy});
  for (const std::size_t i : {0, 1}) CHECK(first[i].to_vector() == second[i].to_vector());
  CHECK_THROWS_WITH(grad({y}, {x, w}, {dy}), Catch::Contains("a second time"));
}
