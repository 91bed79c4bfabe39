// The tape on one device: what is accumulated, when hooks run, what is freed, what is refused. Runs under
// several ranks too, where every rank must do the same in the same order.
#include <catch2/catch.hpp>
#include <thread>

#include "tests/autograd_cases.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::autograd_cases;
using namespace tessera::mesh_cases;

TEST_CASE("gradients accumulate in leaves until they are cleared", "[autograd]") {
  const Tensor x = leaf({1, -2, 3});
  sum(x * x).backward();
  CHECK(x.grad().to_vector() == Values{2, -4, 6});
  sum(x * x * x).backward();
  CHECK(x.grad().to_vector() == Values{2 + 3, -4 + 12, 6 + 27});
  x.zero_grad();
  CHECK_FALSE(x.grad().defined());
  sum(x).backward();
  CHECK(x.grad().to_vector() == Values{1, 1, 1});
}

TEST_CASE("a tensor used many times gets the sum of its gradients", "[autograd]") {
  const Tensor x = leaf({1, -2, 3});
  const Tensor y = x * x;
  const Tensor z = y + y * x + x + x;  // x² + x³ + 2x
  sum(z + y).backward();               // 2x² + x³ + 2x
  CHECK(x.grad().to_vector() == Values{4 + 3 + 2, -8 + 12 + 2, 12 + 27 + 2});
  x.zero_grad();
  const Tensor same = x + x;
  same.backward(tensor(Values{1, 10, 100}, {3}, DType::F64));
  CHECK(x.grad().to_vector() == Values{2, 20, 200});
}

TEST_CASE("the gradient that a caller gives is never changed", "[autograd]") {
  const Tensor x = leaf({1, 2});
  const Tensor w = leaf({3, 4});
  const Tensor given = tensor(Values{5, 6}, {2}, DType::F64);
  const Tensor y = x + w + x + w + x;
  y.backward(given, retain());
  y.backward(given);
  CHECK(given.to_vector() == Values{5, 6});
  CHECK(x.grad().to_vector() == Values{30, 36});
  CHECK(w.grad().to_vector() == Values{20, 24});
}

TEST_CASE("hooks see the whole gradient, once, in order, and may replace it", "[autograd]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 3.0;
  std::string order;
  const int first = y.register_hook([&](const Tensor& g) {
    order += fmt::format("y{} ", g.to_vector()[0]);
    return g * 10.0;
  });
  y.register_hook([&](const Tensor& g) {
    order += fmt::format("Y{} ", g.to_vector()[0]);
    return Tensor();
  });
  const int on_leaf = x.register_hook([&](const Tensor& g) {
    order += fmt::format("x{} ", g.to_vector()[0]);
    return g + 1.0;
  });
  const Tensor z = sum(y + y * 2.0) + sum(x);
  z.backward(Tensor(), retain());
  CHECK(order == "y3 Y30 x91 ");
  CHECK(x.grad().to_vector() == Values{92, 92});
  order.clear();
  y.remove_hook(first);
  x.remove_hook(on_leaf);
  x.zero_grad();
  z.backward();
  CHECK(order == "Y3 ");
  CHECK(x.grad().to_vector() == Values{10, 10});
}

TEST_CASE("a hook may remove itself", "[autograd]") {
  const Tensor x = leaf({1});
  int calls = 0;
  int later = 0;
  int id = 0;
  id = x.register_hook([&](const Tensor&) {
    ++calls;
    x.remove_hook(id);
    return Tensor();
  });
  x.register_hook([&](const Tensor&) {
    ++later;
    return Tensor();
  });
  for (int i = 0; i < 3; ++i) sum(x * x).backward();
  CHECK(calls == 1);
  CHECK(later == 3);
}

TEST_CASE("hooks of an output of many", "[autograd]") {
  const Tensor x = leaf({1, 2, 3});
  const Tensors parts = split(x, {1, 2});
  int calls = 0;
  parts[1].register_hook([&](const Tensor& g) {
    ++calls;
    return g * 2.0;
  });
  sum(parts[0]).backward(Tensor(), retain());
  CHECK(calls == 0);  // nothing came
  CHECK(x.grad().to_vector() == Values{1, 0, 0});
  sum(parts[1]).backward();
  CHECK(calls == 1);
  CHECK(x.grad().to_vector() == Values{1, 2, 2});
}

TEST_CASE("what is not recorded", "[autograd]") {
  Tensor x = leaf({1, 2});
  {
    const NoGrad off;
    CHECK_FALSE((x * x).requires_grad());
    {
      const GradMode on(true);
      CHECK((x * x).requires_grad());
    }
    CHECK_FALSE(grad_enabled());
  }
  CHECK(grad_enabled());
  const Tensor d = (x * x).detach();
  CHECK_FALSE(d.requires_grad());
  CHECK(d.is_leaf());
  sum(x * d).backward();  // d counts as a number
  CHECK(x.grad().to_vector() == Values{1, 4});
  CHECK_FALSE(eq(x, x).requires_grad());
  x.set_requires_grad(false);
  CHECK_FALSE((x * x).requires_grad());
}

