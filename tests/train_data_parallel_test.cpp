// DataParallel: over every kind of mesh the gradients, and what training makes of them, equal those of one
// rank that has the whole batch.
#include "autograd/node.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "runtime/allocator.h"
#include "tests/train_cases.h"
#include "train/data_parallel.h"
#include "train/sync.h"

namespace tessera {
namespace {

constexpr double kTolerance = 1e-11;

std::vector<Layout> layouts() {
  std::vector<Layout> list = ddp_and_domain_layouts();
  const DeviceMesh domain = mesh_of_world({{"domain", test_world().size()}});
  list.push_back({domain, domain["domain"], {2}});
  if (test_world().size() == 4) {
    const DeviceMesh grid = mesh_of_world({{"ddp", 1}, {"lat", 2}, {"lon", 2}});
    list.push_back({grid, grid.submesh({"lat", "lon"}), {2, 3}});
  }
  return list;
}

nn::ViTOptions small_vit() {
  return {.channels = 2,
          .image = {12, 15},
          .patch = {4, 3},
          .width = 6,
          .depth = 2,
          .heads = 2,
          .out_channels = 2,
          .dtype = DType::F64};
}

Interval own_samples(const DeviceMesh& mesh, std::int64_t n) {
  if (!mesh.has_axis("ddp")) return {0, n};
  const int axis = mesh.axis("ddp");
  return default_partition(n, mesh.size(axis))[static_cast<std::size_t>(mesh.coordinate(axis))];
}

// This rank's share of the loss over the batch, where the test runs: its samples, its part of the domain.
Tensor share_of_loss(nn::Module& model, const Layout& l, const Tensor& x, const Tensor& y,
                     const SpecPtr& cut) {
  const Interval own = own_samples(l.mesh, x.size(0));
  Tensor xs = here(slice(x, 0, own.lo, own.hi));
  Tensor ys = here(slice(y, 0, own.lo, own.hi));
  if (cut) {
    xs = cut_like(xs, l.domain, cut);
    ys = redistribute(ys, ShardSpec::make(l.domain, cut->placements(), ys.sizes()));
  }
  const double per_sample = static_cast<double>(x.numel() / x.size(0));
  return mse_loss(model(xs), ys, Reduction::Sum) *
         (train::global_sum_weight(x.size(0), ddp_size(l.mesh)) / per_sample);
}

class Weight : public nn::Module {
 public:
  explicit Weight(double value) { w = register_parameter("w", full({1}, value, DType::F64)); }
  Tensor forward(const Tensor& x) override { return x * w; }
  Tensor w;
};

class Parts : public nn::Module {
 public:
  Parts() {
    used = register_parameter("used", full({3}, 2.0, DType::F64));
    sometimes = register_parameter("sometimes", full({2}, 3.0, DType::F64));
    never = register_parameter("never", full({2}, 4.0, DType::F64));
    frozen = register_parameter("frozen", full({2}, 5.0, DType::F64));
    frozen.set_requires_grad(false);
  }
  Tensor used, sometimes, never, frozen;
};

}  // namespace

TEST_CASE("buckets start while backward goes on", "[train][ddp]") {
  if (test_world().size() == 1) return;
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  const std::int64_t n = GENERATE(8, 128);
  nn::Sequential model;
  for (int i = 0; i < 12; ++i) model.add<nn::Linear>(n, n);
  model.to(test_device());
  // Small buckets as asked for, and those that are made of a small model by default.
  const auto options = n == 8 ? train::DataParallelOptions{.bucket_bytes = 300, .first_bucket_bytes = 300}
                              : train::DataParallelOptions{};
  train::DataParallel parallel(model, mesh, options);
  Recorder& recorder = mesh.comm().recorder();
  // The first layer's gradient comes last; by then most buckets are on their way.
  std::int64_t when_last_came = -1;
  model.parameters().front().register_hook([&](const Tensor&) {
    when_last_came = recorder.count("all_reduce");
    return Tensor();
  });
  Generator random(3);
  const Tensor x = here(randn({6, n}, random, DType::F32, ShardSpec::make(mesh, {Shard(0)}, {6, n})));
  recorder.start();
  mean(square(model.forward(x))).backward();
  recorder.stop();
  const auto buckets = static_cast<std::int64_t>(parallel.bucket_count());
  CHECK(recorder.count("all_reduce") == buckets);
  std::int64_t all = 0;
  std::int64_t left = 0;
  for (std::int64_t b = 0; b < buckets; ++b) {
    const std::int64_t elements = parallel.bucket_elements(static_cast<std::size_t>(b));
    all += elements;
    left += b < when_last_came ? elements : 0;
  }
  CHECK(10 * left >= 8 * all);
  CHECK(left < all);
}

TEST_CASE("gradients over any mesh equal those of one rank", "[train][ddp]") {
  auto random = test_random(31);
  for (const Layout& l : layouts()) {
    for (std::int64_t bucket : {std::int64_t{600}, std::int64_t{1} << 20U}) {
      INFO("mesh " << l.mesh.str() << ", buckets of " << bucket);
      nn::ViT model(small_vit());
      model.to(test_device());
      nn::ViT serial(small_vit());
      train::DataParallel parallel(model, l.mesh, {.bucket_bytes = bucket, .first_bucket_bytes = bucket / 2});
      if (bucket == 600) CHECK(parallel.bucket_count() > 4);
      for (int round = 0; round < 3; ++round) {
        const Tensor x = random_tensor(random, {5, 2, 12, 15});
        const Tensor y = random_tensor(random, {5, 2, 12, 15});
        const SpecPtr cut = l.domain.defined() ? random_spec(random, l.domain, x.sizes(), l.dims) : nullptr;
        model.zero_grad();
        serial.zero_grad();
        mse_loss(serial(x), y).backward();
        const Tensor loss = share_of_loss(model, l, x, y, cut);
        Recorder& recorder = l.mesh.comm().recorder();
        recorder.start();
        loss.backward();
        recorder.stop();
        std::int64_t messages = 0;
        std::int64_t bytes = 0;
        for (const CommRecord& r : recorder.records())
          if (std::string_view(r.scope) == "data_parallel") {
            CHECK(r.kind == "all_reduce");
            CHECK(r.group_size == l.mesh.size());
            ++messages;
            bytes += r.bytes;
          }
        std::int64_t expected = 0;
        for (std::size_t b = 0; b < parallel.bucket_count(); ++b) expected += parallel.bucket_bytes(b);
        CHECK(messages == static_cast<std::int64_t>(parallel.bucket_count()));
        CHECK(bytes == (l.mesh.size() > 1 ? expected : 0));
        recorder.start();
        check_gradients(model, serial, kTolerance);
        recorder.stop();
        CHECK(recorder.records().empty());  // nothing is owed any more
      }
    }
  }
}

TEST_CASE("a few steps of training end in the same parameters, the same bits on every rank", "[train][ddp]") {
  auto random = test_random(32);
  for (const Layout& l : layouts()) {
    INFO("mesh " << l.mesh.str());
    nn::ViT model(small_vit());
    model.to(test_device());
    nn::ViT serial(small_vit());
    train::sync_module(model, l.mesh);
    train::DataParallel parallel(model, l.mesh);
    optim::AdamW optimizer(optim::decay_groups(model, 0.1), {.lr = 1e-3});
    optim::AdamW reference(optim::decay_groups(serial, 0.1), {.lr = 1e-3});
    for (int step = 0; step < 3; ++step) {
      const Tensor x = random_tensor(random, {4, 2, 12, 15});
      const Tensor y = random_tensor(random, {4, 2, 12, 15});
      const SpecPtr cut = l.domain.defined() ? random_spec(random, l.domain, x.sizes(), l.dims) : nullptr;
      const Tensor loss = share_of_loss(model, l, x, y, cut);
      const Tensor expected = mse_loss(serial(x), y);
      CHECK(train::mean_over_ddp(loss, l.mesh) == Approx(expected.item()).epsilon(1e-11));
      loss.backward();
      expected.backward();
      const double norm = optim::clip_grad_norm_(model.parameters(), 0.05);
      CHECK(norm == Approx(optim::clip_grad_norm_(serial.parameters(), 0.05)).epsilon(1e-11));
      optimizer.step();
      reference.step();
      optimizer.zero_grad();
      reference.zero_grad();
    }
    train::check_replicas(model, l.mesh);
    // Adam divides by the gradient's own size: where that is rounding only, the learning rate is the measure.
    for (const nn::NamedTensor& n : serial.named_parameters()) {
      INFO(n.name);
      const auto a = model.parameter(n.name).to_vector();
      const auto b = n.tensor.to_vector();
      double worst = 0;
      for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
      if (n.name.find("qkv.bias") == std::string::npos) CHECK(worst < 1e-7);
      CHECK(worst < 1e-2);
    }
  }
}

TEST_CASE("means over unequal numbers of samples", "[train][ddp]") {
  // 13 samples with the losses w, 2w, …, 13w: the mean is 7, not the mean of the ranks' means.
  const int ranks = test_world().size();
  const DeviceMesh mesh(test_world(), {{"ddp", ranks}});
  Weight model(1.0);
  model.to(test_device());
  train::DataParallel parallel(model, mesh);
  std::vector<double> values;
  for (int i = 1; i <= 13; ++i) values.push_back(i);
  const Interval own = own_samples(mesh, 13);
  const Tensor x = here(slice(tensor(values, {13}, DType::F64), 0, own.lo, own.hi));
  const Tensor loss = mean(model(x)) * train::global_mean_weight(own.length(), 13, ranks);
  loss.backward();
  CHECK(train::mean_over_ddp(loss, mesh) == Approx(7.0).epsilon(1e-14));
  CHECK(model.w.grad().item() == Approx(7.0).epsilon(1e-14));
}

TEST_CASE("the mean over a split domain with several samples", "[train][ddp]") {
  // x = 1 … 12 as 2x6, cuts 4/2 along the second axis, y = x/2, L = mean(y^2).
  const int ranks = test_world().size();
  const DeviceMesh mesh(test_world(), {{"domain", ranks}});
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(ranks), 0);
  lengths.front() = ranks == 1 ? 6 : 4;
  if (ranks > 1) lengths.back() = 2;
  std::vector<double> values;
  for (int i = 1; i <= 12; ++i) values.push_back(i);
  Weight model(0.5);
  model.to(test_device());
  train::DataParallel parallel(model, mesh);
  const Tensor x = redistribute(here(tensor(values, {2, 6}, DType::F64)),
                                ShardSpec::from_lengths(mesh, {Shard(1)}, {2, 6}, {lengths}));
  const Tensor y = model(x);
  const Tensor loss = mean(square(y));
  loss.backward();
  CHECK(loss.item() == Approx(13.541666666666666).epsilon(1e-14));
  CHECK(model.w.grad().item() == Approx(54.166666666666664).epsilon(1e-14));
  const auto flat = flatten(y).to_vector();
  for (int i = 0; i < 12; ++i) CHECK(flat[static_cast<std::size_t>(i)] == 0.5 * (i + 1));
}

