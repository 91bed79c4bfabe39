// Convolutions worked out as an inside and edges: the same numbers as on one rank, no second copy of the
// input, and nobody waits for a halo before the inside is computed.
#include "ops/cpu/conv_choice.h"
#include "ops/kernels.h"
#include "runtime/allocator.h"
#include "tests/reports_cases.h"
#include "tests/support/groups.h"

using namespace tessera;
using namespace tessera::reports;

namespace {

Row row_of(const char* what, Dims w, const ConvOptions& options) {
  const std::int64_t out = w[0];
  return {what, [=](const Tensors& in) { return conv(in[0], in[1], in[2], options); }, {std::move(w), {out}}};
}

// Of maps with 4 channels.
std::vector<Row> maps() {
  return {
      row_of("zeros", {3, 4, 3, 3}, {.padding = {1}}),
      row_of("periodic columns", {3, 4, 3, 3}, {.padding = {1}, .periodic = {1}}),
      row_of("periodic rows", {3, 4, 3, 3}, {.padding = {1}, .periodic = {0}}),
      row_of("periodic", {3, 4, 3, 5}, {.padding = {1, 2}, .padding_mode = PaddingMode::Circular}),
      row_of("reflected", {3, 4, 3, 5}, {.padding = {1, 2}, .padding_mode = PaddingMode::Reflect}),
      row_of("replicated", {3, 4, 5, 3}, {.padding = {2, 1}, .padding_mode = PaddingMode::Replicate}),
      row_of("reflected rows", {3, 4, 3, 3},
             {.stride = {2}, .padding = {1}, .padding_mode = PaddingMode::Reflect, .periodic = {1}}),
      // Padding as wide as the kernel: edges along two dims read the same piece of what arrives.
      row_of("one position", {3, 4, 1, 1}, {.padding = {1}, .padding_mode = PaddingMode::Circular}),
      row_of("one column", {3, 4, 3, 1}, {.padding = {1}, .padding_mode = PaddingMode::Circular}),
      row_of("one column reflected", {3, 4, 3, 1}, {.padding = {1}, .padding_mode = PaddingMode::Reflect}),
      row_of("padding past the kernel", {3, 4, 3, 3}, {.padding = {0, 3}}),
      row_of("stride, kernel and padding alike", {3, 4, 3, 3},
             {.stride = {1, 3}, .padding = {0, 3}, .periodic = {1}}),
      row_of("no padding", {3, 4, 3, 2}, {}),
      row_of("stride", {3, 4, 3, 3}, {.stride = {2}, .padding = {1}, .periodic = {1}}),
      row_of("stride past the kernel", {3, 4, 2, 3}, {.stride = {3, 2}, .padding = {0, 1}, .periodic = {0}}),
      row_of("even kernel", {3, 4, 4, 2}, {.same = true, .periodic = {1}}),
      row_of("dilation", {3, 4, 3, 2}, {.padding = {2, 1}, .dilation = {2}, .periodic = {1}}),
      row_of("groups", {6, 2, 3, 3}, {.padding = {1}, .groups = 2, .periodic = {1}}),
      row_of("depthwise", {4, 1, 3, 3}, {.padding = {1}, .groups = 4, .periodic = {1}}),
      {"transposed",
       [](const Tensors& in) {
         return conv_transpose2d(in[0], in[1], in[2], {.stride = {2, 1}, .padding = {1}});
       },
       {{4, 3, 4, 3}, {3}}},
      {"transposed, cropped",
       [](const Tensors& in) {
         return conv_transpose2d(in[0], in[1], in[2], {.padding = {0, 5}});
       },
       {{4, 3, 3, 4}, {3}}},
  };
}

Tensor map_of(const Dims& sizes, DType dtype) { return weight(sizes, dtype); }

Array channels_last(const Array& a) {
  Array out = Array::empty_strided(a.sizes(), cpu::channels_last_strides(a.sizes()), a.dtype(), a.device());
  out.copy_(a);
  return out;
}

// The cuts of a map [1, c, h, w] that have edges on this many ranks; null: plain, for periodic dims.
struct Cut {
  const char* what;
  std::vector<int> mesh;
  Placements placements;
  ConvOptions options;
};
std::vector<Cut> cuts_of_maps() {
  const int ranks = test_world().size();
  const ConvOptions zeros{.padding = {1}};
  const ConvOptions globe{.padding = {1}, .periodic = {1}};
  const ConvOptions mirror{.padding = {1}, .padding_mode = PaddingMode::Reflect};
  std::vector<Cut> list{{"whole and periodic", {ranks}, {Replicate()}, globe}};
  if (ranks == 1) return list;
  list.push_back({"rows", {ranks}, {Shard(2)}, zeros});
  list.push_back({"columns", {ranks}, {Shard(3)}, zeros});
  list.push_back({"reflected", {ranks}, {Shard(2)}, mirror});
  list.push_back({"rows, periodic columns", {ranks}, {Shard(2)}, globe});
  list.push_back({"periodic columns", {ranks}, {Shard(3)}, globe});
  if (ranks == 4) {
    list.push_back({"rows and columns", {2, 2}, {Shard(2), Shard(3)}, zeros});
    list.push_back({"rows and periodic columns", {2, 2}, {Shard(2), Shard(3)}, globe});
  }
  return list;
}

struct Problem {
  Tensor x, w, dy;
  ConvOptions options;
  Tensor forward() const { return conv2d(x, w, Tensor(), options); }
};
Problem problem_of(const Cut& cut, const Dims& sizes) {
  const SpecPtr spec = ShardSpec::make(mesh_over(test_world(), cut.mesh), cut.placements, sizes);
  Generator generator(17);
  const auto map = [&] {
    return Tensor(channels_last(randn(sizes, generator, DType::F32, spec).local()), spec);
  };
  Problem p{map(), randn({sizes[1], sizes[1], 3, 3}, generator), map(), cut.options};
  p.x.set_requires_grad();
  p.w.set_requires_grad();
  return p;
}

// Most bytes that were live at once during f, beyond those before.
std::int64_t bytes_of(const std::function<void()>& f) {
  const std::int64_t before = allocator_stats(Device::Cpu).live_bytes;
  reset_peak(Device::Cpu);
  f();
  return allocator_stats(Device::Cpu).peak_live_bytes - before;
}

struct Taken {
  std::int64_t forward = 0, kept = 0, backward = 0;
};
Taken bytes_taken(const Cut& cut, const Dims& sizes) {
  const Problem p = problem_of(cut, sizes);
  p.forward().backward(p.dy);  // makes plans
  p.x.zero_grad();
  p.w.zero_grad();
  Taken taken;
  const std::int64_t before = allocator_stats(Device::Cpu).live_bytes;
  Tensor y;
  taken.forward = bytes_of([&] { y = p.forward(); });
  taken.kept = allocator_stats(Device::Cpu).live_bytes - before;
  taken.backward = bytes_of([&] { y.backward(p.dy); });
  return taken;
}

// What the hooks below have seen of a pass.
Communicator meeting;
int meetings = 0;
std::int64_t sent_before_inside = 0;  // messages
// The first convolution of a pass is the inside. The last rank has not called yet, so its halo cannot be
// here.
void meet() {
  if (meetings++ > 0) return;
  sent_before_inside = test_world().recorder().totals().messages;
  meeting.barrier();
}
void forward_meets(const cpu::ConvArgs& args) {
  meet();
  cpu::conv_forward(args);
}
std::int64_t inside_outputs = 0;
void backward_meets(const cpu::ConvBackwardDataArgs& args) {
  if (args.dy.numel() == inside_outputs) meet();
  cpu::conv_backward_data(args);
}

}  // namespace

