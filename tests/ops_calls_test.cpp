// What surrounds the operations: the mode that compares calls, handlers and policies, the meta device,
// bf16 and f16 through the ring, memory over many shapes.
#include <unistd.h>

#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "comm/virtual.h"
#include "nn/init.h"
#include "nn/vit.h"
#include "ops/cpu/conv_choice.h"
#include "ops/op.h"
#include "ops/ops.h"
#include "runtime/allocator.h"
#include "runtime/process.h"
#include "support/world.h"

using namespace tessera;

namespace {

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

Tensor sharded_random(const DeviceMesh& mesh, const Dims& sizes, int dim, std::uint64_t seed,
                      DType dtype = DType::F64) {
  Generator g(seed);
  return randn(sizes, g, dtype, ShardSpec::make(mesh, {Shard(dim)}, sizes));
}

}  // namespace

TEST_CASE("a rank that calls another op is named on all ranks") {
  const Communicator world = test_world();
  if (world.size() == 1) return;
  const DeviceMesh mesh(world, {{"domain", world.size()}});
  const Tensor x = sharded_random(mesh, {5, 3}, 0, 1);
  world.set_check_calls(true);
  const std::string text = message_of([&] {
    const Tensor y = world.rank() == 0 ? sum(x) : mean(x);
    (y + y).item();
  });
  world.set_check_calls(false);
  INFO(text);
  CHECK(text.find("calls mean") != std::string::npos);
  CHECK(text.find("rank 0 calls sum") != std::string::npos);
  for (const std::string& other : world.all_gather_bytes(text)) CHECK(other == text);
}

TEST_CASE("gradients that some ranks could add in place are added by the same calls on all") {
  const Communicator world = test_world();
  const DeviceMesh mesh(world, {{"domain", world.size()}});
  const Tensor x = sharded_random(mesh, {2, 12}, 1, 2).set_requires_grad();
  world.set_check_calls(true);
  const std::string text = message_of([&] {
    const Tensor h = x * 2.0;
    const Tensor p = pad(h, {2, 0});  // backward: a view on the ranks that the padding does not touch
    const Tensor q = pad(h, {2, 0});
    (sum(square(p)) + sum(sin(q))).backward();
  });
  world.set_check_calls(false);
  CHECK(text.empty());
  const std::vector<double> values = x.to_vector();
  const std::vector<double> slopes = x.grad().to_vector();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double h = 2.0 * values[i];
    CHECK(slopes[i] == Approx(2.0 * (2.0 * h + std::cos(h))).epsilon(1e-5));
  }
}

TEST_CASE("ranks that ask for different placements, or a rank that gathers alone, are named on all ranks") {
  const Communicator world = test_world();
  if (world.size() == 1) return;
  const DeviceMesh mesh(world, {{"domain", world.size()}});
  const Tensor x = sharded_random(mesh, {5, 4}, 0, 1);
  const auto told = [&](const std::function<void()>& f, const std::vector<const char*>& parts) {
    world.set_check_calls(true);
    const std::string text = message_of(f);
    world.set_check_calls(false);
    INFO(text);
    for (const char* part : parts) CHECK(text.find(part) != std::string::npos);
    for (const std::string& other : world.all_gather_bytes(text)) CHECK(other == text);
  };
  told([&] { x.redistribute({world.rank() == 0 ? Placement(Shard(1)) : Placement(Replicate())}); },
       {"calls redistribute f64", "Shard(1)", "rank 0 calls"});
  told([&] { world.rank() == 0 ? x.full_tensor() : exp(x); }, {"rank 0 calls redistribute", "calls exp"});
  // The right calls, in this mode: no complaint.
  told([&] { x.redistribute({Shard(1)}).full_tensor(); }, {});
}

TEST_CASE("without that mode such ranks end all the same, with an error on the first that notices") {
  const auto ends = [](const std::function<void(const Tensor&, int)>& f) {
    std::atomic<int> returned{0};
    const auto start = std::chrono::steady_clock::now();
    const std::string text = message_of([&] {
      run_virtual_ranks(3, [&](const Communicator& comm) {
        comm.set_deadline(0.5);
        const DeviceMesh mesh(comm, {{"domain", 3}});
        f(sharded_random(mesh, {6, 9}, 0, 1), comm.rank());
        ++returned;
      });
    });
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    INFO(text);
    CHECK_FALSE(text.empty());
    CHECK(returned < 3);
    CHECK(seconds.count() < 20);
  };
  ends([](const Tensor& x, int rank) {
    x.redistribute({rank == 0 ? Placement(Shard(1)) : Placement(Replicate())});
  });
  ends([](const Tensor& x, int rank) {
    if (rank == 0) x.full_tensor();
  });
}

