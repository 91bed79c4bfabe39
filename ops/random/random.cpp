#include "ops/random/drop_by_key.h"

#include "ops/elementwise/pointwise_call.h"
#include "runtime/graph_capture.h"
#include "runtime/rng.h"

namespace tessera {
namespace {

IndexBox box_of(const ShardSpec* spec, const Dims& sizes, std::int64_t offset) {
  if (spec == nullptr) return whole_box(sizes, offset);
  IndexBox box;
  box.global_sizes = sizes;
  box.index_offset = offset;
  for (int d = 0; d < sizes.size(); ++d) box.intervals.push_back(spec->intervals(d));
  return box;
}

using Filler = FunctionRef<void(const Array&, const IndexBox&)>;

// Checks come before a stream is taken: a refused call draws nothing.
void check_dtype(const char* op, DType dtype) {
  TS_CHECK(is_floating(dtype), op, "needs a floating dtype, given {}", name_of(dtype));
}
void check_floating(const char* op, const Tensor& x) {
  TS_CHECK(x.defined(), op, "the input is undefined");
  check_dtype(op, x.dtype());
}

Tensor filled(const Dims& sizes, DType dtype, const SpecPtr& spec, Filler fill) {
  const Array a = Array::empty(spec ? spec->local_sizes() : sizes, dtype);
  fill(a, box_of(spec.get(), sizes, 0));
  return spec ? Tensor(a, spec) : Tensor(a);
}

void fill_in_place(const char* op, const Tensor& x, Generator& generator,
                   FunctionRef<void(const Array&, const IndexBox&, const RngKey&)> fill) {
  check_floating(op, x);
  TS_CHECK(!x.is_sharded() || !x.spec()->has_partial(), op, "a Partial tensor has no elements to fill");
  fill(x.local(), box_of(x.spec().get(), x.sizes(), 0), generator.next_key(x.local().device()));
}

}  // namespace

std::shared_ptr<Generator::State> Generator::State::alone() const {
  auto copy = std::make_shared<State>();
  copy->seed = seed;
  copy->stream = stream;
  copy->batch_offset = batch_offset;
  return copy;
}

// From here on draws are counted from the first one, and a replay says where that is.
void Generator::State::join(const std::shared_ptr<State>& self, GraphCapture& graph) {
  capture = &graph;
  first = stream;
  drawn = graph.input({1}, DType::I64);
  graph.when_ended([self] {
    self->capture = nullptr;
    self->drawn = Array();
    self->stream = self->first;
  });
  // How many there are is known when the capture ends.
  const auto count = std::make_shared<std::uint64_t>(0);
  graph.when_ended([self, count] { *count = self->stream - self->first; });
  graph.check_replay([self, key = seed, offset = batch_offset] {
    TS_CHECK(self->seed == key && self->batch_offset == offset, "CudaGraph",
             "a generator has seed {} and batch offset {}, but the graph was captured with {} and {}",
             self->seed, self->batch_offset, key, offset);
  });
  graph.before_replay([self, count, memory = drawn] {
    const Array begin = Array::empty({1}, DType::I64);
    *begin.data<std::int64_t>() = static_cast<std::int64_t>(self->stream);
    memory.copy_(begin);
    self->stream += *count;
  });
}

RngKey Generator::next_key(Device device) {
  GraphCapture* capture = device == Device::Cuda ? GraphCapture::current() : nullptr;
  if (capture == nullptr) return {seed(), next_stream(), nullptr};
  if (state_->capture != capture) state_->join(state_, *capture);
  return {seed(), next_stream() - state_->first, static_cast<const std::uint64_t*>(state_->drawn.raw())};
}

// Linear, so its gradient is the same map.
Tensor drop_by_key(const Tensor& x, double p, const RngKey& key, std::int64_t index_offset) {
  static const OpDef op{"dropout"};
  const Dims& sizes = x.sizes();
  auto local = [&](LocalCall& l) {
    const Array& in = l.in[0];
    l.out[0] = empty_like(in, in.sizes(), in.dtype());
    if (in.device() != Device::Meta)
      tessera::dropout_apply(l.out[0], in, box_of(l.in_spec(0), sizes, index_offset), key, p);
  };
  auto rule = [&] { return broadcast_rule({&x, 1}, sizes, Linearity::Each); };
  auto gradient = [&](std::span<const Tensor>, std::span<const Tensor>) -> GradFunction {
    return [p, key, index_offset](const BackwardContext&, const Tensors& g) {
      return Tensors{drop_by_key(g[0], p, key, index_offset)};
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = {&x, 1};
  c.output_sizes = {&sizes, 1};
  c.rule = rule;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

Tensor dropout(const Tensor& x, double p, Generator& generator) {
  check_floating("dropout", x);
  TS_CHECK(p >= 0.0 && p <= 1.0, "dropout", "probability {} given, 0 <= p <= 1 is allowed", p);
  const RngKey key = generator.next_key(x.device());
  const std::int64_t per_sample = x.dim() > 0 && x.size(0) > 0 ? x.numel() / x.size(0) : 0;
  return p == 0.0 ? x : drop_by_key(x, p, key, generator.batch_offset() * per_sample);
}

Tensor rand(const Dims& sizes, Generator& generator, DType dtype, const SpecPtr& spec) {
  check_dtype("rand", dtype);
  const RngKey key = generator.next_key(Device::Cpu);
  return filled(sizes, dtype, spec,
                [&](const Array& a, const IndexBox& b) { fill_uniform(a, b, key, 0, 1); });
}

Tensor randn(const Dims& sizes, Generator& generator, DType dtype, const SpecPtr& spec) {
  check_dtype("randn", dtype);
  const RngKey key = generator.next_key(Device::Cpu);
  return filled(sizes, dtype, spec, [&](const Array& a, const IndexBox& b) { fill_normal(a, b, key, 0, 1); });
}

void uniform_(const Tensor& x, double lo, double hi, Generator& generator) {
  fill_in_place("uniform_", x, generator, [&](const Array& a, const IndexBox& b, const RngKey& key) {
    fill_uniform(a, b, key, lo, hi);
  });
}

void normal_(const Tensor& x, double mean, double std, Generator& generator) {
  fill_in_place("normal_", x, generator, [&](const Array& a, const IndexBox& b, const RngKey& key) {
    fill_normal(a, b, key, mean, std);
  });
}

void trunc_normal_(const Tensor& x, double mean, double std, Generator& generator) {
  const TruncatedNormal shape{mean, std, mean - 2 * std, mean + 2 * std};
  fill_in_place("trunc_normal_", x, generator, [&](const Array& a, const IndexBox& b, const RngKey& key) {
    fill_truncated_normal(a, b, key, shape);
  });
}

Tensor full(const Dims& sizes, double value, DType dtype) { return Tensor(Array::full(sizes, value, dtype)); }
Tensor zeros(const Dims& sizes, DType dtype) { return full(sizes, 0.0, dtype); }
Tensor ones(const Dims& sizes, DType dtype) { return full(sizes, 1.0, dtype); }

Tensor full_like(const Tensor& x, double value) {
  if (!x.is_sharded()) return Tensor(Array::full(x.sizes(), value, x.dtype(), x.device()));
  const SpecPtr spec = without_partial(*x.spec());
  return Tensor(Array::full(spec->local_sizes(), value, x.dtype(), x.device()), spec);
}
Tensor zeros_like(const Tensor& x) { return full_like(x, 0.0); }
Tensor ones_like(const Tensor& x) { return full_like(x, 1.0); }

Tensor tensor(std::span<const double> values, const Dims& sizes, DType dtype) {
  return Tensor(Array::from(values, sizes, dtype));
}

}  // namespace tessera
