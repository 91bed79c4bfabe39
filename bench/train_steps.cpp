// Whole training steps: clear the gradients, forward, loss, backward, AdamW, and reading the loss.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "bench/device.h"
#include "bench/groups.h"
#include "comm/device_link.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "runtime/allocator.h"
#include "train/data_parallel.h"
#include "train/metrics.h"
#include "train/step_graph.h"
#include "train/sync.h"

namespace tessera::bench {
namespace {

constexpr std::int64_t kRowDim = 2;

nn::ViTOptions vit_options(bool quick) {
  nn::ViTOptions o;
  o.channels = 8;
  o.image = quick ? Dims{96, 96} : Dims{256, 256};
  o.patch = {8, 8};
  o.width = 192;
  o.depth = quick ? 1 : 4;
  o.heads = 3;
  o.classes = 10;
  return o;
}

// The model of examples/winds on its map, without the data: rows padded to patches, a map as the target.
nn::ViTOptions winds_options(bool quick) {
  nn::ViTOptions o;
  o.channels = 10;
  o.image = {76, 144};
  o.patch = {4, 4};
  o.width = 96;
  o.depth = quick ? 1 : 4;
  o.heads = 4;
  o.dropout = 0.2;
  o.out_channels = 2;
  return o;
}

// The convolution network of bench/pytorch/train_step.py.
std::unique_ptr<nn::Module> conv_net(bool quick) {
  const std::int64_t layers = quick ? 2 : 6;
  constexpr std::int64_t kChannels = 32;
  auto net = std::make_unique<nn::Sequential>();
  for (std::int64_t i = 0; i < layers; ++i)
    net->add<nn::Conv2d>(i == 0 ? 8 : kChannels, kChannels,
                         nn::ConvLayerOptions{.kernel_size = {3}, .padding = {1}})
        .add<nn::GroupNorm>(8, kChannels, nn::GroupNormOptions{.activation = NormActivation::Gelu});
  net->add<nn::Conv2d>(kChannels, 4, nn::ConvLayerOptions{.kernel_size = {1}});
  return net;
}

struct Model {
  std::unique_ptr<nn::Module> module;
  Dims input;              // one batch
  std::int64_t patch = 1;  // rows are cut at multiples of it
  DType dtype = DType::F32;
};
Model vit_model(const nn::ViTOptions& o, std::int64_t batch) {
  return {std::make_unique<nn::ViT>(o), {batch, o.channels, o.image[0], o.image[1]}, o.patch[0]};
}
Model conv_model(bool quick) {
  const std::int64_t side = quick ? 32 : 512;
  return {conv_net(quick), {1, 8, side, side}};
}

// A model in training on one batch, the loss being the mean square of the output. Without a mesh: plain.
class Training {
 public:
  Training(Model model, const DeviceMesh& mesh, Device device = Device::Cpu)
      : model_(moved(std::move(model), device)) {
    if (has_optimizer()) optimizer_.emplace(model_.module->parameters(), optim::AdamWOptions{.lr = 1e-3});
    Generator generator(1);
    if (!mesh.defined()) {
      input_ = to(to(randn(model_.input, generator), model_.dtype), device);
      return;
    }
    std::vector<std::int64_t> rows;
    for (const Interval& patches : default_partition(model_.input[kRowDim] / model_.patch, mesh.size()))
      rows.push_back(patches.length() * model_.patch);
    input_ = to(randn(model_.input, generator, DType::F32,
                      ShardSpec::from_lengths(mesh, {Shard(kRowDim)}, model_.input, {rows})),
                device);
    input_ = to(input_, model_.dtype);
    train::sync_module(*model_.module, mesh);
    parallel_ = std::make_unique<train::DataParallel>(*model_.module, mesh);
  }

  void step() { last_loss_ = launched().item(); }
  // On a device: the same, from the fourth on as one launch (train/step_graph.h).
  void graph_step(const Communicator& world) {
    if (!graph_) graph_ = std::make_unique<train::StepGraph>(world);
    last_loss_ = graph_->run([this] { return launched(); }).item();
  }
  bool replays() const { return graph_ && graph_->captured(); }
  std::int64_t parameters() const { return model_.module->num_parameters(); }
  // There is none in half precision.
  bool has_optimizer() const { return !is_half(model_.dtype); }
  std::string shape() const { return input_.sizes().str(); }

