// CUDA graphs: memory, host state and refusals of single captures.
#include <catch2/catch.hpp>

#include <cuda_runtime_api.h>

#include "autograd/node.h"
#include "comm/device_link.h"
#include "nn/nn.h"
#include "ops/kernels.h"
#include "ops/ops.h"
#include "ops/reduce/reduce_kernels.h"
#include "runtime/allocator.h"
#include "runtime/copy.h"
#include "runtime/cuda/api.h"
#include "runtime/device.h"
#include "runtime/graph.h"
#include "runtime/graph_capture.h"
#include "tests/support/groups.h"
#include "tests/support/world.h"
#include "train/step_graph.h"

using namespace tessera;

namespace {

Array filled(double value, std::int64_t n = 100) { return Array::full({n}, value, DType::F64, Device::Cuda); }
std::vector<double> all(double value, std::size_t n = 100) { return std::vector<double>(n, value); }

Tensor numbers(std::uint64_t seed, const Dims& sizes) {
  Generator generator(seed);
  return to(randn(sizes, generator), Device::Cuda);
}

// What a captured call of f is refused with, on the text's own terms; the capture is given up.
template <class F>
std::string refusal(F f) {
  CudaGraph graph;
  graph.capture_begin();
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "nothing was refused";
}

}  // namespace

TEST_CASE("a replay works on what its memory holds then", "[graph]") {
  const Array in = filled(1);
  const Array out = filled(0);
  CudaGraph graph;
  graph.capture_begin();
  Array twice = in.clone();
  add_into(twice, in);
  add_into(out, twice);
  twice = Array();
  graph.capture_end();
  CHECK(graph.captured());
  CHECK(out.to_vector() == all(0));  // nothing ran
  const std::int64_t waits = cuda::host_waits();
  for (int i = 1; i <= 4; ++i) {
    in.fill_(i);
    graph.replay();
  }
  CHECK(cuda::host_waits() == waits);
  CHECK(out.to_vector() == all(2 * (1 + 2 + 3 + 4)));
  CHECK_THROWS_WITH(graph.capture_begin(), Catch::Contains("capture_begin() was called twice"));
  graph.reset();
  CHECK_THROWS_WITH(graph.replay(), Catch::Contains("holds nothing"));
}

TEST_CASE("memory of a graph is nobody else's while it lives", "[graph]") {
  Array before = filled(3);  // given back in the capture, and read by the graph
  Array result;
  CudaGraph graph;
  graph.capture_begin();
  result = before.clone();
  add_into(result, before);
  before = Array();
  for (int i = 0; i < 5; ++i) {  // what is given back in the capture serves again in it
    const Array passing = result.clone();
    add_into(result, passing);
  }
  graph.capture_end();
  const void* address = result.raw();
  const Array seen = filled(0);
  copy_strided(seen, result);
  result = Array();
  for (int round = 0; round < 3; ++round) {
    std::vector<Array> others;
    for (int i = 0; i < 20; ++i) others.push_back(filled(-1));
    for (const Array& other : others) CHECK(other.raw() != address);
    graph.replay();
    for (const Array& other : others) CHECK(other.to_vector() == all(-1));
  }
  const std::int64_t reserved = allocator_stats(Device::Cuda).reserved_bytes;
  graph.reset();
  std::vector<Array> others;
  for (int i = 0; i < 40; ++i) others.push_back(filled(i));  // may be the graph's memory now
  for (int i = 0; i < 40; ++i) CHECK(others[static_cast<std::size_t>(i)].to_vector() == all(i));
  CHECK(allocator_stats(Device::Cuda).reserved_bytes <= reserved + 20 * 1024);
}