TEST_CASE("accumulation without messages, then one reduction of the whole", "[train][ddp]") {
  auto random = test_random(33);
  for (const Layout& l : layouts()) {
    INFO("mesh " << l.mesh.str());
    nn::ViT model(small_vit());
    model.to(test_device());
    nn::ViT serial(small_vit());
    train::DataParallel parallel(model, l.mesh);
    Recorder& recorder = l.mesh.comm().recorder();
    for (int micro = 0; micro < 3; ++micro) {
      const Tensor x = random_tensor(random, {3, 2, 12, 15});
      const Tensor y = random_tensor(random, {3, 2, 12, 15});
      const SpecPtr cut = l.domain.defined() ? random_spec(random, l.domain, x.sizes(), l.dims) : nullptr;
      mse_loss(serial(x), y).backward();
      const Tensor loss = share_of_loss(model, l, x, y, cut);
      recorder.start();
      if (micro < 2) {
        const auto guard = parallel.no_sync();
        loss.backward();
      } else {
        loss.backward();
      }
      recorder.stop();
      std::int64_t reductions = 0;
      for (const CommRecord& r : recorder.records())
        reductions += std::string_view(r.scope) == "data_parallel" ? 1 : 0;
      CHECK(reductions == (micro < 2 ? 0 : 1));
    }
    check_gradients(model, serial, kTolerance);
    // Another backward without zero_grad adds to what was reduced.
    const Tensor x = random_tensor(random, {3, 2, 12, 15});
    const Tensor y = random_tensor(random, {3, 2, 12, 15});
    const SpecPtr cut = l.domain.defined() ? random_spec(random, l.domain, x.sizes(), l.dims) : nullptr;
    mse_loss(serial(x), y).backward();
    share_of_loss(model, l, x, y, cut).backward();
    check_gradients(model, serial, kTolerance);
  }
}

