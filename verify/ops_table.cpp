#include "verify/ops_table.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "comm/virtual.h"
#include "runtime/error.h"
#include "verify/ops_table_gradients.h"
#include "verify/ops_table_pairs.h"
#include "verify/programs.h"

namespace tessera::verify {
namespace {

using Kinds = std::set<std::string>;

std::string str(const Kinds& kinds) {
  return kinds.empty() ? "–" : fmt::format("{}", fmt::join(kinds, ", "));
}

std::string describe(const std::vector<Input>& inputs) {
  std::string text;
  for (const Input& i : inputs)
    text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", i.name, i.sizes.str(),
                        i.dtype == DType::I64    ? " (int64)"
                        : i.dtype == DType::Bool ? " (bool)"
                                                 : "");
  return text;
}

template <class F>
void for_each_entry(F&& f) {
  for (const TableFamily& family : table_families())
    for (const TableEntry& entry : family.entries)
      if (has_op(entry.op)) f(entry, parse_inputs(entry.inputs));
}

// A placing that only cuts, of one call.
struct Cutting {
  const TableEntry& entry;
  Placing placing;
};
std::vector<Cutting> all_cuttings() {
  std::vector<Cutting> list;
  for_each_entry([&](const TableEntry& entry, const std::vector<Input>& inputs) {
    for (const Placing& placing : placings(entry, inputs))
      if (std::all_of(placing.begin(), placing.end(),
                      [](const auto& one) { return one.second[0].is_shard(); }))
        list.push_back({entry, placing});
  });
  return list;
}

// The kinds of what is sent for all of the list, in order. Collective.
std::vector<Kinds> kinds_on(const DeviceMesh& mesh, const std::vector<Cutting>& list, Cuts cuts) {
  std::vector<Kinds> kinds;
  kinds.reserve(list.size());
  for (const Cutting& c : list) kinds.push_back(run(c.entry, c.placing, mesh, cuts).kinds());
  return kinds;
}

// The same on four threads, as a mesh of one axis or of two.
std::vector<Kinds> kinds_of_four(const std::vector<MeshAxis>& axes, const std::vector<Cutting>& list,
                                 Cuts cuts) {
  std::vector<Kinds> kinds;
  run_virtual_ranks(4, [&](const Communicator& comm) {
    std::vector<Kinds> mine = kinds_on(DeviceMesh(comm, axes), list, cuts);
    if (comm.rank() == 0) kinds = std::move(mine);
  });
  return kinds;
}

// Where `other` asks for something else than `usual`: a line for all calls of which that is true alike.
std::string differences(const std::vector<Cutting>& list, const std::vector<Kinds>& usual,
                        const std::vector<Kinds>& other) {
  std::map<std::pair<Kinds, Kinds>, std::map<std::string, std::set<std::string>>> lines;
  for (std::size_t i = 0; i < list.size(); ++i)
    if (usual[i] != other[i])
      lines[{usual[i], other[i]}][list[i].entry.op].insert(verify::str(list[i].placing));
  std::string text;
  for (const auto& [kinds, by_op] : lines) {
    std::vector<std::string> calls;
    for (const auto& [op, placed] : by_op) calls.push_back(fmt::format("{} {}", op, fmt::join(placed, ", ")));
    text += fmt::format("| {} | {} | {} |\n", fmt::join(calls, "; "), str(kinds.first), str(kinds.second));
  }
  return text;
}

// One input cut along two dims by two axes: where that asks for something that neither cut does.
std::string two_dims_lines(const std::vector<Cutting>& singles, const std::vector<Kinds>& usual) {
  std::vector<Cutting> list;
  std::vector<Kinds> expected;
  for (std::size_t i = 0; i < singles.size(); ++i)
    for (std::size_t j = i + 1; j < singles.size(); ++j) {
      const Placing& p = singles[i].placing;
      const Placing& q = singles[j].placing;
      const bool one_input = p.size() == 1 && q.size() == 1 && p.begin()->first == q.begin()->first;
      if (&singles[i].entry != &singles[j].entry || !one_input) continue;
      list.push_back({singles[i].entry, {{p.begin()->first, {p.begin()->second[0], q.begin()->second[0]}}}});
      expected.push_back(usual[i]);
      expected.back().insert(usual[j].begin(), usual[j].end());
    }
  const std::vector<Kinds> found = kinds_of_four({{"a", 2}, {"b", 2}}, list, Cuts::Even);
  for (std::size_t i = 0; i < list.size(); ++i)
    if (std::includes(expected[i].begin(), expected[i].end(), found[i].begin(), found[i].end()))
      expected[i] = found[i];
  return differences(list, expected, found);
}

std::string exceptions(const std::string& sentence, const char* heads, const std::string& lines) {
  if (lines.empty()) return fmt::format("\n{}.\n", sentence);
  return fmt::format("\n{}, except:\n\n| op, placed | {} |\n|---|---|---|\n{}", sentence, heads, lines);
}

std::string other_cuts_section() {
  const std::vector<Cutting> list = all_cuttings();
  const std::vector<Kinds> usual = kinds_of_four({{"a", 4}}, list, Cuts::Even);
  const auto two_axes = differences(list, usual, kinds_of_four({{"a", 2}, {"b", 2}}, list, Cuts::Even));
  const auto in_pieces = differences(list, usual, kinds_of_four({{"a", 4}}, list, Cuts::Pieces));
  return R"(
## Other meshes and cuts

On two axes and with two pieces a rank it was compared which kinds of messages are sent in both passes, of single cuts and
of inputs that are cut alike. (Windows slide over one interval a rank: what is in pieces is cut anew.)
)" +
         exceptions("A dim that two axes of a mesh cut together sends what one axis would",
                    "by one axis | by two", two_axes) +
         exceptions("An input that two axes cut along two dims sends what the two cuts would",
                    "the two cuts | both", two_dims_lines(list, usual)) +
         exceptions("A dim of which every rank has two pieces sends what it would in one piece each",
                    "one piece | two pieces", in_pieces);
}

