// A conformance case: inputs, a small program, and the outputs and gradients that it must give.
//
// A case is one safetensors file whose tensors are named by what they are:
//   in.X     data, may be sharded in any way        param.X  a parameter, usually replicated
//   out.Y    the expected output Y, whole           cot.Y    the cotangent of output Y
//   grad.X   the expected gradient of sum over outputs of <cot.Y, Y> with respect to in.X or param.X
//   v.X, grad2.X   a direction for grad.X, and the gradient of sum of <v.X, grad.X>: second derivatives
// and whose metadata holds the program, the allowed errors and, where there are any, the limits, as JSON.
// Loading checks that all of it fits together; what does not is an Error of kind Io naming file and tensor.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/array.h"

namespace tessera::verify {

// One operation. Names are those of the file without their prefix, or outputs of earlier steps; an input that
// is left out (a missing bias) is empty. An output may take a name that is in use, that of an input even:
// from then on steps and "out." mean the new value, while "grad." always means the input or parameter.
struct Step {
  std::string op;
  std::vector<std::optional<std::string>> in;
  std::vector<std::string> out;
  nlohmann::json args;  // an object
};

// What one mesh axis does with a tensor: nothing (replicate), or cut a dim.
struct AxisPlacement {
  std::optional<int> dim;
  bool operator==(const AxisPlacement&) const = default;
  std::string str() const;  // "R", "S2"
};

// A sharding under which the forward pass may send at most so many bytes, all ranks together. Tensors without
// an entry are replicated. For an axis that replicates, the list of cuts may be empty.
struct Limit {
  std::vector<int> mesh;
  std::map<std::string, std::vector<AxisPlacement>> placements;
  std::map<std::string, std::vector<std::vector<std::int64_t>>>
      cuts;  // per mesh axis: local sizes by coordinate
  std::int64_t max_forward_bytes = 0;
  int ranks() const;
};

using ArrayMap = std::map<std::string, Array>;

struct Case {
  std::string path;
  std::string name;
  std::string source;  // what computed the expected values
  ArrayMap inputs;
  ArrayMap params;
  ArrayMap outputs;
  ArrayMap cotangents;
  ArrayMap gradients;
  ArrayMap directions;
  ArrayMap second_gradients;
  std::vector<Step> program;
  std::map<std::string, double> tolerance;  // by full name: "out.y", "grad.x", "grad2.x"
  std::vector<Limit> limits;

  // The input or parameter of that name; nullptr if there is none.
  const Array* leaf(const std::string& leaf_name) const;
  // Whether a gradient of this input or parameter is asked for.
  bool needs_gradient(const std::string& leaf_name) const;
  bool has_second_derivatives() const { return !directions.empty(); }
  // The largest allowed absolute error of "out.y" or "grad.x"; where the file states none for a second
  // gradient, 1e-4 of its largest value.
  double allowed_error(const std::string& full_name) const;
};

Case load_case(const std::string& path);
// Writes what load_case reads, for instance a failure found elsewhere as a case of its own.
void save_case(const Case& c, const std::string& path);

}  // namespace tessera::verify
