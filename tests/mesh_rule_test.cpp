// Sharding rules: what `resolve` decides, by example and by what must hold of every decision.
#include <catch2/catch.hpp>

#include "comm/virtual.h"
#include "mesh/rule.h"
#include "tests/mesh_cases.h"

using namespace tessera;
using namespace tessera::mesh_cases;

namespace {

const Placement R = Replicate();
const Placement P = Partial();
Placement S(int d) { return Shard(d); }

struct Row {
  const char* what;
  const char* rule;
  Linearity linearity;
  std::vector<Dims> sizes;  // of the inputs, then of the output
  Placements given;         // one mesh axis of 4 ranks
  Placements needed;
  Placement result;
  double cost;
};

DeviceMesh four() {
  static const DeviceMesh mesh(recording_communicator(1, 4), {{"d", 4}});
  return mesh;
}

Strategy resolve_row(const Row& row, ReduceOp missing = ReduceOp::Sum) {
  Rule rule = parse_rule(row.rule, row.linearity);
  rule.missing = missing;
  RuleProblem problem{&rule, {}, {row.sizes.back()}, {}};
  for (std::size_t i = 0; i < row.given.size(); ++i)
    problem.inputs.push_back(ShardSpec::make(four(), {row.given[i]}, row.sizes[i]));
  return resolve(problem);
}

const char* kMatmul = "m k, k n -> m n";

const Dims kSquare{8, 8};

std::vector<Row> products() {
  const Dims big{40, 8};
  const Dims small{8, 4};
  const Dims out{40, 4};
  const Dims& e = kSquare;
  return {
      {"rows stay", kMatmul, Linearity::Each, {big, small, out}, {S(0), R}, {S(0), R}, S(0), 0},
      {"columns stay", kMatmul, Linearity::Each, {big, small, out}, {R, S(1)}, {R, S(1)}, S(1), 0},
      {"cut contraction", kMatmul, Linearity::Each, {big, small, out}, {S(1), S(0)}, {S(1), S(0)}, P, 0},
      {"half a contraction", kMatmul, Linearity::Each, {big, small, out}, {S(1), R}, {S(1), S(0)}, P, 0},
      {"the smaller moves", kMatmul, Linearity::Each, {big, small, out}, {S(0), S(1)}, {S(0), R}, S(0), 96},
      {"the smaller moves",
       kMatmul,
       Linearity::Each,
       {{4, 8}, {8, 40}, {4, 40}},
       {S(0), S(1)},
       {R, S(1)},
       S(1),
       96},
      {"tie: first letter", kMatmul, Linearity::Each, {e, e, e}, {S(0), S(1)}, {S(0), R}, S(0), 192},
      {"rows against contraction",
       kMatmul,
       Linearity::Each,
       {big, small, out},
       {S(0), S(0)},
       {S(0), R},
       S(0),
       96},
      {"nothing cut", kMatmul, Linearity::Each, {big, small, out}, {R, R}, {R, R}, R, 0},
      {"a sum stays owed", kMatmul, Linearity::Each, {big, small, out}, {P, R}, {P, R}, P, 0},
      {"either sum", kMatmul, Linearity::Each, {big, small, out}, {R, P}, {R, P}, P, 0},
      {"two sums: the smaller is made", kMatmul, Linearity::Each, {big, small, out}, {P, P}, {P, R}, P, 192},
      {"a sum and a cut", kMatmul, Linearity::Each, {big, small, out}, {P, S(1)}, {P, R}, P, 96},
      {"not linear", kMatmul, Linearity::None, {big, small, out}, {P, R}, {R, R}, R, 1920},
      {"linear in the first", kMatmul, Linearity::First, {big, small, out}, {P, R}, {P, R}, P, 0},
      {"not in the second", kMatmul, Linearity::First, {big, small, out}, {R, P}, {R, R}, R, 192},
  };
}

std::vector<Row> other_rules() {
  const Dims& e = kSquare;
  return {
      {"sums add up", "n c, n c -> n c", Linearity::Joint, {e, e, e}, {P, P}, {P, P}, P, 0},
      {"a whole counts once", "n c, n c -> n c", Linearity::Joint, {e, e, e}, {P, R}, {P, P}, P, 0},
      {"a choice of sums", "n c, n c, n c -> n c", Linearity::Rest, {e, e, e, e}, {R, P, P}, {R, P, P}, P, 0},
      {"a choice of one", "n c, n c, n c -> n c", Linearity::Rest, {e, e, e, e}, {R, R, P}, {R, P, P}, P, 0},
      {"an owed choice", "n c, n c, n c -> n c", Linearity::Rest, {e, e, e, e}, {P, R, R}, {R, R, R}, R, 384},
      {"max of sums", "n c, n c -> n c", Linearity::None, {e, e, e}, {P, R}, {R, R}, R, 384},
      {"a maximum is not a sum",
       "n c, n c -> n c",
       Linearity::Joint,
       {e, e, e},
       {Partial(ReduceOp::Max), R},
       {R, R},
       R,
       384},
      {"picking passes any",
       "n c -> c n",
       Linearity::Select,
       {e, e},
       {Partial(ReduceOp::Max)},
       {Partial(ReduceOp::Max)},
       Partial(ReduceOp::Max),
       0},
      {"transpose", "n c -> c n", Linearity::Select, {{3, 5}, {5, 3}}, {S(1)}, {S(1)}, S(0), 0},
      {"reduced letter", "n c -> n", Linearity::First, {e, {8}}, {S(1)}, {S(1)}, P, 0},
      {"kept letter", "n c -> n", Linearity::First, {e, {8}}, {S(0)}, {S(0)}, S(0), 0},
      {"whole elsewhere", "n c! -> n c", Linearity::None, {e, e}, {S(0)}, {S(0)}, S(0), 0},
      {"row of ones", "n c, . c -> n c", Linearity::None, {e, {1, 8}, e}, {S(0), R}, {S(0), R}, S(0), 0},
      {"row follows", "n c, . c -> n c", Linearity::None, {e, {1, 8}, e}, {S(1), R}, {S(1), S(1)}, S(1), 0},
      {"row leads", "n c, . c -> n c", Linearity::None, {e, {1, 8}, e}, {R, S(1)}, {S(1), S(1)}, S(1), 0},
      {"a cut dim of one",
       "n c, . c -> n c",
       Linearity::None,
       {e, {1, 8}, e},
       {S(0), S(0)},
       {S(0), R},
       S(0),
       24},
  };
}

std::vector<Row> cuts_that_move() {
  const Dims& e = kSquare;
  return {
      {"whole: the cut moves", "n c! -> n c", Linearity::None, {e, e}, {S(1)}, {S(0)}, S(0), 64},
      {"nowhere to move to", "c! -> c", Linearity::None, {{8}, {8}}, {S(0)}, {R}, R, 24},
      {"no dim of one", "n c! -> n c", Linearity::None, {{1, 8}, {1, 8}}, {S(1)}, {R}, R, 24},
      {"the dim that busies most",
       "n d c! -> n d c",
       Linearity::None,
       {{2, 4, 8}, {2, 4, 8}},
       {S(2)},
       {S(1)},
       S(1),
       64},
      {"not to a sum", "n k! -> n", Linearity::None, {{1, 8}, {1}}, {S(1)}, {R}, R, 24},
      {"the other keeps its cut, the smaller is made whole",
       "n c!, c! d -> n d",
       Linearity::None,
       {{40, 8}, {8, 4}, {40, 4}},
       {S(0), S(0)},
       {S(0), R},
       S(0),
       96},
      {"the other follows a cut that moves",
       "n c!, n d -> n d",
       Linearity::None,
       {e, e, e},
       {S(1), R},
       {S(0), S(0)},
       S(0),
       64},
  };
}

}  // namespace

