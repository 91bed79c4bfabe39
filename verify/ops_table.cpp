#include "verify/ops_table.h"

#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "autograd/node.h"
#include "comm/virtual.h"
#include "ops/random/random.h"
#include "runtime/error.h"
#include "verify/programs.h"

namespace tessera::verify {
namespace {

struct Input {
  std::string name;
  Dims sizes;
  DType dtype = DType::F32;
  std::int64_t below = 0;
};

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) {
    const auto first = part.find_first_not_of(' ');
    if (first != std::string::npos) parts.push_back(part.substr(first));
  }
  return parts;
}

std::vector<Input> parse_inputs(const char* text) {
  std::vector<Input> list;
  for (const std::string& one : split(text, ';')) {
    Input input;
    for (const std::string& word : split(one, ' ')) {
      if (input.name.empty()) {
        input.name = word;
      } else if (word == "?") {
        input.dtype = DType::Bool;
      } else if (word[0] == '<') {
        input.dtype = DType::I64;
        input.below = std::stoll(word.substr(1));
      } else {
        input.sizes.push_back(std::stoll(word));
      }
    }
    list.push_back(std::move(input));
  }
  return list;
}

// What is cut is cut by every axis of the mesh; a sum is owed over the first.
Placements over_axes(const DeviceMesh& mesh, const Placement& placement) {
  if (placement.is_shard()) return Placements(static_cast<std::size_t>(mesh.ndim()), placement);
  Placements p(static_cast<std::size_t>(mesh.ndim()));
  p[0] = placement;
  return p;
}

// Numbers between 0 and 1, so that every function is defined; indices run through all their values.
Tensor make_input(const Input& input, const DeviceMesh& mesh, const Placement& placement) {
  const std::int64_t n = numel_of(input.sizes);
  std::vector<double> values(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    double v = 0.25 + 0.7 * static_cast<double>((i * 37 + 11) % 101) / 101.0;
    if (input.dtype == DType::I64) v = static_cast<double>((i * 7 + 3) % input.below);
    if (input.dtype == DType::Bool) v = static_cast<double>(i % 3 != 0);
    values[static_cast<std::size_t>(i)] = v;
  }
  const Array whole = Array::from(values, input.sizes, input.dtype);
  const SpecPtr spec = ShardSpec::make(mesh, over_axes(mesh, placement), input.sizes);
  // A sum that is owed: the whole on one rank, zeros on the others.
  if (placement.is_partial())
    return {mesh.coordinate(0) == 0 ? whole : Array::zeros(input.sizes, input.dtype), spec};
  return {redistribute(whole, ShardSpec::replicated(mesh, input.sizes), spec).clone(), spec};
}

using Placing = std::map<std::string, Placement>;  // inputs that are not named are Replicate

std::string str(const Placement& p) {
  if (p.is_shard()) return fmt::format("S{}", p.dim);
  return p.is_partial() ? "P" : "R";
}
std::string str(const Placing& placing) {
  std::string text;
  for (const auto& [name, p] : placing) text += fmt::format("{}{}:{}", text.empty() ? "" : " ", name, str(p));
  return text;
}

Placement parse_placement(const std::string& text) {
  if (text[0] == 'P') return Partial();
  return text[0] == 'S' ? Shard(std::stoi(text.substr(1))) : Replicate();
}

// Every input alone in every placement, all inputs of one shape cut alike, and what the entry asks for.
std::vector<Placing> placings(const TableEntry& entry, const std::vector<Input>& inputs) {
  std::vector<Placing> list;
  for (const Input& input : inputs) {
    for (int d = 0; d < input.sizes.size(); ++d)
      if (input.sizes[d] > 1) list.push_back({{input.name, Shard(d)}});
    if (is_floating(input.dtype)) list.push_back({{input.name, Partial()}});
  }
  const auto same = [&](const Input& i) { return i.sizes == inputs[0].sizes; };
  if (inputs.size() > 1 && std::all_of(inputs.begin(), inputs.end(), same))
    for (int d = 0; d < inputs[0].sizes.size(); ++d) {
      list.emplace_back();
      for (const Input& input : inputs) list.back()[input.name] = Shard(d);
    }
  for (const std::string& one : split(entry.together, ',')) {
    list.emplace_back();
    for (const std::string& word : split(one, ' ')) {
      const auto colon = word.find(':');
      list.back()[word.substr(0, colon)] = parse_placement(word.substr(colon + 1));
    }
  }
  return list;
}

