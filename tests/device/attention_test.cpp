// Attention in half precision on the device, by cuDNN where the rule gives it to it, beside the CPU's in f64.
#include <catch2/catch.hpp>

#include <cmath>

#include "ops/cuda/attention_rule.h"
#include "ops/cuda/cudnn_plans.h"
#include "ops/cuda/settings.h"
#include "ops/kernels.h"
#include "ops/ops.h"
#include "runtime/copy.h"
#include "tests/device/attention_support.h"

using namespace tessera;
using namespace tessera::attention_cases;

namespace {

struct Case {
  std::int64_t batch, heads, key_heads, rows, keys, d, dv;
  DType dtype;
  bool causal;
  double drop = 0.0;
  cpu::AttentionMask mask() const {
    cpu::AttentionMask m{causal, nullptr, nullptr, Array()};
    m.dropout.p = drop;
    m.dropout.random = {17, 4, nullptr};
    m.dropout.sizes = {batch, heads, rows, keys};
    return m;
  }
};

struct Problem {
  Case c;
  double scale;
  Array q, k, v, dout;
};

Problem problem(Random& random, const Case& c) {
  return {c,
          1 / std::sqrt(static_cast<double>(c.d)),
          heads_on_device(random, {c.batch, c.heads, c.rows, c.d}, c.dtype),
          heads_on_device(random, {c.batch, c.key_heads, c.keys, c.d}, c.dtype),
          heads_on_device(random, {c.batch, c.key_heads, c.keys, c.dv}, c.dtype),
          heads_on_device(random, {c.batch, c.heads, c.rows, c.dv}, c.dtype)};
}

// The result and the gradients in f64, and on the device; as many plans of cuDNN were run as `plans` says.
void check(Random& random, const Case& c, std::int64_t plans) {
  INFO(name_of(c.dtype) << " batch " << c.batch << " heads " << c.heads << " / " << c.key_heads << " rows "
                        << c.rows << " keys " << c.keys << " d " << c.d << ", " << c.dv
                        << (c.causal ? " causal" : ""));
  const Problem p = problem(random, c);
  const std::int64_t before = cuda::plan_runs();
  const DType acc = DType::F32;
  const Dims rows{c.batch, c.heads, c.rows};
  const Array out = heads_on_device(random, p.dout.sizes(), c.dtype);
  const Array lse = rows_on_device(random, rows);
  kernels::attention_forward(Device::Cuda, {out, lse, p.q, p.k, p.v, p.scale, c.mask()});
  const Array delta = Array::empty(rows, acc, Device::Cuda);
  bool delta_made = false;
  // Added to zeros, or written over what is no number.
  const bool first_of_dq = mesh_cases::chance(random, 50);
  const bool first_of_keys = mesh_cases::chance(random, 50);
  const auto sums = [&](const Array& like, bool first) {
    return Array::full(like.sizes(), first ? std::nan("") : 0.0, acc, Device::Cuda);
  };
  const Array dq = sums(p.q, first_of_dq);
  const Array dk = sums(p.k, first_of_keys);
  const Array dv = sums(p.v, first_of_keys);
  kernels::attention_backward(Device::Cuda, {dq, dk, dv, Array(), p.dout, p.q, p.k, p.v, lse, delta, p.scale,
                                             c.mask(), out, first_of_dq, first_of_keys, &delta_made});
  CHECK(cuda::plan_runs() - before == plans);

  const Array q = exact(p.q);
  const Array k = exact(p.k);
  const Array v = exact(p.v);
  const Array dout = exact(p.dout);
  const auto host = [](const Dims& sizes) { return Array::zeros(sizes, DType::F64); };
  const Array want = host(out.sizes());
  const Array want_lse = host(rows);
  cpu::attention_forward({want, want_lse, q, k, v, p.scale, c.mask()});
  const Array want_delta = host(rows);
  cpu::attention_delta(want_delta, dout, want);
  const Array want_dq = host(q.sizes());
  const Array want_dk = host(k.sizes());
  const Array want_dv = host(v.sizes());
  cpu::attention_backward(
      {want_dq, want_dk, want_dv, Array(), dout, q, k, v, want_lse, want_delta, p.scale, c.mask()});
  // In f32 the sums themselves are rounded as the results are.
  const double e = epsilon(c.dtype) * (c.dtype == DType::F32 ? 5 : 1);
  check_close(out, want, 6 * e);
  check_close(lse, want_lse, 1e-5);
  for (const auto& [got, wanted] : {std::pair{dq, want_dq}, {dk, want_dk}, {dv, want_dv}})
    check_close(got, wanted, 16 * e);
}

}  // namespace

