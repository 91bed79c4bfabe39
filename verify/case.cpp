#include "verify/case.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "runtime/error.h"
#include "verify/json_text.h"
#include "verify/safetensors.h"

namespace tessera::verify {
namespace {

using nlohmann::json;

constexpr const char* kOp = "case";
constexpr const char* kFormat = "tessera-case-1";

struct Part {
  const char* prefix;
  ArrayMap Case::*map;
};
constexpr Part kParts[] = {{"in", &Case::inputs},
                           {"param", &Case::params},
                           {"out", &Case::outputs},
                           {"cot", &Case::cotangents},
                           {"grad", &Case::gradients},
                           {"v", &Case::directions},
                           {"grad2", &Case::second_gradients}};

const std::string& metadata_of(const SafetensorsFile& file, const char* key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) TS_FAIL(Io, kOp, "{}: metadata \"{}\" is missing", file.name(), key);
  return found->second;
}

// JSON errors carry no file name; this adds it.
template <class F>
auto reading(const std::string& path, const char* what, F&& f) {
  try {
    return f();
  } catch (const json::exception& e) {
    TS_FAIL(Io, kOp, "{}: {} cannot be read ({})", path, what, e.what());
  }
}

std::vector<Step> read_program(const json& list) {
  std::vector<Step> program;
  for (const json& item : list) {
    Step step;
    step.op = item.at("op").get<std::string>();
    for (const json& name : item.at("in")) {
      step.in.push_back(name.is_null() ? std::nullopt : std::optional(name.get<std::string>()));
    }
    step.out = item.at("out").get<std::vector<std::string>>();
    step.args = item.value("args", json::object());
    program.push_back(std::move(step));
  }
  return program;
}

AxisPlacement read_placement(const std::string& path, const std::string& text) {
  if (text == "R") return {};
  if (text.size() >= 2 && text.size() <= 3 && text[0] == 'S') {
    const std::string digits = text.substr(text[1] == '-' ? 2 : 1);
    if (digits.size() == 1 && digits[0] >= '0' && digits[0] <= '9') return {std::stoi(text.substr(1))};
  }
  TS_FAIL(Io, kOp, "{}: placement \"{}\" in limits, allowed are \"R\" and \"S<dim>\"", path, text);
}

std::vector<Limit> read_limits(const Case& c, const json& list) {
  std::vector<Limit> limits;
  for (const json& item : list) {
    Limit limit;
    limit.mesh = item.at("mesh").get<std::vector<int>>();
    limit.max_forward_bytes = item.at("max_forward_bytes").get<std::int64_t>();
    for (const auto& [name, axes] : item.at("placements").items()) {
      for (const json& axis : axes) {
        AxisPlacement p = read_placement(c.path, axis.get<std::string>());
        const Array* leaf = c.leaf(name);
        if (leaf == nullptr) TS_FAIL(Io, kOp, "{}: limits place \"{}\", which is no input", c.path, name);
        if (p.dim && *p.dim < 0) *p.dim += leaf->dim();
        if (p.dim && (*p.dim < 0 || *p.dim >= leaf->dim())) {
          TS_FAIL(Io, kOp, "{}: limits place \"{}\" {} by {}", c.path, name, leaf->sizes().str(),
                  axis.dump());
        }
        limit.placements[name].push_back(p);
      }
    }
    if (item.contains("cuts")) {
      for (const auto& [name, axes] : item.at("cuts").items()) {
        for (const json& axis : axes) {
          limit.cuts[name].push_back(axis.is_null() ? std::vector<std::int64_t>{}
                                                    : axis.get<std::vector<std::int64_t>>());
        }
      }
    }
    limits.push_back(std::move(limit));
  }
  return limits;
}

// One mesh axis of one tensor in a limit: its cuts tile the dim over the axis' ranks. Two axes on one dim
// nest, so a single axis' cuts need not add up to the whole then.
void check_limit_axis(const Case& c, const Limit& limit, const std::string& name, std::size_t axis) {
  const std::vector<AxisPlacement>& placed = limit.placements.at(name);
  if (!placed[axis].dim) return;
  const auto cuts = limit.cuts.find(name);
  if (cuts == limit.cuts.end() || cuts->second.size() <= axis || cuts->second[axis].empty()) return;
  const std::vector<std::int64_t>& sizes = cuts->second[axis];
  const int dim = *placed[axis].dim;
  const bool alone = std::count(placed.begin(), placed.end(), placed[axis]) == 1;
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  const bool counted = std::cmp_equal(sizes.size(), limit.mesh[axis]);
  if ((alone && (!counted || total != c.leaf(name)->size(dim))) ||
      std::any_of(sizes.begin(), sizes.end(), [](std::int64_t n) { return n < 0; })) {
    TS_FAIL(Io, kOp, "{}: limits cut dim {} of \"{}\" {} into [{}] over {} ranks", c.path, dim, name,
            c.leaf(name)->sizes().str(), fmt::join(sizes, ", "), limit.mesh[axis]);
  }
}

void check_limits(const Case& c) {
  for (const Limit& limit : c.limits) {
    for (const auto& [name, placed] : limit.placements) {
      if (placed.size() != limit.mesh.size()) {
        TS_FAIL(Io, kOp, "{}: limits give \"{}\" {} placements on a mesh of {} axes", c.path, name,
                placed.size(), limit.mesh.size());
      }
      for (std::size_t axis = 0; axis < placed.size(); ++axis) check_limit_axis(c, limit, name, axis);
    }
    for (const auto& [name, cuts] : limit.cuts) {
      if (limit.placements.count(name) == 0)
        TS_FAIL(Io, kOp, "{}: limits cut \"{}\" but do not place it", c.path, name);
    }
  }
}

// Every name that a step reads is known by then, and every expected output is made.
void check_program(const Case& c) {
  std::set<std::string> known;
  std::set<std::string> made;
  for (const ArrayMap* map : {&c.inputs, &c.params}) {
    for (const auto& [name, array] : *map) {
      if (!known.insert(name).second) TS_FAIL(Io, kOp, "{}: \"{}\" is both in. and param.", c.path, name);
    }
  }
  for (const Step& step : c.program) {
    if (!step.args.is_object())
      TS_FAIL(Io, kOp, "{}: the arguments of \"{}\" are not a map", c.path, step.op);
    for (const auto& name : step.in) {
      if (name && known.count(*name) == 0) {
        TS_FAIL(Io, kOp, "{}: step \"{}\" reads \"{}\", which nothing made", c.path, step.op, *name);
      }
    }
    known.insert(step.out.begin(), step.out.end());
    made.insert(step.out.begin(), step.out.end());
  }
  for (const auto& [name, array] : c.outputs) {
    if (made.count(name) == 0) TS_FAIL(Io, kOp, "{}: no step makes the output \"{}\"", c.path, name);
  }
}

void check_like(const Case& c, const char* prefix, const ArrayMap& given, const ArrayMap& like) {
  for (const auto& [name, array] : given) {
    const auto found = like.find(name);
    if (found == like.end() && (&like == &c.outputs || &like == &c.gradients)) {
      TS_FAIL(Io, kOp, "{}: {}.{} has nothing to go with", c.path, prefix, name);
    }
    const Array* other = found != like.end() ? &found->second : c.leaf(name);
    if (other == nullptr || other->sizes() != array.sizes()) {
      TS_FAIL(Io, kOp, "{}: {}.{} has sizes {}, expected {}", c.path, prefix, name, array.sizes().str(),
              other == nullptr ? "no such tensor" : other->sizes().str());
    }
  }
}

void check_tensors(const Case& c) {
  check_like(c, "cot", c.cotangents, c.outputs);
  check_like(c, "grad", c.gradients, c.inputs);
  check_like(c, "v", c.directions, c.gradients);
  check_like(c, "grad2", c.second_gradients, c.inputs);
  for (const auto& [prefix, map] : {std::pair("out.", &c.outputs), std::pair("grad.", &c.gradients)}) {
    for (const auto& [name, array] : *map) {
      if (c.tolerance.count(prefix + name) == 0) {
        TS_FAIL(Io, kOp, "{}: no tolerance for {}{}", c.path, prefix, name);
      }
    }
  }
}

json limit_to_json(const Limit& limit) {
  json placements = json::object();
  for (const auto& [name, axes] : limit.placements) {
    for (const AxisPlacement& p : axes) placements[name].push_back(p.str());
  }
  return {{"mesh", limit.mesh},
          {"placements", placements},
          {"cuts", limit.cuts},
          {"max_forward_bytes", limit.max_forward_bytes}};
}

json step_to_json(const Step& step) {
  json in = json::array();
  for (const auto& name : step.in) in.push_back(name ? json(*name) : json());
  return {{"op", step.op}, {"in", in}, {"out", step.out}, {"args", step.args}};
}

}  // namespace

