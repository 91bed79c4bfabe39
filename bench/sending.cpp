// What the host spends on calls that send, until the last launch has returned: tiny tensors on devices that
// are linked, so that all of it is work of the host.
#include "autograd/node.h"
#include "bench/device.h"
#include "bench/groups.h"
#include "ops/ops.h"
#include "runtime/error.h"

namespace tessera::bench {
namespace {

void measure(const Settings& settings, Report& report, const char* name, const Tensor& x,
             const std::function<void()>& call) {
  const std::int64_t before = settings.world.recorder().totals().calls;
  call();
  TS_CHECK(settings.world.recorder().totals().calls > before, "sending", "{} does not communicate", name);
  const std::int64_t waits = device_waits();
  call();
  TS_CHECK(device_waits() == waits, "sending", "{} waits for the device", name);
  const auto timings = interleaved(settings, {host_part(settings, "cut", call)});
  report.add({.group = "sending",
              .name = name,
              .shape = x.local().sizes().str() + " on each",
              .timings = timings,
              .limit_s = kDeviceCallLimit});
}

class Cut {
 public:
  explicit Cut(const Settings& settings)
      : mesh_(settings.world, {{"domain", settings.world.size()}}), device_(settings.device) {}

  // `local` on each, cut along `dim`.
  Tensor operator()(const Dims& local, int dim) const {
    Dims global = local;
    global[dim] *= mesh_.size();
    return Tensor(plain(local).local(), ShardSpec::make(mesh_, {Shard(dim)}, global)).set_requires_grad();
  }
  Tensor plain(const Dims& sizes) const {
    Generator generator(7);
    return to(randn(sizes, generator), device_);
  }
  const DeviceMesh& mesh() const { return mesh_; }

 private:
  DeviceMesh mesh_;
  Device device_;
};

void convolutions(const Settings& settings, Report& report, const Cut& cut) {
  const Tensor x = cut({1, 4, 4, 4}, 2);
  const Tensor w = cut.plain({4, 4, 3, 3});
  const Tensor b = cut.plain({4});
  const ConvOptions options{.padding = {1}};
  const Tensor y = conv2d(x, w, b, options);
  const Tensor dy = cut({1, 4, 4, 4}, 2);
  measure(settings, report, "conv 3x3, halo", x, [&] { conv2d(x, w, b, options); });
  measure(settings, report, "conv 3x3, halo, backward", x,
          [&] { grad({y}, {x}, {dy}, {.retain_graph = true}); });
}

void placements(const Settings& settings, Report& report, const Cut& cut) {
  const Tensor x = cut({4, 8}, 0);
  const SpecPtr columns = ShardSpec::make(cut.mesh(), {Shard(1)}, x.sizes());
  const SpecPtr everywhere = ShardSpec::replicated(cut.mesh(), x.sizes());
  const SpecPtr sum_everywhere = ShardSpec::replicated(cut.mesh(), {8});
  const Array values = Array::full({32}, 1, DType::F32, settings.device);
  measure(settings, report, "all_reduce", Tensor(values),
          [&] { settings.world.all_reduce(values, ReduceOp::Max).wait(); });
  measure(settings, report, "rows to columns", x, [&] { redistribute(x, columns); });
  measure(settings, report, "rows to all of it", x, [&] { redistribute(x, everywhere); });
  measure(settings, report, "sum of the rows", x, [&] { redistribute(sum(x, {0}), sum_everywhere); });
  const Tensor rows = cut({4, 8}, 1);
  measure(settings, report, "softmax along the cut", rows, [&] { softmax(rows, 1); });
  const Tensor tokens = cut({1, 2, 4, 8}, 2);
  measure(settings, report, "attention, ring", tokens,
          [&] { scaled_dot_product_attention(tokens, tokens, tokens); });
}

}  // namespace

void sending(const Settings& settings, Report& report) {
  const Cut cut(settings);
  convolutions(settings, report, cut);
  placements(settings, report, cut);
}

}  // namespace tessera::bench
