// Training with batch norms: losses, parameters and running statistics on any mesh equal those of one rank
// that has the whole batch, also where samples are shared out over ddp, unevenly or not at all.
#include "nn/nn.h"
#include "ops/ops.h"
#include "tests/train_cases.h"
#include "train/data_parallel.h"
#include "train/sync.h"

namespace tessera {
namespace {

constexpr double kTolerance = 1e-10;

class Net : public nn::Module {
 public:
  Net() {
    auto generator = std::make_shared<Generator>(3);
    const nn::ConvLayerOptions same{
        .kernel_size = {3}, .padding = {1}, .dtype = DType::F64, .generator = generator};
    const nn::RunningNormOptions norm{.dtype = DType::F64};
    body.add<nn::Conv2d>(2, 6, same)
        .add<nn::BatchNorm2d>(6, norm)
        .add<nn::ReLU>()
        .add<nn::Conv2d>(6, 4, same)
        .add<nn::GroupNorm>(2, 4, nn::GroupNormOptions{.dtype = DType::F64})
        .add<nn::InstanceNorm2d>(
            4, nn::InstanceNormLayerOptions{.affine = true, .track_running_stats = true, .dtype = DType::F64})
        .add<nn::GELU>()
        .add<nn::BatchNorm2d>(4, nn::RunningNormOptions{.momentum = std::nullopt, .dtype = DType::F64})
        .add<nn::Conv2d>(4, 2, same);
    register_module("body", body);
  }
  Tensor forward(const Tensor& x) override { return body(x); }
  nn::Sequential body;
};

std::vector<Layout> layouts() {
  std::vector<Layout> list = ddp_and_domain_layouts();
  const DeviceMesh domain = mesh_of_world({{"domain", test_world().size()}});
  for (const int dim : {0, 3}) list.push_back({domain, domain, {dim}});
  if (test_world().size() == 4) {
    const DeviceMesh grid = mesh_of_world({{"lat", 2}, {"lon", 2}});
    list.push_back({grid, grid, {2, 3}});
    list.push_back({grid, grid, {0, 3}});
  }
  return list;
}

// `lengths`: samples of each ddp coordinate.
struct Batch {
  Tensor x, y;
  std::vector<std::int64_t> lengths;
  SpecPtr cut;  // of the whole batch on the domain, or null
};

Tensor own_part(const Layout& l, const Batch& b, const Tensor& whole) {
  const int c = l.mesh.has_axis("ddp") ? l.mesh.coordinate(l.mesh.axis("ddp")) : 0;
  std::int64_t at = 0;
  for (int i = 0; i < c; ++i) at += b.lengths[static_cast<std::size_t>(i)];
  const Tensor mine = here(slice(whole, 0, at, at + b.lengths[static_cast<std::size_t>(c)]));
  return b.cut ? cut_like(mine, l.domain, b.cut) : mine;
}

// This rank's share of the loss, where the test runs: the average over ddp is the mean over the batch.
Tensor share_of_loss(nn::Module& model, const Layout& l, const Batch& b) {
  const double per_sample = static_cast<double>(b.x.numel() / b.x.size(0));
  return smooth_l1_loss(model(own_part(l, b, b.x)), own_part(l, b, b.y), Reduction::Sum) *
         (train::global_sum_weight(b.x.size(0), ddp_size(l.mesh)) / per_sample);
}

}  // namespace

TEST_CASE("training with batch norms gives the same on every mesh", "[train][norms]") {
  auto random = test_random(41);
  for (const Layout& l : layouts()) {
    INFO("mesh " << l.mesh.str());
    Net model;
    model.to(test_device());
    Net serial;
    train::sync_module(model, l.mesh);
    train::DataParallel parallel(model, l.mesh);
    optim::SGD optimizer(model.parameters(), {.lr = 0.05, .momentum = 0.9});
    optim::SGD reference(serial.parameters(), {.lr = 0.05, .momentum = 0.9});
    for (int step = 0; step < 4; ++step) {
      Batch b{random_tensor(random, {5, 2, 8, 7}), random_tensor(random, {5, 2, 8, 7}), {}, nullptr};
      b.lengths = random_lengths(random, 5, ddp_size(l.mesh));
      if (l.domain.defined()) b.cut = random_spec(random, l.domain, b.x.sizes(), l.dims);
      const Tensor loss = share_of_loss(model, l, b);
      const Tensor expected = smooth_l1_loss(serial(b.x), b.y);
      CHECK(train::mean_over_ddp(loss, l.mesh) == Approx(expected.item()).epsilon(kTolerance));
      loss.backward();
      expected.backward();
      optimizer.step();
      reference.step();
      optimizer.zero_grad();
      reference.zero_grad();
      train::check_replicas(model, l.mesh);
      for (const nn::NamedTensor& n : serial.state()) {
        INFO(n.name << " after step " << step);
        const bool buffer = n.name.find("running") != std::string::npos;
        const Tensor& got = buffer                           ? model.buffer(n.name)
                            : n.tensor.dtype() == DType::I64 ? model.buffer(n.name)
                                                             : model.parameter(n.name);
        const std::vector<double> a = got.to_vector();
        const std::vector<double> e = n.tensor.to_vector();
        for (std::size_t i = 0; i < e.size(); ++i) CHECK(std::abs(a[i] - e[i]) < kTolerance);
      }
    }
    // What was learnt is what the whole batch taught: out of training the models agree too.
    model.eval();
    serial.eval();
    const Tensor x = random_tensor(random, {2, 2, 8, 7});
    CHECK(error_of(model(here(x)), serial(x)) < kTolerance);
  }
}

TEST_CASE("statistics of each rank's own samples, where that is asked for", "[train][norms]") {
  if (test_world().size() == 1) return;
  const DeviceMesh mesh(test_world(), {{"ddp", test_world().size()}});
  nn::BatchNorm1d norm(1, {.dtype = DType::F64});
  norm.to(test_device());
  const double own = test_world().rank();
  const Tensor x = here(tensor(std::vector<double>{own, own + 2}, {2, 1}, DType::F64));
  {
    const train::DataParallel parallel(norm, mesh, {.shared_batch_statistics = false});
    norm(x);
    CHECK(norm.running_mean.item() == Approx(0.1 * (own + 1)));
    norm.reset_running_stats();
  }
  {
    const train::DataParallel parallel(norm, mesh);
    norm(x);
    CHECK(norm.running_mean.item() == Approx(0.1 * (0.5 * (test_world().size() - 1) + 1)));
    norm.reset_running_stats();
    norm.eval();  // nobody waits for the others
    if (test_world().rank() == 0) norm(x);
    norm.train();
  }
  norm(x);  // nor after the end of it
  CHECK(norm.running_mean.item() == Approx(0.1 * (own + 1)));
}

}  // namespace tessera
