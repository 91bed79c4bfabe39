// How good a map is, where it counts.
#pragma once
#include <array>
#include <span>
#include <string>
#include <vector>

#include "examples/relief/data.h"

namespace tessera::relief {

enum class Where : std::uint8_t { HeldOut, Training };

// Root-mean-square errors in m; NaN where there are no such cells.
struct Score {
  struct Errors {
    double plain = 0;     // every cell alike
    double weighted = 0;  // by cos(latitude), which is a cell's area
  };
  std::string name;
  Errors land, sea, all;  // land: where the truth is above 0
};

// Collective over the data's domain. `heights`: [1, 1, rows, cols] in m, cut like the truth.
Score score_of(const std::string& name, const ReliefData& data, const Tensor& heights, Where where);
// The table as text, one row per score; the lowest figure of each column is marked.
std::string score_table(std::span<const Score> scores);

}  // namespace tessera::relief
