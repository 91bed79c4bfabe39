// What operations send whose inputs are cut as they cannot stay, or cut differently: the bytes that change
// hands, counted from the default cuts alone, nothing made whole, and the numbers of one rank, first and
// second derivatives included.
#include <catch2/catch.hpp>

#include "autograd/gradcheck.h"
#include "ops/ops.h"
#include "tests/frames_from.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

using Values = std::vector<double>;
using Function = std::function<Tensor(const Tensors&)>;
constexpr std::int64_t kBytes = 8;  // of an element

struct Given {
  Dims sizes;
  Placement placed;
};
struct Case {
  const char* what;
  std::vector<Given> given;
  Function f;
  // Bytes of the forward pass over so many ranks.
  std::function<std::int64_t(int ranks)> forward;
  // Of the backward pass, where it is known; -1: no more than the inputs and the result have, for each of
  // what changes places.
  std::int64_t backward = -1;
};

// Bytes that change hands where a dim of n positions that is cut is made whole and one of m is cut instead:
// all but what a rank keeps.
std::int64_t recut(const Dims& sizes, int from, int to, int ranks) {
  const Intervals a = default_partition(sizes[from], ranks);
  const Intervals b = default_partition(sizes[to], ranks);
  std::int64_t kept = 0;
  for (std::size_t r = 0; r < a.size(); ++r) kept += a[r].length() * b[r].length();
  const std::int64_t pairs = sizes[from] * sizes[to];
  return numel_of(sizes) / pairs * (pairs - kept) * kBytes;
}

Values wave(const Dims& sizes, double step) {
  Values v;
  for (std::int64_t i = 0; i < numel_of(sizes); ++i) v.push_back(std::sin(step * static_cast<double>(i + 1)));
  return v;
}

Tensors plain_inputs(const Case& c) {
  Tensors in;
  for (const Given& g : c.given) {
    const double step = 0.37 + 0.11 * static_cast<double>(in.size());
    in.push_back(tensor(wave(g.sizes, step), g.sizes, DType::F64).set_requires_grad());
  }
  return in;
}

Tensors placed_inputs(const Case& c, const DeviceMesh& mesh) {
  Tensors in;
  const Tensors plain = plain_inputs(c);
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const SpecPtr spec = ShardSpec::make(mesh, {c.given[i].placed}, c.given[i].sizes);
    in.push_back(redistribute(plain[i].detach(), spec).detach().set_requires_grad());
  }
  return in;
}

struct Traffic {
  std::int64_t bytes = 0;  // of all ranks
  bool whole = false;      // something was made whole on some rank
};
Traffic traffic_of(const std::function<void()>& f) {
  Recorder& recorder = test_world().recorder();
  recorder.start();
  f();
  recorder.stop();
  std::string mine;
  bool whole = false;
  std::int64_t bytes = 0;
  for (const CommRecord& r : recorder.records()) {
    bytes += r.bytes;
    whole = whole || std::string_view(r.scope) == "all-gather" || r.kind == "all_gather";
  }
  Traffic all;
  for (const std::string& said : test_world().all_gather_bytes(fmt::format("{} {}", whole ? 1 : 0, bytes))) {
    all.whole = all.whole || said[0] == '1';
    all.bytes += std::stoll(said.substr(2));
  }
  return all;
}

void check_close(const Values& got, const Values& want) {
  REQUIRE(got.size() == want.size());
  for (std::size_t i = 0; i < got.size(); ++i) REQUIRE(got[i] == Approx(want[i]).margin(1e-10).epsilon(1e-9));
}

void check(const Case& c) {
  INFO(c.what);
  const int ranks = test_world().size();
  const DeviceMesh mesh = mesh_over(test_world(), {ranks});
  const Tensors plain = plain_inputs(c);
  const Tensor want = c.f(plain);
  const Tensor cotangent = tensor(wave(want.sizes(), 0.61), want.sizes(), DType::F64);
  want.backward(cotangent);

  const Tensors in = placed_inputs(c, mesh);
  Tensor out;
  const Traffic forward = traffic_of([&] { out = c.f(in); });
  CHECK_FALSE(forward.whole);
  CHECK(forward.bytes == c.forward(ranks));
  check_close(out.to_vector(), want.to_vector());
  const Tensor dy = redistribute(cotangent, without_partial(*out.spec()));
  std::int64_t most = numel_of(out.sizes()) * kBytes;
  for (const Tensor& t : in) most += numel_of(t.sizes()) * kBytes;
  const Traffic backward = traffic_of([&] { out.backward(dy); });
  CHECK_FALSE(backward.whole);
  if (c.backward >= 0) CHECK(backward.bytes == c.backward);
  CHECK(backward.bytes <= most);
  for (std::size_t i = 0; i < in.size(); ++i)
    check_close(in[i].grad().to_vector(), plain[i].grad().to_vector());

  const auto tensors = [&](const Tensors& t) { return Tensors{c.f(t)}; };
  const GradcheckResult second = gradcheck(
      tensors, placed_inputs(c, mesh), {.step = 1e-5, .tolerance = 1e-5, .max_elements = 12, .second = true});
  INFO(second.message);
  CHECK(second.ok);
}

