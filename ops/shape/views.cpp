// Shape operations that only rename dims: local views, any placement passes.
#include "ops/op.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape_ops.h"
#include "runtime/checked_sizes.h"

namespace tessera {
namespace {

char letter(int d) { return static_cast<char>('a' + d); }

struct ViewCall {
  const OpDef* op = nullptr;
  Dims sizes;
  std::size_t parameters = 0;
  FunctionRef<Rule()> rule;
  FunctionRef<Array(const Array& in, const Dims& out_sizes)> view;
};

Tensor call_view(const ViewCall& v, const Tensor& x, FunctionRef<GradFunction()> gradient) {
  auto local = [&](LocalCall& l) { l.out[0] = v.view(l.in[0], l.out_sizes(0, v.sizes)); };
  auto make_gradient = [&](std::span<const Tensor>, std::span<const Tensor>) { return gradient(); };
  OpCall c;
  c.op = v.op;
  c.inputs = {&x, 1};
  c.output_sizes = {&v.sizes, 1};
  c.parameters = v.parameters;
  c.rule = v.rule;
  c.local = local;
  c.gradient = make_gradient;
  return call_one(c);
}

Rule select_rule(RuleTerm in, RuleTerm out) {
  Rule rule;
  rule.inputs = {std::move(in)};
  rule.outputs = {std::move(out)};
  rule.linearity = Linearity::Select;
  return rule;
}

void check(const char* op, const Tensor& x) { TS_CHECK(x.defined(), op, "the input is undefined"); }

}  // namespace

Tensor permute(const Tensor& x, const Dims& given) {
  static const OpDef op{"permute"};
  check(op.name, x);
  TS_CHECK(given.size() == x.dim(), op.name, "{} dims given for a tensor of {} dims", given.str(), x.dim());
  Dims order = given;
  Dims inverse = given;
  std::array<bool, Dims::kMax> seen{};
  for (int d = 0; d < order.size(); ++d) {
    const int from = wrap_dim(op.name, given[d], x.dim());
    TS_CHECK(!seen[static_cast<std::size_t>(from)], op.name, "dim {} appears twice in {}", from, given.str());
    seen[static_cast<std::size_t>(from)] = true;
    order[d] = from;
    inverse[from] = d;
  }
  Dims sizes;
  for (std::int64_t d : order) sizes.push_back(x.sizes()[static_cast<int>(d)]);
  auto rule = [&] {
    RuleTerm in;
    RuleTerm out;
    for (int d = 0; d < order.size(); ++d) in.push_back({letter(d), false, false});
    for (std::int64_t d : order) out.push_back({letter(static_cast<int>(d)), false, false});
    return select_rule(in, out);
  };
  auto view = [&](const Array& a, const Dims&) { return a.permute(order); };
  return call_view({&op, sizes, Hash().add(order), rule, view}, x, [&]() -> GradFunction {
    return [inverse](const BackwardContext&, const Tensors& g) { return Tensors{permute(g[0], inverse)}; };
  });
}

Tensor transpose(const Tensor& x, std::int64_t dim0, std::int64_t dim1) {
  check("transpose", x);
  const int a = wrap_dim("transpose", dim0, x.dim());
  const int b = wrap_dim("transpose", dim1, x.dim());
  Dims order;
  for (int d = 0; d < x.dim(); ++d) order.push_back(d);
  if (x.dim() > 0) std::swap(order[a], order[b]);
  return permute(x, order);
}

Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination) {
  check("movedim", x);
  TS_CHECK(source.size() == destination.size(), "movedim", "{} dims cannot move to {}", source.str(),
           destination.str());
  Dims order = Dims::filled(x.dim(), -1);
  std::array<bool, Dims::kMax> taken{};
  for (int i = 0; i < source.size() && x.dim() > 0; ++i) {
    const int from = wrap_dim("movedim", source[i], x.dim());
    const int to = wrap_dim("movedim", destination[i], x.dim());
    TS_CHECK(!taken[static_cast<std::size_t>(from)] && order[to] == -1, "movedim",
             "a dim appears twice in {} or {}", source.str(), destination.str());
    taken[static_cast<std::size_t>(from)] = true;
    order[to] = from;
  }
  int next = 0;
  for (std::int64_t& from : order) {
    while (from == -1 && taken[static_cast<std::size_t>(next)]) ++next;
    if (from == -1) from = next++;
  }
  return permute(x, order);
}

