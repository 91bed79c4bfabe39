#include "ops/matmul/einsum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <span>

#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/owed_terms.h"
#include "ops/kernels.h"
#include "ops/matmul/equation.h"
#include "ops/op.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape_ops.h"

namespace tessera {
namespace {

// A tensor and a subscript for every dim.
struct Term {
  Tensor t;
  std::string labels;
};

// A set of subscripts, which are digits and letters.
using LabelSet = std::uint64_t;
int place_of(char c) { return c <= '9' ? c - '0' : c <= 'Z' ? c - 'A' + 10 : c - 'a' + 36; }
LabelSet set_of(const std::string& labels) {
  LabelSet set = 0;
  for (char c : labels) set |= LabelSet{1} << place_of(c);
  return set;
}
bool has(LabelSet set, char c) { return (set >> place_of(c) & 1U) != 0; }

// Of a few letters; a search by the library costs more than the letters. It must be there.
int index_of(const std::string& labels, char c) {
  int at = 0;
  while (labels[static_cast<std::size_t>(at)] != c) ++at;
  return at;
}

// The labels of `a` that are in the set, in a's order.
std::string those(const std::string& a, LabelSet wanted) {
  std::string out;
  for (char c : a)
    if (has(wanted, c)) out += c;
  return out;
}

Dims order_of(const std::string& labels, const std::string& from) {
  Dims order;
  for (char c : labels) order.push_back(index_of(from, c));
  return order;
}

// The dims of `labels`, with size 1 where the term lacks one; as a factor without those before its first.
enum class Align : std::uint8_t { All, Factor };
Tensor aligned(const Term& a, const std::string& labels, Align how) {
  const LabelSet there = set_of(a.labels);
  const std::string own = those(labels, there);
  Tensor t = own == a.labels ? a.t : permute(a.t, order_of(own, a.labels));
  std::size_t first = 0;
  if (how == Align::Factor)
    while (first < labels.size() && !has(there, labels[first])) ++first;
  for (std::size_t i = first; i < labels.size(); ++i)
    if (!has(there, labels[i])) t = unsqueeze(t, static_cast<std::int64_t>(i - first));
  return t;
}

// How a product of two terms is a matrix product: labels of both that stay, of one alone, and those summed.
struct Roles {
  std::string batch, rows, columns, summed;
};
Roles roles_of(const std::string& a, const std::string& b, const std::string& out) {
  const LabelSet in_a = set_of(a);
  const LabelSet in_b = set_of(b);
  const LabelSet kept = set_of(out);
  return {those(a, in_b & kept), those(a, ~in_b), those(b, ~in_a), those(a, in_b & ~kept)};
}

std::int64_t extent(const Array& x, const std::string& labels, const std::string& of) {
  std::int64_t n = 1;
  for (char c : of) n *= x.size(index_of(labels, c));
  return n;
}

// A local array with one dim for each group of labels, and none for an empty batch.
Array as_matrices(const Array& x, const std::string& labels, const std::array<std::string, 3>& groups) {
  Dims sizes;
  for (std::size_t g = groups[0].empty() ? 1 : 0; g < groups.size(); ++g)
    sizes.push_back(extent(x, labels, groups[g]));
  if (x.numel() == 0) return Array::empty(sizes, x.dtype(), x.device());
  const std::string order = groups[0] + groups[1] + groups[2];
  const Array ordered = order == labels ? x : x.permute(order_of(order, labels));
  return ordered.sizes() == sizes ? ordered : ordered.reshape(sizes);
}

// `out` holds every label but the summed ones.
Array multiply_local(const Array& a, const Array& b, const std::array<std::string, 3>& labels,
                     const Roles& r) {
  const Array left = as_matrices(a, labels[0], {r.batch, r.rows, r.summed});
  const Array right = as_matrices(b, labels[1], {r.batch, r.summed, r.columns});
  Dims sizes;
  const std::string natural = r.batch + r.rows + r.columns;
  const LabelSet in_a = set_of(labels[0]);
  for (char c : natural) {
    const bool of_a = has(in_a, c);
    sizes.push_back((of_a ? a : b).size(index_of(labels[of_a ? 0 : 1], c)));
  }
  const Array product = Array::empty(sizes, a.dtype(), a.device());
  Dims matrices = left.sizes();
  matrices[matrices.size() - 1] = right.size(right.dim() - 1);
  kernels::matmul(a.device(),
                  {sizes == matrices ? product : product.reshape(matrices), left, right, Array(), false});
  return natural == labels[2] ? product : product.permute(order_of(labels[2], natural));
}

RuleTerm rule_term(const std::string& labels) {
  RuleTerm term;
  for (char c : labels) term.push_back({c, false, false});
  return term;
}

Tensor multiply(const Term& a, const Term& b, const std::string& out);

std::size_t hash_of(std::initializer_list<const std::string*> all_labels) {
  Hash hash;
  for (const std::string* labels : all_labels) {
    for (char c : *labels) hash.add(std::int64_t{c});
    hash.add(std::int64_t{','});
  }
  return hash;
}

Tensor multiply_and_sum(const Term& a, const Term& b, const std::string& out, const Roles& roles) {
  static const OpDef op{"einsum"};
  TS_CHECK(a.t.dtype() != DType::Bool, op.name, "takes floating and integer tensors, given bool");
  const std::array<Tensor, 2> inputs{a.t, b.t};
  Dims sizes;
  const LabelSet in_a = set_of(a.labels);
  for (char c : out) {
    const Term& of = has(in_a, c) ? a : b;
    sizes.push_back(of.t.sizes()[index_of(of.labels, c)]);
  }
  const Linearity linearity = owed_through(cpu::BinaryOp::Mul, a.t, b.t);
  auto rule = [&] {
    Rule r;
    r.linearity = linearity;
    r.inputs = {rule_term(a.labels), rule_term(b.labels)};
    r.outputs = {rule_term(out)};
    return r;
  };
  auto local = [&](LocalCall& l) {
    const Factors in(l);
    l.out[0] = multiply_local(in[0], in[1], {a.labels, b.labels, out}, roles);
  };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    return [x = SavedTensor(in[0]), y = SavedTensor(in[1]), la = a.labels, lb = b.labels, out](
               const BackwardContext& c, const Tensors& g) {
      Tensors grads(2);
      if (c.needs(0)) grads[0] = multiply({g[0], out}, {y.unpack("einsum"), lb}, la);
      if (c.needs(1)) grads[1] = multiply({g[0], out}, {x.unpack("einsum"), la}, lb);
      return grads;
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = {&sizes, 1};
  if (a.t.is_sharded() || b.t.is_sharded())
    c.parameters = Hash()
                       .add(static_cast<std::int64_t>(hash_of({&a.labels, &b.labels, &out})))
                       .add(static_cast<std::int64_t>(linearity));
  c.rule = rule;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

// Σ over the labels that `out` lacks of a · b; every label of one term alone is in `out`.
Tensor multiply(const Term& a, const Term& b, const std::string& out) {
  TS_CHECK(out.size() <= static_cast<std::size_t>(Dims::kMax), "einsum",
           "a product of two operands would have {} dims, at most {} are possible", out.size(), Dims::kMax);
  const Roles r = roles_of(a.labels, b.labels, out);
  if (r.summed.empty()) return mul(aligned(a, out, Align::Factor), aligned(b, out, Align::Factor));
  // Many short inner products: element-wise, as a matrix product each of them would be one by one.
  const bool exact = a.t.dtype() == DType::F32 || a.t.dtype() == DType::F64;  // products keep their digits
  if (exact && r.rows.empty() && r.columns.empty() && !r.batch.empty()) {
    const std::string both = out + r.summed;
    Dims last;
    for (std::size_t i = out.size(); i < both.size(); ++i) last.push_back(static_cast<std::int64_t>(i));
    return sum(mul(aligned(a, both, Align::Factor), aligned(b, both, Align::Factor)), last);
  }
  return multiply_and_sum(a, b, out, r);
}

// ---- the order ----

// By subscript; -1: not met yet.
class Sizes {
 public:
  Sizes() { of_.fill(-1); }
  std::int64_t& operator[](char c) { return of_[static_cast<std::size_t>(place_of(c))]; }
  double product(LabelSet set) const {
    double n = 1;
    for (; set != 0; set &= set - 1)
      n *= static_cast<double>(of_[static_cast<std::size_t>(std::countr_zero(set))]);
    return n;
  }

 private:
  std::array<std::int64_t, 64> of_;
};

struct Pair {
  std::size_t first = 0;
  std::size_t second = 1;
  double cost = 0;  // with all that follows
};

std::string kept_labels(const std::vector<Term>& terms, const Pair& p, LabelSet kept) {
  for (std::size_t i = 0; i < terms.size(); ++i)
    if (i != p.first && i != p.second) kept |= set_of(terms[i].labels);
  const std::string& first = terms[p.first].labels;
  return those(first, kept) + those(terms[p.second].labels, kept & ~set_of(first));
}

// Terms for which every order is tried; of more the cheapest pair is taken.
constexpr std::size_t kTried = 5;

// The pair to multiply next: the one with which all products together cost least.
Pair next_pair(std::span<const LabelSet> terms, LabelSet output, const Sizes& sizes) {
  if (terms.size() == 2) return {0, 1, sizes.product(terms[0] | terms[1])};
  Pair best;
  bool found = false;
  for (std::size_t i = 0; i < terms.size(); ++i)
    for (std::size_t j = i + 1; j < terms.size(); ++j) {
      const LabelSet both = terms[i] | terms[j];
      Pair p{i, j, sizes.product(both)};
      if (terms.size() <= kTried) {
        std::array<LabelSet, kTried> rest{};
        std::size_t n = 0;
        LabelSet kept = output;
        for (std::size_t k = 0; k < terms.size(); ++k)
          if (k != i && k != j) kept |= rest[n++] = terms[k];
        rest[n++] = both & kept;  // as the result stands last
        p.cost += next_pair({rest.data(), n}, output, sizes).cost;
      }
      if (!found || p.cost < best.cost) best = p;
      found = true;
    }
  return best;
}

// ---- one operand ----

// A repeated subscript takes the diagonal; dims of size 1 are left out, they only stretch.
Term simplified(Term a) {
  for (std::size_t i = 0; i < a.labels.size();) {
    const char c = a.labels[i];
    const std::size_t again = a.labels.find(c, i + 1);
    if (again == std::string::npos) {
      ++i;
      continue;
    }
    a.t = diagonal(a.t, 0, static_cast<std::int64_t>(i), static_cast<std::int64_t>(again));
    a.labels.erase(again, 1);
    a.labels.erase(i, 1);
    a.labels += c;
  }
  for (std::size_t i = a.labels.size(); i-- > 0;)
    if (a.t.sizes()[static_cast<int>(i)] == 1) {
      a.t = squeeze(a.t, static_cast<std::int64_t>(i));
      a.labels.erase(i, 1);
    }
  return a;
}

void sum_to(Term& a, LabelSet kept) {
  if ((set_of(a.labels) & ~kept) == 0) return;
  Dims dims;
  for (char c : a.labels)
    if (!has(kept, c)) dims.push_back(index_of(a.labels, c));
  a = {sum(a.t, dims), those(a.labels, kept)};
}

// Sizes by subscript; 1 stretches.
Sizes sizes_of(const std::vector<std::string>& operands, const Tensors& tensors) {
  Sizes sizes;
  for (std::size_t i = 0; i < operands.size(); ++i)
    for (std::size_t d = 0; d < operands[i].size(); ++d) {
      const std::int64_t n = tensors[i].sizes()[static_cast<int>(d)];
      const char c = operands[i][d];
      if (const std::size_t before = operands[i].find(c); before < d) {
        const std::int64_t first = tensors[i].size(static_cast<std::int64_t>(before));
        TS_CHECK(first == n, "einsum",
                 "subscript {} is repeated for operand {}, but its sizes {} and {} differ", c, i, first, n);
      }
      std::int64_t& seen = sizes[c];
      TS_CHECK(seen < 0 || seen == 1 || n == 1 || seen == n, "einsum",
               "subscript {} has size {} for operand {}, which does not go with size {} before", c, n, i,
               seen);
      if (seen < 0 || n != 1) seen = n;
    }
  return sizes;
}

}  // namespace

Tensor einsum(std::string_view text, const Tensors& operands) {
  TS_CHECK(!operands.empty() && operands[0].defined(), "einsum", "needs at least one operand, given {}",
           operands.empty() ? "none" : "an undefined tensor");
  std::vector<Dims> shapes;
  shapes.reserve(operands.size());
  for (const Tensor& t : operands) {
    TS_CHECK(t.defined() && t.dtype() == operands[0].dtype(), "einsum",
             "operands must have one dtype, given {} and {}", name_of(operands[0].dtype()),
             t.defined() ? name_of(t.dtype()) : "an undefined tensor");
    shapes.push_back(t.sizes());
  }
  const Equation e = parse_equation(text, shapes);
  TS_CHECK(e.output.size() <= static_cast<std::size_t>(Dims::kMax), "einsum",
           "the result of \"{}\" would have {} dims, at most {} are possible", text, e.output.size(),
           Dims::kMax);
  const Sizes sizes = sizes_of(e.operands, operands);
  std::vector<Term> terms;
  terms.reserve(operands.size());
  for (std::size_t i = 0; i < operands.size(); ++i) terms.push_back(simplified({operands[i], e.operands[i]}));
  const LabelSet output = set_of(e.output);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    LabelSet kept = output;
    for (std::size_t j = 0; j < terms.size(); ++j)
      if (j != i) kept |= set_of(terms[j].labels);
    sum_to(terms[i], kept);
  }
  while (terms.size() > 1) {
    Pair p;
    if (terms.size() > 2) {
      std::vector<LabelSet> labels;
      labels.reserve(terms.size());
      for (const Term& t : terms) labels.push_back(set_of(t.labels));
      p = next_pair(labels, output, sizes);
    }
    const std::string out = kept_labels(terms, p, output);
    Term product{multiply(terms[p.first], terms[p.second], out), out};
    terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(p.second));
    terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(p.first));
    terms.push_back(std::move(product));
  }
  return aligned(terms[0], e.output, Align::All);
}

}  // namespace tessera