TEST_CASE("what rules decide", "[mesh]") {
  std::vector<Row> table = products();
  for (Row& row : cuts_that_move()) table.push_back(std::move(row));
  for (Row& row : other_rules()) table.push_back(std::move(row));
  for (const Row& row : table) {
    INFO(row.what << ": " << row.rule);
    const Strategy s = resolve_row(row);
    for (std::size_t i = 0; i < row.needed.size(); ++i) {
      INFO("input " << i << " " << s.inputs[i]->str());
      CHECK(s.inputs[i]->placement(0) == row.needed[i]);
    }
    CHECK(s.outputs[0]->placement(0) == row.result);
    CHECK(s.cost == row.cost);
  }
}

TEST_CASE("the reduction of a lost letter is the rule's", "[mesh]") {
  const Row row{"", "n c -> n", Linearity::None, {{8, 8}, {8}}, {S(1)}, {S(1)}, P, 0};
  CHECK(resolve_row(row, ReduceOp::Max).outputs[0]->placement(0) == Partial(ReduceOp::Max));
}

TEST_CASE("a letter that may not be lost passes its cut on", "[mesh]") {
  Rule rule = parse_rule("n c -> n");
  rule.may_miss = false;
  const RuleProblem problem{&rule, {ShardSpec::make(four(), {S(1)}, {8, 8})}, {{8}}, {}};
  CHECK(resolve(problem).inputs[0]->placement(0) == S(0));
  const RuleProblem single{&rule, {ShardSpec::make(four(), {S(1)}, {1, 8})}, {{1}}, {}};
  CHECK(resolve(single).inputs[0]->is_replicated());
}

