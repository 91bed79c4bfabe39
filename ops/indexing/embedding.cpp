// embedding: rows of a table; what is asked of the table before (max_norm), and of its gradient
// (scale_grad_by_freq).
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "autograd/adjoints.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise_call.h"
#include "ops/elementwise/ternary_kernel.h"
#include "ops/indexing/indexing.h"
#include "ops/indexing/take.h"
#include "ops/kernels.h"
#include "ops/random/random.h"
#include "ops/reduce/groups.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape_ops.h"

namespace tessera {
namespace {

const OpDef kEmbedding{"embedding"};
const OpDef kCounts{"embedding"};
const OpDef kWeighed{"embedding"};
const OpDef kShares{"embedding"};

void check(const Tensor& table, const Tensor& index, const EmbeddingOptions& o) {
  const char* op = kEmbedding.name;
  TS_CHECK(table.defined() && index.defined(), op, "an input is undefined");
  TS_CHECK(index.dtype() == DType::I64 || index.dtype() == DType::I32, op,
           "the index must be i64 or i32, given {}", name_of(index.dtype()));
  TS_CHECK(table.dim() == 2, op, "the table must have two dims, given {}", table.sizes().str());
  const std::int64_t n = table.sizes()[0];
  TS_CHECK(o.padding_idx == INT64_MIN || (o.padding_idx >= -n && o.padding_idx < n), op,
           "padding_idx {} is out of range for a table of {} rows", o.padding_idx, n);
  if (!o.max_norm) return;
  TS_CHECK(is_floating(table.dtype()), op, "max_norm needs a floating table, given {}",
           name_of(table.dtype()));
  TS_CHECK(!std::isnan(o.norm_type), op, "norm_type nan given; any other number is allowed");
  if (!table.is_sharded()) return;
  for (const Placement& p : table.spec()->placements())
    TS_CHECK(!p.is_partial() || p.op != ReduceOp::Product, op,
             "max_norm scales the table in place, which must not owe a product, given {}",
             table.spec()->str());
}

// How often each row is named, on all ranks together: [n], of a floating type that holds it.
Tensor counts(const Tensor& index, std::int64_t n, bool checked) {
  Picking picking{0};
  picking.checked = checked;
  const Array ones = Array::full(index.local().sizes(), 1.0, DType::F64, index.device());
  return put(kCounts, picking, index.is_sharded() ? Tensor(ones, index.spec()) : Tensor(ones), index,
             {n, nullptr});
}

// In place.
void scale_row(const Array& row, double by) {
  kernels::unary(row.device(), {row, row, cpu::UnaryOp::Affine, by, 0.0});
}

// rows [n, width] times factor [n] (F64), in place. On a CPU, where looking costs nothing, what is multiplied
// by 1 is not written.
void scale_rows(const Array& rows, const Array& factor) {
  if (rows.device() == Device::Cpu) {
    for (std::int64_t i = 0; i < rows.size(0); ++i) {
      const double by = factor.at(i);
      if (by != 1.0) scale_row(rows.slice(0, i, 1), by);
    }
    return;
  }
  const Array wide = is_half(rows.dtype()) ? rows.to(DType::F32) : rows;
  const Array each = factor.to(wide.dtype()).reshape({factor.numel(), 1}).expand(wide.sizes());
  kernels::binary(wide.device(), {wide, wide, each, cpu::BinaryOp::Mul});
  if (is_half(rows.dtype())) rows.copy_(wide);
}

// What the rows are multiplied by that are named `often`, given their norms.
Tensor shrinking(const Tensor& often, const Tensor& norms, double max_norm) {
  static const OpDef op{"renorm"};
  const std::array inputs{often, norms};
  auto rule = [&] { return broadcast_rule(inputs, norms.sizes(), Linearity::None); };
  auto local = [&](LocalCall& l) {
    l.out[0] = Array::empty(l.in[1].sizes(), DType::F64, l.in[1].device());
    kernels::ternary(l.in[1].device(),
                     {l.out[0], l.in[0], l.in[1], Array(), cpu::TernaryOp::MaxNorm, max_norm});
  };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = {&norms.sizes(), 1};
  c.rule = rule;
  c.local = local;
  return call_one(c);
}

// Rows that the index names, anywhere, and that are longer than max_norm become that long, in every copy of
// them alike, and in every term of a sum: all ranks work from the same counts and norms. Outside the tape, as
// in PyTorch.
void renormalise(const Tensor& table, const Tensor& index, const EmbeddingOptions& o) {
  const NoGrad guard;
  const Tensor often = counts(index, table.size(0), false);
  if (table.numel() == 0) return;
  const Tensor norms = to(vector_norm(table.detach(), o.norm_type, {1}), DType::F64);
  const Tensor factor = shrinking(often, norms, *o.max_norm);
  Array own = factor.local();
  if (table.is_sharded()) {
    own = redistribute(factor, reduced_spec(*table.spec(), {1}, false)).local();
  } else if (factor.is_sharded()) {
    own = redistribute(factor, ShardSpec::replicated(factor.spec()->mesh(), factor.sizes())).local();
  }
  scale_rows(table.local(), own);
  table.bump_version();
}

// The same where all of both lies in this host's memory: no rows are looked at but those `taken` from the
// table. Whether any of them was too long.
bool renormalise_here(const Tensor& table, const Tensor& index, const Tensor& taken,
                      const EmbeddingOptions& o) {
  const NoGrad guard;
  if (taken.numel() == 0) return false;
  table.bump_version();
  const Array norms = vector_norm(taken.detach(), o.norm_type, {-1}).local().to(DType::F64);
  std::map<std::int64_t, double> too_long;  // by row: what it is multiplied by
  for (std::int64_t i = 0; i < norms.numel(); ++i) {
    const double norm = norms.data<double>()[i];
    if (norm > *o.max_norm)  // as TernaryOp::MaxNorm
      too_long.emplace(static_cast<std::int64_t>(index.local().at(i)), *o.max_norm / (norm + 1e-7));
  }
  for (const auto& [row, factor] : too_long) scale_row(table.local().slice(0, row, 1), factor);
  return !too_long.empty();
}

// rows [n, width] over how often each is named; those that are not stay 0.
Tensor shares(const Tensor& rows, const Tensor& often) {
  const std::array inputs{rows, often};
  const Dims& sizes = rows.sizes();
  auto rule = [] { return parse_rule("n c, n -> n c", Linearity::First); };
  auto local = [](LocalCall& l) {
    const Array& given = l.in[0];
    const DType wide = is_half(given.dtype()) ? DType::F32 : given.dtype();
    const Array out = empty_like(given, given.sizes(), wide);
    const Array each = l.in[1].to(wide).reshape({given.size(0), 1}).expand(given.sizes());
    kernels::ternary(given.device(), {out, given.to(wide), each, Array(), cpu::TernaryOp::Quotient});
    l.out[0] = out.to(given.dtype());
  };
  auto gradient = [](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    return [often = SavedTensor(in[1])](const BackwardContext&, const Tensors& g) {
      return Tensors{shares(g[0], often.unpack(kShares.name)), Tensor()};
    };
  };
  OpCall c;
  c.op = &kShares;
  c.inputs = inputs;
  c.output_sizes = {&sizes, 1};
  c.rule = rule;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

// The table itself, of which a row's gradient is divided by how often the index names the row.
Tensor weighed(const Tensor& table, const Tensor& index) {
  const Dims& sizes = table.sizes();
  auto local = [](LocalCall& l) { l.out[0] = l.in[0]; };
  auto rule = [&] { return broadcast_rule({&table, 1}, sizes, Linearity::Each); };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    return [n = in[0].size(0), numbers = SavedTensor(index)](const BackwardContext&, const Tensors& g) {
      return Tensors{shares(g[0], counts(numbers.unpack(kEmbedding.name), n, true))};
    };
  };
  OpCall c;
  c.op = &kWeighed;
  c.inputs = {&table, 1};
  c.output_sizes = {&sizes, 1};
  c.rule = rule;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

}  // namespace

Tensor embedding(const Tensor& table, const Tensor& index, const EmbeddingOptions& options) {
  check(table, index, options);
  Picking picking{0};
  if (options.padding_idx != INT64_MIN)
    picking.padding = options.padding_idx < 0 ? options.padding_idx + table.size(0) : options.padding_idx;
  if (!options.max_norm && !options.scale_grad_by_freq) return take(kEmbedding, picking, table, index);
  check_together(kEmbedding.name, {&table, &index});
  const bool weighs = options.scale_grad_by_freq && grad_enabled() && table.requires_grad();
  const auto rows = [&] { return take(kEmbedding, picking, weighs ? weighed(table, index) : table, index); };
  if (!options.max_norm) return rows();
  if (!table.is_sharded() && !index.is_sharded() && table.device() == Device::Cpu) {
    const Tensor taken = rows();
    return renormalise_here(table, index, taken, options) ? rows() : taken;
  }
  renormalise(table, index, options);
  picking.checked = true;
  return rows();
}

}  // namespace tessera