TEST_CASE("a graph is walked once unless it is retained", "[autograd]") {
  const Tensor x = leaf({2});
  const Tensor y = sum(x * x);
  y.backward(Tensor(), retain());
  y.backward();
  CHECK(x.grad().to_vector() == Values{8});
  const std::string text = refusal([&] { y.backward(); });
  CHECK(contains(text, "backward a second time through a graph that was freed (use retain_graph"));
  CHECK(same_everywhere(text));
  // Nodes that only pass gradients on are freed too.
  const Tensor z = x + x;
  sum(z).backward();
  CHECK(contains(refusal([&] { sum(z).backward(); }), "second time"));
}

TEST_CASE("gradients of gradients", "[autograd]") {
  const Tensor x = leaf({2, -3});
  const Tensor cube = sum(x * x * x);
  const Tensor first = grad({cube}, {x}, {}, create())[0];
  CHECK(first.to_vector() == Values{12, 27});
  const Tensor second = grad({sum(first)}, {x}, {}, create())[0];
  CHECK(second.to_vector() == Values{12, -18});
  const Tensor third = grad({sum(second)}, {x})[0];
  CHECK(third.to_vector() == Values{6, 6});
  CHECK_FALSE(x.grad().defined());
  CHECK_FALSE(third.requires_grad());
  // Accumulated with its history.
  sum(x * x * x).backward(Tensor(), create());
  CHECK(x.grad().requires_grad());
  const Tensor penalty = sum(x.grad() * x.grad());  // 9x⁴
  x.zero_grad();
  penalty.backward();
  CHECK(x.grad().to_vector() == Values{36 * 8, 36 * -27});
  x.zero_grad();
}

TEST_CASE("grad() of inner tensors, of several outputs, and of what is not reached", "[autograd]") {
  const Tensor x = leaf({1, 2});
  const Tensor w = leaf({5, 6});
  const Tensor y = x * 2.0;
  const Tensor z = y * y;
  const Tensors g = grad({sum(z), sum(y)}, {y, x, w}, {}, retain());
  CHECK(g[0].to_vector() == Values{5, 9});
  CHECK(g[1].to_vector() == Values{10, 18});
  CHECK_FALSE(g[2].defined());
  CHECK_FALSE(x.grad().defined());
  CHECK(grad({z}, {z}, {tensor(Values{1, 7}, {2}, DType::F64)})[0].to_vector() == Values{1, 7});
  CHECK(contains(refusal([&] { grad({sum(x)}, {tensor(Values{1}, {1}, DType::F64)}); }),
                 "does not require a gradient"));
}

TEST_CASE("a tensor changed in place after it was saved is noticed", "[autograd]") {
  const Tensor x = leaf({1, 2});
  const Tensor w = leaf({3, 4});
  const Tensor y = x * w;
  w.local().fill_(0.0);
  const std::string text = refusal([&] { sum(y).backward(); });
  CHECK(contains(text, "changed in place"));
  CHECK(same_everywhere(text));
  const Tensor z = exp(x);  // saves its output
  z.local().fill_(1.0);
  CHECK(contains(refusal([&] { sum(z).backward(); }), "changed in place"));
  const Tensor s = x + w;  // saves nothing
  w.local().fill_(9.0);
  sum(s).backward();
  CHECK(w.grad().to_vector() == Values{1, 1});
}

TEST_CASE("what backward refuses", "[autograd]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * x;
  CHECK(contains(refusal([&] { y.backward(); }), "a gradient must be given for a tensor of sizes [2]"));
  CHECK(contains(refusal([&] {
                   y.backward(tensor(Values{1, 2, 3}, {3}, DType::F64));
                 }),
                 "[3], the tensor [2]"));
  CHECK(contains(refusal([&] { x.detach().backward(); }), "does not require a gradient"));
  CHECK(contains(refusal([&] {
                   Tensor z = y;
                   z.set_requires_grad();
                 }),
                 "only leaves"));
  CHECK(contains(refusal([&] { eq(x, x).set_requires_grad(); }), "only floating tensors"));
  CHECK(contains(refusal([&] { x.detach().register_hook([](const Tensor& g) { return g; }); }), "does not"));
  CHECK(contains(refusal([&] { x.set_grad(tensor(Values{1}, {1}, DType::F64)); }),
                 "sizes [1], the tensor [2]"));
  CHECK(contains(refusal([&] {
                   x.set_grad(tensor(Values{1, 2}, {2}, DType::F32));
                 }),
                 "dtype f32, the tensor f64"));
  CHECK(contains(refusal([] { at_backward_end([](bool) {}); }), "no backward pass"));
}

