// Training steps as CUDA graphs: bit for bit those of eager steps, on any number of ranks.
#include <catch2/catch.hpp>

#include <cmath>

#include "nn/nn.h"
#include "ops/ops.h"
#include "runtime/allocator.h"
#include "runtime/cuda/api.h"
#include "runtime/cuda/staging.h"
#include "tests/device/small_runs.h"
#include "tests/frames_from.h"
#include "tests/support/world.h"
#include "train/data_parallel.h"
#include "train/scatter.h"
#include "train/step_graph.h"
#include "train/sync.h"

namespace ts = tessera;
using namespace tessera::device_tests;

namespace {

constexpr int kSteps = 20;
constexpr int kUnread = 50;
constexpr int kCounted = 4;  // the last steps but one of a course
constexpr int kRead =
    kSteps - kCounted - 1;  // those before: nine or more for all ways of mirroring, and a capture of each

const ts::nn::ViTOptions kModel{.channels = 2,
                                .image = {12, 8},
                                .patch = {4, 4},
                                .width = 12,
                                .depth = 1,
                                .heads = 2,
                                .dropout = 0.25,
                                .out_channels = 2,
                                .seed = 5};

// A vision transformer with dropout, AdamW, clipping and a schedule, on a map that is cut over all ranks.
struct Training {
  ts::DeviceMesh mesh{ts::test_world(), {{"domain", ts::test_world().size()}}};
  ts::nn::ViT model{kModel};
  ts::Tensor x, y;
  std::unique_ptr<ts::train::DataParallel> parallel;
  std::unique_ptr<ts::optim::AdamW> optimizer;

  Training() {
    model.to(ts::Device::Cuda);
    ts::train::sync_module(model, mesh);
    parallel = std::make_unique<ts::train::DataParallel>(model, mesh);
    optimizer = std::make_unique<ts::optim::AdamW>(ts::optim::decay_groups(model, 0.1));
    x = batch(0);
    y = batch(1000);
  }
  ts::Tensor batch(std::uint64_t number) const {
    ts::Generator generator(100 + number);
    const ts::Tensor whole = ts::randn({2, 2, 12, 8}, generator);
    return to(ts::train::scatter(whole, 0, mesh, {ts::Shard(2)}), ts::Device::Cuda);
  }
  ts::Tensor step() {
    const ts::Tensor loss = ts::mse_loss(model(x), y);
    optimizer->zero_grad();
    loss.backward();
    optimizer->step_clipped(0.5);
    return loss;
  }
};

// The numbers that two runs are compared by.
std::vector<double> parameters_of(const ts::nn::Module& model) {
  std::vector<double> values;
  for (const ts::Tensor& p : model.parameters()) {
    const std::vector<double> v = p.to_vector();
    values.insert(values.end(), v.begin(), v.end());
  }
  return values;
}

// What is forgotten at every replay, to see that it would be seen.
enum class Frozen { Nothing, LearningRate, Draws };

struct Result {
  std::vector<double> losses;
  std::vector<double> parameters;
  bool operator==(const Result&) const = default;
};

Result train(bool as_graph, Frozen frozen = Frozen::Nothing) {
  Training run;
  ts::train::StepGraph graph(ts::test_world());
  const auto schedule = ts::optim::warmup_cosine({.peak = 0.02, .warmup = 5, .total = kSteps});
  Result result;
  const std::uint64_t drawn = run.model.dropout_generator().stream();
  for (int i = 0; i < kSteps; ++i) {
    run.x.local().copy_(run.batch(static_cast<std::uint64_t>(i)).local());
    if (frozen != Frozen::LearningRate || !graph.captured()) run.optimizer->set_lr(schedule(i));
    if (frozen == Frozen::Draws && graph.captured()) run.model.dropout_generator().set_stream(drawn);
    const ts::Tensor loss = as_graph ? graph.run([&] { return run.step(); }) : run.step();
    result.losses.push_back(loss.item());
  }
  CHECK(graph.captured() == as_graph);
  result.parameters = parameters_of(run.model);
  return result;
}

// What a run of 20 steps learns, and what its last ones cost, whose loss nobody reads.
struct Course {
  std::vector<double> losses;
  std::vector<double> parameters;
  std::int64_t waits = 0;
  std::int64_t from_driver = 0;
  std::int64_t messages = 0;
  std::int64_t bytes = 0;
};

template <class Trainer>
Course course(Trainer& trainer) {
  Course c;
  for (int i = 0; i < kRead; ++i) c.losses.push_back(trainer.step().loss);
  const ts::Recorder::Totals& totals = ts::test_world().recorder().totals();
  const ts::Recorder::Totals sent = totals;
  const std::int64_t waits = ts::cuda::host_waits();
  const std::int64_t driver = ts::allocator_stats(ts::Device::Cuda).system_allocations;
  for (int i = 0; i < kCounted; ++i) trainer.advance();
  c.waits = ts::cuda::host_waits() - waits;
  c.from_driver = ts::allocator_stats(ts::Device::Cuda).system_allocations - driver;
  c.messages = totals.messages - sent.messages;
  c.bytes = totals.bytes - sent.bytes;
  c.losses.push_back(trainer.step().loss);
  c.parameters = parameters_of(trainer.model());
  return c;
}

// A host that reads no loss for long, and stays ahead of the device: its batches lie in page-locked memory
// until they are copied (`sizes` of them a step, in bytes).
template <class Trainer>
void check_unread_steps(Trainer& trainer, const std::vector<std::int64_t>& sizes) {
  const std::int64_t driver = ts::allocator_stats(ts::Device::Cuda).system_allocations;
  const std::int64_t buffers = ts::cuda::staging_stats().buffers;
  std::int64_t most = 0;
  for (const std::int64_t bytes : sizes) most += ts::cuda::most_staging_buffers(bytes);
  const std::int64_t waits = ts::cuda::host_waits();
  for (int i = 0; i < kUnread; ++i) trainer.advance();
  CHECK(ts::allocator_stats(ts::Device::Cuda).system_allocations == driver);
  CHECK(ts::cuda::staging_stats().buffers - buffers <= most);
  // Nothing but batches makes such a host wait.
  if (sizes.empty()) CHECK(ts::cuda::host_waits() == waits);
  CHECK(std::isfinite(trainer.step().loss));
}

void check_courses(const Course& eager, const Course& replayed, const Course& cpu) {
  CHECK(replayed.losses == eager.losses);
  CHECK(replayed.parameters == eager.parameters);
  for (std::size_t i = 0; i < cpu.losses.size(); ++i)
    CHECK(std::abs(eager.losses[i] - cpu.losses[i]) <= 1e-4 * std::abs(cpu.losses[i]));
  CHECK((cpu.bytes > 0) == (ts::test_world().size() > 1));
  for (const Course* device : {&eager, &replayed}) {
    CHECK(device->waits == 0);
    CHECK(device->from_driver == 0);
    CHECK(device->messages == cpu.messages);
    CHECK(device->bytes == cpu.bytes);
  }
}

}  // namespace

