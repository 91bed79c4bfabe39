#include "ops/matmul/matmul.h"

#include "ops/elementwise/activation.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/owed_terms.h"
#include "ops/elementwise/pointwise_call.h"
#include "ops/kernels.h"
#include "ops/matmul/linear_kernel.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape_ops.h"

namespace tessera {

Kernel<void(const cpu::LinearArgs&)> kernels::linear{"linear", &cpu::linear};

namespace {

char batch_letter(int d) { return static_cast<char>('a' + d); }

void check_operands(const char* op, const Tensor& a, const Tensor& b) {
  TS_CHECK(a.defined() && b.defined(), op, "an input is undefined");
  TS_CHECK(a.dtype() == b.dtype(), op, "both inputs must have one dtype, given {} and {}", name_of(a.dtype()),
           name_of(b.dtype()));
  TS_CHECK(a.dtype() != DType::Bool, op, "takes floating and integer tensors, given bool");
}

Rule matmul_rule(std::span<const Tensor> inputs, const Dims& batch, Linearity linearity) {
  Rule r;
  r.linearity = linearity;
  for (const Tensor& t : inputs) {
    RuleTerm term;
    const int lead = batch.size() - (t.dim() - 2);
    for (int d = 0; d < t.dim() - 2; ++d)
      term.push_back({t.sizes()[d] == batch[d + lead] ? batch_letter(d + lead) : '\0', false, false});
    r.inputs.push_back(term);
  }
  r.inputs[0].insert(r.inputs[0].end(), {{'M', false, false}, {'K', false, false}});
  r.inputs[1].insert(r.inputs[1].end(), {{'K', false, false}, {'N', false, false}});
  RuleTerm out;
  for (int d = 0; d < batch.size(); ++d) out.push_back({batch_letter(d), false, false});
  out.insert(out.end(), {{'M', false, false}, {'N', false, false}});
  r.outputs = {out};
  return r;
}

// Both with at least two dims.
Tensor matmul_nd(const Tensor& a, const Tensor& b) {
  static const OpDef op{"matmul"};
  const std::array<Tensor, 2> inputs{a, b};
  const std::int64_t m = a.size(-2);
  const std::int64_t k = a.size(-1);
  const std::int64_t n = b.size(-1);
  TS_CHECK(b.size(-2) == k, op.name, "{} times {}: the inner sizes {} and {} differ", a.sizes().str(),
           b.sizes().str(), k, b.size(-2));
  auto batch_of = [](const Tensor& t) {
    return Dims(t.sizes().span().first(static_cast<std::size_t>(t.dim() - 2)));
  };
  const Dims batch = broadcast_sizes(op.name, batch_of(a), batch_of(b));
  Dims sizes = batch;
  sizes.push_back(m);
  sizes.push_back(n);
  const Linearity linearity = owed_through(cpu::BinaryOp::Mul, a, b);
  auto rule = [&] { return matmul_rule(inputs, batch, linearity); };
  auto local = [&](LocalCall& l) {
    const Factors in(l);
    const Dims& out = l.out_sizes(0, sizes);
    l.out[0] = Array::empty(out, l.in[0].dtype(), l.in[0].device());
    auto as_batch = [&](const Array& x) {
      Dims s = out;
      s[s.size() - 2] = x.size(x.dim() - 2);
      s[s.size() - 1] = x.size(x.dim() - 1);
      return x.sizes() == s ? x : x.expand(s);
    };
    kernels::matmul(l.in[0].device(), {l.out[0], as_batch(in[0]), as_batch(in[1]), Array(), false});
  };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    return [x = SavedTensor(in[0]), y = SavedTensor(in[1])](const BackwardContext& c, const Tensors& g) {
      const Tensor left = x.unpack("matmul");
      const Tensor right = y.unpack("matmul");
      Tensors grads(2);
      if (c.needs(0)) grads[0] = sum_to_size(matmul_nd(g[0], transpose(right, -1, -2)), left.sizes());
      if (c.needs(1)) grads[1] = sum_to_size(matmul_nd(transpose(left, -1, -2), g[0]), right.sizes());
      return grads;
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = {&sizes, 1};
  c.parameters = static_cast<std::size_t>(linearity);
  c.rule = rule;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

// Of two vectors. Their gradients are multiples of each other.
Tensor dot(const Tensor& a, const Tensor& b) {
  static const OpDef op{"matmul"};
  const std::int64_t k = a.size(0);
  TS_CHECK(b.size(0) == k, op.name, "{} times {}: the inner sizes {} and {} differ", Dims{1, k}.str(),
           Dims{b.size(0), 1}.str(), k, b.size(0));
  const std::array<Tensor, 2> inputs{a, b};
  const Dims number{};
  const Linearity linearity = owed_through(cpu::BinaryOp::Mul, a, b);
  auto rule = [&] {
    Rule r;
    r.linearity = linearity;
    r.inputs = {{{'K', false, false}}, {{'K', false, false}}};
    r.outputs = {{}};
    return r;
  };
  auto local = [&](LocalCall& l) {
    const Factors in(l);
    l.out[0] = Array::empty({}, l.in[0].dtype(), l.in[0].device());
    kernels::matmul(l.in[0].device(),
                    {l.out[0].reshape({1, 1}), in[0].unsqueeze(0), in[1].unsqueeze(1), Array(), false});
  };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    return [x = SavedTensor(in[0]), y = SavedTensor(in[1])](const BackwardContext& c, const Tensors& g) {
      Tensors grads(2);
      if (c.needs(0)) grads[0] = mul(g[0], y.unpack("matmul"));
      if (c.needs(1)) grads[1] = mul(g[0], x.unpack("matmul"));
      return grads;
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = {&number, 1};
  c.parameters = static_cast<std::size_t>(linearity);
  c.rule = rule;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

RuleTerm lead_term(int lead) {
  RuleTerm term;
  for (int d = 0; d < lead; ++d) term.push_back({batch_letter(d), false, false});
  return term;
}

// [rows, cols] view of an array whose leading dims are merged.
Array rows_of(const Array& x) {
  const std::int64_t cols = x.size(x.dim() - 1);
  return x.reshape({cols == 0 ? numel_of(Dims(x.sizes().span().first(static_cast<std::size_t>(x.dim() - 1))))
                              : x.numel() / cols,
                    cols});
}

struct LinearSetup {
  const OpDef* op = nullptr;
  bool transposed = true;  // w is [out, in]
  Activation activation = Activation::None;
  bool keeps = false;  // what the activation is given is a second output
};

Dims product_sizes(const Tensor& x, std::int64_t features) {
  Dims sizes = x.sizes();
  sizes[x.dim() - 1] = features;
  return sizes;
}

// f(z) and, if it is kept, z[..., o] = Σ_i x[..., i] w(i, o) + b[o]
Tensors linear_call(const LinearSetup& s, const Tensor& x, const Tensor& w, const Tensor& b,
                    FunctionRef<GradFunction(std::span<const Tensor>, std::span<const Tensor>)> gradient) {
  const std::array<Tensor, 3> inputs{x, w, b};
  const Dims sizes = product_sizes(x, s.transposed ? w.sizes()[0] : w.sizes()[1]);
  const std::array<Dims, 2> outputs{sizes, s.keeps ? sizes : Dims()};
  const bool linear_in_x = !b.defined() && s.activation == Activation::None;
  const Linearity linearity = linear_in_x ? owed_through(cpu::BinaryOp::Mul, x, w) : Linearity::None;
  auto rule = [&] {
    Rule r;
    r.linearity = linearity;
    r.may_miss = linear_in_x;  // a bias may not be added to a sum that is still owed
    RuleTerm in = lead_term(x.dim() - 1);
    RuleTerm out = in;
    in.push_back({'I', false, false});
    out.push_back({'O', false, false});
    RuleTerm weight{{'O', false, false}, {'I', false, false}};
    if (!s.transposed) std::swap(weight[0], weight[1]);
    r.inputs = {in, weight, {{'O', false, false}}};
    r.outputs.assign(s.keeps ? 2 : 1, out);
    return r;
  };
  auto local = [&](LocalCall& l) {
    const Factors factors(l);
    for (Array& out : l.out) out = Array::empty(l.out_sizes(0, sizes), l.in[0].dtype(), l.in[0].device());
    const Array weight = s.transposed ? factors[1].transpose(0, 1) : factors[1];
    const Array y = rows_of(l.out[0]);
    const Array in = rows_of(factors[0]);
    if (s.activation == Activation::None)
      return kernels::matmul(in.device(), {y, in, weight, l.in[2], false});
    const Array z = s.keeps ? rows_of(l.out[1]) : Array();
    kernels::linear(in.device(), {y, z, in, weight, l.in[2], s.activation});
  };
  OpCall c;
  c.op = s.op;
  c.inputs = inputs;
  c.output_sizes = {outputs.data(), s.keeps ? 2U : 1U};
  c.parameters = Hash()
                     .add(std::int64_t{s.transposed})
                     .add(std::int64_t{b.defined()})
                     .add(static_cast<std::int64_t>(linearity))
                     .add(static_cast<std::int64_t>(s.activation))
                     .add(std::int64_t{s.keeps});
  c.rule = rule;
  c.local = local;
  c.gradient = gradient;
  return call(c);
}

void check_linear(const char* op, const Tensor& x, const Tensor& w, bool transposed) {
  check_operands(op, x, w);
  TS_CHECK(x.dim() >= 1 && w.dim() == 2, op, "needs x [..., in] and w of two dims, given {} and {}",
           x.sizes().str(), w.sizes().str());
  const std::int64_t in = w.sizes()[transposed ? 1 : 0];
  TS_CHECK(x.size(-1) == in, op, "the weight {} takes {} features, the input {} has {}", w.sizes().str(), in,
           x.sizes().str(), x.size(-1));
}

// Of linear: w may have one dim, with a bias of none; else b broadcasts to the products.
void check_linear_inputs(const char* op, const Tensor& x, const Tensor& w, const Tensor& b,
                         Activation activation) {
  check_operands(op, x, w);
  TS_CHECK(x.dim() >= 1 && (w.dim() == 1 || w.dim() == 2), op,
           "needs x [..., in] and w [out, in] or [in], given {} and {}", x.sizes().str(), w.sizes().str());
  TS_CHECK(x.size(-1) == w.size(-1), op, "the weight {} takes {} features, the input {} has {}",
           w.sizes().str(), w.size(-1), x.sizes().str(), x.size(-1));
  if (b.defined()) {
    check_operands(op, x, b);
    TS_CHECK(w.dim() == 1 || broadcasts_to(b.sizes(), product_sizes(x, w.size(0))), op,
             "the bias must have {} elements or broadcast to the result, given {}", w.sizes()[0],
             b.sizes().str());
    TS_CHECK(w.dim() == 2 || b.dim() == 0, op, "the bias beside a weight {} must have no dims, given {}",
             w.sizes().str(), b.sizes().str());
  }
  TS_CHECK(activation == Activation::None || is_floating(x.dtype()), op,
           "an activation needs floating tensors, given {}", name_of(x.dtype()));
}

// Of linear: `out` are its results, and what the activation was given if that is kept.
GradFunction linear_gradient(std::span<const Tensor> in, std::span<const Tensor> out, Activation activation) {
  SavedTensor at;  // where the activation has its slope
  if (activation != Activation::None) at = SavedTensor::output(out.back());
  return
      [activation, at, xs = SavedTensor(in[0]), ws = SavedTensor(in[1]),
       bias = in[2].defined() ? in[2].sizes() : Dims()](const BackwardContext& c, const Tensors& g) mutable {
        Tensor dz = g[0];
        if (dz.defined() && activation != Activation::None) {
          TS_CHECK(at.defined(), "linear", "backward once more after a pass that was to be the last one");
          dz = activation_gradient(dz, at.unpack("linear"), activation);
        }
        if (c.last()) at = SavedTensor();  // as large as all that is still to be made
        if (g.size() > 1 && g[1].defined()) dz = dz.defined() ? add(dz, g[1]) : g[1];
        Tensors grads(3);
        if (c.needs(0)) grads[0] = linear_product(dz, ws.unpack("linear"), false);
        if (c.needs(1)) grads[1] = outer_product(dz, xs.unpack("linear"));
        if (c.needs(2)) grads[2] = sum_to_size(dz, bias);
        return grads;
      };
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  check_operands("matmul", a, b);
  TS_CHECK(a.dim() >= 1 && b.dim() >= 1, "matmul", "both inputs need at least one dim, given {} and {}",
           a.sizes().str(), b.sizes().str());
  const bool row = a.dim() == 1;
  const bool column = b.dim() == 1;
  if (row && column) return dot(a, b);
  Tensor y = matmul_nd(row ? unsqueeze(a, 0) : a, column ? unsqueeze(b, 1) : b);
  if (column) y = squeeze(y, -1);
  if (row) y = squeeze(y, -2);
  return y;
}

Tensor linear_product(const Tensor& x, const Tensor& w, bool transposed) {
  static const OpDef op{"linear_product"};
  check_linear(op.name, x, w, transposed);
  return linear_call({&op, transposed}, x, w, Tensor(),
                     [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
                       return [transposed, xs = SavedTensor(in[0]), ws = SavedTensor(in[1])](
                                  const BackwardContext& c, const Tensors& g) {
                         Tensors grads(3);
                         if (c.needs(0))
                           grads[0] = linear_product(g[0], ws.unpack("linear_product"), !transposed);
                         if (c.needs(1)) {
                           const Tensor rows = xs.unpack("linear_product");
                           grads[1] = transposed ? outer_product(g[0], rows) : outer_product(rows, g[0]);
                         }
                         return grads;
                       };
                     })[0];
}

Tensor outer_product(const Tensor& a, const Tensor& b) {
  static const OpDef op{"outer_product"};
  check_operands(op.name, a, b);
  const std::array<Tensor, 2> inputs{a, b};
  const Dims sizes{a.size(-1), b.size(-1)};
  const Linearity linearity = owed_through(cpu::BinaryOp::Mul, a, b);
  auto rule = [&] {
    Rule r;
    r.linearity = linearity;
    RuleTerm first = lead_term(a.dim() - 1);
    RuleTerm second = first;
    first.push_back({'M', false, false});
    second.push_back({'N', false, false});
    r.inputs = {first, second};
    r.outputs = {{{'M', false, false}, {'N', false, false}}};
    return r;
  };
  auto local = [&](LocalCall& l) {
    const Factors in(l);
    l.out[0] = Array::empty(l.out_sizes(0, sizes), l.in[0].dtype(), l.in[0].device());
    kernels::matmul(l.in[0].device(),
                    {l.out[0], rows_of(in[0]).transpose(0, 1), rows_of(in[1]), Array(), false});
  };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    return [x = SavedTensor(in[0]), y = SavedTensor(in[1])](const BackwardContext& c, const Tensors& g) {
      Tensors grads(2);
      if (c.needs(0)) grads[0] = linear_product(y.unpack("outer_product"), g[0], true);
      if (c.needs(1)) grads[1] = linear_product(x.unpack("outer_product"), g[0], false);
      return grads;
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = {&sizes, 1};
  c.parameters = static_cast<std::size_t>(linearity);
  c.rule = rule;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b) { return linear(x, w, b, Activation::None); }

Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b, Activation activation) {
  static const OpDef op{"linear"};
  check_linear_inputs(op.name, x, w, b, activation);
  // One feature, as the single row of a weight.
  if (w.dim() == 1) {
    check_together(op.name, {&x, &w, &b});
    return squeeze(linear(x, unsqueeze(w, 0), b.defined() ? unsqueeze(b, 0) : b, activation), -1);
  }
  // With the contraction cut the product is a sum that is owed; bias and activation are then ops of their
  // own. So they are where the bias is no vector of the features.
  const bool features_cut = (x.is_sharded() && (x.spec()->cut(x.dim() - 1) || x.spec()->has_partial())) ||
                            (w.is_sharded() && w.spec()->cut(1));
  const bool vector = !b.defined() || b.sizes() == Dims{w.size(0)};
  if (!vector || (features_cut && (b.defined() || activation != Activation::None))) {
    check_together(op.name, {&x, &w, &b});
    const Tensor product = linear_product(x, w, true);
    return activated(b.defined() ? add(product, b) : product, activation);
  }
  const std::array<Tensor, 3> inputs{x, w, b};
  const bool keeps = activation != Activation::None && activation != Activation::Relu && grad_enabled() &&
                     any_requires_grad(inputs);
  const LinearSetup setup{&op, true, activation, keeps};
  return linear_call(setup, x, w, b, [&](std::span<const Tensor> in, std::span<const Tensor> out) {
    return linear_gradient(in, out, activation);
  })[0];
}

}  // namespace tessera
