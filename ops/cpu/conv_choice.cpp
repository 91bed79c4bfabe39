#include "ops/cpu/conv_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <iterator>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "ops/cpu/conv_plans.h"
#include "ops/cpu/isa.h"
#include "ops/cpu/onednn.h"
#include "ops/cpu/parallel.h"
#include "runtime/environment.h"
#include "runtime/error.h"

namespace tessera::cpu {

namespace {

using Run = std::function<bool(ConvWay)>;
using Ways = std::vector<ConvWay>;

constexpr double kTinyFlops = 1e5;   // less is over before a library call has begun
constexpr double kLeastFlops = 2e6;  // less is not worth timing
constexpr double kBudget = 50e-3;    // seconds of all runs, beyond which there is one repeat
constexpr int kRepeats = 3;
constexpr double kHopeless = 3;           // times the fastest first run: a way that is not run again
constexpr double kLong = 20e-3;           // seconds of a first run that the making of plans does not explain
constexpr double kByChance = 1.5;         // neighbours on the machine make so much
constexpr double kMargin = 0.95;          // of the rule's time: what another way must take at most
constexpr std::int64_t kLargeMap = 1024;  // outputs
constexpr std::int64_t kFewChannels = 4;
constexpr std::int64_t kGroupChannels = 8;  // with fewer, our own loops are slow
constexpr std::int64_t kWideTaps = 5;       // of depthwise weight gradients, which oneDNN may do in seconds

// In the order of ConvChoice.
constexpr const char* kChoices[] = {"channels_last", "any", "own", "rule", "measure"};

ConvChoice initial_choice() {
  const char* text = std::getenv("TESSERA_CONV_CHOICE");
  if (text == nullptr || *text == '\0') return ConvChoice::Measure;
  const auto* found = std::find_if(std::begin(kChoices), std::end(kChoices),
                                   [&](const char* name) { return std::string_view(text) == name; });
  TS_CHECK(found != std::end(kChoices), "TESSERA_CONV_CHOICE",
           "'{}' is not a choice; allowed are channels_last, any, own, rule and measure", text);
  return static_cast<ConvChoice>(found - std::begin(kChoices));
}

std::atomic<ConvChoice>& choice() {
  static std::atomic<ConvChoice> value{initial_choice()};
  return value;
}

std::string chosen() { return kChoices[static_cast<std::size_t>(choice().load())]; }
[[maybe_unused]] const bool compared = (add_common_setting("TESSERA_CONV_CHOICE", &chosen), true);

onednn::Key key_of(const ConvCall& call, ConvChoice how) {
  const ConvProblem& p = call.problem;
  onednn::Key key;
  key.add(static_cast<std::int64_t>(call.pass) | static_cast<std::int64_t>(p.dtype) << 4 |
          static_cast<std::int64_t>(active_isa()) << 8 | (is_channels_last(call.x) ? 1 << 12 : 0) |
          (is_channels_last(call.y) ? 1 << 13 : 0) | static_cast<std::int64_t>(how) << 16);
  for (std::int64_t v : {static_cast<std::int64_t>(threads_for(p.flops())), p.samples, p.in_channels,
                         p.out_channels, p.groups})
    key.add(v);
  for (const Dims* d : {&p.in, &p.out, &p.kernel, &p.stride, &p.dilation, &p.padding_lo}) key.add(*d);
  return key;
}

std::string text_of(const ConvCall& call) {
  const ConvProblem& p = call.problem;
  constexpr const char* kPasses[] = {"forward", "backward_data", "backward_weight"};
  const auto joined = [](const Dims& d) { return fmt::format("{}", fmt::join(d.begin(), d.end(), "x")); };
  return fmt::format(
      "{} {} {} threads={} channels={}x{} groups={} in={}x{} out={} kernel={} stride={} dilation={} "
      "padding={} layout={}{}",
      kPasses[static_cast<int>(call.pass)], name_of(p.dtype), name_of(active_isa()), threads_for(p.flops()),
      p.in_channels, p.out_channels, p.groups, p.samples, joined(p.in), joined(p.out), joined(p.kernel),
      joined(p.stride), joined(p.dilation), joined(p.padding_lo), is_channels_last(call.x) ? "last" : "other",
      is_channels_last(call.y) ? "" : "+other");
}

// Whether there are loops of our own for depthwise convolutions in this direction.
bool has_own_depthwise(const ConvCall& call) {
  return is_depthwise(call.problem) &&
         (call.pass == ConvPass::Forward ||
          (call.pass == ConvPass::BackwardData && call.problem.stride.back() == 1));
}

// The most promising first: what the rule says. Ways that may take a hundred times as long are not tried.
Ways ways_of(const ConvCall& call) {
  const ConvProblem& p = call.problem;
  if (p.dtype == DType::F64) return {ConvWay::Own};
  const bool f32 = p.dtype == DType::F32;
  const bool weight = call.pass == ConvPass::BackwardWeight;
  if (weight && f32 && is_depthwise(p) && p.kernel.back() >= kWideTaps)
    return {ConvWay::Own, ConvWay::ChannelsLast};
  // oneDNN's AVX2 weight gradients on channels-last maps take two to five times as long as they should.
  if (weight && f32 && active_isa() != Isa::Avx512 && p.groups == 1 &&
      p.samples * numel_of(p.out) >= kLargeMap)
    return {ConvWay::Own, ConvWay::Any, ConvWay::ChannelsLast};
  // Its data gradients with strides fill no vectors where channels are few.
  if (call.pass == ConvPass::BackwardData && f32 && p.groups == 1 && p.stride.back() > 1 &&
      p.dilation.back() == 1 && p.in_channels <= kFewChannels)
    return {ConvWay::Own, ConvWay::ChannelsLast, ConvWay::Any};
  if (p.groups > 1 && (p.group_in() < kGroupChannels || p.group_out() < kGroupChannels) &&
      !has_own_depthwise(call))
    return {ConvWay::ChannelsLast, ConvWay::Any};
  return {ConvWay::ChannelsLast, ConvWay::Any, ConvWay::Own};
}

bool worth_timing(const ConvCall& call) {
  const ConvProblem& p = call.problem;
  const bool wide_depthwise =
      call.pass == ConvPass::BackwardWeight && is_depthwise(p) && p.kernel.back() >= kWideTaps;
  return p.dtype != DType::F64 && p.flops() >= kLeastFlops && !wide_depthwise;
}

struct Trial {
  ConvWay way;
  double first = 0;
  double best = std::numeric_limits<double>::infinity();
};

// Seconds. A call on one thread is judged by what it computes for: on a shared machine the clock on the wall
// would choose whatever ran while nobody else did.
double time_of(const ConvCall& call) {
  timespec t{};
  clock_gettime(threads_for(call.problem.flops()) == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// The first way, unless another one beats it clearly.
const Trial& leader(const std::vector<Trial>& trials) {
  const Trial* best = &trials.front();
  for (const Trial& t : trials)
    if (t.best < best->best && t.best < kMargin * trials.front().best) best = &t;
  return *best;
}

// Where time is up: whether another way leads the first one by so little that chance may have made it, and
// then these two alone.
bool keep_contenders(std::vector<Trial>& trials) {
  const Trial best = leader(trials);
  if (best.way == trials.front().way || trials.front().best > kByChance * best.best) return false;
  std::erase_if(trials, [&](const Trial& t) { return t.way != best.way && t.way != trials.front().way; });
  return true;
}

// Times the ways in turn. The last one that ran is left in `ran`.
ConvWay measure(const ConvCall& call, const Run& run, std::optional<ConvWay>& ran) {
  std::vector<Trial> trials;
  double spent = 0;
  const auto timed = [&](ConvWay way) -> std::optional<double> {
    const double start = time_of(call);
    if (!run(way)) return std::nullopt;
    const double took = time_of(call) - start;
    spent += took;
    ran = way;
    return took;
  };
  double fastest = std::numeric_limits<double>::infinity();
  for (ConvWay way : ways_of(call))
    if (const auto took = timed(way)) {
      trials.push_back({way, *took});
      fastest = std::min(fastest, *took);
    }
  if (trials.empty()) return ConvWay::Own;
  // First runs make plans and touch memory: they only tell who is out of the race.
  std::erase_if(trials, [&](const Trial& t) { return t.first > std::max(kLong, kHopeless * fastest); });
  if (trials.size() == 1) return trials.front().way;
  for (int i = 0; i < kRepeats; ++i) {
    if (i > 0 && spent >= kBudget && !keep_contenders(trials)) break;
    for (Trial& t : trials) t.best = std::min(t.best, timed(t.way).value_or(t.best));
  }
  return leader(trials).way;
}

// The way that the process has chosen or chooses now. True if it has run the call already.
bool chosen(const ConvCall& call, const Run& run, ConvWay& way) {
  ConvPlans& plans = ConvPlans::process();
  bool done = false;
  const std::string text = text_of(call);
  if (choice().load(std::memory_order_relaxed) == ConvChoice::Rule) {
    if (!plans.find(text, way)) way = ways_of(call).front();
    return false;
  }
  way = plans.get(text, [&] {
    std::optional<ConvWay> ran;
    const ConvWay best = measure(call, run, ran);
    done = ran == best;
    return best;
  });
  return done;
}

// The first of `first`, the other ways and our own loops that can.
void run_from(ConvWay first, const ConvCall& call, const Run& run) {
  if (run(first)) return;
  for (ConvWay way : ways_of(call))
    if (way != first && run(way)) return;
  run(ConvWay::Own);
}

}  // namespace

const char* name_of(ConvWay way) {
  switch (way) {
    case ConvWay::ChannelsLast:
      return "channels_last";
    case ConvWay::Any:
      return "any";
    default:
      return "own";
  }
}

ConvChoice conv_choice() { return choice().load(std::memory_order_relaxed); }
void read_conv_environment() {
  conv_choice();
  ConvPlans::process();
}
void set_conv_choice(ConvChoice c) { choice().store(c, std::memory_order_relaxed); }

bool is_tiny(const ConvProblem& problem) { return problem.flops() < kTinyFlops; }

void run_conv(const ConvCall& call, const Run& run) {
  const ConvChoice how = conv_choice();
  if (how < ConvChoice::Rule) return run_from(static_cast<ConvWay>(how), call, run);
  if (is_tiny(call.problem) && run(ConvWay::Own)) return;
  if (call.replicated || !worth_timing(call)) return run_from(ways_of(call).front(), call, run);
  thread_local onednn::Cache<ConvWay> cache;
  thread_local std::uint64_t generation = 0;
  const std::uint64_t now = ConvPlans::process().generation();
  if (generation != now) cache = {};
  generation = now;
  bool done = false;
  const ConvWay way = *cache.get(key_of(call, how), [&] {
    ConvWay w{};
    done = chosen(call, run, w);
    return std::make_unique<ConvWay>(w);
  });
  if (!done) run_from(way, call, run);
}

}  // namespace tessera::cpu
