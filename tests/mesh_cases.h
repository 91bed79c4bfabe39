// What the tests of meshes, the tape and the operations share: random specs of every kind, local arrays whose
// elements are functions of their global index, and arithmetic on global indices. All of it works out the
// same on every rank.
#pragma once
#include <functional>
#include <random>

#include "mesh/exchange_plan.h"
#include "mesh/redistribute.h"
#include "runtime/error.h"
#include "tests/support/world.h"

namespace tessera::mesh_cases {

using Random = std::mt19937_64;

inline bool chance(Random& random, int percent) { return random_int(random, 0, 99) < percent; }
inline PaddingMode random_mode(Random& random) { return static_cast<PaddingMode>(random_int(random, 0, 3)); }
template <class T>
const T& pick(Random& random, const std::vector<T>& list) {
  return list[static_cast<std::size_t>(random_int(random, 0, static_cast<std::int64_t>(list.size()) - 1))];
}

// `parts` lengths >= 0 that sum to n.
std::vector<std::int64_t> random_lengths(Random& random, std::int64_t n, int parts);
// Default, uneven, with empty parts, or pieces dealt out to the parts (several intervals each, any order).
DimCut random_cut(Random& random, const std::vector<int>& axes, std::int64_t n, int parts);

struct SpecKinds {
  bool partial = false;   // axes may be Partial (all of them with one reduction,
  bool mixed = false;     // or each with its own)
  bool intervals = true;  // several intervals per rank
  int replicate_percent = 25;
};
// The facts of a spec, to be made on the mesh of any rank.
struct SpecFacts {
  Placements placements;
  Dims sizes;
  std::vector<std::optional<DimCut>> cuts;
  SpecPtr on(const DeviceMesh& mesh) const { return ShardSpec::make(mesh, placements, sizes, cuts); }
};
SpecFacts random_facts(Random& random, const std::vector<int>& mesh_sizes, const Dims& sizes,
                       const SpecKinds& kinds = {});
SpecPtr random_spec(Random& random, const DeviceMesh& mesh, const Dims& sizes, const SpecKinds& kinds = {});
Dims random_sizes(Random& random, int dims, std::int64_t most);

// One or two axes over `ranks`.
std::vector<int> random_mesh_sizes(Random& random, int ranks);
DeviceMesh mesh_over(const Communicator& comm, const std::vector<int>& sizes);
// Every shape of mesh of one or two axes over the test world.
std::vector<DeviceMesh> all_meshes();

// Global positions, one per position of the buffer, of one dim of a layout; -1 where nothing is.
std::vector<std::int64_t> positions(const LocalLayout& layout, int dim);
// Row-major global index of every element of the buffer, or -1.
std::vector<std::int64_t> global_indices(const LocalLayout& layout, const Dims& global_sizes);

// What the rank holds of the global tensor whose element i (row-major) is value(i). Where the spec is
// Partial, the ranks hold terms that only make the value together.
Array local_part(const ShardSpec& spec, int rank, const std::function<double(std::int64_t)>& value,
                 DType dtype);
// The same without the terms' arithmetic: specs without Partial axes.
std::vector<double> expected_part(const ShardSpec& spec, int rank,
                                  const std::function<double(std::int64_t)>& value);

// The text of the error that `f` throws, or "".
template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}
inline bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}
// True if every rank has the same text; collective over the test world.
bool same_everywhere(const std::string& text);
// True if `mine` is true on every rank; collective over the test world.
bool true_everywhere(bool mine);

// Number of trials: `usual`, or TESSERA_TRIALS times as many.
int trials(int usual);

}  // namespace tessera::mesh_cases
