#include "verify/ops_table_run.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "autograd/node.h"
#include "runtime/error.h"
#include "verify/programs.h"

namespace tessera::verify {
namespace {

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, at);) {
    const auto first = part.find_first_not_of(' ');
    if (first != std::string::npos) parts.push_back(part.substr(first));
  }
  return parts;
}

Placements over_axes(const DeviceMesh& mesh, const Placements& given) {
  if (given.size() == static_cast<std::size_t>(mesh.ndim())) return given;
  if (given[0].is_shard()) return Placements(static_cast<std::size_t>(mesh.ndim()), given[0]);
  Placements p(static_cast<std::size_t>(mesh.ndim()));
  p[0] = given[0];
  return p;
}

std::vector<std::optional<DimCut>> pieces(const DeviceMesh& mesh, const Placements& p, const Dims& sizes) {
  std::vector<std::optional<DimCut>> cuts(static_cast<std::size_t>(sizes.size()));
  for (int d = 0; d < sizes.size(); ++d) {
    DimCut cut;
    std::size_t parts = 1;
    for (int a = 0; a < mesh.ndim(); ++a) {
      const Placement& on = p[static_cast<std::size_t>(a)];
      if (!on.is_shard() || on.dim != d) continue;
      cut.axes.push_back(a);
      parts *= static_cast<std::size_t>(mesh.size(a));
    }
    if (cut.axes.empty()) continue;
    cut.parts.resize(parts);
    std::size_t next = 0;
    for (const Interval i : default_partition(sizes[d], static_cast<int>(2 * parts)))
      if (i.length() > 0) cut.parts[next++ % parts].push_back(i);
    cuts[static_cast<std::size_t>(d)] = std::move(cut);
  }
  return cuts;
}

// Numbers between 0 and 1, so that every function is defined; indices run through all their values.
Tensor make_input(const Input& input, const DeviceMesh& mesh, const Placements& placements, Cuts cuts) {
  const std::int64_t n = numel_of(input.sizes);
  std::vector<double> values(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    double v = 0.25 + 0.7 * static_cast<double>((i * 37 + 11) % 101) / 101.0;
    if (input.dtype == DType::I64) v = static_cast<double>((i * 7 + 3) % input.below);
    if (input.dtype == DType::Bool) v = static_cast<double>(i % 3 != 0);
    values[static_cast<std::size_t>(i)] = v;
  }
  const Array whole = Array::from(values, input.sizes, input.dtype);
  const SpecPtr spec = cuts == Cuts::Even ? ShardSpec::make(mesh, placements, input.sizes)
                                          : ShardSpec::make(mesh, placements, input.sizes,
                                                            pieces(mesh, placements, input.sizes));
  // A sum that is owed: the whole on one rank, zeros on the others.
  if (spec->has_partial())
    return {mesh.coordinate(0) == 0 ? whole : Array::zeros(input.sizes, input.dtype), spec};
  return {redistribute(whole, ShardSpec::replicated(mesh, input.sizes), spec).clone(), spec};
}

Placement parse_placement(const std::string& text) {
  if (text[0] == 'P') return Partial();
  return text[0] == 'S' ? Shard(std::stoi(text.substr(1))) : Replicate();
}

std::vector<Placement> placements_of(const Input& input) {
  std::vector<Placement> list;
  for (int d = 0; d < input.sizes.size(); ++d)
    if (input.sizes[d] > 1) list.emplace_back(Shard(d));
  if (is_floating(input.dtype)) list.emplace_back(Partial());
  return list;
}

// What a record is in the document's words.
std::string kind_of(const CommRecord& r) {
  const std::string kind(r.kind);
  if (kind == "all_reduce") return "all-reduce";
  const std::string scope(r.scope);
  if (scope == "redistribute") return "re-shard";
  if (scope == "all-gather" || scope == "reduce-scatter") return scope;
  return kind == "exchange" ? "exchange" : "gather";
}

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