Tensor attend(const Tensors& t) {
  AttentionOptions options;
  if (t.size() > 3) options.attn_mask = t[3];
  return scaled_dot_product_attention(t[0], t[1], t[2], options);
}

}  // namespace

TEST_CASE("attention over heads cut along their width: their cut moves, once", "[ops]") {
  const Dims sizes{4, 4, 5, 6};
  const Dims one{1, 4, 5, 6};
  const Dims alone{1, 1, 7, 6};
  const Given whole{sizes, Replicate()};
  const Given wide{sizes, Shard(3)};
  const auto moved = [](const Dims& of, int from, int to, int times) {
    return [=](int ranks) { return times * recut(of, from, to, ranks); };
  };
  check({"q, k and v", {wide, wide, wide}, attend, moved(sizes, 3, 0, 3), 0});
  check({"q alone", {wide, whole, whole}, attend, moved(sizes, 3, 0, 1), 0});
  check({"k alone", {whole, wide, whole}, attend, moved(sizes, 3, 0, 1), 0});
  check({"one sample: to its heads",
         {{one, Shard(3)}, {one, Shard(3)}, {one, Shard(3)}},
         attend,
         moved(one, 3, 1, 3),
         0});
  check({"one head: to its rows",
         {{alone, Shard(3)}, {alone, Replicate()}, {alone, Replicate()}},
         attend,
         moved(alone, 3, 2, 1),
         0});
  check({"a mask cut along the keys",
         {whole, whole, whole, {{4, 4, 5, 5}, Shard(3)}},
         attend,
         moved({4, 4, 5, 5}, 3, 0, 1),
         0});
  check({"samples of k, heads of q",
         {{sizes, Shard(1)}, {sizes, Shard(0)}, whole},
         attend,
         moved(sizes, 0, 1, 1),
         0});
  check({"samples of k, rows of q: no keys travel",
         {{sizes, Shard(2)}, {sizes, Shard(0)}, {sizes, Shard(0)}},
         attend,
         moved(sizes, 2, 0, 1),
         0});
}

TEST_CASE("keys and values cut along the width of one head travel round the ring", "[ops]") {
  const Dims sizes{1, 1, 8, 6};
  const Given wide{sizes, Shard(3)};
  const DeviceMesh mesh = mesh_over(test_world(), {test_world().size()});
  Case c{"", {wide, wide, wide}, attend, {}};
  const Tensors in = placed_inputs(c, mesh);
  Tensor out;
  const Traffic sent = traffic_of([&] { out = attend(in); });
  const int ranks = test_world().size();
  CHECK_FALSE(sent.whole);
  CHECK(sent.bytes == 3 * recut(sizes, 3, 2, ranks) + (ranks - 1) * 2 * numel_of(sizes) * kBytes);
  check_close(out.to_vector(), attend(plain_inputs(c)).to_vector());
}

TEST_CASE("filters cut along their windows: the cut moves to the channels that they make", "[ops]") {
  const Given x{{2, 4, 6, 5}, Replicate()};
  const Dims filters{6, 4, 3, 3};
  for (const PaddingMode mode : {PaddingMode::Zeros, PaddingMode::Circular, PaddingMode::Reflect}) {
    const Function conv = [mode](const Tensors& t) {
      return conv2d(t[0], t[1], t[2], {.padding = {1}, .padding_mode = mode});
    };
    check({"conv2d",
           {x, {filters, Shard(2)}, {{6}, Replicate()}},
           conv,
           [&](int ranks) { return recut(filters, 2, 0, ranks); },
           0});
  }
  const Dims back{4, 6, 3, 2};
  const Function transposed = [](const Tensors& t) {
    return conv_transpose2d(t[0], t[1], Tensor(), {.stride = {2}});
  };
  check({"conv_transpose2d",
         {x, {back, Shard(3)}},
         transposed,
         [&](int ranks) { return recut(back, 3, 1, ranks); },
         0});
}

