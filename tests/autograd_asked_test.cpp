// grad() works out what leads to the inputs that it is asked for and nothing else: neither other nodes, nor
// gradients of other operands of the nodes on the way, nor their messages and kernels.
#include <catch2/catch.hpp>

#include "ops/kernels.h"
#include "tests/autograd_cases.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::autograd_cases;
using namespace tessera::mesh_cases;

namespace {

// The sum of its inputs. Writes down what its gradient is asked for and hands back every operand's all the
// same.
Tensor noted(const char* name, const Tensors& inputs, std::string& log) {
  Tensor out(inputs[0].local().clone());
  for (std::size_t i = 1; i < inputs.size(); ++i) out = (out + Tensor(inputs[i].local())).detach();
  record_simple(name, inputs, std::span(&out, 1),
                [name, n = inputs.size(), &log](const auto& c, const Tensors& g) {
                  log += name;
                  for (std::size_t i = 0; i < n; ++i)
                    if (c.needs(i)) log += std::to_string(i);
                  log += ' ';
                  return Tensors(n, g[0]);
                });
  return out;
}

std::string taken(std::string& log) { return std::exchange(log, ""); }

// Calls of a kernel while it lives.
template <class Args>
class Counted {
 public:
  Counted(Kernel<void(const Args&)>& kernel, void (*function)(const Args&))
      : kernel_(kernel), right_(kernel) {
    calls() = 0;
    real() = function;
    kernel.set(Device::Cpu, [](const Args& args) {
      ++calls();
      real()(args);
    });
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { kernel_ = right_; }
  int taken() const { return std::exchange(calls(), 0); }

 private:
  static int& calls() {
    static int n = 0;
    return n;
  }
  static auto& real() {
    static void (*f)(const Args&) = nullptr;
    return f;
  }
  Kernel<void(const Args&)>& kernel_;
  Kernel<void(const Args&)> right_;
};

std::int64_t calls_of(const Communicator& comm, const std::function<void()>& f) {
  const std::int64_t before = comm.recorder().totals().calls;
  f();
  return comm.recorder().totals().calls - before;
}

Tensor random_leaf(Generator& generator, const Dims& sizes, const SpecPtr& spec = nullptr) {
  return randn(sizes, generator, DType::F64, spec).set_requires_grad();
}

}  // namespace

TEST_CASE("grad() walks to its inputs and nowhere else", "[autograd]") {
  const Tensor a = leaf({1, 2});
  const Tensor b = leaf({3, 4});
  const Tensor c = leaf({5, 6});
  std::string log;
  const Tensor left = noted("left", {a, b}, log);
  const Tensor right = noted("right", {c, c}, log);
  const Tensor top = noted("top", {left, right, a}, log);
  const Tensor ones = tensor(Values{1, 1}, {2}, DType::F64);
  int seen = 0;
  right.register_hook([&seen](const Tensor&) {
    ++seen;
    return Tensor();
  });
  const auto gradients = [&](const Tensors& inputs) {
    std::string sums;
    for (const Tensor& g : grad({top}, inputs, {ones}, retain()))
      sums += std::to_string(int(g.to_vector()[0]));
    return sums + " by " + taken(log);
  };
  CHECK(gradients({a}) == "2 by top02 left0 ");
  CHECK(gradients({b}) == "1 by top0 left1 ");
  CHECK(gradients({left}) == "1 by top0 ");
  CHECK(gradients({left, a}) == "12 by top02 left0 ");
  CHECK(gradients({top}) == "1 by ");
  CHECK(seen == 0);
  CHECK(gradients({c}) == "2 by top1 right01 ");
  CHECK(seen == 1);
  CHECK(gradients({c, b, a}) == "212 by top012 right01 left01 ");
  // Roots that lead nowhere; a root that another one leads to.
  CHECK(grad({right, left}, {b}, {ones, ones}, retain())[0].to_vector() == Values{1, 1});
  CHECK(taken(log) == "left1 ");
  CHECK(grad({left, top}, {b}, {ones, ones}, retain())[0].to_vector() == Values{2, 2});
  CHECK(taken(log) == "top0 left1 ");
  CHECK_FALSE(grad({right}, {b}, {ones}, retain())[0].defined());
  CHECK(taken(log).empty());
  top.backward(ones, retain());
  CHECK(taken(log) == "top012 right01 left01 ");
}

TEST_CASE("grad() frees what it went through and nothing else", "[autograd]") {
  const Tensor a = leaf({1, 2});
  const Tensor b = leaf({3, 4});
  const Tensor left = exp(a);
  const Tensor right = exp(b);
  const Tensor top = sum(left * right);
  CHECK(grad({top}, {a})[0].to_vector() == (left * right).to_vector());
  CHECK(grad({sum(right)}, {b})[0].to_vector() == right.to_vector());
  CHECK(contains(refusal([&] { grad({top}, {b}); }), "second time"));
  CHECK(contains(refusal([&] { sum(left).backward(); }), "second time"));
  // A convolution gives up its map in the last pass, and may be asked for the other gradient alone.
  Generator generator(3);
  const Tensor x = random_leaf(generator, {1, 2, 5, 5});
  const Tensor w = random_leaf(generator, {2, 2, 3, 3});
  const auto loss = [&] { return sum(square(conv2d(x, w, Tensor(), {.padding = {1}}))); };
  const Tensors both = grad({loss()}, {x, w});
  CHECK(grad({loss()}, {x})[0].to_vector() == both[0].to_vector());
  CHECK(grad({loss()}, {w})[0].to_vector() == both[1].to_vector());
}

TEST_CASE("gradients of gradients by some of the inputs", "[autograd]") {
  const Tensor x = leaf({2, -3});
  const Tensor w = leaf({5, 7});
  const Tensor y = sum(x * x * w + w * w * w);
  const Tensor by_x = grad({y}, {x}, {}, create())[0];  // 2xw
  CHECK(by_x.to_vector() == Values{20, -42});
  CHECK(grad({sum(by_x)}, {w}, {}, retain())[0].to_vector() == Values{4, -6});
  CHECK(grad({sum(by_x)}, {x})[0].to_vector() == Values{10, 14});
}

TEST_CASE("kernels of operands that nobody asked for are not called", "[autograd]") {
  Generator generator(5);
  const Tensor x = random_leaf(generator, {3, 4});
  const Tensor w = random_leaf(generator, {5, 4});
  const Tensor b = random_leaf(generator, {5});
  const Tensor y = linear(x, w, b);
  const Tensor dy = randn(y.sizes(), generator, DType::F64);
  const Counted<cpu::MatmulArgs> products(kernels::matmul, &cpu::matmul);
  const Tensors all = grad({y}, {x, w, b}, {dy}, retain());
  CHECK(products.taken() == 2);
  const auto alone = [&](const Tensor& t, const Tensor& expected, int calls) {
    CHECK(grad({y}, {t}, {dy}, retain())[0].to_vector() == expected.to_vector());
    CHECK(products.taken() == calls);
  };
  alone(x, all[0], 1);
  alone(w, all[1], 1);
  alone(b, all[2], 0);
}

TEST_CASE("messages of operands that nobody asked for are not sent", "[autograd]") {
  const Communicator world = test_world();
  const DeviceMesh mesh(world, {{"domain", world.size()}});
  Generator generator(7);
  const Dims sizes{1, 2, 4 * world.size(), 5};
  const Tensor x = random_leaf(generator, sizes, ShardSpec::make(mesh, {Shard(2)}, sizes));
  const Tensor w = random_leaf(generator, {2, 2, 3, 3});
  const Tensor y = conv2d(x, w, Tensor(), {.padding = {1}});
  const Tensor dy = randn(sizes, generator, DType::F64, y.spec());
  const Tensors both = grad({y}, {x, w}, {dy}, retain());
  Tensor by_w;
  CHECK(calls_of(world, [&] { by_w = grad({y}, {w}, {dy}, retain())[0]; }) == 0);
  CHECK(by_w.to_vector() == both[1].to_vector());
  Tensor by_x;
  CHECK(calls_of(world, [&] { by_x = grad({y}, {x}, {dy}, retain())[0]; }) == (world.size() > 1 ? 1 : 0));
  CHECK(by_x.to_vector() == both[0].to_vector());
  // A branch of its own: the softmax of a cut dim asks the other ranks.
  const Tensor scores = softmax(x, 2);
  const Tensor plain = x * w.detach().local().at(0);
  const Tensor shifted = random_leaf(generator, sizes, x.spec());
  const Tensor top = scores + plain * shifted;
  CHECK(calls_of(world, [&] { grad({top}, {shifted}, {dy}, retain()); }) == 0);
  CHECK((calls_of(world, [&] { grad({top}, {x}, {dy}, retain()); }) > 0) == (world.size() > 1));
}

TEST_CASE("gradients of keys and values that nobody asked for do not go round the ring", "[autograd]") {
  const Communicator world = test_world();
  const DeviceMesh mesh(world, {{"domain", world.size()}});
  Generator generator(9);
  const Dims sizes{1, 2, 3 * world.size(), 4};
  const SpecPtr tokens = ShardSpec::make(mesh, {Shard(2)}, sizes);
  const Tensor q = random_leaf(generator, sizes, tokens);
  const Tensor k = random_leaf(generator, sizes, tokens);
  const Tensor v = random_leaf(generator, sizes, tokens);
  const Tensor y = scaled_dot_product_attention(q, k, v);
  const Tensor dy = randn(sizes, generator, DType::F64, y.spec());
  const Tensors all = grad({y}, {q, k, v}, {dy}, retain());
  const auto alone = [&](const Tensor& t, const Tensor& expected, int turns) {
    Tensor g;
    CHECK(calls_of(world, [&] { g = grad({y}, {t}, {dy}, retain())[0]; }) == turns * (world.size() - 1));
    CHECK(g.to_vector() == expected.to_vector());
  };
  alone(q, all[0], 1);
  alone(k, all[1], 2);
  alone(v, all[2], 2);
}