TEST_CASE("a graph copies what the host gave when it was captured", "[graph]") {
  const Array x = Array::full({1, 10, 1}, 1, DType::F32, Device::Cuda);
  const Array sums = Array::empty({3, 1, 1}, DType::F64, Device::Cuda);
  const std::vector<std::int64_t> lengths{3, 5, 2};
  const auto run = [&] { kernels::piece_sums(Device::Cuda, {sums, x, lengths}); };
  run();
  CudaGraph graph;
  graph.capture_begin();
  run();
  graph.capture_end();
  for (int round = 0; round < 2; ++round) {
    sums.fill_(-1);
    graph.replay();
    CHECK(sums.to_vector() == std::vector<double>{3, 5, 2});
    // Takes every buffer of the host that is free.
    std::vector<Array> later;
    for (int i = 0; i < 8; ++i) later.push_back(Array::zeros({4}, DType::I64).to(Device::Cuda));
    synchronize(Device::Cuda);
  }
}

TEST_CASE("graphs that share a pool are replayed one after another", "[graph]") {
  const Array in = filled(5);
  CudaGraph first;
  first.capture_begin();
  const Array a = in.clone();
  add_into(a, in);
  first.capture_end();
  CudaGraph second;
  second.capture_begin(first.pool());
  const Array b = in.clone();
  add_into(b, a);
  second.capture_end();
  for (int i = 1; i < 4; ++i) {
    in.fill_(i);
    first.replay();
    second.replay();
    CHECK(a.to_vector() == all(2 * i));
    CHECK(b.to_vector() == all(3 * i));
  }
}

TEST_CASE("replays draw what eager calls would draw", "[graph]") {
  const Tensor x = to(ones({400}), Device::Cuda);
  Generator eager(7);
  Generator replayed(7);
  const auto twice = [&](Generator& generator) {
    return dropout(dropout(x, 0.3, generator), 0.2, generator);
  };
  CHECK(twice(eager).to_vector() == twice(replayed).to_vector());
  CudaGraph graph;
  graph.capture_begin();
  const Tensor y = twice(replayed);
  graph.capture_end();
  CHECK(replayed.stream() == 2);  // the capture drew nothing
  std::vector<double> last;
  for (int i = 0; i < 4; ++i) {
    graph.replay();
    CHECK(y.to_vector() == twice(eager).to_vector());
    CHECK(y.to_vector() != last);
    last = y.to_vector();
    CHECK(replayed.stream() == eager.stream());
    if (i == 1) CHECK(twice(replayed).to_vector() == twice(eager).to_vector());  // eager between replays
  }
  replayed.set_batch_offset(3);
  CHECK_THROWS_WITH(graph.replay(),
                    Catch::Contains("batch offset 3, but the graph was captured with 7 and 0"));
}

TEST_CASE("replays of attention with dropout draw what eager calls would draw", "[graph]") {
  const Tensor x = numbers(8, {2, 2, 6, 8}).detach().set_requires_grad();
  const Tensor cotangent = numbers(9, {2, 2, 6, 8});
  const GeneratorPtr eager = std::make_shared<Generator>(7);
  const GeneratorPtr replayed = std::make_shared<Generator>(7);
  const auto run = [&](const GeneratorPtr& generator) {
    const Tensor y = scaled_dot_product_attention(x, x, x, {.dropout_p = 0.4, .generator = generator});
    return Tensors{y, grad({y}, {x}, {cotangent})[0]};
  };
  CHECK(run(eager)[1].to_vector() == run(replayed)[1].to_vector());
  CudaGraph graph;
  graph.capture_begin();
  const Tensors captured = run(replayed);
  graph.capture_end();
  std::vector<double> last;
  for (int i = 0; i < 3; ++i) {
    graph.replay();
    const Tensors want = run(eager);
    CHECK(captured[0].to_vector() == want[0].to_vector());
    CHECK(captured[1].to_vector() == want[1].to_vector());
    CHECK(captured[0].to_vector() != last);
    last = captured[0].to_vector();
    CHECK(replayed->stream() == eager->stream());
  }
}