TEST_CASE("maps cut between the channels of groups: the cut moves to the samples", "[ops]") {
  const Dims maps{4, 6, 5, 4};
  const Function grouped = [](const Tensors& t) {
    return conv2d(t[0], t[1], Tensor(), {.padding = {1}, .groups = 2});
  };
  check({"groups",
         {{maps, Shard(1)}, {{4, 3, 3, 3}, Replicate()}},
         grouped,
         [&](int ranks) { return recut(maps, 1, 0, ranks); },
         0});
}

TEST_CASE("a part that is cut is put into a tensor that is whole without a message", "[ops]") {
  const auto nothing = [](int) { return std::int64_t{0}; };
  const Function put = [](const Tensors& t) { return slice_scatter(square(t[0]), sin(t[1]), 0, 1, 8, 2); };
  const Function line = [](const Tensors& t) { return select_scatter(square(t[0]), sin(t[1]), 0, 4); };
  const Function put_beside_owed = [](const Tensors& t) {
    if (!t[1].is_sharded()) return slice_scatter(t[0], sin(t[1]), 0, 1, 8, 2);
    const SpecPtr owed = ShardSpec::make(t[1].spec()->mesh(), {Partial()}, t[0].sizes());
    return slice_scatter(redistribute(t[0], owed), sin(t[1]), 0, 1, 8, 2);
  };
  const Given x{{9, 5}, Replicate()};
  check({"rows", {x, {{4, 5}, Shard(0)}}, put, nothing, 0});
  check({"columns", {x, {{4, 5}, Shard(1)}}, put, nothing, 0});
  check({"a line", {x, {{5}, Shard(0)}}, line, nothing, 0});
  check({"rows beside what is owed", {x, {{4, 5}, Shard(0)}}, put_beside_owed, nothing, 0});
}

TEST_CASE("a row of a cut dim is dealt out, not copied", "[ops]") {
  const Dims sizes{6, 8};
  const Function row = [](const Tensors& t) { return select(square(t[0]), 0, 4); };
  check({"select", {{sizes, Shard(0)}}, row, [&](int ranks) {
           const Intervals rows = default_partition(6, ranks);
           const Intervals columns = default_partition(8, ranks);
           std::int64_t kept = 0;
           for (std::size_t r = 0; r < rows.size(); ++r)
             if (rows[r].lo <= 4 && 4 < rows[r].hi) kept = columns[r].length();
           return (8 - kept) * kBytes;
         }});
}

TEST_CASE("a reshape between whose cuts no border is shared moves what lies between them", "[ops]") {
  // Elements of two rank's rows that lie in one place of the flat order stay.
  const auto between = [](std::int64_t n, std::int64_t rows, std::int64_t other, int ranks) {
    const Intervals a = default_partition(rows, ranks);
    const Intervals b = default_partition(other, ranks);
    std::int64_t kept = 0;
    for (std::size_t r = 0; r < a.size(); ++r) {
      const std::int64_t lo = std::max(a[r].lo * (n / rows), b[r].lo * (n / other));
      const std::int64_t hi = std::min(a[r].hi * (n / rows), b[r].hi * (n / other));
      kept += std::max<std::int64_t>(0, hi - lo);
    }
    return (n - kept) * kBytes;
  };
  const Function f = [](const Tensors& t) { return reshape(square(t[0]), {10, 21}); };
  check({"rows", {{{6, 35}, Shard(0)}}, f, [&](int ranks) { return between(210, 6, 10, ranks); }});
  const Function inner = [](const Tensors& t) { return reshape(square(t[0]), {2, 10, 3, 4}); };
  check({"rows inside samples", {{{2, 6, 5, 4}, Shard(1)}}, inner, [&](int ranks) {
           return 2 * 4 * between(30, 6, 10, ranks);
         }});
}

TEST_CASE("what two axes cut is taken apart without being made whole", "[ops]") {
  if (test_world().size() != 4) return;
  const DeviceMesh grid = mesh_over(test_world(), {2, 2});
  const Dims sizes{6, 5};
  const Tensor whole = tensor(wave(sizes, 0.37), sizes, DType::F64);
  const Tensor x = redistribute(whole, ShardSpec::make(grid, {Shard(0), Shard(1)}, sizes)).detach();
  Tensors pieces;
  const Traffic sent = traffic_of([&] { pieces = unbind(x, 0); });
  CHECK_FALSE(sent.whole);
  // The outer axis deals out the columns 0 to 2 and 3 to 4 of the inner: 2 and 1, 1 and 1.
  CHECK(sent.bytes == 3 * (1 + 1 + 2 + 1) * kBytes);
  for (std::int64_t i = 0; i < 6; ++i)
    check_close(pieces[static_cast<std::size_t>(i)].to_vector(), select(whole, 0, i).to_vector());
}

