// Operations on which another library's sharded tensors were measured to give wrong numbers, to refuse or to
// hang, one line each: under equal cuts, the cuts of torch.chunk, arbitrary, thin and empty ones they must
// give what one device gives, forward and backward.
#include "tests/reports_cases.h"

using namespace tessera;
using namespace tessera::reports;

namespace {

using One = std::function<Tensor(const Tensor&)>;  // of x [2, n, 6]
struct NamedOne {
  const char* what;
  One f;
};

const std::vector<NamedOne>& reductions() {
  static const std::vector<NamedOne> list{
      {"sum", [](const Tensor& x) { return sum(x); }},
      {"mean", [](const Tensor& x) { return mean(x); }},
      {"mean over two dims",
       [](const Tensor& x) {
         return mean(x, {1, 2});
       }},
      {"sum keepdim over each dim",
       [](const Tensor& x) { return sum(x, {0}, true) + sum(x, {1}, true) * sum(x, {2}, true); }},
      {"mean keepdim below the cut dim", [](const Tensor& x) { return mean(x, {0}, true); }},
      {"norm", [](const Tensor& x) { return norm(x); }},
      {"norm over a dim", [](const Tensor& x) { return norm(x, 2.0, {1}); }},
      {"largest of all", [](const Tensor& x) { return amax(x); }},
      {"largest and smallest over a dim", [](const Tensor& x) { return amax(x, {1}) - amin(x, {1}); }},
      {"var, std", [](const Tensor& x) { return var(x, {1}) + tessera::std(x, {1}); }},
      {"softmax", [](const Tensor& x) { return softmax(x, 1); }},
      {"log_softmax", [](const Tensor& x) { return log_softmax(x, 1); }},
      {"cumsum", [](const Tensor& x) { return cumsum(x, 1); }},
      {"logsumexp", [](const Tensor& x) { return logsumexp(x, {1}); }},
      {"prod", [](const Tensor& x) { return prod(x, {1}); }},
      {"argmax", [](const Tensor& x) { return as_float(argmax(x, 1)) + sum(x, {1}) * 0.0; }},
      {"argmax of all", [](const Tensor& x) { return as_float(argmax(x)) + sum(x) * 0.0; }},
  };
  return list;
}

const std::vector<NamedOne>& shapes() {
  static const std::vector<NamedOne> list{
      {"split and merge the last dim",
       [](const Tensor& x) {
         return flatten(unflatten(x, 2, {2, 3}), 1, 2);
       }},
      {"transpose, permute",
       [](const Tensor& x) {
         return permute(transpose(x, 0, 1), {2, 0, 1});
       }},
      {"permute, contiguous, view",
       [](const Tensor& x) {
         return reshape(contiguous(permute(x, {1, 0, 2})), {-1, 12});
       }},
      {"batch into tokens",
       [](const Tensor& x) {
         return reshape(x, {-1, 6});
       }},
      {"view(-1)", [](const Tensor& x) { return reshape(x, {-1}); }},
      {"tokens of an image", [](const Tensor& x) { return transpose(flatten(unsqueeze(x, 1), 2), 1, 2); }},
      {"cat",
       [](const Tensor& x) {
         return cat({x, x * 2.0}, 1);
       }},
      {"cat on another dim",
       [](const Tensor& x) {
         return cat({x, x * 2.0}, 2);
       }},
      {"stack",
       [](const Tensor& x) {
         return stack({x, square(x)}, 1);
       }},
  };
  return list;
}

const std::vector<NamedOne>& pieces() {
  static const std::vector<NamedOne> list{
      {"slice", [](const Tensor& x) { return slice(x, 1, 2, -1); }},
      {"slice in steps", [](const Tensor& x) { return slice(x, 1, 1, INT64_MAX, 3); }},
      {"narrow", [](const Tensor& x) { return narrow(x, 1, 3, 4); }},
      {"one index", [](const Tensor& x) { return select(x, 1, 4) * select(x, 1, -1); }},
      {"x[0]", [](const Tensor& x) { return select(x, 0, 0); }},
      {"roll", [](const Tensor& x) { return roll(x, {3}, {1}); }},
      {"flip", [](const Tensor& x) { return flip(x, {1}) * x; }},
      {"diff", [](const Tensor& x) { return slice(x, 1, 1) - slice(x, 1, 0, -1); }},
      {"tile",
       [](const Tensor& x) {
         return tile(x, {1, 2, 1});
       }},
      {"repeat_interleave", [](const Tensor& x) { return repeat_interleave(x, 2, 1); }},
      {"expand",
       [](const Tensor& x) {
         return expand(unsqueeze(x, 0), {3, -1, -1, -1});
       }},
      {"squeeze", [](const Tensor& x) { return squeeze(unsqueeze(x, 1), 1); }},
      {"unbind", [](const Tensor& x) { return unbind(x, 1)[2] + unbind(x, 1)[5]; }},
      {"unbind of another dim", [](const Tensor& x) { return unbind(x, 0)[1]; }},
      {"chunk, all parts used",
       [](const Tensor& x) {
         const Tensors p = chunk(x, 3, 1);
         return cat({p[2], p[0], p[1]}, 1);
       }},
      {"chunk of the last dim",
       [](const Tensor& x) {
         const Tensors p = chunk(x, 3, -1);
         return p[0] * p[1] + p[2];
       }},
      {"split of the last dim, one part used",
       [](const Tensor& x) {
         return split(x, {2, 4}, -1)[1];
       }},
      {"pad",
       [](const Tensor& x) {
         return pad(x, {1, 0, 2, 3});
       }},
  };
  return list;
}

const std::vector<NamedOne>& products() {
  static const std::vector<NamedOne> list{
      {"plain factor of the whole size", [](const Tensor& x) { return x * weight(x.sizes()); }},
      {"positions added",
       [](const Tensor& x) {
         return x + weight({x.size(1), 6});
       }},
      {"where", [](const Tensor& x) { return where(gt(x, zeros_like(x)), x, square(x)); }},
      {"another dtype", [](const Tensor& x) { return to(to(x, DType::F32), DType::F64); }},
      {"x W",
       [](const Tensor& x) {
         return matmul(x, weight({6, 3}));
       }},
      {"linear",
       [](const Tensor& x) {
         return linear(x, weight({3, 6}), weight({3}));
       }},
      {"einsum bnc,cd",
       [](const Tensor& x) {
         return einsum("bnc,cd->bnd", {x, weight({6, 3})});
       }},
      {"einsum over the cut dim",
       [](const Tensor& x) {
         return einsum("bnc,bnd->cd", {x, square(x)});
       }},
      {"x^T x", [](const Tensor& x) { return matmul(transpose(x, 1, 2), x); }},
      {"x x^T", [](const Tensor& x) { return matmul(x, transpose(x, 1, 2)); }},
  };
  return list;
}

void check_rows(std::uint64_t stream, const std::vector<NamedOne>& rows) {
  auto random = test_random(stream);
  for (const NamedOne& row : rows)
    for (const std::int64_t n : {8, 17}) {
      const Tensor x = affine(weight({2, n, 6}), 0.5, 1.0);  // positive, no two alike
      check_row(random, {row.what, [f = row.f](const Tensors& in) { return f(in[0]); }}, x);
    }
}

void check_not_finite(std::uint64_t stream, const std::vector<NamedOne>& rows) {
  auto random = test_random(stream);
  const Tensor x = affine(weight({2, 8, 6}), 0.5, 1.0);
  for (const double value : kNotFinite)
    for (const NamedOne& row : rows) {
      INFO(value);
      check_row(random, {row.what, [f = row.f](const Tensors& in) { return f(in[0]); }}, with_last(x, value));
    }
}

}  // namespace

