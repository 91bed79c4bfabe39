#include <array>

#include "ops/cpu/matmul_problem.h"
#include "ops/cpu/onednn.h"
#include "runtime/progress.h"

namespace tessera::cpu {

namespace {

using onednn::Key;
using onednn::Plan;

// Some milliseconds, between two looks at the progress hook. Every call packs its operands anew, and for few
// rows oneDNN 2023.2's AVX2 code does not pack: half as fast where rows are a power of two apart. So pieces
// are not made small.
constexpr double kPieceFlops = 1e9;
constexpr std::int64_t kLeastPiece = 1024;  // rows, or terms of a sum

// One oneDNN call: a product, or a batch of them along one dim.
struct Call {
  std::int64_t batch = 1;
  std::int64_t m = 0;
  std::int64_t k = 0;
  bool accumulate = false;
  bool bias = false;
  std::array<std::int64_t, 3> batch_stride{};  // c, a, b
  int threads = 1;
};

Key key_of(const MatmulProblem& p, const Call& call) {
  Key key;
  key.add(static_cast<std::int64_t>(p.dtype) | (call.accumulate ? 16 : 0) | (call.bias ? 32 : 0));
  for (std::int64_t v : {call.batch, call.m, p.n, call.k, p.c.row, p.a.row, p.a.col, p.b.row, p.b.col})
    key.add(v);
  if (call.batch > 1)
    for (std::int64_t v : call.batch_stride) key.add(v);
  key.add(call.threads);
  return key;
}

onednn::Desc desc_of(const MatmulProblem& p, const Call& call, Dims sizes, int operand) {
  const MatrixLayout layout = operand == 0 ? p.c : operand == 1 ? p.a : p.b;
  Dims strides{layout.row, layout.col};
  if (call.batch > 1) {
    const std::int64_t stride = call.batch_stride[static_cast<std::size_t>(operand)];
    sizes.insert(0, stride == 0 ? 1 : call.batch);
    strides.insert(0, stride == 0 ? std::max(sizes[1] * layout.row, sizes[2] * layout.col) : stride);
  }
  return onednn::make_desc(sizes, strides, p.dtype);
}

std::unique_ptr<Plan> make_plan(const MatmulProblem& p, const Call& call) {
  const onednn::Desc c = desc_of(p, call, {call.m, p.n}, 0);
  const onednn::Desc a = desc_of(p, call, {call.m, call.k}, 1);
  const onednn::Desc b = desc_of(p, call, {call.k, p.n}, 2);
  onednn::Desc bias;
  if (call.bias)
    bias = call.batch > 1 ? onednn::make_desc({1, 1, p.n}, {p.n, p.n, 1}, p.dtype)
                          : onednn::make_desc({1, p.n}, {p.n, 1}, p.dtype);
  dnnl_primitive_attr_t attr = nullptr;
  onednn::check(dnnl_primitive_attr_create(&attr), "oneDNN attributes");
  if (call.accumulate) {
    dnnl_post_ops_t ops = nullptr;
    onednn::check(dnnl_post_ops_create(&ops), "oneDNN attributes");
    onednn::check(dnnl_post_ops_append_sum(ops, 1.0F, 0, dnnl_data_type_undef), "oneDNN attributes");
    onednn::check(dnnl_primitive_attr_set_post_ops(attr, ops), "oneDNN attributes");
    dnnl_post_ops_destroy(ops);
  }
  dnnl_primitive_desc_t raw = nullptr;
  const dnnl_status_t status =
      dnnl_matmul_primitive_desc_create(&raw, onednn::engine(), a.get(), b.get(), bias.get(), c.get(), attr);
  dnnl_primitive_attr_destroy(attr);
  onednn::PrimitiveDesc desc = onednn::accepted(status, raw);
  if (!desc) return nullptr;
  auto plan = std::make_unique<Plan>(std::move(desc));
  plan->add_argument(DNNL_ARG_DST, c.get());
  plan->add_argument(DNNL_ARG_SRC, a.get());
  plan->add_argument(DNNL_ARG_WEIGHTS, b.get());
  if (bias) plan->add_argument(DNNL_ARG_BIAS, bias.get());
  return plan;
}

struct Pointers {
  char* c;
  const char* a;
  const char* b;
};

bool run_call(const MatmulProblem& p, const Call& call, const Pointers& at) {
  thread_local onednn::Cache<Plan> cache;
  onednn::use_threads(call.threads);
  Plan* plan = cache.get(key_of(p, call), [&] { return make_plan(p, call); });
  if (plan == nullptr) return false;
  if (call.bias) {
    plan->run({at.c, at.a, at.b, p.bias});
  } else {
    plan->run({at.c, at.a, at.b});
  }
  return true;
}

// One product (or batch), in pieces when it is long: of its rows, or of its sums where the rows of `a` lie
// across memory (a weight's gradient). Sums in bf16 would lose digits from piece to piece.
bool run_pieces(const MatmulProblem& p, const Call& whole, const Pointers& at) {
  const double flops =
      2.0 * static_cast<double>(p.m * whole.batch) * static_cast<double>(p.n) * static_cast<double>(p.k);
  const auto pieces =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(flops / kPieceFlops / whole.threads));
  const bool sums = p.a.col != 1 && p.dtype == DType::F32;
  const std::int64_t length = sums ? p.k : p.m;
  const std::int64_t step = std::max(kLeastPiece, ceil_div(ceil_div(length, pieces), 64) * 64);
  const std::int64_t size = size_of(p.dtype);
  Call call = whole;
  call.m = p.m;
  call.k = p.k;
  call.accumulate = p.accumulate;
  call.bias = p.bias != nullptr;
  for (std::int64_t i = 0; i < length; i += step) {
    if (i > 0) poll_progress();
    Pointers piece = at;
    piece.a += i * (sums ? p.a.col : p.a.row) * size;
    if (sums) {
      call.k = std::min(step, length - i);
      piece.b += i * p.b.row * size;
    } else {
      call.m = std::min(step, length - i);
      piece.c += i * p.c.row * size;
    }
    if (!run_call(p, call, piece)) return false;
    if (!sums) continue;
    call.accumulate = true;
    call.bias = false;
  }
  return true;
}

}  // namespace

bool matmul_onednn(const MatmulProblem& p) {
  Call call;
  call.threads = threads_for(p.flops());
  const std::int64_t size = size_of(p.dtype);
  const StridedLoop& batch = p.batch;
  const std::int64_t inner = batch.inner_size();
  // Along the innermost batch dim in one call; if oneDNN has no good code for that, one product at a time.
  bool together = inner > 1;
  for (int k = 0; k < 3; ++k) call.batch_stride[static_cast<std::size_t>(k)] = batch.inner_stride(k);
  detail::OuterCounter outer(batch, 0);
  for (std::int64_t i = 0; i < batch.numel / inner; ++i, outer.step()) {
    const Offsets& at = outer.offsets();
    const Pointers start{p.c_data + at[0] * size, p.a_data + at[1] * size, p.b_data + at[2] * size};
    call.batch = inner;
    if (together && run_pieces(p, call, start)) continue;
    together = false;
    call.batch = 1;
    for (std::int64_t j = 0; j < inner; ++j) {
      const Pointers one{start.c + j * call.batch_stride[0] * size, start.a + j * call.batch_stride[1] * size,
                         start.b + j * call.batch_stride[2] * size};
      if (!run_pieces(p, call, one)) return false;
    }
  }
  return true;
}

}  // namespace tessera::cpu
