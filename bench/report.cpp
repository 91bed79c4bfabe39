#include "bench/report.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ops/cpu/isa.h"
#include "runtime/error.h"
#include "runtime/threads.h"

namespace tessera::bench {
namespace {

struct Processor {
  std::string model = "unknown";
  std::vector<std::string> features;  // those that matter to the kernels
};

Processor processor() {
  const std::vector<std::string> interesting{"avx2", "fma", "avx512f", "avx512vl", "avx512_bf16", "amx_tile"};
  Processor p;
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.starts_with("model name")) p.model = line.substr(colon + 2);
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(colon + 2));
    for (std::string w; words >> w;)
      if (std::find(interesting.begin(), interesting.end(), w) != interesting.end()) p.features.push_back(w);
    break;
  }
  return p;
}

std::string time_text(double s) {
  if (s < 1e-5) return fmt::format("{:.0f} ns", s * 1e9);
  if (s < 1e-2) return fmt::format("{:.1f} us", s * 1e6);
  if (s < 1) return fmt::format("{:.2f} ms", s * 1e3);
  return fmt::format("{:.3f} s", s);
}

double rate(const Case& c, const Timing& t) { return c.work.amount / t.best * 1e-9; }
double share_of_peak(const Case& c, const Timing& t) { return c.work.amount / t.best / c.work.peak; }
std::string rate_text(const Case& c, const Timing& t) {
  std::string text = fmt::format("{:.1f} {}", rate(c, t), c.work.unit);
  if (c.work.peak > 0) text += fmt::format(", {:.0f} % of peak", 100 * share_of_peak(c, t));
  return text;
}

}  // namespace

Report::Report(const Communicator& world, const std::string& json_path, Device device)
    : world_(world), device_(device) {
  std::string failure;
  if (world.rank() == 0 && !json_path.empty()) {
    json_.open(json_path);
    if (!json_) failure = fmt::format("{} cannot be written", json_path);
  }
  agree(world, "--json", failure);
}

void Report::header(const Case& c) {
  if (c.group == group_) return;
  group_ = c.group;
  fmt::print("\n{}\n{:<47}{:<23}{:<27}{:>10}{:>10}{:>10}{:>8}{:>8}\n", group_, "case", "shape", "variant",
             "best", "median", "cpu", "ratio", "paired");
}

void Report::add(const Case& c) {
  empty_ = false;
  if (world_.rank() != 0) return;
  header(c);
  const double base = c.timings.front().best;
  for (std::size_t i = 0; i < c.timings.size(); ++i) {
    const Timing& t = c.timings[i];
    std::string note;
    bool over = false;
    const auto limited = [&](double got, double limit) {
      if (limit <= 0) return false;
      ++limited_;
      over = over || got > limit;
      return true;
    };
    if (c.work.amount > 0) note = rate_text(c, t);
    if ((i == 0 || c.limits_all) && limited(t.best, c.limit_s))
      note = fmt::format("(at most {:.0f} ns)", c.limit_s * 1e9);
    if (i > 0 && limited(t.best - base, c.limit_extra_s))
      note = fmt::format("{:+.0f} ns (at most {:.0f})", (t.best - base) * 1e9, c.limit_extra_s * 1e9);
    if (i > 0 && limited(c.limits_paired ? t.paired : t.best / base, c.limit))
      note +=
          fmt::format("{}({}at most {})", note.empty() ? "" : " ", c.limits_paired ? "paired " : "", c.limit);
    if (over) {
      note += " OVER";
      over_.push_back(fmt::format("{} ({})", c.name, t.variant));
    }
    fmt::print("{:<47}{:<23}{:<27}{:>10}{:>10}{:>10}{:>8.3f}{:>8.3f}  {}\n", i == 0 ? c.name : "",
               i == 0 ? c.shape : "", t.variant, time_text(t.best), time_text(t.median), time_text(t.cpu),
               t.best / base, t.paired, note);
    json_line(c, t, over);
  }
  for (const Figure& f : c.figures)
    if (!f.text.empty()) fmt::print("{:<47}{:<23}{}\n", "", "", f.text);
  std::fflush(stdout);
}

void Report::summary() const {
  if (limited_ == 0) return;
  fmt::print("\n{} of {} limits exceeded{}{}\n", over_.size(), limited_, over_.empty() ? "" : ": ",
             fmt::join(over_, ", "));
}

void Report::json_line(const Case& c, const Timing& t, bool over) {
  if (!json_.is_open()) return;
  static const Processor here = processor();
  nlohmann::ordered_json line;
  line["group"] = c.group;
  line["case"] = c.name;
  line["variant"] = t.variant;
  line["shape"] = c.shape;
  line["dtype"] = name_of(c.dtype);
  line["device"] = name_of(device_);
  line["ranks"] = world_.size();
  line["threads"] = thread_count();
  line["best_s"] = t.best;
  line["median_s"] = t.median;
  line["cpu_s"] = t.cpu;
  line["ratio"] = t.best / c.timings.front().best;
  line["paired_ratio"] = t.paired;
  line["ratio_to"] = c.timings.front().variant;
  if (c.limit_s > 0) line["limit_s"] = c.limit_s;
  if (over) line["over_limit"] = true;
  if (c.work.amount > 0) line[c.work.unit] = rate(c, t);
  if (c.work.peak > 0) {
    line["peak"] = c.work.peak * 1e-9;
    line["of_peak"] = share_of_peak(c, t);
  }
  if (!c.family.empty()) line["family"] = c.family;
  if (!c.recipe.empty()) line["recipe"] = nlohmann::ordered_json::parse(c.recipe);
  for (const Figure& f : c.figures) line[f.name] = f.value;
  line["cpu"] = here.model;
  line["features"] = here.features;
  line["isa"] = cpu::name_of(cpu::active_isa());
  json_ << line.dump() << std::endl;
}

std::string machine_line(const Communicator& world) {
  const Processor p = processor();
  std::string load = "unknown";
  std::ifstream("/proc/loadavg") >> load;
  return fmt::format("{} rank{}, {} thread{} each, {} ({}), running {}, {} cores, load {}", world.size(),
                     world.size() == 1 ? "" : "s", thread_count(), thread_count() == 1 ? "" : "s", p.model,
                     fmt::join(p.features, " "), cpu::name_of(cpu::active_isa()), available_cores(), load);
}

}  // namespace tessera::bench
