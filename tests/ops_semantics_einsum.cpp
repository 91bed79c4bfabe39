// einsum: what its equations may not say, and that cut subscripts stay cut.
#include <catch2/catch.hpp>

#include "ops/matmul/equation.h"
#include "ops/ops.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

Tensor filled(const Dims& sizes, DType dtype = DType::F64) { return Tensor(Array::full(sizes, 0.5, dtype)); }

std::int64_t calls_of(const std::function<void()>& f) {
  const std::int64_t before = test_world().recorder().totals().calls;
  f();
  return test_world().recorder().totals().calls - before;
}

}  // namespace

TEST_CASE("einsum refuses what PyTorch refuses, alike on all ranks", "[ops]") {
  const auto says = [](const char* equation, const std::vector<Dims>& sizes, const char* part) {
    Tensors operands;
    for (const Dims& s : sizes) operands.push_back(filled(s));
    const std::string text = refusal([&] { einsum(equation, operands); });
    INFO(equation << ": " << text);
    CHECK(contains(text, part));
    CHECK(!contains(text, "\n"));
    CHECK(same_everywhere(text));
  };
  const Dims m{2, 3};
  says("ij,jk->il", {m, {3, 4}}, "output subscript l");
  says("ij->ii", {m}, "subscript i appears more than once in the output");
  says("ij,jk", {m}, "is for 2 operands, 1 given");
  says("ij", {m, m}, "is for 1 operands, 2 given");
  says("ijk", {m}, "3 subscripts for operand 0 of sizes [2, 3]");
  says("i", {m}, "1 subscripts for operand 0 of sizes [2, 3]");
  says("", {m}, "0 subscripts for operand 0");
  says("...ijk", {m}, "3 subscripts and an ellipsis for operand 0");
  says("i1", {m}, "found '1' at position 1");
  says("ij-i", {m}, "found '-' at position 2");
  says("ij>i", {m}, "found '>' at position 2");
  says("ij->i->j", {m}, "found '-' at position 5");
  says("i.j", {m}, "not part of \"...\", at position 1");
  says("..ij", {m}, "not part of \"...\", at position 0");
  says("....ij", {m}, "second '.'");
  says("ij->......", {m}, "second '.'");
  says("ij,jk->ik", {m, {4, 5}}, "subscript j has size 4 for operand 1, which does not go with size 3");
  says("...i,...i", {m, {4, 3}}, "does not go with size 2");
  says("ii", {m}, "subscript i is repeated for operand 0, but its sizes 2 and 3 differ");
  says("ii", {{3, 1}}, "is repeated");
  says("abcde,fghij->abcdefghij", {{1, 1, 1, 1, 2}, {1, 1, 1, 1, 2}}, "10 dims");
  CHECK(contains(refusal([] { einsum("ij", {}); }), "at least one operand"));
  CHECK(contains(refusal([] { einsum("i", {Tensor()}); }), "at least one operand"));
  CHECK(contains(refusal([] { einsum("i,i", {filled({2}), Tensor()}); }), "undefined"));
  CHECK(contains(refusal([] {
                   einsum("i,i", {filled({2}), filled({2}, DType::F32)});
                 }),
                 "one dtype, given f64 and f32"));
  CHECK(contains(refusal([] {
                   einsum("ij,j", {filled({2, 2}, DType::Bool), filled({2}, DType::Bool)});
                 }),
                 "bool"));
}

TEST_CASE("equations in words", "[ops]") {
  const auto parsed = [](const char* text, const std::vector<Dims>& sizes) {
    const Equation e = parse_equation(text, sizes);
    std::string all;
    for (const std::string& labels : e.operands) all += labels + ",";
    return all + ">" + e.output;
  };
  CHECK(parsed("ij,jk", {{2, 3}, {3, 4}}) == "ij,jk,>ik");
  CHECK(parsed(" b a , a -> b ", {{2, 3}, {3}}) == "ba,a,>b");
  CHECK(parsed("bA", {{2, 3}}) == "bA,>Ab");
  CHECK(parsed("ii", {{2, 2}}) == "ii,>");
  CHECK(parsed("...i,i", {{2, 3, 4}, {4}}) == "01i,i,>01");
  CHECK(parsed("i...,...->...i", {{2, 3}, {4, 3}}) == "i1,01,>01i");
  CHECK(parsed("...->", {{2, 3}}) == "01,>");
  CHECK(parsed("ij->ij...", {{2, 3}}) == "ij,>ij");
  CHECK(parsed("->", {{}}) == ",>");
}

TEST_CASE("integers and truth values in einsum", "[ops]") {
  const Tensor three(Array::full({2, 2}, 3, DType::I64));
  CHECK(einsum("ij,jk->ik", {three, three}).dtype() == DType::I64);
  CHECK(einsum("ij,jk->ik", {three, three}).to_vector() == std::vector<double>{18, 18, 18, 18});
  const Tensor yes(Array::full({2}, 1, DType::Bool));
  CHECK(einsum("i,i->i", {yes, yes}).dtype() == DType::Bool);
}

TEST_CASE("three factors in the order that costs least", "[ops]") {
  // (a b) c would take 64 times the work of a (b c); both give the same.
  const Tensor a = filled({64, 64});
  const Tensor b = filled({64, 64});
  const Tensor c = filled({64, 1});
  CHECK(einsum("ij,jk,kl->il", {a, b, c}).to_vector() == std::vector<double>(64, 64 * 64 * 0.125));
}

TEST_CASE("what the last product costs counts as well", "[ops]") {
  // The first product alone would be cheaper as a b, which overflows.
  const auto full = [](const Dims& sizes, double v) { return Tensor(Array::full(sizes, v, DType::F32)); };
  const Tensor a = full({2, 2}, 1e30);
  const Tensor b = full({2, 1000}, 1e30);
  const Tensor c = full({1000, 3}, 1e-30);
  for (const char* equation : {"ab,bc,cd->ad", "AB,Bz,zd->Ad"})
    for (const double v : einsum(equation, {a, b, c}).to_vector()) CHECK(v == Approx(2e33));
  // Four of them, in any order: c d, b, a.
  const Tensor d = full({3, 1}, 1.0);
  for (const double v : einsum("cd,ab,de,bc->ae", {c, a, d, b}).to_vector()) CHECK(v == Approx(6e33));
}

TEST_CASE("a cut subscript stays cut through forward and backward", "[ops]") {
  const int ranks = test_world().size();
  const DeviceMesh mesh = mesh_over(test_world(), {ranks});
  const auto placed = [&](const Dims& sizes, int dim) {
    Generator g(7);
    return randn(sizes, g, DType::F64, ShardSpec::make(mesh, {Shard(dim)}, sizes)).set_requires_grad();
  };
  Tensor x = placed({3, 9, 4}, 1);
  Tensor w = filled({4, 5}).set_requires_grad();
  Tensor y;
  CHECK(calls_of([&] { y = einsum("bnc,cd->bnd", {x, w}); }) == 0);
  CHECK(y.spec()->placement(0) == Shard(1));
  CHECK(calls_of([&] { y.backward(ones_like(y)); }) == 0);
  // The summed subscript is cut on both sides: the result is owed.
  Tensor a = placed({6, 9}, 1);
  Tensor b = placed({9, 5}, 0);
  CHECK(calls_of([&] { y = einsum("ij,jk->ik", {a, b}); }) == 0);
  CHECK(y.spec()->placement(0) == Partial());
  CHECK(calls_of([&] { y.backward(ones({6, 5}, DType::F64)); }) == 0);
  CHECK(a.grad().spec()->placement(0) == Shard(1));
}