 private:
  // Clears the gradients, forward, loss, backward, optimizer; answers the loss.
  Tensor launched() {
    model_.module->zero_grad();
    Tensor loss = mean(square((*model_.module)(input_)));
    loss.backward();
    if (optimizer_) optimizer_->step();
    return loss;
  }
  static Model moved(Model model, Device device) {
    model.module->to(model.dtype);
    model.module->to(device);
    return model;
  }

  Model model_;
  std::optional<optim::AdamW> optimizer_;
  std::unique_ptr<train::DataParallel> parallel_;
  Tensor input_;
  std::unique_ptr<train::StepGraph> graph_;
  double last_loss_ = 0;
};

DeviceMesh domain_mesh(const Communicator& world) { return DeviceMesh(world, {{"domain", world.size()}}); }

std::string cut_name(const Communicator& world) {
  return fmt::format("cut over {} rank{}", world.size(), world.size() == 1 ? "" : "s");
}

// Steps in one repeat, after some that warm up plans and memory.
Variant steps(std::string name, Training& training, int count) {
  for (int i = 0; i < 2; ++i) training.step();
  return {std::move(name),
          [&training, count] {
            for (int i = 0; i < count; ++i) training.step();
          },
          count};
}

// On a device: the same as one CUDA graph, captured before anything is timed. None where messages go by MPI,
// which no graph can hold.
std::optional<Variant> replayed_steps(Training& training, int count, const Communicator& world) {
  const std::int64_t before = works_by_mpi(world).all();
  training.step();
  if (works_by_mpi(world).all() > before) return std::nullopt;
  while (!training.replays()) training.graph_step(world);
  return Variant{"replayed as a CUDA graph",
                 [&training, count, world] {
                   for (int i = 0; i < count; ++i) training.graph_step(world);
                 },
                 count};
}

// On a device: what one step asks cuDNN and cuBLASLt for, and nothing else; eager and as one CUDA graph.
struct Bare {
  int calls = 0;  // of one step
  std::vector<Variant> variants;
};
Bare bare_steps(Training& training, int count) {
  const LibraryCalls bare = library_calls_of([&training] { training.step(); });
  if (bare.count == 0) return {};
  const auto variant = [&](const char* name, const std::function<void()>& step) {
    return Variant{name,
                   [bare, step, count] {
                     for (int i = 0; i < count; ++i) step();
                     wait_for_device();
                   },
                   count};
  };
  return {bare.count,
          {variant("its library calls alone", bare.launch), variant("these as a CUDA graph", bare.replay)}};
}

// How much longer steps take than what they ask the libraries for: the best of either.
Figure beside_library(const std::vector<Timing>& timings, const Bare& bare) {
  const std::size_t first = timings.size() - bare.variants.size();
  const auto best = [](auto from, auto to) {
    return std::min_element(from, to, [](const Timing& a, const Timing& b) { return a.best < b.best; })->best;
  };
  const auto middle = timings.begin() + static_cast<std::ptrdiff_t>(first);
  const double ratio = best(timings.begin(), middle) / best(middle, timings.end());
  return {"over_library", ratio,
          fmt::format("a step takes {:.2f} times as long as its {} calls of cuDNN and cuBLASLt alone", ratio,
                      bare.calls)};
}

// The same with every communication waited for where it starts.
Variant without_overlap(const Variant& v, const Communicator& world) {
  return {v.name + ", no overlap",
          [run = v.run, world] {
            world.set_overlap(false);
            run();
            world.set_overlap(true);
          },
          v.calls};
}

double seconds_of(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Share of the time spent in waits and in the calls of collectives, of the rank that spends least: the others
// also wait for it.
double communication_share(const Variant& v, const Communicator& world) {
  world.barrier();
  const double before = world.recorder().totals().seconds;
  const double wall = seconds_of(v.run);
  const Array share = Array::full({1}, (world.recorder().totals().seconds - before) / wall, DType::F64);
  world.all_reduce(share, ReduceOp::Min).wait();
  return share.at(0);
}

// The medians over the repeats: how far ranks are apart is chance.
std::vector<Figure> waiting_figures(const std::vector<Variant>& variants, const Settings& settings) {
  std::vector<std::vector<double>> shares(variants.size());
  for (int r = 0; r < settings.rounds(); ++r)
    for (std::size_t i = 0; i < variants.size(); ++i)
      shares[i].push_back(communication_share(variants[i], settings.world));
  const double share = median(shares[0]);
  const double without = median(shares[1]);
  return {{"waiting", share,
           fmt::format("{:.2f} % of a step is communication and waiting for it, {:.2f} % without overlap",
                       100 * share, 100 * without)},
          {"waiting_without_overlap", without, ""}};
}

// Of a rank: what memory steady steps need and take.
std::vector<Figure> memory_figures(const Variant& v, Device device) {
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  const AllocatorStats start = allocator_stats(device);
  reset_peak(device);
  v.run();
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  const AllocatorStats end = allocator_stats(device);
  const auto peak = static_cast<double>(end.peak_live_bytes);
  const double faults = static_cast<double>(after.ru_minflt - before.ru_minflt) / v.calls;
  const auto taken = static_cast<double>(end.system_allocations - start.system_allocations);
  return {{"peak_bytes", peak,
           fmt::format("at most {} of tensors live, {:.1f} page faults and {} blocks from the system a step",
                       train::format_bytes(peak), faults, taken / v.calls)},
          {"page_faults", faults, ""},
          {"system_blocks", taken / v.calls, ""}};
}

// Also where the device is emulated, and a step of full size would take an hour.
bool is_small(const Settings& settings) {
  return settings.quick || (settings.device != Device::Cpu && device_is_emulated());
}

// On one rank plain, on several cut and measured with and without overlap; on a device also as a graph, and
// beside the step's calls of libraries alone.
void step_of(const std::string& group, Model model, const Settings& settings, Report& report) {
  const Communicator& world = settings.world;
  const bool plain = world.size() == 1;
  const DType dtype = model.dtype;
  Training training(std::move(model), plain ? DeviceMesh() : domain_mesh(world), settings.device);
  const int count = is_small(settings) ? 1 : 3;
  std::vector<Variant> variants{steps(plain ? "plain" : cut_name(world), training, count)};
  if (!plain) variants.push_back(without_overlap(variants[0], world));
  Case c{.group = group,
         .name = fmt::format("{} parameters{}", training.parameters(),
                             training.has_optimizer() ? "" : ", gradients only"),
         .shape = training.shape(),
         .dtype = dtype};
  const bool on_device = settings.device != Device::Cpu;
  Bare bare;
  if (on_device) {
    c.figures = memory_figures(variants[0], settings.device);  // before a graph keeps memory of its own
    if (auto replayed = replayed_steps(training, count, world)) variants.push_back(std::move(*replayed));
    bare = bare_steps(training, count);
    variants.insert(variants.end(), bare.variants.begin(), bare.variants.end());
  }
  c.timings = interleaved(settings, variants);
  if (bare.calls > 0) c.figures.push_back(beside_library(c.timings, bare));
  if (!on_device) c.figures = memory_figures(variants[0], settings.device);
  if (!plain)
    for (Figure& f : waiting_figures(variants, settings)) c.figures.push_back(std::move(f));
  report.add(c);
}

}  // namespace

void vit_step(const Settings& settings, Report& report) {
  const auto model = [&](DType dtype) {
    Model m = vit_model(vit_options(is_small(settings)), 1);
    m.dtype = dtype;
    return m;
  };
  step_of("vit_step", model(DType::F32), settings, report);
  // Where attention is a library's, too.
  if (settings.device != Device::Cpu) step_of("vit_step", model(DType::BF16), settings, report);
}

void conv_step(const Settings& settings, Report& report) {
  step_of("conv_step", conv_model(is_small(settings)), settings, report);
}

void vit_scaling(const Settings& settings, Report& report) {
  const nn::ViTOptions options = vit_options(settings.quick);
  Training plain(vit_model(options, 1), DeviceMesh());
  Training cut(vit_model(options, 1), domain_mesh(settings.world));
  const int count = settings.quick ? 1 : 2;
  const auto timings = interleaved(
      settings, {steps("plain on every rank", plain, count), steps(cut_name(settings.world), cut, count)});
  report.add({.group = "vit_scaling", .name = "ViT", .shape = cut.shape(), .timings = timings});
}

void winds_step(const Settings& settings, Report& report) {
  const std::int64_t batch = settings.quick ? 1 : 4;
  const nn::ViTOptions options = winds_options(settings.quick);
  Training plain(vit_model(options, batch), DeviceMesh());
  Training cut(vit_model(options, batch), domain_mesh(settings.world));
  const int count = settings.quick ? 1 : 2;
  const auto timings = interleaved(
      settings, {steps("plain on every rank", plain, count), steps(cut_name(settings.world), cut, count)});
  report.add({.group = "winds_step", .name = "winds ViT", .shape = cut.shape(), .timings = timings});
}

}  // namespace tessera::bench
