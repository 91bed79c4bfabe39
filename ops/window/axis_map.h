// Which positions along one dim an output reads, and with what weights: pooling, interpolation and padding
// differ in nothing else. Internal to ops/.
#pragma once
#include "mesh/layout.h"
#include "ops/op.h"
#include "ops/window/sparse_rows.h"

namespace tessera {

// One row per output. `home`: the input position that an output belongs to; must not descend. Nobody asks for
// it without ranks.
struct RowMap {
  cpu::SparseRows rows;
  std::vector<std::int64_t> home;
  bool with_homes = true;
  void reserve(std::int64_t outputs, std::int64_t terms) {
    rows.reserve(outputs, terms);
    if (with_homes) home.reserve(static_cast<std::size_t>(outputs));
  }
  void end_row(std::int64_t belongs_to) {
    rows.end_row();
    if (with_homes) home.push_back(belongs_to);
  }
};

// The map along one dim, as the parameters that it is worked out from: the same on every rank.
struct AxisMap {
  using RowFunction = void (*)(const AxisMap& axis, RowMap& map);
  int dim = 0;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  RowFunction rows = nullptr;
  Window window = {};  // what the function reads of these is its own affair
  double scale = 1;
  bool flag = false;

  RowMap make(bool with_homes) const {
    RowMap map;
    map.with_homes = with_homes;
    // Wide windows reach into the padding.
    map.reserve(outputs,
                outputs * std::clamp<std::int64_t>(window.kernel, 1, std::max<std::int64_t>(inputs, 1)));
    rows(*this, map);
    return map;
  }
  void add_to(Hash& hash) const {
    hash.add(std::int64_t{dim}).add(inputs).add(outputs).add(reinterpret_cast<std::int64_t>(rows));
    hash.add(window.kernel).add(window.stride).add(window.pad_lo).add(window.pad_hi).add(window.dilation);
    hash.add(scale).add(std::int64_t{flag});
  }
};
using AxisMaps = std::vector<AxisMap>;

std::size_t hash_of(const AxisMaps& maps);
Dims mapped_sizes(const Dims& sizes, const AxisMaps& maps);

// Of one dim of a result: every rank has tables of them, some 32 bytes for each.
constexpr std::int64_t kMostOutputs = std::int64_t{1} << 36;
// Refuses a result with a longer dim, or with more bytes than 64 bits count.
void check_outputs(const char* op, const Tensor& x, const AxisMaps& maps);

}  // namespace tessera