TEST_CASE("parameters without a gradient on some or all ranks", "[train][ddp]") {
  const int ranks = test_world().size();
  const DeviceMesh mesh(test_world(), {{"ddp", ranks}});
  Parts model;
  model.to(test_device());
  train::DataParallel parallel(model, mesh, {.bucket_bytes = 32, .first_bucket_bytes = 32});
  for (int round = 0; round < 2; ++round) {
    model.zero_grad();
    Tensor loss = sum(model.used) * 6.0;
    if (mesh.rank() == ranks - 1) loss = loss + sum(model.sometimes);
    loss.backward();
    CHECK(model.used.grad().to_vector()[0] == Approx(6.0));
    CHECK(model.sometimes.grad().to_vector()[1] == Approx(1.0 / ranks));
    CHECK_FALSE(model.never.grad().defined());
    CHECK_FALSE(model.frozen.requires_grad());
  }
  // A rank that has nothing to differentiate takes part with reduce().
  model.zero_grad();
  if (mesh.rank() == 0) {
    sum(model.used).backward();
  } else {
    parallel.reduce();
  }
  CHECK(model.used.grad().to_vector()[2] == Approx(1.0 / ranks));
  CHECK_FALSE(model.sometimes.grad().defined());
}

TEST_CASE("a batch that is cut over ddp in one spec", "[train][ddp]") {
  auto random = test_random(34);
  const int ranks = test_world().size();
  const DeviceMesh mesh(test_world(),
                        {{"ddp", ranks % 2 == 0 ? 2 : ranks}, {"domain", ranks % 2 == 0 ? ranks / 2 : 1}});
  nn::ViT model(small_vit());
  model.to(test_device());
  nn::ViT serial(small_vit());
  train::DataParallel parallel(model, mesh);
  const Tensor x = random_tensor(random, {5, 2, 12, 15});
  const Tensor y = random_tensor(random, {5, 2, 12, 15});
  const SpecPtr spec = random_spec(random, mesh, x.sizes(), {0, 2});
  const Tensor loss = mse_loss(model(redistribute(here(x), spec)), redistribute(here(y), spec));
  const Tensor expected = mse_loss(serial(x), y);
  loss.backward();
  expected.backward();
  CHECK(loss.item() == Approx(expected.item()).epsilon(1e-12));
  check_gradients(model, serial, kTolerance);
}