// Backward owes the small tensor's gradient a sum, which is made before that becomes as large as x.
TEST_CASE("a map beside sums of its own sends numbers of their size in both passes", "[ops]") {
  const Dims sizes{2, 3, 24, 5};
  const int ranks = test_world().size();
  const DeviceMesh mesh = mesh_over(test_world(), {ranks});
  const std::pair<const char*, Function> cases[] = {
      {"x - mean",
       [](const Tensors& t) {
         return t[0] - mean(t[0], {2, 3}, true);
       }},
      {"x / sum", [](const Tensors& t) { return t[0] / (sum(square(t[0]), {2}, true) + 1.0); }},
      {"gates of channels",
       [](const Tensors& t) {
         return t[0] * sigmoid(mean(t[0], {2, 3}, true));
       }},
      {"whole", [](const Tensors& t) { return square(t[0]) * mean(t[0]); }}};
  for (const auto& [what, f] : cases) {
    INFO(what);
    const Case c{what, {{sizes, Shard(2)}}, f, {}};
    const Tensors plain = plain_inputs(c);
    const Tensor want = f(plain);
    const Tensor cotangent = tensor(wave(sizes, 0.61), sizes, DType::F64);
    want.backward(cotangent);
    const Tensors in = placed_inputs(c, mesh);
    Tensor out;
    const std::int64_t most = 2 * (ranks - 1) * 30 * kBytes;  // an all-reduce of the largest of the sums
    CHECK(traffic_of([&] { out = f(in); }).bytes <= most);
    const Tensor dy = redistribute(cotangent, out.spec());
    CHECK(traffic_of([&] { out.backward(dy); }).bytes <= most);
    check_close(out.to_vector(), want.to_vector());
    check_close(in[0].grad().to_vector(), plain[0].grad().to_vector());
    const GradcheckResult second =
        gradcheck([&f = f](const Tensors& t) { return Tensors{f(t)}; }, placed_inputs(c, mesh),
                  {.step = 1e-5, .tolerance = 1e-5, .max_elements = 8, .second = true});
    INFO(second.message);
    CHECK(second.ok);
  }
}

// The gradient of the outputs comes cut along their channels: it moves to where the outputs were, the maps
// that the weight's gradient needs stay where they are.
TEST_CASE("padded convolutions whose gradient comes in another cut gather no map", "[ops]") {
  const Dims maps{2, 3, 12, 7};
  const Dims made{2, 8, 12, 7};
  const int ranks = test_world().size();
  const DeviceMesh mesh = mesh_over(test_world(), {ranks});
  for (const int frames : {0, 1 << 30})
    for (const PaddingMode mode :
         {PaddingMode::Zeros, PaddingMode::Circular, PaddingMode::Reflect, PaddingMode::Replicate}) {
      const FramesFrom from(frames);
      const SpecPtr channels = ShardSpec::make(mesh, {Shard(1)}, made);
      const auto conv = [mode](const Tensors& t) {
        return conv2d(t[0], t[1], Tensor(), {.padding = {1}, .padding_mode = mode});
      };
      Case c{"", {{maps, Shard(2)}, {{8, 3, 3, 3}, Replicate()}}, conv, {}};
      const Tensors plain = plain_inputs(c);
      const Tensor want = conv(plain);
      const Tensor cotangent = tensor(wave(made, 0.61), made, DType::F64);
      want.backward(cotangent);
      const Tensors in = placed_inputs(c, mesh);
      const Tensor out = conv(in);
      const Tensor dy = redistribute(cotangent, channels);
      const Traffic sent = traffic_of([&] { out.backward(dy); });
      INFO("padding mode " << static_cast<int>(mode) << ", " << frames);
      CHECK_FALSE(sent.whole);
      const std::int64_t rows = mode == PaddingMode::Circular && ranks > 1 ? ranks : ranks - 1;
      // Both gradients need the outputs' gradient; one row goes back over every border in both directions.
      CHECK(sent.bytes <= 2 * recut(made, 1, 2, ranks) + rows * 2 * 2 * 3 * 7 * kBytes);
      for (std::size_t i = 0; i < in.size(); ++i)
        check_close(in[i].grad().to_vector(), plain[i].grad().to_vector());
      const auto both = [&](const Tensors& t) { return Tensors{square(redistribute(conv(t), channels))}; };
      const GradcheckResult second = gradcheck(
          both, placed_inputs(c, mesh), {.step = 1e-5, .tolerance = 1e-5, .max_elements = 8, .second = true});
      INFO(second.message);
      CHECK(second.ok);
    }
}
