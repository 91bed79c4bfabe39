// Sharding rules: how an op may be split, as a declaration.
//
// A rule is a string with one term per tensor and one token per tensor dim: "m k, k n -> m n".
//   same letter   the same axis of the mathematics
//   ~             a window slides over this axis ("h~"): neighbours' data is needed when it is cut
//   !             the axis must be whole ("c!")
//   .             a dim that is never cut and has no name
// A letter missing from the output makes the output Partial (with the rule's reduction). An input that lacks
// a cut axis must be Replicate there. Broadcast dims of size 1 are written "." by whoever builds the rule.
//
// `resolve` tries, for every mesh axis, each letter that some input is cut by, Partial where the op is
// linear, and Replicate; the plan with the fewest elements to move wins, ties go to the order just given.
// Where an input is cut along a dim that must be whole or has no letter, the other letters that it shares
// with the outputs are tried too: its cut moves there (an all-to-all), which moves less than making it whole.
#pragma once
#include <map>
#include <string_view>

#include "mesh/layout.h"

namespace tessera {

// What Partial inputs may do.
enum class Linearity : std::uint8_t {
  None,    // reduce first
  First,   // linear in input 0 alone: that one may stay Partial(sum)
  Each,    // linear in each input alone: one input may stay Partial(sum), the same one along all mesh axes,
           // the others are Replicate there
  Joint,   // linear in all inputs together (add, cat): all are Partial(sum); a Replicate one counts on
           // coordinate 0
  Select,  // picks elements (views): any Partial passes
  Rest,    // linear in all inputs but input 0 together (where): as Joint, beside a Replicate input 0
};

struct RuleDim {
  char letter = 0;  // 0: "."
  bool window = false;
  bool whole = false;
};
using RuleTerm = std::vector<RuleDim>;
struct Rule {
  std::vector<RuleTerm> inputs;
  std::vector<RuleTerm> outputs;
  Linearity linearity = Linearity::None;
  ReduceOp missing = ReduceOp::Sum;  // the Partial of an output that lacks a cut letter
  bool may_miss = true;              // false: a cut letter that an output lacks is refused to stay cut
};
Rule parse_rule(std::string_view text, Linearity linearity = Linearity::None);
std::string str(const Rule& rule);

// What `resolve` decides. Same on every rank.
struct Strategy {
  std::vector<SpecPtr> inputs;  // required
  std::vector<SpecPtr> outputs;
  double cost = 0;  // elements moved to get there
  std::shared_ptr<const void> extra =
      nullptr;  // what an op's plan function worked out besides (exchange plans)
  // Specs whose addresses are part of OpCall::parameters: held, so that no other spec gets such an address
  // while the plan is cached.
  std::vector<SpecPtr> held = {};
};

struct RuleProblem {
  const Rule* rule = nullptr;
  std::vector<SpecPtr> inputs;  // null: an absent optional input
  std::vector<Dims> output_sizes;
  std::map<char, Window> windows;  // of the letters marked ~
};
Strategy resolve(const RuleProblem& problem);

}  // namespace tessera
