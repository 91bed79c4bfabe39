// One call of the table under one placing: run, and what was sent. Internal to verify/ops_table*.cpp.
#pragma once
#include <map>
#include <set>

#include "autograd/tensor.h"
#include "verify/ops_table.h"

namespace tessera::verify {

struct Input {
  std::string name;
  Dims sizes;
  DType dtype = DType::F32;
  std::int64_t below = 0;  // of indices

  std::int64_t bytes() const { return numel_of(sizes) * static_cast<std::int64_t>(size_of(dtype)); }
};
std::vector<Input> parse_inputs(const char* text);

// Per input what the axes of the mesh do: one placement for all of them (a sum is owed over the first alone),
// or one each. Inputs that are not named are Replicate.
using Placing = std::map<std::string, Placements>;
std::string str(const Placing& placing);
std::string str(const Placement& p);  // "S0", "P", "R"

// Default cuts, or two pieces a rank, dealt out in turn.
enum class Cuts : std::uint8_t { Even, Pieces };

// Every input alone in every placement, all inputs of one shape cut alike, and what the entry asks for.
std::vector<Placing> placings(const TableEntry& entry, const std::vector<Input>& inputs);
// Every two inputs in every two placements that `placings` has not.
std::vector<Placing> further_pairs(const TableEntry& entry, const std::vector<Input>& inputs);

struct Sent {
  std::map<std::string, std::int64_t> bytes;  // by kind, over all ranks
};
std::string str(const Sent& sent);

struct Row {
  std::string placed, result;
  Sent forward, backward;
  bool has_backward = false;
  bool gathers_all = false;  // statistics that are no less than what is cut
  int ranks = 1;

  // Forward, beside re-sharding: what reached other ranks, and what may (all that the inputs have).
  std::int64_t moved = 0;
  std::int64_t allowed = 0;

  bool is_quiet() const { return forward.bytes.empty() && backward.bytes.empty(); }
  std::set<std::string> kinds() const;  // what was sent, without amounts
};
// Collective.
Row run(const TableEntry& entry, const Placing& placing, const DeviceMesh& mesh, Cuts cuts = Cuts::Even);

// What the passes back from one call send.
struct Passes {
  std::vector<Placement> results;  // of those that have gradients, on the first axis; empty: none has
  std::int64_t result_bytes = 0;   // of all of them
  Sent once, recorded, twice;      // twice: the gradient of recorded gradients
};
// All given gradients are placed like the results (null) or as `given` says. Nothing is run where a result
// has no such dim. Collective.
Passes run_back(const TableEntry& entry, const Placing& placing, const DeviceMesh& mesh,
                const Placement* given);

}  // namespace tessera::verify