Tensor unsqueeze(const Tensor& x, std::int64_t dim) {
  static const OpDef op{"unsqueeze"};
  check(op.name, x);
  const int at = wrap_dim(op.name, dim, x.dim() + 1);
  Dims sizes = x.sizes();
  sizes.insert(at, 1);
  auto rule = [&] {
    RuleTerm in;
    for (int d = 0; d < x.dim(); ++d) in.push_back({letter(d), false, false});
    RuleTerm out = in;
    out.insert(out.begin() + at, RuleDim{});
    return select_rule(in, out);
  };
  auto view = [&](const Array& a, const Dims&) { return a.unsqueeze(at); };
  return call_view({&op, sizes, Hash().add(std::int64_t{at}), rule, view}, x, [&]() -> GradFunction {
    return [at](const BackwardContext&, const Tensors& g) { return Tensors{squeeze(g[0], at)}; };
  });
}

Tensor squeeze(const Tensor& x, std::int64_t dim) {
  static const OpDef op{"squeeze"};
  check(op.name, x);
  const int at = wrap_dim(op.name, dim, x.dim());
  if (x.dim() == 0 || x.sizes()[at] != 1) return x;
  Dims sizes = x.sizes();
  sizes.erase(at);
  auto rule = [&] {
    RuleTerm in;
    for (int d = 0; d < x.dim(); ++d) in.push_back({d == at ? '\0' : letter(d), false, false});
    RuleTerm out = in;
    out.erase(out.begin() + at);
    return select_rule(in, out);
  };
  auto view = [&](const Array& a, const Dims&) { return a.squeeze(at); };
  return call_view({&op, sizes, Hash().add(std::int64_t{at}), rule, view}, x, [&]() -> GradFunction {
    return [at](const BackwardContext&, const Tensors& g) { return Tensors{unsqueeze(g[0], at)}; };
  });
}

Tensor squeeze(const Tensor& x, const Dims& given) {
  check("squeeze", x);
  std::vector<int> dims;
  for (std::int64_t d : given) {
    const int dim = wrap_dim("squeeze", d, x.dim());
    TS_CHECK(std::find(dims.begin(), dims.end(), dim) == dims.end(), "squeeze", "dim {} appears twice in {}",
             dim, given.str());
    dims.push_back(dim);
  }
  std::sort(dims.rbegin(), dims.rend());  // from the last, so that the others keep their numbers
  Tensor y = x;
  for (int d : dims) y = squeeze(y, d);
  return y;
}

Tensor squeeze(const Tensor& x) {
  check("squeeze", x);
  Tensor y = x;
  for (int d = x.dim(); d-- > 0;) y = squeeze(y, d);
  return y;
}

namespace {

// The sizes that `given` asks for, in the name of the operation that was called.
Dims expanded_sizes(const char* op, const Tensor& x, const Dims& given) {
  check(op, x);
  const int lead = given.size() - x.dim();
  TS_CHECK(lead >= 0, op, "sizes {} have fewer dims than the tensor {}", given.str(), x.sizes().str());
  Dims sizes = given;
  for (int d = 0; d < given.size(); ++d) {
    const std::int64_t own = d < lead ? -1 : x.sizes()[d - lead];
    if (given[d] == -1 && own >= 0) sizes[d] = own;
    TS_CHECK(sizes[d] >= 0 && (own == -1 || own == 1 || own == sizes[d]), op,
             "a tensor of sizes {} cannot be expanded to {}", x.sizes().str(), given.str());
  }
  check_countable(op, sizes);
  return sizes;
}

}  // namespace

Tensor broadcast_to(const Tensor& x, const Dims& sizes) {
  return expand(x, expanded_sizes("broadcast_to", x, sizes));
}

Tensor expand(const Tensor& x, const Dims& given) {
  static const OpDef op{"expand"};
  const Dims sizes = expanded_sizes(op.name, x, given);
  const int lead = given.size() - x.dim();
  if (sizes == x.sizes()) return x;
  auto rule = [&] {
    RuleTerm in;
    RuleTerm out(static_cast<std::size_t>(lead));
    for (int d = 0; d < x.dim(); ++d) {
      const bool kept = x.sizes()[d] == sizes[d + lead];
      in.push_back({kept ? letter(d) : '\0', false, false});
      out.push_back(in.back());
    }
    return select_rule(in, out);
  };
  auto view = [&](const Array& a, const Dims& out_sizes) { return a.expand(out_sizes); };
  return call_view({&op, sizes, Hash().add(sizes), rule, view}, x, [&]() -> GradFunction {
    return [back = x.sizes()](const BackwardContext&, const Tensors& g) {
      return Tensors{sum_to_size(g[0], back)};
    };
  });
}

}  // namespace tessera