TEST_CASE("a cut that moves goes to a window last", "[mesh]") {
  const Rule rule = parse_rule("n . h~, o . . -> n o h", Linearity::Each);
  const Window w{.kernel = 3, .stride = 1, .pad_lo = 1, .pad_hi = 1};
  const auto moved = [&](std::int64_t samples) {
    const SpecPtr x = ShardSpec::make(four(), {S(1)}, {samples, 8, 12});
    const SpecPtr filters = ShardSpec::replicated(four(), {3, 8, 3});
    return resolve({&rule, {x, filters}, {{samples, 3, 12}}, {{'h', w}}}).inputs[0]->placement(0);
  };
  CHECK(moved(4) == S(0));
  CHECK(moved(3) == S(2));
  CHECK(moved(1) == S(2));
}

TEST_CASE("other cuts of one letter: the larger operand keeps its own", "[mesh]") {
  const Rule rule = parse_rule("n c, n . -> n c");
  const SpecPtr large = ShardSpec::from_lengths(four(), {S(0)}, {9, 5}, {{1, 4, 0, 4}});
  const SpecPtr little = ShardSpec::from_lengths(four(), {S(0)}, {9, 1}, {{3, 3, 3, 0}});
  const Strategy s = resolve({&rule, {large, little}, {{9, 5}}, {}});
  CHECK(s.inputs[0] == large);
  CHECK(s.inputs[1]->cut(0)->parts == large->cut(0)->parts);
  CHECK(s.outputs[0] == large);
  CHECK(s.cost == 9);
}

TEST_CASE("a window's letter: outputs live where the middles are", "[mesh]") {
  const Rule rule = parse_rule("n c h~, o c . -> n o h", Linearity::Each);
  const SpecPtr x = ShardSpec::from_lengths(four(), {S(2)}, {1, 2, 10}, {{4, 0, 3, 3}});
  const Window w{.kernel = 3, .stride = 2, .pad_lo = 1, .pad_hi = 1};
  const Strategy s = resolve({&rule, {x, ShardSpec::replicated(four(), {3, 2, 3})}, {{1, 3, 5}}, {{'h', w}}});
  CHECK(s.inputs[0] == x);
  CHECK(s.outputs[0]->cut(2)->parts == std::vector<Intervals>{{{0, 2}}, {}, {{2, 4}}, {{4, 5}}});
  // Several intervals per rank cannot slide: the default cut instead.
  const DimCut split{{0}, {{{0, 2}, {8, 10}}, {{2, 4}}, {{4, 6}}, {{6, 8}}}};
  const SpecPtr y = ShardSpec::make(four(), {S(2)}, {1, 2, 10}, {std::nullopt, std::nullopt, split});
  const Strategy t = resolve({&rule, {y, ShardSpec::replicated(four(), {3, 2, 3})}, {{1, 3, 5}}, {{'h', w}}});
  CHECK(t.inputs[0] == ShardSpec::make(four(), {S(2)}, {1, 2, 10}));
}

TEST_CASE("two mesh axes decide apart", "[mesh]") {
  const DeviceMesh mesh(recording_communicator(0, 6), {{"a", 2}, {"b", 3}});
  const Rule rule = parse_rule(kMatmul, Linearity::Each);
  const auto out = [&](const Placements& x, const Placements& w) {
    return resolve({&rule,
                    {ShardSpec::make(mesh, x, {12, 6}), ShardSpec::make(mesh, w, {6, 12})},
                    {{12, 12}},
                    {}})
        .outputs[0]
        ->placements();
  };
  CHECK(out({S(0), R}, {R, S(1)}) == Placements{S(0), S(1)});
  CHECK(out({S(0), S(1)}, {R, S(0)}) == Placements{S(0), P});
  CHECK(out({S(0), S(0)}, {R, R}) == Placements{S(0), S(0)});
  CHECK(out({P, S(0)}, {R, R}) == Placements{P, S(0)});
  CHECK(out({S(1), S(1)}, {R, R}) == Placements{P, P});
}

