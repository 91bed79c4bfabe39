#include "verify/ops_table_gradients.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/error.h"
#include "verify/programs.h"

namespace tessera::verify {
namespace {

std::int64_t total(const Sent& sent) {
  std::int64_t bytes = 0;
  for (const auto& [kind, n] : sent.bytes) bytes += n;
  return bytes;
}

std::int64_t gathered(const Sent& sent) {
  const auto found = sent.bytes.find("all-gather");
  return found == sent.bytes.end() ? 0 : found->second;
}

// What bringing the given gradients to where the results are may send.
std::int64_t to_be_moved(const Placement& given, std::int64_t bytes, int ranks) {
  if (given.is_partial()) return (ranks - 1) * bytes;
  return given.is_shard() ? bytes : 0;
}

// By operation and placing, the placements of given gradients that are made whole.
using Whole = std::map<std::string, std::map<std::string, std::set<std::string>>>;

class Sweep {
 public:
  explicit Sweep(const DeviceMesh& mesh) : mesh_(mesh) {}

  void add(const TableEntry& entry, const Placing& placing) {
    const Passes own = run_back(entry, placing, mesh_, nullptr);
    if (own.results.empty()) return;
    std::vector<Placement> all{Replicate(), Partial()};
    for (int d = 0; d < Dims::kMax; ++d) all.emplace_back(Shard(d));
    for (const Placement& given : all)
      if (const Passes passes = run_back(entry, placing, mesh_, &given); !passes.results.empty())
        compare({entry, placing, own, passes, given});
  }

  std::string lines() const {
    std::map<std::string, std::set<std::string>> alike;  // by placings
    for (const auto& [op, placed] : whole_) {
      std::set<std::string> parts;
      for (const auto& [where, given] : placed)
        parts.insert(fmt::format("{}: {}", where, fmt::join(given, ",")));
      alike[fmt::format("{}", fmt::join(parts, "; "))].insert(op);
    }
    std::string text;
    for (const auto& [placed, ops] : alike)
      text += fmt::format("| {} | {} |\n", fmt::join(ops, ", "), placed);
    return text;
  }

 private:
  struct Found {
    const TableEntry& entry;
    const Placing& placing;
    const Passes& own;
    const Passes& passes;
    const Placement& given;
  };

  void compare(const Found& f) {
    const bool cut = std::all_of(f.own.results.begin(), f.own.results.end(),
                                 [](const Placement& p) { return p.is_shard(); });
    const std::int64_t more = to_be_moved(f.given, f.own.result_bytes, mesh_.size());
    check(f, f.own.once, f.passes.once, cut ? more : -1);
    check(f, f.own.recorded, f.passes.recorded, cut ? more : -1);
    check(f, f.own.twice, f.passes.twice, cut ? more : -1);
  }

  // `more`: what may be sent beside what is sent for gradients in the place of the results; -1: no bound, but
  // it is listed where something is made whole.
  void check(const Found& f, const Sent& own, const Sent& found, std::int64_t more) {
    const bool gathers = gathered(found) > gathered(own);
    if (more < 0) {
      if (!gathers) return;
      const bool whole = f.placing.empty();
      TS_CHECK(!whole, "ops_table", "{} of whole inputs makes a gradient whole that is given {}", f.entry.op,
               verify::str(f.given));
      whole_[f.entry.op][fmt::format("{} → {}", verify::str(f.placing), results(f))].insert(
          verify::str(f.given));
      return;
    }
    TS_CHECK(!gathers && total(found) <= total(own) + more, "ops_table",
             "{} with {} and a gradient that is given {}: backward sends {}, where {} and {} B may be sent",
             f.entry.op, verify::str(f.placing), verify::str(f.given), verify::str(found), verify::str(own),
             more);
  }

  static std::string results(const Found& f) {
    std::vector<std::string> list;
    for (const Placement& p : f.own.results) list.push_back(verify::str(p));
    return fmt::format("{}", fmt::join(list, ","));
  }

  DeviceMesh mesh_;
  Whole whole_;
};

}  // namespace

std::string gradients_section(const DeviceMesh& mesh) {
  Sweep sweep(mesh);
  for (const TableFamily& family : table_families())
    for (const TableEntry& entry : family.entries) {
      if (!has_op(entry.op)) continue;
      const std::vector<Input> inputs = parse_inputs(entry.inputs);
      sweep.add(entry, {});
      for (const Placing& placing : placings(entry, inputs)) sweep.add(entry, placing);
    }
  return fmt::format(R"(
## Gradients that come placed otherwise

Every call above was run back once more for gradients of its results in every placement: unrecorded, recorded, and
through the recorded gradients again. The gradient of a result that is cut is brought to that cut first, once for all
that needs it: a whole one is taken apart without a message, one that is cut elsewhere is moved, which sends it once at
most, and a sum that is owed is made in the cut. Beside that no more is sent than for a gradient that lies as the result,
and nothing is made whole (this is checked). Linear operations that move elements about pass gradients on however they
lie.

Of results of whole inputs a gradient that is cut stays cut: the inputs are taken apart (this is checked, too). Where
the ranks' parts were or are to be summed up, it is the gradient of every part and goes to all ranks, which is what the
sum sends forward or less; and products need a factor whole that was cut, as above:

| op | placed → result: gradient |
|---|---|
{})",
                     sweep.lines());
}

}  // namespace tessera::verify
