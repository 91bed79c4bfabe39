// Attention whose keys come in blocks, in half precision on the device: which rectangles of a block cuDNN is
// given, how they are merged, and the ring made of them beside the CPU's in f64.
#include "ops/cuda/attention_rule.h"
#include "ops/cuda/cudnn_plans.h"
#include "ops/cuda/settings.h"
#include "ops/kernels.h"
#include "ops/ops.h"
#include "tests/device/attention_support.h"

using namespace tessera;
using namespace tessera::attention_cases;
using cuda::AttentionPiece;
using cuda::AttentionPieces;

namespace {

using Positions = std::vector<std::int64_t>;

// One or two runs of consecutive positions, in any order, that have nothing in common.
Positions random_runs(Random& random) {
  const std::int64_t first = random_int(random, 0, 9);
  const std::int64_t size = random_int(random, 0, 6);
  const std::int64_t second = first + size + random_int(random, 1, 5);
  Positions runs[2];
  for (std::int64_t i = 0; i < size; ++i) runs[0].push_back(first + i);
  for (std::int64_t i = random_int(random, 0, 5); i > 0; --i)
    runs[1].push_back(second + static_cast<std::int64_t>(runs[1].size()));
  if (random_int(random, 0, 1) == 1) std::swap(runs[0], runs[1]);
  Positions all = runs[0];
  all.insert(all.end(), runs[1].begin(), runs[1].end());
  return all;
}

// How often the pieces show each key to each row.
std::vector<int> shown(const AttentionPieces& pieces, std::size_t rows, std::size_t keys) {
  std::vector<int> times(rows * keys, 0);
  for (int n = 0; n < pieces.count; ++n) {
    const AttentionPiece& p = pieces.piece[static_cast<std::size_t>(n)];
    for (std::int64_t i = 0; i < p.rows; ++i)
      for (std::int64_t j = 0; j < (p.causal ? std::min(i + 1, p.keys) : p.keys); ++j)
        ++times.at(static_cast<std::size_t>(p.row + i) * keys + static_cast<std::size_t>(p.key + j));
  }
  return times;
}

}  // namespace

TEST_CASE("pieces of a causal block show each key once to the rows that may see it", "[device]") {
  Random random = test_random(41);
  for (int trial = 0; trial < 300; ++trial) {
    const Positions rows = random_runs(random);
    const Positions keys = random_runs(random);
    cpu::AttentionSizes s{1, 1, 1, static_cast<std::int64_t>(rows.size()), 0, 8, 8};
    s.keys = static_cast<std::int64_t>(keys.size());
    const AttentionPieces pieces = cuda::pieces_of({true, rows.data(), keys.data(), Array()}, s);
    REQUIRE(pieces.known);
    std::vector<int> want;
    for (const std::int64_t row : rows)
      for (const std::int64_t key : keys) want.push_back(key <= row ? 1 : 0);
    CHECK(shown(pieces, rows.size(), keys.size()) == want);
    for (int n = 0; n < pieces.count; ++n) CHECK(pieces.piece[static_cast<std::size_t>(n)].keys > 0);
  }
}

TEST_CASE("which blocks are in pieces for cuDNN", "[device]") {
  const cpu::AttentionSizes s{2, 4, 2, 5, 7, 64, 32};
  const Positions scattered{0, 2, 4, 6, 8, 10, 12};
  const auto of = [&](bool causal, const Positions* q, const Positions* k) {
    return cuda::pieces_of(
        {causal, q == nullptr ? nullptr : q->data(), k == nullptr ? nullptr : k->data(), Array()}, s);
  };
  const AttentionPieces all = of(false, &scattered, &scattered);  // without causality positions do not matter
  CHECK((all.known && all.count == 1 && !all.piece[0].causal && all.piece[0].keys == 7));
  const AttentionPieces causal = of(true, nullptr, nullptr);
  CHECK((causal.known && causal.count == 1 && causal.piece[0].causal && causal.piece[0].keys == 5));
  const Positions late{7, 8, 9, 10, 11};
  const AttentionPieces before = of(true, &late, nullptr);
  CHECK((before.known && before.count == 1 && !before.piece[0].causal && before.piece[0].keys == 7));
  const Positions after{12, 13, 14, 15, 16, 17, 18};
  CHECK((of(true, &late, &after).known && of(true, &late, &after).count == 0));
  CHECK_FALSE(of(true, nullptr, &scattered).known);
  CHECK_FALSE(of(true, &scattered, nullptr).known);
  CHECK_FALSE(cuda::pieces_of({false, nullptr, nullptr, Array::zeros({2, 4, 5, 7}, DType::Bool)}, s).known);
}