namespace {

// What must hold of every decision: dims of one letter are cut alike, what lacks a cut letter is whole in an
// input and Partial in an output, and Partial is only where it was given.
std::string fault_of(const Rule& rule, const std::vector<SpecPtr>& given, const Strategy& s) {
  const int axes = s.inputs[0]->mesh().ndim();
  std::map<char, CutPtr> cuts;
  std::map<char, unsigned> cut_by;
  auto meet = [&](const RuleTerm& term, const ShardSpec& spec) -> std::string {
    for (std::size_t d = 0; d < term.size(); ++d) {
      const CutPtr& cut = spec.cut(static_cast<int>(d));
      if (term[d].letter == 0) {
        if (cut) return "a dim without a letter is cut";
        continue;
      }
      auto [it, fresh] = cuts.emplace(term[d].letter, cut);
      if (!fresh && ((cut == nullptr) != (it->second == nullptr) || (cut && !(*cut == *it->second))))
        return fmt::format("letter {} is cut in two ways", term[d].letter);
      if (cut)
        for (const int a : cut->axes) cut_by[term[d].letter] |= 1U << static_cast<unsigned>(a);
      if (cut && term[d].whole) return "a whole letter is cut";
    }
    return "";
  };
  for (std::size_t i = 0; i < rule.inputs.size(); ++i)
    if (auto wrong = meet(rule.inputs[i], *s.inputs[i]); !wrong.empty()) return wrong;
  for (std::size_t o = 0; o < rule.outputs.size(); ++o)
    if (auto wrong = meet(rule.outputs[o], *s.outputs[o]); !wrong.empty()) return wrong;
  unsigned letters = 0;
  for (const auto& [letter, mask] : cut_by) letters |= mask;
  for (int a = 0; a < axes; ++a) {
    const bool lettered = (letters >> static_cast<unsigned>(a) & 1U) != 0;
    int partial_in = 0;
    for (std::size_t i = 0; i < given.size(); ++i) {
      if (!s.inputs[i]->placement(a).is_partial()) continue;
      ++partial_in;
      if (!given[i]->placement(a).is_partial() && rule.linearity != Linearity::Joint &&
          rule.linearity != Linearity::Rest)
        return "Partial from nothing";
      if (rule.linearity == Linearity::Rest && i == 0) return "the one that chooses is owed";
    }
    for (const SpecPtr& out : s.outputs) {
      const Placement& p = out->placement(a);
      if (lettered && !p.is_shard() && !(p == Partial(rule.missing))) return "a lost letter is not owed";
      if (lettered && partial_in > 0) return "Partial beside a cut on one axis";
      if (!lettered && p.is_partial() != (partial_in > 0)) return "Partial in, not out";
    }
    if (rule.linearity == Linearity::None && partial_in > 0) return "Partial into a non-linear op";
  }
  const auto owing =
      std::count_if(s.inputs.begin(), s.inputs.end(), [](const SpecPtr& in) { return in->has_partial(); });
  if (rule.linearity == Linearity::Each && owing > 1) return "two Partial factors";
  return "";
}

}  // namespace

TEST_CASE("what holds of every decision", "[mesh]") {
  auto random = test_random(20);
  const std::vector<std::string> rules{
      kMatmul,       "b m k, b k n -> b m n", "n c, n c -> n c", "n c, . c -> n c", "n c -> n",
      "n c! -> n c", "n c, c -> n c",         "x y z -> z x y",  "a b, c -> a b c"};
  const std::vector<Linearity> linearities{Linearity::None, Linearity::First, Linearity::Each,
                                           Linearity::Joint, Linearity::Rest};
  const std::map<char, std::int64_t> length{{'m', 5}, {'k', 6}, {'n', 4}, {'b', 3}, {'c', 7},
                                            {'x', 2}, {'y', 5}, {'z', 4}, {'a', 6}};
  for (int trial = 0; trial < trials(1500); ++trial) {
    const std::vector<int> shape = random_mesh_sizes(random, static_cast<int>(random_int(random, 1, 6)));
    int ranks = 1;
    for (const int s : shape) ranks *= s;
    const DeviceMesh mesh = mesh_over(recording_communicator(0, ranks), shape);
    const Rule rule = parse_rule(pick(random, rules), pick(random, linearities));
    auto sizes_of = [&](const RuleTerm& term) {
      Dims sizes;
      for (const RuleDim& d : term) sizes.push_back(d.letter == 0 ? 1 : length.at(d.letter));
      return sizes;
    };
    RuleProblem problem{&rule, {}, {sizes_of(rule.outputs[0])}, {}};
    for (const RuleTerm& term : rule.inputs)
      problem.inputs.push_back(random_spec(random, mesh, sizes_of(term), {.partial = true}));
    const Strategy s = resolve(problem);
    INFO(str(rule));
    for (const SpecPtr& in : problem.inputs) UNSCOPED_INFO(in->str());
    REQUIRE(fault_of(rule, problem.inputs, s) == "");
  }
}

TEST_CASE("rules that say nothing are refused", "[mesh]") {
  CHECK(contains(refusal([] { parse_rule("m k, k n"); }), "no \"->\""));
  CHECK(contains(refusal([] { parse_rule("m 1 -> m"); }), "unexpected '1'"));
  CHECK(contains(refusal([] { parse_rule("~ m -> m"); }), "without a letter"));
  CHECK(str(parse_rule("n c h~, o c . -> n o h")) == "n c h~, o c . -> n o h");
}