TEST_CASE("an op handler replaces what an op does on sharded inputs") {
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  const Tensor x = sharded_random(mesh, {6}, 0, 2);
  register_op_handler("exp", [](const OpDef&, std::span<const Tensor> in, Tensors& out) {
    out = {in[0] * 2.0};
    return true;
  });
  const std::vector<double> doubled = exp(x).to_vector();
  remove_op_handler("exp");
  const std::vector<double> plain = x.to_vector();
  const std::vector<double> restored = exp(x).to_vector();
  for (std::size_t i = 0; i < plain.size(); ++i) {
    CHECK(doubled[i] == 2 * plain[i]);
    CHECK(restored[i] == Approx(std::exp(plain[i])));
  }
}

// Otherwise copies would drift apart: two ways of working a convolution out differ by rounding.
TEST_CASE("what ranks work out alike is not chosen by the clock") {
  const Communicator world = test_world();
  const DeviceMesh mesh(world, {{"domain", world.size()}});
  const cpu::ConvChoice before = cpu::conv_choice();
  cpu::set_conv_choice(cpu::ConvChoice::Measure);
  const Dims sizes{1, 16, 96, 48};
  const auto choices = [&](const Placement& placement) {
    cpu::forget_conv_plans();
    Generator g(5);
    const Tensor x =
        randn(sizes, g, DType::F32, ShardSpec::make(mesh, {placement}, sizes)).set_requires_grad();
    const Tensor w = randn({16, 16, 3, 3}, g).set_requires_grad();
    sum(conv2d(x, w, Tensor(), {.padding = {1}})).backward();
    const std::string name = fmt::format("tessera_alike_{}_{}", ::getpid(), world.rank());
    const std::string path = (std::filesystem::temp_directory_path() / name).string();
    cpu::save_conv_plans(path);
    std::ifstream file(path);
    const auto lines = std::count(std::istreambuf_iterator<char>(file), {}, '\n');
    std::remove(path.c_str());
    cpu::forget_conv_plans();
    return lines - 1;  // its name
  };
  CHECK(choices(Shard(2)) >= 2);
  CHECK((choices(Replicate()) == 0) == (world.size() > 1));
  cpu::set_conv_choice(before);
}

TEST_CASE("the policy refuses moves that nobody asked for") {
  if (test_world().size() == 1) return;
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  const Tensor a = sharded_random(mesh, {8, 8}, 0, 3);
  const Tensor b = sharded_random(mesh, {8, 8}, 1, 4);
  set_redistribute_policy(RedistributePolicy::Refuse, 1);
  const std::string text = message_of([&] { add(a, b); });
  CHECK(message_of([&] { add(a, a); }).empty());
  set_redistribute_policy(RedistributePolicy::Allow);
  INFO(text);
  CHECK(text.find("refused by policy") != std::string::npos);
  CHECK(message_of([&] { add(a, b); }).empty());
}

TEST_CASE("bf16 and f16 through the ring are as exact as on one rank") {
  // R = 64 positions, values as sin(f (s + 1)(d + 1) + h), rounded to bf16 (and then to f16: small ones
  // lose digits, alike on all ranks); the merge of blocks is in float32.
  const int ranks = test_world().size();
  const DeviceMesh mesh(test_world(), {{"domain", ranks}});
  auto values = [](double f) {
    std::vector<double> v;
    for (int h = 0; h < 2; ++h)
      for (int s = 0; s < 64; ++s)
        for (int d = 0; d < 16; ++d)
          v.push_back(static_cast<float>(bf16(static_cast<float>(std::sin(f * (s + 1) * (d + 1) + h)))));
    return v;
  };
  const Dims sizes{1, 2, 64, 16};
  struct Result {
    std::vector<std::vector<double>> values;
  };
  auto run = [&](DType dtype, const SpecPtr& spec) {
    Tensors in;
    for (double f : {0.7, 0.3, 0.11}) {
      Tensor t = tensor(values(f), sizes, dtype);
      if (spec) t = redistribute(t, spec).detach();
      in.push_back(t.set_requires_grad());
    }
    Tensor cot = tensor(values(0.05), sizes, dtype);
    const Tensor out = scaled_dot_product_attention(in[0], in[1], in[2]);
    out.backward(spec ? redistribute(cot, spec) : cot);
    Result r;
    r.values = {out.to_vector(), in[0].grad().to_vector(), in[1].grad().to_vector(),
                in[2].grad().to_vector()};
    return r;
  };
  const Result exact = run(DType::F64, nullptr);
  double total = 0;
  for (double v : exact.values[0]) total += v;
  CHECK(total == Approx(33.71657242940532).epsilon(1e-9));
  std::vector<std::int64_t> cuts;
  if (ranks == 4) cuts = {5, 31, 1, 27};
  const SpecPtr spec = ShardSpec::from_lengths(mesh, {Shard(2)}, sizes, {cuts});
  for (const DType dtype : {DType::BF16, DType::F16}) {
    const Result one = run(dtype, nullptr);
    const Result many = run(dtype, spec);
    for (std::size_t k = 0; k < 4; ++k) {
      double worst_one = 0;
      double worst_many = 0;
      for (std::size_t i = 0; i < exact.values[k].size(); ++i) {
        worst_one = std::max(worst_one, std::abs(one.values[k][i] - exact.values[k][i]));
        worst_many = std::max(worst_many, std::abs(many.values[k][i] - exact.values[k][i]));
      }
      INFO(name_of(dtype) << " value " << k << ": " << worst_one << " on one rank, " << worst_many);
      CHECK(worst_many <= 1.25 * worst_one + 1e-12);
    }
  }
}