// Placed as the result, or as `given` says along the first axis.
Tensor cotangent_of(const Tensor& y, const Placement* given) {
  SpecPtr spec = without_partial(*y.spec());
  if (given != nullptr) {
    Placements p = spec->placements();
    p[0] = *given;
    spec = with_placements(*spec, p);
  }
  const double value = spec->has_partial() && spec->mesh().coordinate(0) != 0 ? 0.0 : 1.0;
  return {Array::full(spec->local_sizes(), value, y.dtype()), spec};
}

// What reaches other ranks beside re-sharding: a rank's part of a gather goes to all the others.
std::int64_t moved(const Sent& sent, int ranks) {
  std::int64_t bytes = 0;
  for (const auto& [kind, n] : sent.bytes)
    if (kind != "re-shard" && kind != "all-gather" && kind != "reduce-scatter")
      bytes += kind == "gather" ? n * (ranks - 1) : n;
  return bytes;
}

// What an operation that does not re-shard may move: its inputs (a sum that is owed: every rank's term). The
// keys and values of attention go round the ring, and what is sorted takes its numbers along.
std::int64_t most(const TableEntry& entry, const std::vector<Input>& inputs, const Placing& placing,
                  int ranks) {
  std::int64_t bytes = 0;
  for (const Input& i : inputs) {
    const auto found = placing.find(i.name);
    bytes += i.bytes() * (found != placing.end() && found->second[0].is_partial() ? ranks : 1);
  }
  const std::string_view op(entry.op);
  if (op == "scaled_dot_product_attention") bytes += (ranks - 1) * (inputs[1].bytes() + inputs[2].bytes());
  if (op == "sort" || op == "argsort" || op == "median") bytes += 8 * numel_of(inputs[0].sizes);
  return bytes;
}

std::int64_t cut_bytes(const std::vector<Input>& inputs, const Placing& placing) {
  std::int64_t bytes = 0;
  for (const Input& i : inputs)
    if (placing.contains(i.name)) bytes += i.bytes();
  return bytes;
}

bool gathers_all(const Sent& sent, std::int64_t cut) {
  const auto found = sent.bytes.find("gather");
  return found != sent.bytes.end() && found->second >= cut;
}

}  // namespace

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

std::string str(const Placement& p) {
  if (p.is_shard()) return fmt::format("S{}", p.dim);
  return p.is_partial() ? "P" : "R";
}

std::string str(const Placing& placing) {
  std::string text;
  for (const auto& [name, placements] : placing) {
    text += fmt::format("{}{}:", text.empty() ? "" : " ", name);
    for (std::size_t a = 0; a < placements.size(); ++a) text += (a == 0 ? "" : ",") + str(placements[a]);
  }
  return text;
}

std::vector<Placing> placings(const TableEntry& entry, const std::vector<Input>& inputs) {
  std::vector<Placing> list;
  for (const Input& input : inputs)
    for (const Placement& p : placements_of(input)) list.push_back({{input.name, {p}}});
  const auto same = [&](const Input& i) { return i.sizes == inputs[0].sizes; };
  if (inputs.size() > 1 && std::all_of(inputs.begin(), inputs.end(), same))
    for (int d = 0; d < inputs[0].sizes.size(); ++d) {
      list.emplace_back();
      for (const Input& input : inputs) list.back()[input.name] = {Shard(d)};
    }
  for (const std::string& one : split(entry.together, ',')) {
    list.emplace_back();
    for (const std::string& word : split(one, ' ')) {
      const auto colon = word.find(':');
      list.back()[word.substr(0, colon)] = {parse_placement(word.substr(colon + 1))};
    }
  }
  return list;
}

std::vector<Placing> further_pairs(const TableEntry& entry, const std::vector<Input>& inputs) {
  const std::vector<Placing> known = placings(entry, inputs);
  std::vector<Placing> list;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    for (std::size_t j = i + 1; j < inputs.size(); ++j)
      for (const Placement& p : placements_of(inputs[i]))
        for (const Placement& q : placements_of(inputs[j])) {
          Placing both{{inputs[i].name, {p}}, {inputs[j].name, {q}}};
          if (std::find(known.begin(), known.end(), both) == known.end()) list.push_back(std::move(both));
        }
  return list;
}

