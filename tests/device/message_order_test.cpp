// Messages between devices one by one: the peers, lengths and order of the CPU's, and what NCCL is called for
// is what the works say. By NCCL, or as TESSERA_CUDA_COMM says.
#include <catch2/catch.hpp>

#include <functional>

#include "autograd/node.h"
#include "comm/work_listener.h"
#include "emulated/nccl.h"
#include "ops/elementwise/owed_terms.h"
#include "tests/device/small_runs.h"
#include "tests/frames_from.h"
#include "tests/ops_cases.h"

using namespace tessera;
using namespace tessera::device_tests;
using emulated::NcclMessage;

namespace {

struct Message {
  NcclMessage what;
  bool linked = false;  // by NCCL, on a device
};
std::vector<Message> heard;

void listen(const BegunWork& work) {
  for (const Phase& phase : work.phases)
    for (const bool send : {false, true})
      for (const Transfer& t : send ? phase.sends : phase.recvs)
        heard.push_back({{work.group.size(), t.peer, t.bytes, send}, work.linked});
}

std::string text_of(const std::vector<NcclMessage>& messages) {
  std::string text;
  for (const NcclMessage& m : messages)
    text += fmt::format(" {}{}/{}:{}", m.send ? "to " : "from ", m.peer, m.ranks, m.bytes);
  return text;
}

class Listening {
 public:
  Listening() {
    emulated::nccl_counters().keep_messages = true;
    listen_to_works(&listen);
  }
  ~Listening() {
    listen_to_works(nullptr);
    emulated::nccl_counters().keep_messages = false;
  }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
};

// What f makes this rank send and receive.
struct Log {
  std::vector<NcclMessage> all;     // in the order in which works begin
  std::vector<NcclMessage> linked;  // of these what a link carries
  std::vector<NcclMessage> nccl;    // in the order of NCCL's calls
};
template <class F>
Log log_of(const F& f) {
  heard.clear();
  emulated::NcclCounters& counters = emulated::nccl_counters();
  counters.messages.clear();
  {
    const Listening listening;
    f();
  }
  Log log;
  for (const Message& m : heard) {
    log.all.push_back(m.what);
    if (m.linked) log.linked.push_back(m.what);
  }
  log.nccl = counters.messages;
  return log;
}

bool by_nccl() { return test_world().group()->endpoint().device_links; }

void check_logs(const Log& device, const Log& cpu) {
  INFO("device" << text_of(device.all) << "\nCPU   " << text_of(cpu.all));
  CHECK(device.all == cpu.all);
  CHECK(cpu.linked.empty());
  CHECK(cpu.nccl.empty());
  CHECK(device.nccl == device.linked);
  CHECK((by_nccl() || device.linked.empty()));
}

// Two steps after `before`.
template <class Trainer>
Log steps_of(Trainer& trainer, int before) {
  for (int i = 0; i < before; ++i) trainer.step();
  return log_of([&] {
    for (int i = 0; i < 2; ++i) trainer.step();
  });
}

Tensors on(Device device, const Tensors& tensors) {
  Tensors moved;
  for (const Tensor& t : tensors) {
    moved.push_back(to(t.detach(), device));
    moved.back().set_requires_grad(t.requires_grad());
  }
  return moved;
}

Tensors requiring(const Tensors& tensors) {
  Tensors some;
  for (const Tensor& t : tensors)
    if (t.defined() && t.requires_grad()) some.push_back(t);
  return some;
}

// One call of an operation and its gradients. `draw` makes the cotangents.
using Cotangents = std::function<Tensors(const Tensors& roots)>;
void call_with_gradients(const ops_cases::OpCase& c, const Tensors& inputs, const Cotangents& draw) {
  const Tensors roots = requiring(c.call(inputs));
  if (!roots.empty()) grad(roots, requiring(inputs), draw(roots));
}

}  // namespace

TEST_CASE("a step of the wind model sends the CPU's messages in the CPU's order", "[nccl]") {
  winds::TestRun eager(small_winds(false), all_ranks());
  winds::TestRun replayed(small_winds(true), all_ranks());
  const winds::Settings on_cpu = small_winds(false);
  winds::Trainer cpu(on_cpu, eager.cut, eager.data);
  const Log device = steps_of(eager.trainer, 1);
  check_logs(device, steps_of(cpu, 1));
  CHECK(device.all.empty() == (test_world().size() == 1));
  if (by_nccl()) CHECK(steps_of(replayed.trainer, 5).nccl == device.nccl);  // captured after three steps
}

TEST_CASE("a step of the relief model sends the CPU's messages in the CPU's order", "[nccl]") {
  // Convolutions from one buffer, as of small maps, and in frames.
  for (const std::int64_t frames_from : {std::int64_t{1} << 16, std::int64_t{0}}) {
    const FramesFrom frames(frames_from);
    relief::TestRun run(test_world(), small_relief(false), all_ranks());
    const relief::Settings on_cpu = small_relief(false);
    relief::Trainer cpu(on_cpu, run.data);
    const Log device = steps_of(run.trainer, 4);
    check_logs(device, steps_of(cpu, 4));
    CHECK(device.all.empty() == (test_world().size() == 1));
  }
}

// Products with sums that are owed send other messages on a device than on the CPU, unless this asks the CPU
// for the same ones.
struct SumsFirst {
  SumsFirst() { set_makes_sums_first(true); }
  ~SumsFirst() { set_makes_sums_first(false); }
  SumsFirst(const SumsFirst&) = delete;
  SumsFirst& operator=(const SumsFirst&) = delete;
};

TEST_CASE("every operation sends the CPU's messages in the CPU's order", "[nccl]") {
  const SumsFirst alike;
  auto random = test_random(91);
  const std::vector<DeviceMesh> meshes = mesh_cases::all_meshes();
  std::size_t messages = 0;
  for (const ops_cases::OpFamily& family : ops_cases::families()) {
    for (const DType type : {DType::F32, DType::F32, DType::F32, DType::BF16}) {
      const DeviceMesh& mesh = mesh_cases::pick(random, meshes);
      const ops_cases::OpCase c = family.draw(random);
      Tensors inputs;
      for (const ops_cases::InputSpec& in : c.inputs)
        inputs.push_back(ops_cases::random_input(random, mesh, in, ops_cases::draw_values(random, in),
                                                 {.floating = type}));
      INFO(family.name << ": " << c.text << " of " << name_of(type) << " on " << mesh.str());
      Tensors drawn;
      const auto draw = [&](const Tensors& roots) {
        for (const Tensor& r : roots)
          drawn.push_back(ops_cases::random_cotangent(random, mesh, r.sizes(), ones(r.sizes()).to_vector(),
                                                      {.floating = r.dtype()}));
        return drawn;
      };
      // First the groups meet on the device.
      if (!mesh_cases::refusal([&] { call_with_gradients(c, inputs, draw); }).empty()) continue;
      // What goes to another device is whole: both runs begin with what has been there and back.
      const Tensors whole = on(Device::Cpu, inputs);
      const Tensors cotangents = on(Device::Cpu, drawn);
      const auto log_on = [&](Device device) {
        const Tensors there = on(device, whole);
        return log_of(
            [&] { call_with_gradients(c, there, [&](const Tensors&) { return on(device, cotangents); }); });
      };
      const Log device = log_on(Device::Cuda);
      messages += (by_nccl() ? device.linked : device.all).size();
      check_logs(device, log_on(Device::Cpu));
    }
  }
  CHECK((messages > 100 || test_world().size() == 1));
}
