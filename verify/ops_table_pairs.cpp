#include "verify/ops_table_pairs.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tessera::verify {
namespace {

using Placed = std::vector<Placing>;

std::int64_t sent(const Row& row, const char* kind) {
  std::int64_t bytes = 0;
  for (const Sent* pass : {&row.forward, &row.backward})
    if (const auto found = pass->bytes.find(kind); found != pass->bytes.end()) bytes += found->second;
  return bytes;
}

// Which of the inputs that are cut were made whole, told from how much was sent: the fewest that make it up.
std::string made_whole(const TableEntry& entry, const Placing& placing, const Row& row) {
  std::vector<Input> cut;
  for (const Input& i : parse_inputs(entry.inputs)) {
    const auto found = placing.find(i.name);
    if (found != placing.end() && found->second[0].is_shard()) cut.push_back(i);
  }
  const std::int64_t bytes = sent(row, "all-gather");
  for (std::size_t count = 1; count <= cut.size(); ++count)
    for (unsigned set = 1; set < 1U << cut.size(); ++set) {
      std::int64_t all = 0;
      std::vector<std::string> names;
      for (std::size_t i = 0; i < cut.size(); ++i)
        if ((set >> i & 1U) != 0) {
          all += cut[i].bytes() * (row.ranks - 1);
          names.push_back(cut[i].name);
        }
      if (names.size() == count && all == bytes) return fmt::format("{}", fmt::join(names, ", "));
    }
  return "a part";
}

std::string joined(const std::set<std::string>& list) { return fmt::format("{}", fmt::join(list, ",")); }

// "a:S0,S1 b:P" for the pairs a:S0 b:P and a:S1 b:P.
std::string folded(const Placed& placed) {
  std::map<std::pair<std::string, std::string>, std::map<std::string, std::set<std::string>>> pairs;
  std::set<std::string> parts;
  for (const Placing& one : placed) {
    if (one.size() != 2) {
      parts.insert(str(one));
      continue;
    }
    const auto& [a, p] = *one.begin();
    const auto& [b, q] = *one.rbegin();
    pairs[{a, b}][verify::str(p[0])].insert(verify::str(q[0]));
  }
  for (const auto& [names, beside] : pairs) {
    std::map<std::set<std::string>, std::set<std::string>> alike;
    for (const auto& [p, others] : beside) alike[others].insert(p);
    for (const auto& [others, own] : alike)
      parts.insert(fmt::format("{}:{} {}:{}", names.first, joined(own), names.second, joined(others)));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace

// Each list is complete: what is made whole may be cut elsewhere as well.
void PairList::add(const TableEntry& entry, const Placing& placing, const Row& row) {
  const bool whole = sent(row, "all-gather") > 0;
  const bool moved = sent(row, "re-shard") > 0;
  const bool summed = sent(row, "reduce-scatter") > 0;
  const auto file = [&](Lines& lines, const std::string& what) {
    if (!is_said(entry.op, placing, lines)) lines[what][entry.op].push_back(placing);
  };
  if (whole) file(whole_, made_whole(entry, placing, row));
  if (moved) file(moved_, "");
  if (summed) file(summed_, "");
  if (row.gathers_all && !whole && !moved && !summed) file(statistics_, "");
}

// Whether one part of a pair is listed there, or among what is made whole.
bool PairList::is_said(const std::string& op, const Placing& placing, const Lines& lines) const {
  if (placing.size() < 2) return false;
  const auto lists = [&](const Lines& all, const Placing& one) {
    return std::any_of(all.begin(), all.end(), [&](const auto& line) {
      const auto found = line.second.find(op);
      return found != line.second.end() &&
             std::find(found->second.begin(), found->second.end(), one) != found->second.end();
    });
  };
  return std::any_of(placing.begin(), placing.end(), [&](const auto& part) {
    return lists(lines, Placing{part}) || lists(whole_, Placing{part});
  });
}

std::string PairList::rows(const Lines& lines) {
  std::string text;
  for (const auto& [said, by_op] : lines) {
    std::map<std::string, std::vector<std::string>> alike;
    for (const auto& [op, placed] : by_op) alike[folded(placed)].push_back(op);
    for (const auto& [placed, ops] : alike) {
      text += fmt::format("| {} |", fmt::join(ops, ", "));
      if (!said.empty()) text += fmt::format(" {} |", said);
      text += fmt::format(" {} |\n", placed);
    }
  }
  return text;
}

std::string PairList::text() const {
  return fmt::format(R"(
## Pairs that move an input

Every two inputs of a call were tried in every two placements, over one axis with default cuts, forward and backward; what
is not listed here leaves its inputs where they are. `a:S0,S1 b:P` stands for two pairs, and a pair is not listed where one
of its parts alone is. Beside that no forward pass, listed or not, sends more than the call's inputs have (this is checked;
what a rank contributes to a gather counts once for each of the others), but for attention, whose keys and values travel
once around the ring, for sorts, whose values travel with their numbers, and for statistics of rows that are
cut and shorter than what travels for them (up to three numbers a row and rank). What a backward pass exchanges has no such
bound: the tables above say how much it is.

Made whole on every rank (*all-gather*). Products whose factors are cut along different dims need all of one of them, the
one that has fewer elements; so do those of a cut factor and one that is owed. Vectors of parameters, masks and indices
that are cut in another way than the large input are made whole beside it. *A part*: one row of a dim that is cut, or a
few numbers, go to all ranks.

| op | made whole | placed |
|---|---|---|
{}
Cut elsewhere (*re-shard*): no rank receives more than it then holds. Of two inputs that are cut differently one follows
the other; a dim that must be whole passes its cut to another one; cuts that do not fall between rows or blocks move a
little.

| op | placed |
|---|---|
{}
Made in a cut (*reduce-scatter*): a sum that is owed, by an input or by the operation, beside an input that is cut.

| op | placed |
|---|---|
{}
No input moves, but the statistics that are gathered are more than the parameter that is cut:

| op | placed |
|---|---|
{})",
                     rows(whole_), rows(moved_), rows(summed_), rows(statistics_));
}

}  // namespace tessera::verify