TEST_CASE("maps in frames, cut in every way", "[ops]") {
  const FramesFrom all(0);
  auto random = test_random(140);
  for (const Row& row : maps())
    for (const DType dtype : {DType::F64, DType::F32}) {
      const Dims sizes{random_int(random, 1, 2), 4, random_int(random, 9, 13), random_int(random, 9, 13)};
      check_row(random, row, map_of(sizes, dtype), dtype == DType::F64 ? 1e-9 : 2e-3);
    }
}

TEST_CASE("series and volumes in frames", "[ops]") {
  const FramesFrom all(0);
  auto random = test_random(141);
  for (const std::int64_t samples : {1, 2}) {
    for (const ConvOptions& o : {ConvOptions{.padding = {1}}, ConvOptions{.padding = {1}, .periodic = {0}}})
      check_row(random, row_of("series", {3, 2, 3}, o), map_of({samples, 2, 14}, DType::F64));
    for (const ConvOptions& o :
         {ConvOptions{.padding = {1}}, ConvOptions{.padding = {1}, .periodic = {0, 2}}})
      check_row(random, row_of("volume", {2, 2, 3, 3, 3}, o), map_of({samples, 2, 7, 6, 8}, DType::F64));
  }
}

TEST_CASE("frames of periodic dims equal a padded map", "[ops]") {
  const FramesFrom all(0);
  const Tensor x = map_of({2, 3, 9, 11}, DType::F64).set_requires_grad();
  const Tensor w = weight({4, 3, 3, 5}).set_requires_grad();
  const auto run = [&](const Tensor& y) {
    x.zero_grad();
    w.zero_grad();
    y.backward(weight(y.sizes()));
    return std::vector<Values>{y.to_vector(), x.grad().to_vector(), w.grad().to_vector()};
  };
  const auto framed = run(conv2d(x, w, Tensor(), {.padding = {1, 2}, .padding_mode = PaddingMode::Circular}));
  const auto padded = run(conv2d(pad(x, {2, 2, 1, 1}, PadMode::Circular), w, Tensor()));
  for (std::size_t i = 0; i < framed.size(); ++i) check_close(framed[i], padded[i]);
}