// What a record is in the document's words.
std::string kind_of(const CommRecord& r) {
  const std::string kind(r.kind);
  if (kind == "all_reduce") return "all-reduce";
  if (std::string_view(r.scope) == "redistribute") return "re-shard";
  return kind == "exchange" ? "exchange" : "gather";
}

struct Sent {
  std::map<std::string, std::int64_t> bytes;  // by kind, over all ranks
};

// Collective: what all ranks sent since the recorder was started.
Sent collect(const DeviceMesh& mesh) {
  std::string mine;
  for (const CommRecord& r : mesh.comm().recorder().records())
    mine += fmt::format("{} {}\n", kind_of(r), r.bytes);
  mesh.comm().recorder().stop();
  Sent sent;
  for (const std::string& theirs : mesh.comm().all_gather_bytes(mine)) {
    std::istringstream lines(theirs);
    std::string kind;
    std::int64_t bytes = 0;
    while (lines >> kind >> bytes) sent.bytes[kind] += bytes;
  }
  return sent;
}

std::string str(const Sent& sent) {
  std::string text;
  for (const auto& [kind, bytes] : sent.bytes)
    text += fmt::format("{}{} {} B", text.empty() ? "" : ", ", kind, bytes);
  return text.empty() ? "–" : text;
}

struct Row {
  std::string placed, forward, result, backward;
  std::string kinds;  // what was sent, without amounts
  bool reshards = false;
  std::int64_t moved = 0;  // forward, beside re-sharding
  int ranks = 1;
};

std::string kinds_of(const Sent& forward, const Sent& backward) {
  std::set<std::string> kinds;
  for (const auto& [kind, bytes] : forward.bytes) kinds.insert(kind);
  for (const auto& [kind, bytes] : backward.bytes) kinds.insert(kind + " in backward");
  return kinds.empty() ? "–" : fmt::format("{}", fmt::join(kinds, ", "));
}

Tensor cotangent_of(const Tensor& y) {
  const SpecPtr spec = without_partial(*y.spec());
  return {Array::full(spec->local_sizes(), 1.0, y.dtype()), spec};
}

// What an operation sends that does not re-shard is less than what it was given.
void check_small(const TableEntry& entry, const std::vector<Input>& inputs, const Placing& placing,
                 const Row& row) {
  for (const std::string_view moves_more : {"scaled_dot_product_attention", "sort", "argsort"})
    if (entry.op == moves_more) return;
  std::int64_t given = 0;
  for (const Input& i : inputs) {
    const auto found = placing.find(i.name);
    const bool owed = found != placing.end() && found->second.is_partial();
    given += numel_of(i.sizes) * size_of(i.dtype) * (owed ? row.ranks : 1);
  }
  TS_CHECK(row.moved <= given, "ops_table", "{} with {} sends {} bytes, its inputs have {}", entry.op,
           row.placed, row.moved, given);
}