TEST_CASE("a pass that fails says so at its end and leaves the engine usable", "[autograd]") {
  const Tensor x = leaf({1, 2});
  std::vector<bool> ends;
  const int id = x.register_hook([&](const Tensor&) -> Tensor {
    at_backward_end([&](bool completed) { ends.push_back(completed); });
    throw Error(ErrorKind::Usage, "hook", "thrown");
  });
  CHECK(refusal([&] { sum(x * x).backward(); }) == "hook: thrown");
  x.remove_hook(id);
  x.register_hook([&](const Tensor&) {
    at_backward_end([&](bool completed) { ends.push_back(completed); });
    return Tensor();
  });
  sum(x * x).backward();
  CHECK(ends == std::vector<bool>{false, true});
  CHECK(x.grad().to_vector() == Values{2, 4});
}

TEST_CASE("very long chains", "[autograd]") {
  constexpr int kLength = 100'000;
  const Tensor x = leaf({1});
  {
    Tensor y = x;
    for (int i = 0; i < kLength; ++i) y = y + 1.0;
    y.backward();
    CHECK(x.grad().to_vector() == Values{1});
  }
  {
    Tensor y = x;  // saves both factors, and is dropped without a pass
    for (int i = 0; i < kLength; ++i) y = y * x;
    CHECK(y.to_vector() == Values{1});
  }
}

TEST_CASE("what was saved is freed by the pass, and by dropping the result", "[autograd]") {
  const Tensor x = leaf({1, 2, 3});
  std::weak_ptr<Storage> inner;
  const auto build = [&] {
    const Tensor y = x * 2.0;
    inner = y.local().storage();
    return sum(y * y);
  };
  Tensor loss = build();
  CHECK_FALSE(inner.expired());
  loss.backward();
  CHECK(inner.expired());
  loss = build();
  loss.backward(Tensor(), retain());
  CHECK_FALSE(inner.expired());
  loss = Tensor();
  CHECK(inner.expired());
  {
    const Tensor g = grad({build()}, {x}, {}, create())[0];
    CHECK_FALSE(inner.expired());
  }
  CHECK(inner.expired());
  // A saved output is no cycle.
  Tensor e = exp(x * 1.0);
  inner = e.local().storage();
  e = Tensor();
  CHECK(inner.expired());
}

TEST_CASE("nodes of one pass run youngest first", "[autograd]") {
  const Tensor x = leaf({1});
  std::string order;
  const auto named = [&](const Tensor& t, const char* name) {
    t.register_hook([&order, name](const Tensor&) {
      order += name;
      return Tensor();
    });
    return t;
  };
  const Tensor a = named(x * 2.0, "a");
  const Tensor b = named(x * 3.0, "b");
  const Tensor c = named(a * a, "c");
  const Tensor d = named(b + a, "d");
  sum(c + d).backward();
  CHECK(order == "dcba");
  CHECK(same_everywhere(order));
}

TEST_CASE("a graph that several threads have made, one after another", "[autograd]") {
  const Tensor x = leaf({1, -2, 3});
  for (int i = 0; i < 20; ++i) square(x);  // this thread has made more nodes than a new one will have
  const Tensor y = x * x;
  const auto elsewhere = [](const auto& f) { std::thread(f).join(); };
  Tensor z;
  elsewhere([&] { z = y * x; });
  elsewhere([&] { sum(y * z + z).backward(); });  // x⁵ + x³
  CHECK(x.grad().to_vector() == Values{5 + 3, 80 + 12, 405 + 27});
}

TEST_CASE("what hooks give must be a gradient of their tensor", "[autograd]") {
  const Tensor x = leaf({1, -2, 3});
  for (const bool on_leaf : {false, true}) {
    const Tensor y = x * 2.0;
    const Tensor& hooked = on_leaf ? x : y;
    const auto told = [&](const Tensor& given, const std::string& what) {
      const int id = hooked.register_hook([&given](const Tensor&) { return given; });
      const std::string text = refusal([&] { sum(y * y).backward(Tensor(), retain()); });
      hooked.remove_hook(id);
      CHECK(contains(text, (on_leaf ? "leaf" : y.grad_fn()->name) + std::string(": a hook gave ") + what));
      CHECK(contains(text, "for a gradient of f64 [3]"));
    };
    told(tensor(Values{1}, {1}, DType::F64), "f64 [1]");
    told(tensor(Values{1, 2, 3}, {3}, DType::F32), "f32 [3]");
  }
}