TEST_CASE("gradients live in the buckets and steps take no memory", "[train][ddp]") {
  const int ranks = test_world().size();
  const DeviceMesh mesh(test_world(), {{"domain", ranks}});
  nn::ViT model(small_vit());
  model.to(test_device());
  train::DataParallel parallel(model, mesh);
  optim::AdamW optimizer(model.parameters());
  auto random = test_random(35);
  const Tensor whole = here(random_tensor(random, {2, 2, 12, 15}));
  const Tensor x = redistribute(whole, ShardSpec::make(mesh, {Shard(2)}, whole.sizes()));
  const void* memory = nullptr;
  std::int64_t taken = 0;
  for (int step = 0; step < 12; ++step) {
    if (step == 6) taken = allocator_stats(test_device()).system_allocations;
    mean(square(model(x))).backward();
    if (step > 0) CHECK(model.norm.weight.grad().local().raw() == memory);
    memory = model.norm.weight.grad().local().raw();
    optimizer.step();
    optimizer.zero_grad();
  }
  CHECK(allocator_stats(test_device()).system_allocations == taken);
}

TEST_CASE("a backward pass that fails leaves DataParallel usable", "[train][ddp]") {
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  nn::Linear model(4, 2, {.dtype = DType::F64});
  model.to(test_device());
  nn::Linear serial(4, 2, {.dtype = DType::F64});
  train::DataParallel parallel(model, mesh, {.bucket_bytes = 8, .first_bucket_bytes = 8});
  auto random = test_random(36);
  const Tensor whole = random_tensor(random, {6, 4});
  const Tensor x = redistribute(here(whole), ShardSpec::make(mesh, {Shard(0)}, whole.sizes()));
  Tensor late = here(full({1}, 1.0, DType::F64)).set_requires_grad();
  const Tensor y = model(redistribute(late, ShardSpec::replicated(mesh, {1})) * x);
  const int hook =
      late.register_hook([](const Tensor&) -> Tensor { throw std::runtime_error("on purpose"); });
  CHECK_THROWS_WITH(mean(y).backward(), Catch::Contains("on purpose"));
  late.remove_hook(hook);
  model.zero_grad();
  mean(model(x)).backward();
  mean(serial(whole)).backward();
  check_gradients(model, serial, kTolerance);
}

TEST_CASE("wrong uses of DataParallel are refused", "[train][ddp]") {
  const int ranks = test_world().size();
  const DeviceMesh mesh(test_world(), {{"ddp", 1}, {"domain", ranks}});
  const DeviceMesh other(test_world(), {{"elsewhere", ranks}});
  nn::Linear model(4, 2, {.dtype = DType::F64});
  model.to(test_device());
  {
    train::DataParallel parallel(model, mesh);
    CHECK_THROWS_WITH(train::DataParallel(model, mesh),
                      Catch::Contains("'weight' belongs to another DataParallel"));
    const Tensor x = redistribute(here(ones({6, 4}, DType::F64)), ShardSpec::make(other, {Shard(0)}, {6, 4}));
    CHECK_THROWS_WITH(sum(model(x)).backward(), Catch::Contains("lives on a mesh elsewhere"));
  }
  model.zero_grad();
  train::DataParallel again(model, mesh);  // the first one is gone
  CHECK_THROWS_WITH(train::global_mean_weight(3, 2, 1), Catch::Contains("3 local of 2 global"));
}

}  // namespace tessera