TEST_CASE("ranks may decide differently between a frame and a buffer", "[ops]") {
  const FramesFrom mine(test_world().rank() % 2 == 0 ? 0 : INT64_MAX);
  auto random = test_random(142);
  for (const Row& row : maps()) check_row(random, row, map_of({2, 4, 10, 12}, DType::F64));
}

TEST_CASE("no second copy of a convolution's input", "[ops]") {
  const cpu::ConvChoice before = cpu::conv_choice();
  cpu::set_conv_choice(cpu::ConvChoice::ChannelsLast);
  const Dims sizes{1, 16, 128, 128};
  for (const Cut& cut : cuts_of_maps()) {
    INFO(cut.what);
    const std::int64_t x = problem_of(cut, sizes).x.local().nbytes();
    const auto taken = [&](std::int64_t from) {
      const FramesFrom frames(from);
      return bytes_taken(cut, sizes);
    };
    const Taken framed = taken(0);
    CHECK(framed.forward < x + x / 2);   // y, and edges
    CHECK(framed.kept < x + x / 4);      // y, and what arrived
    CHECK(framed.backward < x + x / 2);  // dx
    const Taken copied = taken(INT64_MAX);
    CHECK(copied.forward >= 2 * x);
    CHECK(copied.kept >= 2 * x);
  }
  cpu::set_conv_choice(before);
}

TEST_CASE("the inside is computed before the halo has come", "[ops]") {
  const int ranks = test_world().size();
  if (ranks == 1) return;
  const FramesFrom all(0);
  meeting = test_world().split(0, test_world().rank());
  const Deadline deadline(test_world(), 60);
  const bool last = test_world().rank() == ranks - 1;
  const auto forward = kernels::conv_forward;
  const auto backward = kernels::conv_backward_data;
  for (const Cut& cut : cuts_of_maps()) {
    if (cut.placements[0].is_replicate()) continue;
    INFO(cut.what);
    const Problem p = problem_of(cut, {1, 4, 40, 40});
    const Tensor y = p.forward();  // plans are made
    // Of the inside, which leaves edges along rows to themselves.
    inside_outputs = 0;
    kernels::conv_backward_data.set(Device::Cpu, [](const cpu::ConvBackwardDataArgs& args) {
      inside_outputs = std::max(inside_outputs, args.dy.numel());
      cpu::conv_backward_data(args);
    });
    grad({y}, {p.x}, {p.dy});
    const auto check = [&](const std::function<void()>& pass) {
      meetings = 0;
      test_world().barrier();
      if (last) meeting.barrier();
      const std::int64_t messages = test_world().recorder().totals().messages;
      if (!last) {
        kernels::conv_forward.set(Device::Cpu, &forward_meets);
        kernels::conv_backward_data.set(Device::Cpu, &backward_meets);
      }
      pass();
      kernels::conv_forward = forward;
      kernels::conv_backward_data = backward;
      if (last) return;
      CHECK(meetings > 0);
      CHECK(sent_before_inside > messages);
    };
    Tensor again;
    check([&] { again = p.forward(); });
    check([&] { grad({again}, {p.x}, {p.dy}); });
  }
  meeting = Communicator();
}

TEST_CASE("a pass that was refused may be tried again, and is refused again", "[ops]") {
  const FramesFrom all(0);
  const auto refusal = [](const Tensor& y, const Tensor& dy) {
    try {
      y.backward(dy);
    } catch (const Error& e) {
      return e.message();
    }
    return std::string();
  };
  for (const Cut& cut : cuts_of_maps()) {
    INFO(cut.what);
    const Problem p = problem_of(cut, {1, 4, 16, 16});
    const Tensor y = p.forward();
    p.w.bump_version();  // w is needed after x
    for (int i = 0; i < 2; ++i) CHECK(refusal(y, p.dy).find("was changed in place") != std::string::npos);

    const Problem q = problem_of(cut, {1, 4, 16, 16});
    const Tensor z = q.forward();
    const auto backward = kernels::conv_backward_data;
    kernels::conv_backward_data.set(
        Device::Cpu, [](const cpu::ConvBackwardDataArgs&) { TS_FAIL(Internal, "test", "no gradient of x"); });
    CHECK(refusal(z, q.dy).find("no gradient of x") != std::string::npos);
    kernels::conv_backward_data = backward;
    CHECK(refusal(z, q.dy).find("after a pass that was to be the last one") != std::string::npos);
  }
}