TEST_CASE("what a capture cannot hold is refused by name", "[graph]") {
  const Tensor x = numbers(3, {8});
  const Tensor sharp = to(ones({8}), Device::Cuda);
  const std::string instead = "read values after replay()";
  CHECK_THAT(refusal([&] { sum(x).item(); }),
             Catch::StartsWith("at: the host would") && Catch::Contains(instead));
  CHECK_THAT(refusal([&] { x.to_vector(); }), Catch::StartsWith("to_vector: ") && Catch::Contains(instead));
  CHECK_THAT(refusal([&] { synchronize(Device::Cuda); }), Catch::StartsWith("synchronize: "));
  CHECK_THAT(refusal([&] { to(ones({3}), Device::Cuda); }),
             Catch::Contains("the same ones at every replay") && Catch::Contains("before replay()"));
  nn::Linear layer(8, 2);
  layer.to(Device::Cuda);
  optim::AdamW optimizer(layer.parameters());
  mse_loss(layer(reshape(x, {1, 8})), reshape(slice(sharp, 0, 0, 2), {1, 2})).backward();
  CHECK_THAT(
      refusal([&] { optimizer.step(); }),
      Catch::StartsWith("AdamW: the state of a parameter is made") && Catch::Contains("before the capture"));
  CudaGraph graph;
  graph.capture_begin();
  CudaGraph other;
  CHECK_THROWS_WITH(other.capture_begin(), Catch::Contains("one capture at a time"));
  graph.reset();
  // The device is as before.
  CHECK(sum(sharp).item() == 8);
}

TEST_CASE("an optimizer that is gone is not stepped", "[graph]") {
  nn::Linear layer(4, 1);
  layer.to(Device::Cuda);
  const Tensor x = numbers(4, {3, 4});
  auto optimizer =
      std::make_unique<optim::SGD>(layer.parameters(), optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
  Generator generator(6);
  const auto step = [&] {
    optimizer->zero_grad();
    mean(layer(dropout(x, 0.5, generator))).backward();
    optimizer->step();
  };
  step();
  CudaGraph graph;
  graph.capture_begin();
  step();
  graph.capture_end();
  graph.replay();
  CHECK(optimizer->state().front().value.at(0) == 2);
  optimizer.reset();
  CHECK(generator.stream() == 2);
  CHECK_THROWS_WITH(graph.replay(), Catch::Contains("SGD: a graph that this optimizer's step"));
  CHECK(generator.stream() == 2);  // what is refused draws nothing
  graph.reset();
  graph.capture_begin();
  optim::SGD(layer.parameters(), optim::SGDOptions{.lr = 0.1}).step();  // gone before the capture ends
  graph.capture_end();
  CHECK_THROWS_WITH(graph.replay(), Catch::Contains("SGD: a graph that this optimizer's step"));
}

TEST_CASE("a wrong number is found at every replay", "[graph]") {
  const Tensor table = numbers(5, {4, 3});
  const Tensor index = to(tensor(std::vector<double>{0, 3}, {2}, DType::I64), Device::Cuda);
  index_select(table, 0, index);
  CudaGraph graph;
  graph.capture_begin();
  const Tensor rows = index_select(table, 0, index);
  graph.capture_end();
  for (int i = 0; i < 2; ++i) {
    index.local().fill_(2);
    graph.replay();
    CHECK(rows.to_vector().size() == 6);
    index.local().fill_(9);
    graph.replay();
    CHECK_THROWS_WITH(synchronize(Device::Cuda), Catch::Contains("9"));
    CHECK_NOTHROW(synchronize(Device::Cuda));
  }
}

TEST_CASE("the runtime refuses waits in a capture and streams that nobody joins", "[graph]") {
  const cuda::StreamHandle stream = cuda::make_stream();
  const cuda::StreamHandle side = cuda::make_stream();
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
  const Array a = filled(1);
  const auto begin = [&] {
    REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaSuccess);
  };
  const auto ends_with = [&](cudaError_t expected) {
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream, &graph) == expected);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
  };
  begin();
  CHECK(cudaStreamSynchronize(stream) == cudaErrorStreamCaptureUnsupported);
  ends_with(cudaErrorStreamCaptureInvalidated);
  begin();
  CHECK(cudaStreamQuery(stream) == cudaErrorStreamCaptureUnsupported);
  ends_with(cudaErrorStreamCaptureInvalidated);
  begin();
  CHECK(cudaEventRecord(event, stream) == cudaSuccess);
  CHECK(cudaEventQuery(event) == cudaErrorCapturedEvent);
  ends_with(cudaErrorStreamCaptureInvalidated);
  begin();
  CHECK(cudaEventRecord(event, stream) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(side, event, 0) == cudaSuccess);
  CHECK(cudaMemsetAsync(a.raw(), 0, 8, side) == cudaSuccess);
  ends_with(cudaErrorStreamCaptureUnjoined);
  CHECK(cudaEventRecord(event, side) == cudaSuccess);
  begin();
  CHECK(cudaStreamWaitEvent(stream, event, 0) == cudaErrorStreamCaptureIsolation);
  ends_with(cudaErrorStreamCaptureInvalidated);
  CHECK(a.to_vector() == all(1));
  cudaEventDestroy(event);
  cuda::drop_stream(stream);
  cuda::drop_stream(side);
}

