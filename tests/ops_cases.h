// Random calls of every public operation: shapes, parameters, what the inputs may be, and the call itself.
// The same list serves finite differences, parity with one rank, and the proof that a broken gradient is
// noticed.
#pragma once
#include "ops/ops.h"
#include "tests/mesh_cases.h"

namespace tessera::ops_cases {

using mesh_cases::Random;

enum class InputKind {
  Any,       // in (-2, 2)
  Positive,  // in (0.5, 2.5)
  Coarse,    // in (-2, 2), odd multiples of 0.005: not near 0, nor they or differences near a random_constant
  Between,   // in (-2, 2), multiples of 0.01: 0.005 from any Coarse one
  Steps,     // small integers: many ties
  Bool,
  Index,     // I64 in [0, bound)
  Distinct,  // no two within 0.05 of each other
};
struct InputSpec {
  Dims sizes;
  InputKind kind = InputKind::Any;
  std::int64_t bound = 1;
};

// Of two tensors that one operation compares.
using InputKinds = std::pair<InputKind, InputKind>;
constexpr InputKinds kApart{InputKind::Coarse, InputKind::Between};  // no step makes a tie of them

struct OpCase {
  std::string text;
  std::vector<InputSpec> inputs;
  std::function<Tensors(const Tensors&)> call;
  bool smooth = true;  // finite differences make sense
};

struct OpFamily {
  const char* name;
  std::function<OpCase(Random&)> draw;
};

// One entry per public operation (or group of them that share a signature).
const std::vector<OpFamily>& families();
// The parts of the list, by file.
void add_pointwise(std::vector<OpFamily>& list);
void add_reductions(std::vector<OpFamily>& list);
void add_products(std::vector<OpFamily>& list);
void add_shapes(std::vector<OpFamily>& list);
void add_windows(std::vector<OpFamily>& list);  // convolution's kin: transposed, pooling, interpolation
void add_norms(std::vector<OpFamily>& list);    // over channels
void add_losses(std::vector<OpFamily>& list);
void add_indexing(std::vector<OpFamily>& list);  // gather, scatter, embedding, sort
void add_points(std::vector<OpFamily>& list);

// Sizes of `least` to `most` dims, each up to `longest`; now and then of more dims, up to `all` of them and
// each of 1 or 2.
struct DimRange {
  int least = 0;
  int most = 3;
  std::int64_t longest = 5;
  int all = Dims::kMax;
};
Dims operand_sizes(Random& random, const DimRange& range);

// A constant in [from, to), which are multiples of 0.01; halfway between two multiples of 0.005.
double random_constant(Random& random, double from, double to);

// Row-major values of an input, the same on every rank; float32 holds them exactly.
std::vector<double> draw_values(Random& random, const InputSpec& input);
DType dtype_of(const InputSpec& input, DType floating = DType::F64);
Tensor plain_input(const InputSpec& input, const std::vector<double>& values, DType floating = DType::F64);
// The same values in memory of a random order: row-major, channels innermost, any other, or with gaps between
// them. Draws alike whatever the sizes, as ranks have parts of different ones.
Array in_random_memory(Random& random, const Array& values);
// How simply a tensor is held beside what was drawn.
enum class Ease : std::uint8_t {
  AsDrawn,
  Even,   // its placements, with default cuts and row-major memory
  Whole,  // on every rank
};
struct Placing {
  bool partial = true;          // may be held as sums that are owed
  DType floating = DType::F64;  // of inputs that are neither masks nor indices
  Ease ease = Ease::AsDrawn;
};
// Under a random spec (Partial among them), or now and then plain; in memory of a random order.
Tensor random_input(Random& random, const DeviceMesh& mesh, const InputSpec& input,
                    const std::vector<double>& values, const Placing& placing = {});
// Any placement of a cotangent.
Tensor random_cotangent(Random& random, const DeviceMesh& mesh, const Dims& sizes,
                        const std::vector<double>& values, const Placing& placing = {});
std::string placed_str(const Tensor& t);

// One case on one rank: what every mesh must reproduce.
struct Reference {
  std::string refused;  // the error's text, if the call is refused
  std::vector<std::vector<double>> inputs, outputs, cotangents, gradients;
  std::vector<std::vector<double>> directions, second;  // gradients of sum <direction, gradient>
};
Reference run_plain(Random& random, const OpCase& c, bool second);
// The same on a mesh with random placements. Errors relative to the reference, the same on all ranks unless
// something is very wrong.
struct Parity {
  double outputs = 0;
  double gradients = 0;
  double second = 0;
  bool replicas = true;     // whatever is whole on every rank has the same bits everywhere
  std::size_t tensors = 0;  // that were held: inputs, cotangents, directions
  std::string refused;
  std::string where;  // placements
  double worst() const { return std::max({outputs, gradients, second}); }
};
// An undefined mesh: on plain tensors (in another precision than the reference).
struct Holding {
  DType floating = DType::F64;
  std::vector<Ease> ease = {};  // of the tensors in the order in which they are made; the rest as drawn
};
Parity run_on_mesh(Random& random, const DeviceMesh& mesh, const OpCase& c, const Reference& reference,
                   const Holding& holding = {});

// Largest difference relative to the largest expected value (at least 1).
double difference(const std::vector<double>& got, const std::vector<double>& expected);

}  // namespace tessera::ops_cases
