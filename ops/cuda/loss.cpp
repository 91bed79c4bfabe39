// Losses on the device: the checks of ops/cpu, memory for the parts of sums, then the launches.
#include "ops/cuda/loss_kernels.h"

#include <algorithm>

#include "ops/cuda/register.h"
#include "ops/cuda/upload.h"
#include "ops/loss/loss_kernels.h"
#include "runtime/cuda/array_walk.h"
#include "runtime/error.h"

namespace tessera::cuda {
namespace {

void* raw_or_null(const Array& a) { return a.defined() ? a.raw() : nullptr; }
Array doubles(std::int64_t n) { return Array::empty({n}, DType::F64, Device::Cuda); }

void check_like(const char* op, const Array& a, const Array& x) {
  TS_CHECK(a.sizes() == x.sizes() && a.dtype() == x.dtype() && is_floating(x.dtype()), op,
           "operands {} {} and {} {}; one floating type and equal sizes are needed", name_of(a.dtype()),
           a.sizes().str(), name_of(x.dtype()), x.sizes().str());
}

PairElements pair_of(const char* op, const cpu::PairLossArgs& args, const Array& first) {
  check_like(op, args.target, args.x);
  if (args.positive.defined()) check_like(op, args.positive, args.x);
  PairElements p;
  p.walk = walk_of(first, args.x, args.target, args.positive.defined() ? args.positive : args.x);
  p.out = elements_of(args.out);
  p.x = elements_of(args.x);
  p.target = elements_of(args.target);
  p.positive = raw_or_null(args.positive);
  p.factor = raw_or_null(args.factor);
  p.loss = args.kind.loss;
  p.part = args.part;
  p.alpha = args.kind.alpha;
  p.scale = args.scale;
  return p;
}

void pair_loss_cuda(const cpu::PairLossArgs& args) {
  const char* op = "pair_loss";
  check_like(op, args.out, args.x);
  TS_CHECK(!args.factor.defined() || (args.factor.numel() == 1 && args.factor.dtype() == args.x.dtype()), op,
           "a factor of one element of x's type is needed");
  const PairElements p = pair_of(op, args, args.out);
  if (args.out.numel() == 0) return;
  pair_elements(p, current_stream());
  check_launch(op);
}

void pair_loss_sum_cuda(const cpu::PairLossArgs& args) {
  const char* op = "pair_loss_sum";
  TS_CHECK(args.out.numel() == 1 && args.out.dtype() == args.x.dtype() && args.part == cpu::PairPart::Value,
           op, "one element of x's type is needed for the sum of values");
  const PairElements p = pair_of(op, args, args.x);
  const Array partial = doubles(sum_parts(p.walk.numel));
  pair_sum(p, partial.data<double>(), current_stream());
  check_launch(op);
}

void unit_range_cuda(const cpu::UnitRangeArgs& args) {
  const char* op = "unit_range";
  check_like(op, args.target, args.x);
  const Array partial = doubles(sum_parts(args.x.numel()));
  unit_range({walk_of(args.x, args.target), elements_of(args.x), elements_of(args.target),
              args.fault.data<double>()},
             partial.data<double>(), current_stream());
  check_launch(op);
}

// ---- classes

// With the memory of tables, which may go when the kernels are launched.
struct Described {
  ClassElements data;
  Array places;
  Array total;
};
Described described(const char* op, const cpu::ClassData& d) {
  TS_CHECK(d.x.dim() == 3 && d.x.is_contiguous() && is_floating(d.x.dtype()) &&
               d.target.dtype() == DType::I64 && d.target.is_contiguous() &&
               d.target.numel() == d.x.size(0) * d.x.size(2),
           op, "x {} and targets {} do not fit", d.x.sizes().str(), d.target.sizes().str());
  Described out;
  ClassElements& e = out.data;
  e.samples = d.x.size(0);
  e.here = d.x.size(1);
  e.space = d.x.size(2);
  e.dtype = d.x.dtype();
  e.x = d.x.raw();
  e.target = d.target.data<std::int64_t>();
  e.weight = raw_or_null(d.weight);
  e.weight_here = raw_or_null(d.weight_here);
  e.logits = d.kind.logits;
  e.classes = d.kind.classes;
  e.ignore = d.kind.ignore;
  e.smoothing = d.kind.smoothing;
  e.terms = d.kind.terms();
  if (d.weight.defined() && d.kind.smoothing > 0) {
    out.total = doubles(1);
    sum_weights(e.weight, d.weight.numel(), d.weight.dtype(), out.total.data<double>(), current_stream());
    e.total_weight = out.total.data<double>();
  }
  // Classes that follow each other are told by the first one.
  const auto begin = std::find(d.here.begin(), d.here.end(), 0);
  e.first = begin - d.here.begin();
  bool in_order = true;
  for (std::int64_t c = 0; c < std::ssize(d.here); ++c) {
    const std::int64_t place = c - e.first;
    in_order = in_order && d.here[static_cast<std::size_t>(c)] == (place >= 0 && place < e.here ? place : -1);
  }
  if (!in_order) {
    out.places = uploaded(std::span<const std::int64_t>(d.here));
    e.places = out.places.data<std::int64_t>();
  }
  return out;
}

void class_rows_cuda(const cpu::ClassRowsArgs& args) {
  const char* op = "class_rows";
  const Described d = described(op, args.data);
  if (d.data.rows() == 0) return;
  class_statistics(d.data, args.stats.raw(), current_stream());
  check_launch(op);
}

void class_loss_cuda(const cpu::ClassLossArgs& args) {
  const char* op = "class_loss";
  const Described d = described(op, args.data);
  const std::int64_t blocks = sum_parts(d.data.rows());
  const Array partial = blocks == 1 ? Array() : doubles(3 * blocks);
  class_losses({d.data, raw_or_null(args.losses), args.lse.raw(), args.sums.data<double>(), args.parts.raw(),
                args.parts.size(0)},
               partial.defined() ? partial.data<double>() : nullptr, current_stream());
  check_launch(op);
}

void class_total_cuda(const cpu::ClassTotalArgs& args) {
  class_total({args.loss.numel(), args.loss.dtype(), args.loss.raw(), args.total.data<double>(),
               args.sums.data<double>(), args.sums.size(0), args.mean, args.each},
              current_stream());
  check_launch("class_total");
}

void class_loss_gradient_cuda(const cpu::ClassGradientArgs& args) {
  const char* op = "class_loss_gradient";
  const Described d = described(op, args.data);
  if (args.dx.numel() == 0) return;
  class_gradients(
      {d.data, args.dx.raw(), args.dy.raw(), args.dy.numel() != 1 || args.data.target.numel() == 1,
       args.lse.raw(), args.total.defined() ? args.total.data<double>() : nullptr},
      current_stream());
  check_launch(op);
}

}  // namespace

void register_losses() {
  kernels::pair_loss.set(Device::Cuda, &pair_loss_cuda);
  kernels::pair_loss_sum.set(Device::Cuda, &pair_loss_sum_cuda);
  kernels::unit_range.set(Device::Cuda, &unit_range_cuda);
  kernels::class_rows.set(Device::Cuda, &class_rows_cuda);
  kernels::class_loss.set(Device::Cuda, &class_loss_cuda);
  kernels::class_total.set(Device::Cuda, &class_total_cuda);
  kernels::class_loss_gradient.set(Device::Cuda, &class_loss_gradient_cuda);
}

}  // namespace tessera::cuda
