// The pairs of placements under which an operation moves its inputs, grouped for reading: one line for all
// operations and placements of which the same is to be said. Internal to verify/ops_table*.cpp.
#pragma once
#include "verify/ops_table_run.h"

namespace tessera::verify {

class PairList {
 public:
  // Files what a row moves; nothing where it moves no input, or where a part of its placing alone, filed
  // before, says as much.
  void add(const TableEntry& entry, const Placing& placing, const Row& row);
  // The section of the document.
  std::string text() const;

 private:
  using Placed = std::vector<Placing>;
  // By what is made whole, if anything is, then by operation.
  using Lines = std::map<std::string, std::map<std::string, Placed>>;
  bool is_said(const std::string& op, const Placing& placing, const Lines& lines) const;
  static std::string rows(const Lines& lines);

  Lines whole_, moved_, summed_, statistics_;
};

}  // namespace tessera::verify
