// A trial: one way to split a case's tensors over the ranks.
//
// Everything about it follows from the seed, the case's name and the trial's number, so every rank draws the
// same without a message, and a failed trial can be run again alone. Drawn are: the mesh (one or two axes
// over all ranks); for every tensor what each mesh axis does to it; and where the cuts are. Cuts are even,
// random, with a shard of size one, with an empty shard, or with several intervals per rank. Parameters are
// plain in most trials; cotangents have cuts of their own. Some floating inputs are sums that an axis owes,
// of which every rank has a term. How a tensor's local arrays lie in memory is drawn too, which no value may
// show.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mesh/spec.h"
#include "verify/case.h"

namespace tessera::verify {

struct TensorPlan {
  bool plain = false;  // not on the mesh at all
  Placements placements;
  std::vector<std::optional<DimCut>> cuts;  // per tensor dim; none where no axis cuts it
  int source = 0;                           // the rank that has the tensor before it is scattered
  std::uint64_t terms = 0;                  // what the terms of a sum that is owed are drawn from
  Dims order = {};                          // from the outermost dim in memory; empty: row-major
  std::string str() const;                  // "R,S1 dim 1 cut [0,3) [3,8) order [1, 0]"
};

struct Trial {
  std::string id;  // "3", or "limit0" for a sharding with a limit
  std::uint64_t seed = 0;
  std::vector<int> mesh;                      // ranks per axis
  std::map<std::string, TensorPlan> tensors;  // "in.x", "param.w", "cot.y", "v.x"
  std::optional<std::int64_t> max_forward_bytes;
  std::string str() const;  // mesh, placements and cuts on one line
};

struct TrialChoice {
  std::uint64_t seed = 0;
  int ranks = 1;
  std::vector<int> mesh;  // empty: drawn as well
};
Trial draw_trial(const Case& c, const TrialChoice& choice, int number);
// The sharding of c.limits[number]: tensors without an entry are replicated.
Trial limit_trial(const Case& c, const TrialChoice& choice, int number);

std::string mesh_str(const std::vector<int>& mesh);  // "2x2"

}  // namespace tessera::verify