// Every operation of the library has an entry.
void check_complete() {
  std::set<std::string> known;
  for (const TableFamily& family : table_families())
    for (const TableEntry& entry : family.entries) known.insert(entry.op);
  for (const std::string& name : op_names())
    TS_CHECK(known.contains(name), "ops_table", "no entry for {} in ops_table_entries.cpp", name);
}

// Under default cuts over one axis no call moves more than its inputs have, but by re-sharding them.
Row run_checked(const TableEntry& entry, const Placing& placing, const DeviceMesh& mesh) {
  Row row = run(entry, placing, mesh);
  TS_CHECK(row.moved <= row.allowed, "ops_table", "{} with {} moves {} bytes, it may move {}", entry.op,
           row.placed, row.moved, row.allowed);
  return row;
}

// Placements for which no message is needed share one line.
std::string section(const TableEntry& entry, const DeviceMesh& mesh, PairList& pairs) {
  const std::vector<Input> inputs = parse_inputs(entry.inputs);
  std::string text = fmt::format(
      "\n**{}** {}{}\n\n| placed | forward | result | backward |\n|---|---|---|---|\n", entry.op,
      describe(inputs), std::string_view(entry.args) == "{}" ? "" : fmt::format(" `{}`", entry.args));
  std::string quiet;
  for (const Placing& placing : placings(entry, inputs)) {
    const Row row = run_checked(entry, placing, mesh);
    pairs.add(entry, placing, row);
    if (row.is_quiet()) {
      quiet += fmt::format("{}{} → {}", quiet.empty() ? "" : "; ", row.placed, row.result);
    } else {
      text += fmt::format("| {} | {} | {} | {} |\n", row.placed, verify::str(row.forward), row.result,
                          row.has_backward ? verify::str(row.backward) : "");
    }
  }
  if (!quiet.empty()) text += fmt::format("| {} | – | as shown | – |\n", quiet);
  for (const Placing& pair : further_pairs(entry, inputs))
    pairs.add(entry, pair, run_checked(entry, pair, mesh));
  return text;
}

}  // namespace

std::string ops_document(const DeviceMesh& mesh) {
  check_complete();
  std::string text = fmt::format(
      R"(# What the operations communicate

Written by `ops_table` (see `verify/ops_table.h`), which runs every operation below, forward and backward, on {} ranks in
float32 with default cuts and writes down what the recorder saw; a test writes it again and compares. Inputs that a line
does not name are Replicate. `S0`: cut along dim 0; `P`: Partial, a sum that ranks owe each other; `R`: Replicate. Bytes
are those that all ranks together hand over: *exchange* (halos, rows asked for), *gather* (small statistics), *all-reduce*
(a sum is made); and what moves inputs to other placements first: *re-shard* (cut elsewhere), *reduce-scatter* (a sum that
is owed is made in a cut), *all-gather* (made whole). The gradient of a replicated input is left as a sum that is owed, to
be made in one message for all parameters. Backward is given a gradient that is placed as the result, whole where that is P; for others see
"Gradients that come placed otherwise".
)",
      mesh.size());
  PairList pairs;
  for (const TableFamily& family : table_families()) {
    text += fmt::format("\n## {}\n", family.title);
    for (const TableEntry& entry : family.entries)
      if (has_op(entry.op)) text += section(entry, mesh, pairs);
  }
  text += pairs.text();
  text += gradients_section(mesh);
  return mesh.rank() == 0 ? text + other_cuts_section() : "";
}

}  // namespace tessera::verify