TEST_CASE("reported reductions", "[ops]") { check_rows(95, reductions()); }
TEST_CASE("reported shape operations", "[ops]") { check_rows(96, shapes()); }
TEST_CASE("reported operations that take tensors apart", "[ops]") { check_rows(99, pieces()); }
TEST_CASE("reported products and element-wise operations", "[ops]") { check_rows(97, products()); }

TEST_CASE("NaN or an infinity in one shard only: what one device gives, and its gradients", "[ops]") {
  check_not_finite(131, reductions());
  check_not_finite(132, shapes());
  check_not_finite(133, pieces());
  check_not_finite(134, products());
}

TEST_CASE("reported: the same dim of two operands cut in different places, and different dims", "[ops]") {
  auto random = test_random(98);
  const DeviceMesh mesh = mesh_over(test_world(), {test_world().size()});
  const Dims sizes{8, 6};
  const Tensor a = weight(sizes);
  const Tensor b = affine(weight(sizes), 2.0, 1.0);
  for (const auto& left : cuts(random, 8))
    for (const auto& right : cuts(random, 8)) {
      const Tensor x = a.redistribute(ShardSpec::from_lengths(mesh, {Shard(0)}, sizes, {left}));
      const Tensor y = b.redistribute(ShardSpec::from_lengths(mesh, {Shard(0)}, sizes, {right}));
      const Tensor z = b.redistribute(ShardSpec::make(mesh, {Shard(1)}, sizes));
      check_close((x + y).to_vector(), (a + b).to_vector());
      check_close((x * y).to_vector(), (a * b).to_vector());
      check_close((x + z).to_vector(), (a + b).to_vector());
    }
}

TEST_CASE("reported: a loss that is owed is read whole on every rank", "[ops]") {
  const DeviceMesh mesh = mesh_over(test_world(), {test_world().size()});
  const Tensor x = weight({9}).redistribute(ShardSpec::make(mesh, {Shard(0)}, {9}));
  CHECK(sum(x).item() == Approx(sum(weight({9})).item()));
  CHECK(norm(x).item() == Approx(norm(weight({9})).item()));
  CHECK(mean(square(x)).item() == Approx(mean(square(weight({9}))).item()));
}