std::string str(const Sent& sent) {
  std::string text;
  for (const auto& [kind, bytes] : sent.bytes)
    text += fmt::format("{}{} {} B", text.empty() ? "" : ", ", kind, bytes);
  return text.empty() ? "–" : text;
}

std::set<std::string> Row::kinds() const {
  std::set<std::string> list;
  for (const auto& [kind, bytes] : forward.bytes) list.insert(kind);
  for (const auto& [kind, bytes] : backward.bytes) list.insert(kind + " in backward");
  return list;
}

namespace {

Tensors placed_inputs(const TableEntry& entry, const Placing& placing, const DeviceMesh& mesh, Cuts cuts) {
  Tensors in;
  for (const Input& input : parse_inputs(entry.inputs)) {
    const auto found = placing.find(input.name);
    const Placements given = found == placing.end() ? Placements{Replicate()} : found->second;
    in.push_back(make_input(input, mesh, over_axes(mesh, given), cuts));
    in.back().set_requires_grad(is_floating(input.dtype));
  }
  return in;
}

Tensors with_gradients(const Tensors& all) {
  Tensors list;
  for (const Tensor& t : all)
    if (t.defined() && t.requires_grad()) list.push_back(t);
  return list;
}

}  // namespace

Row run(const TableEntry& entry, const Placing& placing, const DeviceMesh& mesh, Cuts cuts) {
  const std::vector<Input> inputs = parse_inputs(entry.inputs);
  const Tensors in = placed_inputs(entry, placing, mesh, cuts);
  Recorder& recorder = mesh.comm().recorder();
  recorder.start();
  const Tensors out = apply_op(entry.op, in, nlohmann::json::parse(entry.args));
  Row row;
  row.placed = str(placing);
  row.forward = collect(mesh);
  for (const Tensor& y : out) {
    if (!row.result.empty()) row.result += ", ";
    row.result += y.is_sharded() ? str(y.spec()->placement(0)) : "plain";
  }
  const Tensors roots = with_gradients(out);
  Tensors cotangents;
  for (const Tensor& y : roots) cotangents.push_back(cotangent_of(y, nullptr));
  row.has_backward = !roots.empty();
  recorder.start();
  if (row.has_backward) run_backward(roots, cotangents, {}, {});
  row.backward = collect(mesh);
  row.moved = moved(row.forward, mesh.size());
  row.allowed = most(entry, inputs, placing, mesh.size());
  const std::int64_t cut = cut_bytes(inputs, placing);
  row.gathers_all = gathers_all(row.forward, cut) || gathers_all(row.backward, cut);
  row.ranks = mesh.size();
  return row;
}

Passes run_back(const TableEntry& entry, const Placing& placing, const DeviceMesh& mesh,
                const Placement* given) {
  const Tensors in = placed_inputs(entry, placing, mesh, Cuts::Even);
  const Tensors roots = with_gradients(apply_op(entry.op, in, nlohmann::json::parse(entry.args)));
  Tensors leaves = with_gradients(in);
  Passes passes;
  Tensors cotangents;
  for (const Tensor& y : roots) {
    if (given != nullptr && given->is_shard() && given->dim >= y.dim()) return {};
    passes.results.push_back(y.spec()->placement(0));
    passes.result_bytes += y.numel() * static_cast<std::int64_t>(size_of(y.dtype()));
    cotangents.push_back(cotangent_of(y, given).set_requires_grad());
  }
  const auto sent_by = [&mesh](const auto& f) {
    mesh.comm().recorder().start();
    f();
    return collect(mesh);
  };
  passes.once = sent_by([&] { grad(roots, leaves, cotangents, {.retain_graph = true}); });
  Tensors gradients;
  passes.recorded = sent_by([&] { gradients = grad(roots, leaves, cotangents, {.create_graph = true}); });
  gradients = with_gradients(gradients);
  if (gradients.empty()) return passes;
  Tensors directions;
  for (const Tensor& g : gradients) directions.push_back(cotangent_of(g, nullptr));
  leaves.insert(leaves.end(), cotangents.begin(), cotangents.end());
  passes.twice = sent_by([&] { grad(gradients, leaves, directions, {}); });
  return passes;
}

}  // namespace tessera::verify