TEST_CASE("a graph keeps the group whose messages it holds", "[graph]") {
  const Communicator world = test_world();
  const int size = world.size();
  if (size == 1) return;
  const Array a = filled(world.rank() + 1);
  std::weak_ptr<Group> group;
  CudaGraph graph;
  {
    const Communicator other = world.split(0, world.rank());
    group = other.group();
    other.all_reduce(a, ReduceOp::Max).wait();
    graph.capture_begin();
    other.all_reduce(a, ReduceOp::Sum).wait();
    graph.capture_end();
  }
  REQUIRE_FALSE(group.expired());
  for (int i = 0; i < 3; ++i) graph.replay();
  CHECK(a.to_vector() == all(size * size * size * size));
  graph.reset();
  CHECK(group.expired());
}

TEST_CASE("messages by MPI are refused before a capture, on all ranks", "[graph]") {
  const Communicator world = test_world();
  if (world.size() == 1) return;
  use_device_links(world, false);
  const Communicator staged = group_of_all(world);
  const Array a = filled(1, 4);
  const auto step = [&] {
    staged.all_reduce(a, ReduceOp::Max).wait();
    return Tensor(a);
  };
  train::StepGraph graph(world, 1);
  graph.run(step);
  CHECK_THROWS_WITH(graph.run(step), Catch::Contains("StepGraph") && Catch::Contains("go by MPI"));
  CHECK_FALSE(graph.captured());
  CHECK_THAT(refusal(step), Catch::StartsWith("all_reduce: messages go by MPI"));
  use_device_links(world, true);
  staged.all_reduce(a, ReduceOp::Max).wait();  // the group still works
  CHECK(a.to_vector() == all(1, 4));
}

TEST_CASE("a capture that fails on one rank is one on no rank, whatever is thrown", "[graph]") {
  const Communicator world = test_world();
  const Array a = filled(1, 4);
  bool broken = false;
  const auto step = [&] {
    const Array twice = a.clone();
    add_into(twice, a);
    if (broken && world.rank() == world.size() - 1) throw std::runtime_error("no more");
    return Tensor(twice);
  };
  train::StepGraph graph(world, 1);
  broken = true;
  if (world.rank() == world.size() - 1)
    CHECK_THROWS_WITH(graph.run(step), "no more");  // an eager run, which the other ranks count too
  else
    graph.run(step);
  CHECK_THROWS_WITH(graph.run(step), Catch::Contains("StepGraph: the captured step threw \"no more\""));
  CHECK_FALSE(graph.captured());
  CHECK(filled(3, 4).to_vector() == all(3, 4));  // the device is as before
  broken = false;
  CHECK(graph.run(step).to_vector() == all(2, 4));
  CHECK(graph.captured());
}
