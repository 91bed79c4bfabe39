// Operands of different dtypes on a mesh: PyTorch's rules of promotion hold whatever the placements, and
// every gradient has the dtype of the tensor that it belongs to.
#include <catch2/catch.hpp>

#include "autograd/node.h"
#include "tests/ops_cases.h"

using namespace tessera;
using namespace tessera::ops_cases;
using namespace tessera::mesh_cases;

namespace {

struct Operation {
  const char* name;
  Tensor (*call)(const Tensor&, const Tensor&);
  bool compares = false;  // what is nearly a tie may go either way
};
const Operation kOperations[] = {
    {"add", [](const Tensor& a, const Tensor& b) { return a + b; }},
    {"sub", [](const Tensor& a, const Tensor& b) { return a - b; }},
    {"mul", [](const Tensor& a, const Tensor& b) { return a * b; }},
    {"div", [](const Tensor& a, const Tensor& b) { return a / b; }},
    {"maximum", [](const Tensor& a, const Tensor& b) { return maximum(a, b); }, true},
    {"where", [](const Tensor& a, const Tensor& b) { return where(gt(a, b), a, b); }, true},
};

struct Operand {
  InputSpec spec;
  DType floating = DType::F32;
  DType dtype() const { return dtype_of(spec, floating); }
};

Operand random_operand(Random& random, const Dims& full) {
  const DType floating[] = {DType::F32, DType::F64, DType::BF16, DType::F16};
  Operand o;
  const auto kind = random_int(random, 0, 5);
  if (kind < 4) {
    o.floating = floating[kind];
    o.spec.kind = InputKind::Positive;
  } else {
    o.spec.kind = kind == 4 ? InputKind::Index : InputKind::Bool;
    o.spec.bound = 4;
  }
  const auto shape = random_int(random, 0, 3);
  if (shape == 0) return o;  // 0-dim: of a higher category it decides, of the same it does not
  o.spec.sizes = full;
  if (shape == 1 && full.size() > 0) o.spec.sizes[0] = 1;
  return o;
}

// What PyTorch's tables say: the higher category of bool, integer, floating decides, tensors before 0-dim
// ones of the same category; two half types meet in f32. Division of integers is in f32.
DType promoted(const Operand& a, const Operand& b, std::string_view name) {
  const auto category = [](DType t) { return t == DType::Bool ? 0 : is_floating(t) ? 2 : 1; };
  const int ca = category(a.dtype());
  const int cb = category(b.dtype());
  DType result = a.dtype();
  const bool a_is_number = a.spec.sizes.size() == 0;
  const bool b_is_number = b.spec.sizes.size() == 0;
  if (ca != cb) {
    result = ca > cb ? a.dtype() : b.dtype();
  } else if (a_is_number != b_is_number) {
    result = a_is_number ? b.dtype() : a.dtype();
  } else if (a.dtype() != b.dtype()) {
    const bool wide = a.dtype() == DType::F64 || b.dtype() == DType::F64;
    result = wide ? DType::F64 : DType::F32;
  }
  return name == "div" && !is_floating(result) ? DType::F32 : result;
}

// Floating values an eighth and more from integers and from those of another offset: further than terms of
// half types round.
void keep_apart(std::vector<double>& values, const Operand& o, double offset) {
  if (!is_floating(o.dtype())) return;
  for (double& v : values) v = std::floor(2 * v) / 2 + offset;
}

double tolerance(DType t) {
  return t == DType::BF16 ? 0.05 : t == DType::F16 ? 0.01 : t == DType::F32 ? 1e-5 : 1e-12;
}
// Of a calculation that passes through both.
double tolerance(const Operand& a, const Operand& b, DType result) {
  double t = tolerance(result);
  for (const Operand* o : {&a, &b})
    if (is_floating(o->dtype())) t = std::max(t, tolerance(o->dtype()));
  return t;
}

struct Side {
  Tensors inputs;
  Tensor output;
};

void check_gradients(Random& random, const Side& plain, const Side& placed, double allowed) {
  const Dims sizes = plain.output.sizes();
  const std::vector<double> c = draw_values(random, {sizes, InputKind::Positive});
  Tensors of_plain;
  Tensors of_placed;
  for (std::size_t i = 0; i < plain.inputs.size(); ++i)
    if (plain.inputs[i].requires_grad()) {
      of_plain.push_back(plain.inputs[i]);
      of_placed.push_back(placed.inputs[i]);
    }
  if (of_plain.empty()) return;
  const Array cotangent = Array::from(c, sizes, plain.output.dtype());
  const Tensors expected = grad({plain.output}, of_plain, {Tensor(cotangent)});
  const Tensors got = grad({placed.output}, of_placed, {Tensor(cotangent.to(test_device()))});
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i].dtype() == of_placed[i].dtype());
    CHECK(got[i].sizes() == of_placed[i].sizes());
    CHECK(difference(got[i].to_vector(), expected[i].to_vector()) <= allowed);
  }
}

}  // namespace

TEST_CASE("operands of different dtypes, under any placements", "[ops]") {
  auto random = test_random(71);
  for (const DeviceMesh& mesh : all_meshes())
    for (int trial = 0; trial < trials(80); ++trial) {
      const Operation& op = kOperations[static_cast<std::size_t>(trial) % std::size(kOperations)];
      const Dims full = random_sizes(random, static_cast<int>(random_int(random, 1, 3)), 5);
      const Operand a = random_operand(random, full);
      const Operand b = random_operand(random, full);
      const bool logical = a.dtype() == DType::Bool && b.dtype() == DType::Bool;
      if (logical && (std::string_view(op.name) == "sub" || std::string_view(op.name) == "div")) continue;
      std::vector<double> va = draw_values(random, a.spec);
      std::vector<double> vb = draw_values(random, b.spec);
      if (op.compares) {
        keep_apart(va, a, 0.125);
        keep_apart(vb, b, 0.25);
      }
      if (std::string_view(op.name) == "div")
        for (double& v : vb) v = std::max(v, 1.0);
      const Tensors plain{plain_input(a.spec, va, a.floating), plain_input(b.spec, vb, b.floating)};
      const Tensors placed{random_input(random, mesh, a.spec, va, {.floating = a.floating}),
                           random_input(random, mesh, b.spec, vb, {.floating = b.floating})};
      INFO(op.name << ": " << name_of(a.dtype()) << " " << placed_str(placed[0]) << " with "
                   << name_of(b.dtype()) << " " << placed_str(placed[1]));
      const Tensor expected = op.call(plain[0], plain[1]);
      const Tensor got = op.call(placed[0], placed[1]);
      const DType dtype = promoted(a, b, op.name);
      CHECK(expected.dtype() == dtype);
      CHECK(got.dtype() == dtype);
      CHECK(got.sizes() == expected.sizes());
      const double allowed = tolerance(a, b, dtype);
      CHECK(difference(got.to_vector(), expected.to_vector()) <= allowed);
      if (is_floating(dtype)) check_gradients(random, {plain, expected}, {placed, got}, 4 * allowed);
    }
}