TEST_CASE("attention of half precision by cuDNN", "[device]") {
  Random random = test_random(31);
  for (int trial = 0; trial < 12; ++trial) {
    Case c{};
    c.batch = random_int(random, 1, 2);
    c.key_heads = random_int(random, 1, 2);
    c.heads = c.key_heads * random_int(random, 1, 2);
    c.rows = random_int(random, 2, 40);
    c.keys = trial % 3 == 0 ? random_int(random, 2, 40) : c.rows;
    c.d = 8 * random_int(random, 1, 4);
    c.dv = trial % 4 == 0 ? 8 * random_int(random, 1, 4) : c.d;
    c.dtype = trial % 2 == 0 ? DType::BF16 : DType::F16;
    c.causal = random_int(random, 0, 1) == 1;
    check(random, c, 2);
  }
}

TEST_CASE("attention that cuDNN does not take goes to our own kernels", "[device]") {
  Random random = test_random(32);
  check(random, {1, 2, 2, 9, 9, 12, 12, DType::BF16, false}, 0);  // heads of 12
  check(random, {2, 2, 1, 1, 7, 16, 16, DType::F16, false}, 0);   // a single row
  check(random, {1, 2, 2, 9, 9, 16, 16, DType::F32, true}, 0);
}

TEST_CASE("attention with dropout goes to our own kernels, in every type", "[device]") {
  Random random = test_random(34);
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (const auto& [d, dv] : {std::pair{16, 16}, {48, 40}, {24, 72}}) {
      check(random, {2, 4, 2, 70, 67, d, dv, dtype, false, 0.3}, 0);
      check(random, {1, 2, 2, 21, 21, d, dv, dtype, true, 0.6}, 0);
    }
  check(random, {1, 2, 1, 9, 11, 8, 8, DType::BF16, false, 1.0}, 0);
}

TEST_CASE("which weights the device keeps: the bits of the CPU", "[device]") {
  Random random = test_random(35);
  for (int trial = 0; trial < 12; ++trial) {
    const DType dtype = std::vector<DType>{DType::F32, DType::F64, DType::BF16, DType::F16}[trial % 4];
    const std::int64_t keys = random_int(random, 1, 80);
    const Dims weights{2, 2, random_int(random, 1, 70), keys};
    const Case c{2, 2, 2, weights[2], keys, 8, keys, dtype, false, 0.4};
    // Scattered rows and keys of a larger whole; else consecutive ones.
    std::vector<std::int64_t> places[4];
    cpu::AttentionMask mask = c.mask();
    mask.dropout.index_offset = random_int(random, 0, 5);
    for (int dim = 0; dim < 4; ++dim) {
      mask.dropout.sizes[dim] = 2 * weights[dim];
      for (std::int64_t i = 0; i < 2 * weights[dim]; ++i) places[dim].push_back(i);
      if (trial % 3 == 0) std::shuffle(places[dim].begin(), places[dim].end(), random);
      mask.dropout.positions[dim] = places[dim].data();
    }
    // Equal weights times the unit matrix.
    const auto zeros = [&](std::int64_t rows) { return Array::zeros({2, 2, rows, 8}, dtype); };
    const Array unit = Array::zeros({2, 2, keys, keys}, dtype);
    for (std::int64_t j = 0; j < keys; ++j) unit.box({0, 0, j, j}, {2, 2, 1, 1}).fill_(1.0);
    const auto kept = [&](Device device) {
      const Array out = Array::empty(weights, dtype, device);
      kernels::attention_forward(device, {out, Array(), zeros(weights[2]).to(device), zeros(keys).to(device),
                                          unit.to(device), 1.0, mask});
      std::vector<bool> list;
      for (const double x : out.to_vector()) list.push_back(x > 0);
      return list;
    };
    CHECK(kept(Device::Cuda) == kept(Device::Cpu));
  }
}

