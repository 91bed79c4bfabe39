#include "verify/runner.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "ops/plan_cache.h"
#include "runtime/error.h"
#include "verify/compare.h"
#include "verify/trial_run.h"

namespace tessera::verify {
namespace {

using nlohmann::json;

// When ranks meet after a trial they wait longer than any trial lasts.
constexpr double kMeetingSeconds = 600.0;

void print_line(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

std::vector<std::string> expand_folders(const std::vector<std::string>& given) {
  std::vector<std::string> files;
  for (const std::string& path : given) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> inside;
    for (const auto& entry : std::filesystem::directory_iterator(path))
      if (entry.path().extension() == ".safetensors") inside.push_back(entry.path().string());
    std::sort(inside.begin(), inside.end());
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

json to_json(const TrialOutcome& o) {
  return {{"fault", o.fault},
          {"refused", o.refused},
          {"messages", {o.messages_forward, o.messages_backward}},
          {"bytes", {o.bytes_forward, o.bytes_backward}},
          {"peak", o.peak_live_bytes}};
}

// What all ranks found, together.
struct Verdict {
  std::string fault;
  bool parted = false;  // ranks found different things: their collectives may be out of step
  bool refused = false;
  std::int64_t messages_forward = 0, messages_backward = 0;
  std::int64_t bytes_forward = 0, bytes_backward = 0;
  std::vector<std::int64_t> peaks;
};

Verdict merge(const std::vector<std::string>& outcomes) {
  Verdict v;
  std::vector<std::string> faults;
  for (const std::string& text : outcomes) {
    const json o = json::parse(text);
    faults.push_back(o.at("fault").get<std::string>());
    v.refused = v.refused || o.at("refused").get<bool>();
    v.messages_forward += o.at("messages")[0].get<std::int64_t>();
    v.messages_backward += o.at("messages")[1].get<std::int64_t>();
    v.bytes_forward += o.at("bytes")[0].get<std::int64_t>();
    v.bytes_backward += o.at("bytes")[1].get<std::int64_t>();
    v.peaks.push_back(o.at("peak").get<std::int64_t>());
  }
  const auto first = std::find_if(faults.begin(), faults.end(), [](const auto& f) { return !f.empty(); });
  if (first == faults.end()) return v;
  v.fault = *first;
  v.parted = std::any_of(faults.begin(), faults.end(), [&](const auto& f) { return f != *first; });
  if (!v.parted) return v;
  v.fault += fmt::format(" (said rank {}", first - faults.begin());
  for (std::size_t r = 0; r < faults.size(); ++r)
    if (faults[r] != *first)
      v.fault += fmt::format("; rank {}: {}", r, faults[r].empty() ? "no fault" : faults[r]);
  v.fault += ")";
  return v;
}

class Runner {
 public:
  Runner(const Communicator& world, const RunnerOptions& options) : world_(world), o_(options) {
    if (!o_.print) o_.print = print_line;
    if (o_.device != Device::Cpu) check_plan_cache(world_);
    std::string failure;
    if (!o_.report.empty() && is_first()) {
      report_.open(o_.report);
      if (!report_) failure = fmt::format("cannot write the report {}", o_.report);
    }
    agree(world_, "tessera-verify", failure);
  }

  RunnerTotals run() {
    for (const std::string& file : expand_folders(o_.files)) run_file(file);
    return totals_;
  }

 private:
  bool is_first() const { return world_.rank() == 0; }

  void run_file(const std::string& file) {
    std::optional<Case> c;
    std::string failure;
    try {
      c = load_case(file);
    } catch (const std::exception& e) {
      failure = e.what();
    }
    // A file may be missing on one rank only.
    const std::vector<std::string> failures = meet(failure);
    const auto first =
        std::find_if(failures.begin(), failures.end(), [](const auto& f) { return !f.empty(); });
    if (first != failures.end()) {
      ++totals_.failed;
      print(fmt::format("FAILED {}: {}", file, *first));
      return;
    }
    run_case(*c);
  }

  void run_case(const Case& c) {
    const TrialChoice choice{o_.seed, world_.size(), o_.mesh};
    for (const int number : numbers()) run_one(c, draw_trial(c, choice, number));
    for (std::size_t i = 0; i < c.limits.size(); ++i) {
      const bool fits =
          c.limits[i].ranks() == world_.size() && (o_.mesh.empty() || o_.mesh == c.limits[i].mesh);
      const bool wanted = o_.only_trial.empty() || o_.only_trial == fmt::format("limit{}", i);
      if (fits && wanted) run_one(c, limit_trial(c, choice, static_cast<int>(i)));
    }
  }

  // The drawn trials that are asked for.
  std::vector<int> numbers() const {
    std::vector<int> list(static_cast<std::size_t>(o_.trials));
    std::iota(list.begin(), list.end(), 0);
    if (o_.only_trial.empty()) return list;
    if (o_.only_trial.starts_with("limit")) return {};
    return {std::stoi(o_.only_trial)};
  }

  void run_one(const Case& c, const Trial& trial) {
    const auto start = std::chrono::steady_clock::now();
    Verdict v = attempt(c, trial);
    if (!v.fault.empty()) {
      meshes_.clear();  // late messages, or a plan that was kept and should not have been
      if (!v.refused && !v.parted && attempt(c, trial).fault.empty())
        v.fault += " (passes on new meshes: something kept from earlier trials is wrong)";
    }
    v.fault.empty() ? ++totals_.passed : ++totals_.failed;
    if (!v.fault.empty()) print(failure_line(c, trial, v));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (report_.is_open()) report_ << report_line(c, trial, v, seconds.count()).dump() << std::endl;
  }

  Verdict attempt(const Case& c, const Trial& trial) {
    TrialOutcome outcome;
    world_.set_deadline(o_.trial_seconds);
    try {
      outcome = run_trial({&c, &trial, mesh_of_shape(trial.mesh), o_.dtype, o_.device});
    } catch (const std::exception& e) {
      outcome.fault = e.what();
      outcome.refused = true;
    }
    Verdict v = merge(meet(to_json(outcome).dump()));
    if (v.fault.empty() && trial.max_forward_bytes) {
      const std::int64_t allowed = *trial.max_forward_bytes * (o_.dtype == DType::F64 ? 2 : 1);
      if (v.bytes_forward > allowed)
        v.fault = fmt::format("forward sent {} bytes, allowed {}", v.bytes_forward, allowed);
    }
    return v;
  }

  // Every rank's text, in rank order. Ranks may come here long after one another.
  std::vector<std::string> meet(const std::string& mine) {
    const double deadline = world_.deadline();
    world_.set_deadline(kMeetingSeconds);
    std::vector<std::string> all = world_.all_gather_bytes(mine);
    world_.set_deadline(deadline);
    return all;
  }

  const DeviceMesh& mesh_of_shape(const std::vector<int>& shape) {
    const auto found = meshes_.find(shape);
    if (found != meshes_.end()) return found->second;
    std::vector<MeshAxis> axes;
    for (std::size_t a = 0; a < shape.size(); ++a) axes.push_back({fmt::format("axis{}", a), shape[a]});
    // Ranks of its own, so that what a failed trial left on the way meets nobody.
    return meshes_.emplace(shape, DeviceMesh(world_.split(0, world_.rank()), axes)).first->second;
  }

  std::string failure_line(const Case& c, const Trial& trial, const Verdict& v) const {
    std::string again = fmt::format("mpirun -n {} {} --seed {} --dtype {}", world_.size(), o_.program,
                                    o_.seed, name_of(o_.dtype));
    if (!o_.mesh.empty()) again += " --mesh " + mesh_str(o_.mesh);
    return fmt::format("FAILED {} trial {}: {} | {} | seed {} | {} --only-trial {} {}", c.name, trial.id,
                       v.fault, trial.str(), o_.seed, again, trial.id, c.path);
  }

  json report_line(const Case& c, const Trial& trial, const Verdict& v, double seconds) const {
    json tensors = json::object();
    for (const auto& [name, plan] : trial.tensors) tensors[name] = plan.str();
    json line{{"case", c.name},
              {"trial", trial.id},
              {"ranks", world_.size()},
              {"mesh", trial.mesh},
              {"dtype", name_of(o_.dtype)},
              {"seed", o_.seed},
              {"tensors", tensors},
              {"passed", v.fault.empty()},
              {"messages", v.messages_forward + v.messages_backward},
              {"messages_forward", v.messages_forward},
              {"messages_backward", v.messages_backward},
              {"bytes_forward", v.bytes_forward},
              {"bytes_backward", v.bytes_backward},
              {"peak_live_bytes", v.peaks},
              {"seconds", seconds}};
    if (trial.max_forward_bytes) line["max_forward_bytes"] = *trial.max_forward_bytes;
    if (!v.fault.empty()) line["fault"] = v.fault;
    return line;
  }

  void print(const std::string& line) const {
    if (is_first()) o_.print(line);
  }

  Communicator world_;
  RunnerOptions o_;
  RunnerTotals totals_;
  std::map<std::vector<int>, DeviceMesh> meshes_;
  std::ofstream report_;
};

}  // namespace

RunnerTotals run_cases(const Communicator& world, const RunnerOptions& options) {
  const double deadline = world.deadline();
  const RunnerTotals totals = Runner(world, options).run();
  world.set_deadline(deadline);
  const auto print = options.print ? options.print : print_line;
  if (world.rank() == 0) print(fmt::format("{} passed, {} failed", totals.passed, totals.failed));
  return totals;
}

}  // namespace tessera::verify