Row run(const TableEntry& entry, const std::vector<Input>& inputs, const Placing& placing,
        const DeviceMesh& mesh) {
  Tensors in;
  for (const Input& input : inputs) {
    const auto found = placing.find(input.name);
    in.push_back(make_input(input, mesh, found == placing.end() ? Placement(Replicate()) : found->second));
    in.back().set_requires_grad(is_floating(input.dtype));
  }
  Recorder& recorder = mesh.comm().recorder();
  recorder.start();
  const Tensors out = apply_op(entry.op, in, nlohmann::json::parse(entry.args));
  const Sent forward = collect(mesh);
  Row row{str(placing), str(forward), "", "", "", forward.bytes.count("re-shard") != 0, 0, mesh.size()};
  for (const auto& [kind, bytes] : forward.bytes) row.moved += kind == "re-shard" ? 0 : bytes;
  Tensors roots;
  Tensors cotangents;
  for (const Tensor& y : out) {
    if (!row.result.empty()) row.result += ", ";
    row.result += y.is_sharded() ? str(y.spec()->placement(0)) : "plain";
    if (!y.requires_grad()) continue;
    roots.push_back(y);
    cotangents.push_back(cotangent_of(y));
  }
  recorder.start();
  if (!roots.empty()) run_backward(roots, cotangents, {}, {});
  const Sent backward = collect(mesh);
  row.backward = roots.empty() ? "" : str(backward);
  row.kinds = kinds_of(forward, backward);
  row.reshards = row.reshards || backward.bytes.count("re-shard") != 0;
  return row;
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

using PairsByOp = std::map<std::string, std::set<std::string>>;

bool only_cuts(const Placing& placing) {
  return std::all_of(placing.begin(), placing.end(), [](const auto& one) { return one.second.is_shard(); });
}

// The kinds of what is sent for every pair of a call and a placing that only cuts, in order. Collective.
std::vector<std::pair<std::string, std::string>> kinds_on(const DeviceMesh& mesh) {
  std::vector<std::pair<std::string, std::string>> list;
  for (const TableFamily& family : table_families())
    for (const TableEntry& entry : family.entries) {
      if (!has_op(entry.op)) continue;
      const std::vector<Input> inputs = parse_inputs(entry.inputs);
      for (const Placing& placing : placings(entry, inputs))
        if (only_cuts(placing))
          list.emplace_back(fmt::format("{} | {}", entry.op, str(placing)),
                            run(entry, inputs, placing, mesh).kinds);
    }
  return list;
}

// Dims cut by two axes, on four threads: where they ask for something else than dims cut by one.
std::string two_axes_section() {
  std::vector<std::pair<std::string, std::string>> one;
  std::vector<std::pair<std::string, std::string>> two;
  run_virtual_ranks(4, [&](const Communicator& comm) {
    const auto by_one = kinds_on(DeviceMesh(comm, {{"a", 4}}));
    const auto by_two = kinds_on(DeviceMesh(comm, {{"a", 2}, {"b", 2}}));
    if (comm.rank() != 0) return;
    one = by_one;
    two = by_two;
  });
  std::string text;
  for (std::size_t i = 0; i < one.size(); ++i)
    if (one[i].second != two[i].second)
      text += fmt::format("| {} | {} | {} |\n", one[i].first, one[i].second, two[i].second);
  if (text.empty()) return "\nA dim that two axes of a mesh cut together sends what one axis would.\n";
  return "\nA dim that two axes of a mesh cut together sends what one axis would, except:\n\n"
         "| op | placed | by one axis | by two |\n|---|---|---|---|\n" +
         text;
}

// Every operation of the library has an entry (those of one to three dims: any of them).
void check_complete() {
  const auto stem = [](const std::string& name) {
    const std::size_t n = name.size();
    return n > 2 && name[n - 1] == 'd' && name[n - 2] >= '1' && name[n - 2] <= '3' ? name.substr(0, n - 2)
                                                                                   : name;
  };
  std::set<std::string> known;
  for (const TableFamily& family : table_families())
    for (const TableEntry& entry : family.entries) known.insert(stem(entry.op));
  for (const std::string& name : op_names())
    TS_CHECK(known.count(stem(name)) != 0, "ops_table", "no entry for {} in ops_table_entries.cpp", name);
}

// Placements for which no message is needed share one line.
std::string section(const TableEntry& entry, const DeviceMesh& mesh, PairsByOp& resharding) {
  const std::vector<Input> inputs = parse_inputs(entry.inputs);
  std::string text = fmt::format(
      "\n**{}** {}{}\n\n| placed | forward | result | backward |\n|---|---|---|---|\n", entry.op,
      describe(inputs), std::string_view(entry.args) == "{}" ? "" : fmt::format(" `{}`", entry.args));
  std::string quiet;
  for (const Placing& placing : placings(entry, inputs)) {
    const Row row = run(entry, inputs, placing, mesh);
    check_small(entry, inputs, placing, row);
    if (row.reshards) resharding[entry.op].insert(row.placed);
    if (row.forward == "–" && (row.backward == "–" || row.backward.empty())) {
      quiet += fmt::format("{}{} → {}", quiet.empty() ? "" : "; ", row.placed, row.result);
    } else {
      text += fmt::format("| {} | {} | {} | {} |\n", row.placed, row.forward, row.result, row.backward);
    }
  }
  if (!quiet.empty()) text += fmt::format("| {} | – | as shown | – |\n", quiet);
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
(a sum is made), *re-shard* (an input moves to another placement first). The gradient of a replicated input is left as a
sum that is owed, to be made in one message for all parameters.
)",
      mesh.size());
  PairsByOp resharding;
  for (const TableFamily& family : table_families()) {
    text += fmt::format("\n## {}\n", family.title);
    for (const TableEntry& entry : family.entries)
      if (has_op(entry.op)) text += section(entry, mesh, resharding);
  }
  text += R"(
## Pairs that re-shard

Every other pair above moves less than its inputs (this is checked), but for attention, whose keys and values travel once
around the ring, and the sort of a vector, whose values travel with their numbers.

| op | placed |
|---|---|
)";
  for (const auto& [op, placed] : resharding)
    text += fmt::format("| {} | {} |\n", op, fmt::join(placed, "; "));
  return mesh.rank() == 0 ? text + two_axes_section() : "";
}

}  // namespace tessera::verify