TEST_CASE("a training step of one rank of 16 on the meta device: nothing computed, all counted") {
  const Communicator planned = recording_communicator(3, 16);
  const DeviceMesh mesh(planned, {{"domain", 16}});
  const Dims sizes{1, 4, 64, 64};
  const SpecPtr spec = ShardSpec::make(mesh, {Shard(2)}, sizes);
  auto meta = [](const Dims& s) {
    return Tensor(Array::empty(s, DType::F32, Device::Meta)).set_requires_grad();
  };
  const Tensor x(Array::empty(spec->local_sizes(), DType::F32, Device::Meta), spec);
  const Tensor w = meta({8, 4, 3, 3});
  const Tensor qkv = meta({24, 8});
  planned.recorder().start();
  const Tensor y = gelu(conv2d(x, w, Tensor(), {.padding = {1}}));
  const Tensor tokens = transpose(flatten(y, 2), 1, 2);
  const Tensors parts = split(linear(layer_norm(tokens, {8}), qkv), {8, 8, 8}, -1);
  const Tensor a =
      scaled_dot_product_attention(unsqueeze(parts[0], 1), unsqueeze(parts[1], 1), unsqueeze(parts[2], 1));
  mean(square(a)).backward();
  planned.recorder().stop();
  CHECK(a.sizes() == Dims{1, 1, 64 * 64, 8});
  CHECK(w.impl()->leaf->grad.defined());
  // 4 rows a rank: a halo row to each side, then 15 hops of keys and values, the same back, and 15 of their
  // gradients.
  const std::int64_t halo = 2 * 4 * 64 * 4;
  const std::int64_t block = 2 * 4 * 64 * 8 * 4;
  CHECK(planned.recorder().bytes("exchange") == halo + 3 * 15 * block + (w.requires_grad() ? 0 : halo));
}

TEST_CASE("many shapes leave memory flat") {
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  auto step = [&](int n) {
    const Dims sizes{n, 3};
    const SpecPtr spec = ShardSpec::make(mesh, {Shard(0)}, sizes);
    const Tensor x = Tensor(Array::zeros(spec->local_sizes(), DType::F32), spec).set_requires_grad();
    sum(square(x * x)).backward();
  };
  for (int n = 1; n <= 4000; ++n) step(n);
  const std::int64_t before = resident_bytes();
  for (int n = 4001; n <= 12000; ++n) step(n);
  CHECK(resident_bytes() - before < 16 << 20);
}

TEST_CASE("initialisers have their deviations") {
  Generator g(5);
  const Tensor w = zeros({256, 64, 3, 3}, DType::F64);
  auto deviation = [&] {
    double squares = 0;
    for (double v : w.to_vector()) squares += v * v;
    return std::sqrt(squares / static_cast<double>(w.numel()));
  };
  nn::init::kaiming_normal(w, g);
  CHECK(deviation() == Approx(std::sqrt(2.0 / (64 * 9))).epsilon(0.02));
  nn::init::xavier_uniform(w, g);
  CHECK(deviation() == Approx(std::sqrt(2.0 / ((64 + 256) * 9))).epsilon(0.02));
  nn::init::xavier_normal(w, g, 2.0);
  CHECK(deviation() == Approx(2 * std::sqrt(2.0 / ((64 + 256) * 9))).epsilon(0.02));
  nn::init::constant(w, 3.0);
  CHECK(deviation() == 3.0);
}