std::string AxisPlacement::str() const { return dim ? fmt::format("S{}", *dim) : "R"; }

int Limit::ranks() const { return std::accumulate(mesh.begin(), mesh.end(), 1, std::multiplies<>()); }

const Array* Case::leaf(const std::string& leaf_name) const {
  for (const ArrayMap* map : {&inputs, &params}) {
    const auto found = map->find(leaf_name);
    if (found != map->end()) return &found->second;
  }
  return nullptr;
}

bool Case::needs_gradient(const std::string& leaf_name) const { return gradients.count(leaf_name) != 0; }

double Case::allowed_error(const std::string& full_name) const {
  const auto stated = tolerance.find(full_name);
  if (stated != tolerance.end()) return stated->second;
  const std::string prefix = "grad2.";
  const auto second = full_name.starts_with(prefix) ? second_gradients.find(full_name.substr(prefix.size()))
                                                    : second_gradients.end();
  if (second == second_gradients.end()) TS_FAIL(Io, kOp, "{}: no tolerance for {}", path, full_name);
  double largest = 0;
  for (double value : second->second.to_vector()) largest = std::max(largest, std::abs(value));
  return std::max(1e-4 * largest, 1e-6);
}

Case load_case(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::read(path);
  const std::string& format = metadata_of(file, "format");
  if (format != kFormat) TS_FAIL(Io, kOp, "{}: format \"{}\", allowed is \"{}\"", path, format, kFormat);
  Case c;
  c.path = path;
  c.name = metadata_of(file, "name");
  if (file.metadata().count("source") != 0) c.source = file.metadata().at("source");
  for (const auto& [full_name, entry] : file.entries()) {
    const std::size_t dot = full_name.find('.');
    ArrayMap Case::*target = nullptr;
    for (const Part& part : kParts) {
      if (dot != std::string::npos && full_name.compare(0, dot, part.prefix) == 0) target = part.map;
    }
    if (target == nullptr) TS_FAIL(Io, kOp, "{}: tensor \"{}\" has no known prefix", path, full_name);
    (c.*target).emplace(full_name.substr(dot + 1), file.load(full_name));
  }
  const std::string& program = metadata_of(file, "program");
  const std::string& tolerance = metadata_of(file, "tolerance");
  c.program = reading(path, "program", [&] { return read_program(parse_json(program)); });
  c.tolerance =
      reading(path, "tolerance", [&] { return parse_json(tolerance).get<std::map<std::string, double>>(); });
  check_program(c);
  check_tensors(c);
  if (file.metadata().count("limits") != 0) {
    c.limits =
        reading(path, "limits", [&] { return read_limits(c, parse_json(file.metadata().at("limits"))); });
    check_limits(c);
  }
  return c;
}

void save_case(const Case& c, const std::string& path) {
  ArrayMap tensors;
  for (const Part& part : kParts) {
    for (const auto& [name, array] : c.*part.map)
      tensors.emplace(fmt::format("{}.{}", part.prefix, name), array);
  }
  json program = json::array();
  for (const Step& step : c.program) program.push_back(step_to_json(step));
  std::map<std::string, std::string> metadata{{"format", kFormat},
                                              {"name", c.name},
                                              {"source", c.source},
                                              {"program", json_text(program)},
                                              {"tolerance", json_text(c.tolerance)}};
  if (!c.limits.empty()) {
    json limits = json::array();
    for (const Limit& limit : c.limits) limits.push_back(limit_to_json(limit));
    metadata["limits"] = limits.dump();
  }
  write_safetensors(path, tensors, metadata);
}

}  // namespace tessera::verify
