// What the host spends on calls that send, until the last launch has returned: tiny tensors on devices that
// are linked, so that all of it is work of the host.
#include <fmt/format.h>

#include "autograd/node.h"
#include "bench/device.h"
#include "bench/groups.h"
#include "ops/ops.h"
#include "runtime/error.h"

namespace tessera::bench {
namespace {

struct Sender {
  std::string name;
  bool sends = true;
  int operations = 1;  // that the limit counts for
};

void measure(const Settings& settings, Report& report, const Sender& s, const Tensor& x,
             const std::function<void()>& call) {
  const std::string& name = s.name;
  const std::int64_t before = settings.world.recorder().totals().calls;
  call();
  TS_CHECK((settings.world.recorder().totals().calls > before) == s.sends, "sending", "{} {}", name,
           s.sends ? "does not communicate" : "communicates");
  const std::int64_t waits = device_waits();
  call();
  TS_CHECK(device_waits() == waits, "sending", "{} waits for the device", name);
  const auto timings = interleaved(settings, {host_part(settings, "cut", call)});
  report.add({.group = "sending",
              .name = name,
              .shape = x.local().sizes().str() + " on each",
              .timings = timings,
              .limit_s = s.operations * kDeviceCallLimit});
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

// Every operand's gradient is an operation of its own, and all together are three.
void convolutions(const Settings& settings, Report& report, const Cut& cut) {
  const Tensor x = cut({1, 4, 4, 4}, 2);
  const Tensor w = cut.plain({4, 4, 3, 3}).set_requires_grad();
  const Tensor b = cut.plain({4}).set_requires_grad();
  const Tensor dy = cut({1, 4, 4, 4}, 2);
  for (const auto& [name, mode] : {std::pair{"conv 3x3, halo", PaddingMode::Zeros},
                                   std::pair{"conv 3x3, circular", PaddingMode::Circular}}) {
    const ConvOptions options{.padding = {1}, .padding_mode = mode};
    const std::string of(name);
    measure(settings, report, {of}, x, [&] { conv2d(x, w, b, options); });
    const auto backward = [&](const Sender& s, const Tensor& y, const Tensors& operands) {
      measure(settings, report, s, x, [&] { grad({y}, operands, {dy}, {.retain_graph = true}); });
    };
    backward({of + ", backward"}, conv2d(x, w.detach(), b.detach(), options), {x});
    backward({of + ", weight's gradient", false}, conv2d(x.detach(), w, b.detach(), options), {w});
    backward({of + ", bias's gradient", false}, conv2d(x.detach(), w.detach(), b, options), {b});
    backward({of + ", all gradients", true, 3}, conv2d(x, w, b, options), {x, w, b});
  }
}

void placements(const Settings& settings, Report& report, const Cut& cut) {
  const Tensor x = cut({4, 8}, 0);
  const SpecPtr columns = ShardSpec::make(cut.mesh(), {Shard(1)}, x.sizes());
  const SpecPtr everywhere = ShardSpec::replicated(cut.mesh(), x.sizes());
  const SpecPtr sum_everywhere = ShardSpec::replicated(cut.mesh(), {8});
  const Array values = Array::full({32}, 1, DType::F32, settings.device);
  measure(settings, report, {"all_reduce"}, Tensor(values),
          [&] { settings.world.all_reduce(values, ReduceOp::Max).wait(); });
  measure(settings, report, {"rows to columns"}, x, [&] { redistribute(x, columns); });
  measure(settings, report, {"rows to all of it"}, x, [&] { redistribute(x, everywhere); });
  measure(settings, report, {"sum of the rows"}, x, [&] { redistribute(sum(x, {0}), sum_everywhere); });
  const Tensor rows = cut({4, 8}, 1);
  measure(settings, report, {"softmax along the cut"}, rows, [&] { softmax(rows, 1); });
  const Tensor shares = softmax(rows, 1);
  const Tensor dshares = cut({4, 8}, 1);
  measure(settings, report, {"softmax along the cut, backward"}, rows,
          [&] { grad({shares}, {rows}, {dshares}, {.retain_graph = true}); });
}

// A call of a ring is as many blocks as ranks, each with operations of its own; in half precision by a
// library.
void rings(const Settings& settings, Report& report, const Cut& cut) {
  const int blocks = settings.world.size();
  for (const DType type : {DType::F32, DType::BF16}) {
    const Tensor tokens = to(cut({1, 2, 4, 8}, 2).detach(), type).set_requires_grad();
    const Tensor dy = to(cut({1, 2, 4, 8}, 2).detach(), type);
    const Tensor y = scaled_dot_product_attention(tokens, tokens, tokens);
    const std::string name = fmt::format("attention, ring, {}", name_of(type));
    measure(settings, report, {name, true, blocks}, tokens,
            [&] { scaled_dot_product_attention(tokens, tokens, tokens); });
    measure(settings, report, {name + ", backward", true, blocks}, tokens,
            [&] { grad({y}, {tokens}, {dy}, {.retain_graph = true}); });
  }
}

}  // namespace

void sending(const Settings& settings, Report& report) {
  const Cut cut(settings);
  convolutions(settings, report, cut);
  placements(settings, report, cut);
  rings(settings, report, cut);
}

}  // namespace tessera::bench