TEST_CASE("20 replayed steps are 20 eager steps, bit for bit", "[graph]") {
  const Result eager = train(false);
  CHECK(train(true) == eager);
  // The comparison sees what a replay must not freeze.
  CHECK(train(true, Frozen::LearningRate).losses != eager.losses);
  CHECK(train(true, Frozen::Draws).losses != eager.losses);
}

TEST_CASE("a capture that reads a value is refused on all ranks, and eager steps go on", "[graph]") {
  Training run;
  ts::train::StepGraph graph(ts::test_world(), 2);
  const auto reading = [&] {
    const ts::Tensor loss = run.step();
    if (!(loss.item() < 1e6)) throw std::runtime_error("the loss is no number");
    return loss;
  };
  for (int i = 0; i < 2; ++i) graph.run(reading);
  const std::uint64_t drawn = run.model.dropout_generator().stream();
  CHECK_THROWS_WITH(graph.run(reading), Catch::Contains("at: the host would have to read"));
  CHECK(run.model.dropout_generator().stream() == drawn);
  CHECK(run.optimizer->state().front().value.at(0) == 2);
  CHECK(std::isfinite(reading().item()));
}

TEST_CASE("the wind model's steps wait for nothing, and learn the same as a graph", "[graph]") {
  ts::winds::TestRun eager(small_winds(false), all_ranks());
  ts::winds::TestRun replayed(small_winds(true), all_ranks());
  ts::winds::Settings on_cpu = small_winds(false);
  ts::winds::Trainer cpu(on_cpu, eager.cut, eager.data);
  check_courses(course(eager.trainer), course(replayed.trainer), course(cpu));
  const ts::Dims map = eager.cut.spec(2, 1)->local_sizes();
  const std::int64_t point = ts::numel_of(map) * ts::size_of(ts::DType::F32);
  for (auto* trainer : {&eager.trainer, &replayed.trainer})
    check_unread_steps(*trainer, {point * ts::winds::kInputs, point * ts::winds::kOutputs});
}

TEST_CASE("the relief model's steps wait for nothing, and learn the same as graphs", "[graph]") {
  ts::relief::TestRun eager(ts::test_world(), small_relief(false), all_ranks());
  ts::relief::TestRun replayed(ts::test_world(), small_relief(true), all_ranks());
  ts::relief::Settings on_cpu = small_relief(false);
  ts::relief::Trainer cpu(on_cpu, eager.data);
  SECTION("convolutions from one buffer, as of small maps") {
    check_courses(course(eager.trainer), course(replayed.trainer), course(cpu));
    check_unread_steps(eager.trainer, {});
    check_unread_steps(replayed.trainer, {});
  }
  SECTION("convolutions in frames, as of large maps") {
    const ts::FramesFrom always(0);
    check_courses(course(eager.trainer), course(replayed.trainer), course(cpu));
  }
}