namespace {

// A state on the device or in f64 on the CPU.
struct State {
  Array o, row_max, row_sum;
  State(const Dims& out, DType dtype, Device device)
      : o(Array::empty(out, dtype, device)),
        row_max(Array::empty({out[0], out[1], out[2]}, dtype, device)),
        row_sum(row_max.clone()) {
    kernels::attention_init(device, o, row_max, row_sum);
  }
  void add(const Array& q, const Array& k, const Array& v, const cpu::AttentionMask& mask) const {
    kernels::attention_accumulate(q.device(), {q, k, v, o, row_max, row_sum, 0.25, mask});
  }
};

}  // namespace

TEST_CASE("blocks by cuDNN and by our own kernels merge into one state", "[device]") {
  Random random = test_random(42);
  for (const DType dtype : {DType::BF16, DType::F16}) {
    const std::int64_t rows = random_int(random, 2, 9);
    const Array q = heads_on_device(random, {2, 4, rows, 16}, dtype);
    const Dims out{2, 4, rows, 24};
    const State there(out, DType::F32, Device::Cuda);
    const State here(out, DType::F64, Device::Cpu);
    for (int block = 0; block < 5; ++block) {
      const std::int64_t keys = random_int(random, 2, 7);
      const Array k = heads_on_device(random, {2, 2, keys, 16}, dtype);
      const Array v = heads_on_device(random, {2, 2, keys, 24}, dtype);
      // With a mask, which hides all of the second block: our own kernel's.
      Array keep;
      if (block % 2 == 1) {
        keep = Array::full({2, 4, rows, keys}, block == 1 ? 0.0 : 1.0, DType::Bool);
        if (block == 3) keep.box({1, 2, 0, 1}, {1, 1, rows, 1}).fill_(0.0);
      }
      const std::int64_t before = cuda::plan_runs();
      there.add(q, k, v, {false, nullptr, nullptr, keep.defined() ? keep.to(Device::Cuda) : keep});
      CHECK(cuda::plan_runs() - before == (keep.defined() ? 0 : 1));
      here.add(exact(q), exact(k), exact(v), {false, nullptr, nullptr, keep});
    }
    const Array got = Array::empty(out, dtype, Device::Cuda);
    const Array lse = Array::empty({2, 4, rows}, DType::F32, Device::Cuda);
    const Array want = Array::empty(out, DType::F64);
    const Array want_lse = Array::empty({2, 4, rows}, DType::F64);
    kernels::attention_finish(Device::Cuda, {got, lse, there.o, there.row_max, there.row_sum});
    kernels::attention_finish(Device::Cpu, {want, want_lse, here.o, here.row_max, here.row_sum});
    check_close(got, want, 6 * epsilon(dtype));
    check_close(lse, want_lse, 1e-5);
  }
}

namespace {

struct Cuts {
  SpecPtr q, k, v, out;  // null: whole
};
// Of the operation itself: the result and the gradients of q, k, v.
std::vector<Values> attend(const Tensors& given, Device device, const Cuts& cuts,
                           const AttentionOptions& options) {
  const auto placed = [&](const Tensor& t, const SpecPtr& spec) {
    const Tensor there = to(t, device);
    return spec ? redistribute(there, spec) : there;
  };
  const SpecPtr specs[] = {cuts.q, cuts.k, cuts.v};
  Tensors in;
  for (std::size_t i = 0; i < 3; ++i) in.push_back(placed(given[i], specs[i]).detach().set_requires_grad());
  AttentionOptions there = options;
  if (options.attn_mask.defined()) there.attn_mask = to(options.attn_mask, device);
  if (options.generator) there.generator = std::make_shared<Generator>(*options.generator);  // draws alike
  const Tensor out = scaled_dot_product_attention(in[0], in[1], in[2], there);
  out.backward(placed(given[3], cuts.out));
  return {out.to_vector(), in[0].grad().to_vector(), in[1].grad().to_vector(), in[2].grad().to_vector()};
}

// q, k, v and a gradient of the result, drawn in `dtype`; and the same numbers in f64.
struct Problem {
  Tensors given, wide;
  Problem(std::uint64_t seed, const std::vector<Dims>& sizes, DType dtype) {
    Generator generator(seed);
    for (const Dims& s : sizes) {
      given.push_back(randn(s, generator, dtype));
      wide.push_back(to(given.back(), DType::F64));
    }
  }
};

double worst(const Values& got, const Values& want) {
  double most = 0;
  for (std::size_t i = 0; i < want.size(); ++i) most = std::max(most, std::abs(got[i] - want[i]));
  return most;
}

// Even parts in order, or, of a balanced causal ring, the n-th and the n-th last of twice as many.
DimCut length_cut(std::int64_t n, int ranks, bool balanced) {
  DimCut cut{{0}, {}};
  const std::int64_t piece = n / (balanced ? 2 * ranks : ranks);
  for (int r = 0; r < ranks; ++r) {
    cut.parts.push_back({{r * piece, (r + 1) * piece}});
    if (balanced) cut.parts.back().push_back({n - (r + 1) * piece, n - r * piece});
  }
  return cut;
}

}  // namespace