namespace {

struct ScoreBytes {
  const std::int64_t before = cuda::attention_score_bytes();
  ScoreBytes() = default;
  ~ScoreBytes() { cuda::set_attention_score_bytes(before); }
  ScoreBytes(const ScoreBytes&) = delete;
  ScoreBytes& operator=(const ScoreBytes&) = delete;
};

}  // namespace

TEST_CASE("the backward pass of attention in parts that its memory suffices for", "[device]") {
  Random random = test_random(33);
  const ScoreBytes restored;
  // One sample, or one head of each part: what is dense in it begins anywhere.
  const Case cases[] = {{2, 4, 2, 20, 20, 16, 8, DType::BF16, true},
                        {1, 4, 2, 21, 21, 16, 8, DType::BF16, true},
                        {1, 3, 3, 13, 7, 8, 8, DType::F16, false},
                        {3, 1, 1, 5, 5, 8, 8, DType::BF16, false}};
  for (const Case& c : cases) {
    const std::int64_t of_a_head = c.heads / c.key_heads * 128 * 128 * 2;  // of a key head: whole tiles
    const std::int64_t heads = c.batch * c.key_heads;
    for (const auto& [bytes, plans] : {std::pair{of_a_head, 1 + heads},
                                       {c.key_heads * of_a_head, 1 + c.batch},
                                       {heads * of_a_head, std::int64_t{1 + 1}},
                                       {of_a_head - 1, std::int64_t{1 + 0}}}) {
      cuda::set_attention_score_bytes(bytes);
      check(random, c, plans);
    }
  }
}

TEST_CASE("the rule of attention by cuDNN", "[device]") {
  const cpu::AttentionSizes s{2, 4, 2, 5, 7, 64, 32};
  const auto taken = [&](const cpu::AttentionSizes& sizes, int capability, cuda::AttentionPass pass,
                         std::int64_t cudnn = 91900) {
    return cuda::why_own_kernel(cuda::attention_form(pass, DType::F16, sizes, false, 1.0),
                                {.capability = capability, .cudnn = cudnn}) == nullptr;
  };
  using cuda::AttentionPass;
  CHECK(taken(s, 80, AttentionPass::Forward));
  CHECK_FALSE(taken(s, 75, AttentionPass::Forward));
  const cpu::AttentionSizes wide{2, 4, 2, 5, 7, 256, 256};
  CHECK(taken(wide, 90, AttentionPass::Backward));
  CHECK_FALSE(taken(wide, 80, AttentionPass::Backward));
  CHECK_FALSE(taken(wide, 100, AttentionPass::Forward));
  // The same bits every time, on 10.x.
  CHECK(taken(s, 100, AttentionPass::Backward, 91800));
  CHECK_FALSE(taken(s, 103, AttentionPass::Backward, 91701));
  CHECK(taken(s, 103, AttentionPass::Forward, 91701));
  CHECK(taken(s, 80, AttentionPass::Backward, 91701));
  CHECK(taken(s, 120, AttentionPass::Backward, 91701));
  // Backward: memory of the scores' size, in parts where it is too much at once.
  const cpu::AttentionSizes tall{4, 16, 8, 8192, 8192, 64, 64};
  CHECK(taken(tall, 90, AttentionPass::Backward));
  const cuda::AttentionPart part =
      cuda::largest_part(cuda::attention_form(AttentionPass::Backward, DType::F16, tall, true, 1.0),
                         cuda::AttentionLimits().score_bytes);
  CHECK(part.batch == 1);
  CHECK(part.key_heads == 8);
  const cpu::AttentionSizes taller{1, 2, 2, 40000, 40000, 64, 64};
  CHECK(taken(taller, 90, AttentionPass::Forward));
  CHECK_FALSE(taken(taller, 90, AttentionPass::Backward));
}