TEST_CASE("the blocks of a ring in half precision go to cuDNN", "[device]") {
  const int ranks = test_world().size();
  const DeviceMesh mesh = mesh_cases::mesh_over(test_world(), {ranks});
  const int me = test_world().rank();
  // Of one sample and one head rows are dense from any of them on, the third as well.
  for (const Dims& sizes : {Dims{2, 4, 48, 16}, Dims{1, 1, 6 * ranks, 16}})
    for (const DType dtype : {DType::BF16, DType::F16})
      for (const auto& [causal, balanced] :
           {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
        const Problem p(17, {sizes, sizes, sizes, sizes}, dtype);
        const AttentionOptions options{.is_causal = causal};
        const std::vector<Values> want = attend(p.wide, Device::Cpu, {}, options);
        const SpecPtr spec = ShardSpec::make(
            mesh, {Shard(2)}, sizes, {std::nullopt, std::nullopt, length_cut(sizes[2], ranks, balanced), {}});
        INFO(name_of(dtype) << (causal ? " causal " : " ") << spec->str());
        const std::int64_t before = cuda::plan_runs();
        const std::vector<Values> got = attend(p.given, test_device(), {spec, spec, spec, spec}, options);
        // Without causality a block is one piece. In order a causal one is seen whole, as a triangle or not
        // at all. Balanced, two of the four squares of another rank's block are seen, of the own one three;
        // the last rank's two runs are neighbours and make one.
        const std::int64_t pieces = !causal           ? ranks
                                    : !balanced       ? me + 1
                                    : me == ranks - 1 ? ranks
                                                      : 2 * ranks;
        CHECK(cuda::plan_runs() - before == 2 * pieces);
        for (std::size_t i = 0; i < want.size(); ++i)
          check_close(Array::from(got[i], sizes, DType::F64), Array::from(want[i], sizes, DType::F64),
                      16 * epsilon(dtype));
      }
}

TEST_CASE("a ring by cuDNN under any cut of queries and keys, now and then with dropout", "[device]") {
  Random random = test_random(43);
  const int ranks = test_world().size();
  const DeviceMesh mesh = mesh_cases::mesh_over(test_world(), {ranks});
  std::int64_t plans = 0;
  for (int trial = 0; trial < mesh_cases::trials(6); ++trial) {
    const DType dtype = trial % 2 == 0 ? DType::BF16 : DType::F16;
    const std::int64_t key_heads = random_int(random, 1, 2);
    const std::int64_t heads = key_heads * random_int(random, 1, 2);
    const std::int64_t rows = random_int(random, 1, 30);
    const std::int64_t keys = trial % 3 == 0 ? random_int(random, 1, 30) : rows;
    const std::int64_t d = 8 * random_int(random, 1, 3);
    const std::int64_t dv = 8 * random_int(random, 1, 3);
    const std::int64_t batch = random_int(random, 1, 2);
    const Dims q{batch, heads, rows, d};
    const Dims k{batch, key_heads, keys, d};
    const Dims v{batch, key_heads, keys, dv};
    const Dims out{batch, heads, rows, dv};
    const AttentionOptions options{.is_causal = random_int(random, 0, 1) == 1,
                                   .enable_gqa = true,
                                   .dropout_p = trial % 5 == 4 ? 0.3 : 0.0,
                                   .generator = std::make_shared<Generator>(random())};
    const auto cut = [&](const Dims& sizes, const DimCut& length) {
      return ShardSpec::make(mesh, {Shard(2)}, sizes, {std::nullopt, std::nullopt, length, std::nullopt});
    };
    const DimCut of_rows = mesh_cases::random_cut(random, {0}, rows, ranks);
    const DimCut of_keys =
        rows == keys && trial % 2 == 0 ? of_rows : mesh_cases::random_cut(random, {0}, keys, ranks);
    const Cuts cuts{cut(q, of_rows), cut(k, of_keys), cut(v, of_keys), cut(out, of_rows)};
    const Problem p(test_seed() + static_cast<std::uint64_t>(trial), {q, k, v, out}, dtype);
    INFO(name_of(dtype) << " q " << cuts.q->str() << " k " << cuts.k->str() << " heads of " << d << ", " << dv
                        << (options.is_causal ? " causal" : ""));
    const std::vector<Values> want = attend(p.wide, Device::Cpu, {}, options);
    const std::int64_t before = cuda::plan_runs();
    const std::vector<Values> got = attend(p.given, test_device(), cuts, options);
    plans += cuda::plan_runs() - before;
    const Dims of[] = {out, q, k, v};
    for (std::size_t i = 0; i < want.size(); ++i)
      check_close(Array::from(got[i], of[i], DType::F64), Array::from(want[i], of[i], DType::F64),
                  16 * epsilon(dtype));
  }
  CHECK_FALSE(mesh_cases::true_everywhere(plans == 0));
}

TEST_CASE("a ring with a mask, with dropout, of f32 or without cuDNN goes to our own kernels", "[device]") {
  const int ranks = test_world().size();
  const DeviceMesh mesh = mesh_cases::mesh_over(test_world(), {ranks});
  const Dims sizes{1, 2, 12, 16};
  const SpecPtr spec = ShardSpec::make(mesh, {Shard(2)}, sizes);
  const auto plans_of = [&](DType dtype, const AttentionOptions& options) {
    const Problem p(5, {sizes, sizes, sizes, sizes}, dtype);
    const std::vector<Values> want = attend(p.wide, Device::Cpu, {}, options);
    const std::int64_t before = cuda::plan_runs();
    const std::vector<Values> got = attend(p.given, test_device(), {spec, spec, spec, spec}, options);
    for (std::size_t i = 0; i < want.size(); ++i)
      check_close(Array::from(got[i], sizes, DType::F64), Array::from(want[i], sizes, DType::F64),
                  16 * epsilon(dtype));
    return cuda::plan_runs() - before;
  };
  Values keep(12 * 12, 1.0);
  keep[5] = keep[17] = 0.0;
  CHECK(plans_of(DType::BF16, {.attn_mask = tensor(keep, {12, 12}, DType::Bool)}) == 0);
  CHECK(plans_of(DType::F32, {}) == 0);
  const GeneratorPtr generator = std::make_shared<Generator>(3);
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (const bool causal : {false, true})
      CHECK(plans_of(dtype, {.is_causal = causal, .dropout_p = 0.4, .generator = generator}) == 0);
  cuda::allow_cudnn(false);
  CHECK(plans_of(DType::F16, {.is_causal = true}) == 0);
  cuda::allow_cudnn(true);
  CHECK(plans_of(DType::F16, {.is_causal = true}) > 0);
}

// A rounding a block and one of their sum, which may be smaller than they are.
TEST_CASE("what a ring by cuDNN loses to its blocks' half precision", "[device]") {
  const int ranks = test_world().size();
  const DeviceMesh mesh = mesh_cases::mesh_over(test_world(), {ranks});
  const Dims sizes{1, 2, 64, 16};
  const SpecPtr spec = ShardSpec::make(mesh, {Shard(2)}, sizes);
  for (const DType dtype : {DType::BF16, DType::F16}) {
    const Problem p(23, {sizes, sizes, sizes, sizes}, dtype);
    const std::vector<Values> want = attend(p.wide, Device::Cpu, {}, {});
    const std::vector<Values> one = attend(p.given, test_device(), {}, {});
    const std::vector<Values> many = attend(p.given, test_device(), {spec, spec, spec, spec}, {});
    for (std::size_t i = 0; i < want.size(); ++i) {
      INFO(name_of(dtype) << " value " << i << ": " << worst(one[i], want[i]) << " whole, "
                          << worst(many[i], want[i]) << " in a ring of " << ranks);
      CHECK(worst(many[i], want[i]) <= (1 + ranks) * worst(one[i], want[i]));
    }
  }
}
