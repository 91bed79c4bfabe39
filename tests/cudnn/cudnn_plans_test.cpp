// Puts graphs of convolutions and attention before cuDNN itself, for a device described by a file: no device
// is needed. Fails for every graph that the rule would send to cuDNN and that cuDNN has no plan for.
//
//   test_cudnn_plans DEVICE.json GRAPHS.jsonl [--types N] [--attention N] [--asked FILE]
//                    [--random FILE [--sample N]] [--draws N] [--seed S] [--workspace MiB] [--list]
//
// GRAPHS.jsonl: what TESSERA_CUDNN_RECORD wrote, judged in every type, or (--types) in f32 and N - 1 others
// that are drawn for each convolution. --attention: only so many of those of attention, whose plans take a
// second each, in one type each. --asked: of another record, those graphs that GRAPHS.jsonl does not hold in
// any type, as they were asked for, and nothing else. --random: likewise of what random tests asked for, of
// which N are drawn with --sample. --draws: random convolutions beside those of GRAPHS.jsonl, and a tenth as
// many graphs of attention. --seed: of all that is drawn, TESSERA_SEED (else 1) if it is not given.
// --workspace: the most that a plan may need, 4096 otherwise. --list: every plan.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "ops/cuda/attention_rule.h"
#include "ops/cuda/conv_rule.h"

namespace {

using namespace tessera;  // NOLINT(google-build-using-namespace)
using cuda::AttentionGraph;
using cuda::ConvGraph;
using cuda::ConvKind;

constexpr unsigned kTypes = 5;

std::uint64_t seed_of_environment() {
  const char* given = std::getenv("TESSERA_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
}

struct Options {
  std::string device, graphs, asked, random;
  unsigned types = kTypes;
  int attention = 0;  // 0: all
  int sample = 0;     // 0: all
  int draws = 0;
  std::uint64_t seed = seed_of_environment();
  std::int64_t workspace = 4096;  // MiB, as ops/cuda/settings.h has it
  bool list = false;
};

std::string contents(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class Judge {
 public:
  explicit Judge(const Options& o)
      : device_(contents(o.device)), list_(o.list), most_workspace_(o.workspace << 20) {}

  template <class Graph>
  void judge(const Graph& graph) {
    ++seen_;
    if (const char* why = why_own_kernel(graph)) {
      ++own_[why];
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    std::string why;
    const auto plan = cuda::build_plan(graph, {device_, most_workspace_}, why);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    slowest_ = std::max(slowest_, took.count());
    if (!plan) {
      ++refused_;
      std::printf("REFUSED %s\n  %s\n", cuda::to_json(graph).c_str(), why.c_str());
      return;
    }
    if (plan->workspace_bytes() > most_workspace_) {
      ++refused_;
      std::printf("TOO LARGE %s\n  a workspace of %lld bytes\n", cuda::to_json(graph).c_str(),
                  static_cast<long long>(plan->workspace_bytes()));
      return;
    }
    ++planned_;
    if (planned_ % kRestored == 1) restore(graph, *plan);
    workspace_ = std::max(workspace_, plan->workspace_bytes());
    if (list_)
      std::printf("%7.1f ms %10lld bytes  %s  %s\n", took.count(),
                  static_cast<long long>(plan->workspace_bytes()), plan->name().c_str(),
                  cuda::to_json(graph).c_str());
  }

  void judge_as(AttentionGraph graph, unsigned type) {
    graph.dtype = type % 2 == 0 ? DType::BF16 : DType::F16;
    judge(graph);
  }
  // The graph in a type of one's choice: 0 to kTypes - 1, f32 first.
  void judge_as(ConvGraph graph, unsigned type) {
    constexpr DType kOfNumber[kTypes] = {DType::F32, DType::F32, DType::BF16, DType::F16, DType::F64};
    graph.dtype = kOfNumber[type];
    graph.tf32 = type == 1;
    if (!cuda::takes_activation(graph)) {
      graph.activation = cpu::Activation::None;
      graph.keeps = false;
    }
    judge(graph);
  }

  // A forward pass followed by an activation, in every type with what its graph takes along.
  void judge_with_activation(cpu::ConvProblem p, std::mt19937& random) {
    const cuda::ConvAfter after{random() % 2 == 0, static_cast<cpu::Activation>(1 + random() % 4),
                                random() % 2 == 0};
    constexpr DType kTypesOf[] = {DType::F32, DType::BF16, DType::F16, DType::F64};
    p.dtype = kTypesOf[random() % 4];
    const bool tf32 = random() % 2 == 0;
    if (random() % 4 != 0) {  // most are of channels that the graph takes any activation along for
      p.groups = 1;
      p.in_channels = 8 * static_cast<std::int64_t>(1 + random() % 12);
      p.out_channels = 8 * static_cast<std::int64_t>(1 + random() % 12);
    }
    const ConvGraph graph = cuda::conv_form(ConvKind::Forward, p, after, tf32).graph;
    if (graph.activation != cpu::Activation::None) judge(graph);
  }

  // The exit status. There may be nothing to judge if that is said.
  int report(bool may_be_empty = false) const {
    std::printf(
        "cuDNN %lld: %d graphs, %d with a plan (largest workspace %lld bytes, slowest %.1f ms), %d refused\n",
        static_cast<long long>(cuda::cudnn_version()), seen_, planned_, static_cast<long long>(workspace_),
        slowest_, refused_);
    for (const auto& [why, count] : own_) std::printf("%d for our own kernel: %s\n", count, why.c_str());
    return refused_ == 0 && (planned_ > 0 || may_be_empty) ? 0 : 1;
  }

 private:
  static constexpr int kRestored = 25;  // every so many-th plan

  static const char* why_own_kernel(const ConvGraph& graph) { return cuda::why_own_kernel(graph); }
  static const char* why_own_kernel(const AttentionGraph& graph) {
    return cuda::why_own_kernel(graph, {.capability = 90});  // of the device in h200.json
  }

  // A plan comes back from its bytes as it was.
  template <class Graph>
  void restore(const Graph& graph, const cuda::GraphPlan& plan) {
    std::string why;
    const auto again = cuda::restore_plan(plan.serialized(), device_, why);
    if (again && again->workspace_bytes() == plan.workspace_bytes()) {
      ++restored_;
      return;
    }
    ++refused_;
    std::printf("NOT RESTORED %s\n  %s\n", cuda::to_json(graph).c_str(), why.c_str());
  }

  std::string device_;
  bool list_;
  std::int64_t most_workspace_;
  int seen_ = 0;
  int planned_ = 0;
  int refused_ = 0;
  int restored_ = 0;
  std::int64_t workspace_ = 0;
  double slowest_ = 0;
  std::map<std::string, int> own_;
};

// A convolution as the library may meet it: few and many channels, groups, one-element dims, windows that
// leave elements over or lie in the padding.
cpu::ConvProblem draw(std::mt19937& random) {
  const auto pick = [&](std::vector<std::int64_t> values) { return values[random() % values.size()]; };
  cpu::ConvProblem p;
  p.spatial = static_cast<int>(pick({1, 2, 2, 2, 3}));
  p.samples = pick({1, 1, 2, 5});
  p.groups = pick({1, 1, 1, 2, 3, 8});
  p.in_channels = p.groups * pick({1, 1, 2, 3, 4, 8, 16, 33});
  p.out_channels = p.groups * pick({1, 2, 3, 5, 8, 24});
  for (int d = 0; d < p.spatial; ++d) {
    const std::int64_t kernel = pick({1, 2, 3, 3, 4, 5, 7});
    const std::int64_t stride = pick({1, 1, 1, 2, 3, 4});
    const std::int64_t dilation = pick({1, 1, 1, 2, 3});
    const std::int64_t reach = dilation * (kernel - 1) + 1;
    const std::int64_t lo = pick({0, 0, 1, 2, kernel / 2, reach - 1});
    const std::int64_t hi = pick({0, lo, lo, 1, reach - 1});
    std::int64_t in = pick({1, 1, 2, 3, 7, 16, 31, 64});
    if (in + lo + hi < reach) in = reach;
    const std::int64_t out = (in + lo + hi - reach) / stride + 1;
    p.in.push_back(in);
    p.out.push_back(out);
    p.kernel.push_back(kernel);
    p.stride.push_back(stride);
    p.dilation.push_back(dilation);
    p.padding_lo.push_back(lo);
    p.reach_hi.push_back((out - 1) * stride + reach - in - lo);
  }
  return p;
}

// Attention as the library may ask for it: few and many tokens, shared heads, heads of different sizes,
// tokens or heads outermost.
AttentionGraph draw_attention(std::mt19937& random) {
  const auto pick = [&](std::vector<std::int64_t> values) { return values[random() % values.size()]; };
  cpu::AttentionSizes s;
  s.batch = pick({1, 1, 2, 3});
  s.key_heads = pick({1, 2, 3, 8});
  s.heads = s.key_heads * pick({1, 1, 2, 4});
  s.rows = pick({2, 3, 17, 64, 100, 257, 1003});
  s.keys = pick({s.rows, s.rows, 2, 5, 33, 128, 777});
  s.d = 8 * pick({1, 2, 4, 5, 8, 10, 16, 24, 32});
  s.dv = pick({s.d, s.d, s.d, 8, 64, 128, 256});
  const auto pass = random() % 2 == 0 ? cuda::AttentionPass::Forward : cuda::AttentionPass::Backward;
  AttentionGraph g = cuda::attention_form(pass, DType::BF16, s, random() % 2 == 0, 0.125);
  const auto dense = [&](std::int64_t heads, std::int64_t length, std::int64_t width) {
    const bool tokens_outermost = random() % 2 == 0;
    return tokens_outermost ? cuda::HeadStrides{length * heads * width, width, heads * width}
                            : cuda::HeadStrides{length * heads * width, length * width, width};
  };
  g.q = dense(s.heads, s.rows, s.d);
  g.k = dense(s.key_heads, s.keys, s.d);
  g.v = dense(s.key_heads, s.keys, s.dv);
  g.out = dense(s.heads, s.rows, s.dv);
  if (pass == cuda::AttentionPass::Forward) return g;
  g.dout = dense(s.heads, s.rows, s.dv);
  g.dq = dense(s.heads, s.rows, s.d);
  g.dk = dense(s.key_heads, s.keys, s.d);
  g.dv_out = dense(s.key_heads, s.keys, s.dv);
  return g;
}

Options parse(int argc, char** argv) {
  if (argc < 3)
    throw std::runtime_error(
        "usage: test_cudnn_plans DEVICE.json GRAPHS.jsonl [--types N] [--attention N] [--asked FILE] "
        "[--random FILE [--sample N]] [--draws N] [--seed S] [--workspace MiB] [--list]");
  Options o{argv[1], argv[2], {}, {}};
  const std::map<std::string, std::function<void(const char*)>> with_value = {
      {"--types", [&](const char* v) { o.types = std::clamp<unsigned>(std::stoul(v), 1, kTypes); }},
      {"--attention", [&](const char* v) { o.attention = std::stoi(v); }},
      {"--asked", [&](const char* v) { o.asked = v; }},
      {"--random", [&](const char* v) { o.random = v; }},
      {"--sample", [&](const char* v) { o.sample = std::stoi(v); }},
      {"--workspace", [&](const char* v) { o.workspace = std::stoll(v); }},
      {"--draws", [&](const char* v) { o.draws = std::stoi(v); }},
      {"--seed", [&](const char* v) { o.seed = std::stoull(v); }}};
  for (int i = 3; i < argc; ++i) {
    const std::string name = argv[i];
    const auto option = with_value.find(name);
    if (name == "--list") {
      o.list = true;
    } else if (option != with_value.end() && i + 1 < argc) {
      option->second(argv[++i]);
    } else {
      throw std::runtime_error("unknown argument " + name);
    }
  }
  return o;
}

struct Recorded {
  std::vector<ConvGraph> convolutions;
  std::vector<AttentionGraph> attention;
};
Recorded recorded(const std::string& path) {
  Recorded graphs;
  std::istringstream lines(contents(path));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    if (cuda::is_attention_json(line)) {
      graphs.attention.push_back(cuda::attention_graph_from_json(line));
    } else {
      graphs.convolutions.push_back(cuda::conv_graph_from_json(line));
    }
  }
  return graphs;
}

// All in so many types, or of attention a sample in one type each.
void judge_recorded(Judge& judge, Recorded graphs, const Options& o, std::mt19937& random) {
  const int attention = o.attention;
  for (const ConvGraph& g : graphs.convolutions) {
    const auto first = static_cast<unsigned>(random() % (kTypes - 1));
    for (unsigned i = 0; i < o.types; ++i) judge.judge_as(g, i == 0 ? 0 : 1 + (first + i) % (kTypes - 1));
  }
  const bool all = attention == 0;
  if (!all) std::shuffle(graphs.attention.begin(), graphs.attention.end(), random);
  for (std::size_t i = 0; i < graphs.attention.size() && (all || i < static_cast<std::size_t>(attention));
       ++i) {
    const auto first = static_cast<unsigned>(random() % 2);
    for (unsigned type = 0; type < (all ? 2 : 1); ++type) judge.judge_as(graphs.attention[i], first + type);
  }
}

// The graph without its type, which it is judged in anyway.
std::string untyped(ConvGraph g) {
  g.dtype = DType::F32;
  g.tf32 = false;
  return cuda::to_json(g);
}
std::string untyped(AttentionGraph g) {
  g.dtype = DType::BF16;
  return cuda::to_json(g);
}

// What is asked for today and was not recorded: all of it, or a sample.
class AskedToday {
 public:
  AskedToday(Judge& judge, const Recorded& known) : judge_(judge) {
    for (const auto& g : known.convolutions) held_.insert(untyped(g));
    for (const auto& g : known.attention) held_.insert(untyped(g));
  }
  void judge(const std::string& record, int sample, std::mt19937& random) {
    Recorded asked = recorded(record);
    if (asked.convolutions.empty()) throw std::runtime_error(record + " holds no convolution");
    const std::size_t all = asked.convolutions.size() + asked.attention.size();
    // Ranks write the record as they come to it: in another order with every run.
    const std::vector<std::function<void()>> unknown = unknown_of(asked);
    std::vector<std::size_t> order(unknown.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (sample > 0 && static_cast<std::size_t>(sample) < order.size()) {
      std::shuffle(order.begin(), order.end(), random);
      order.resize(static_cast<std::size_t>(sample));
    }
    for (const std::size_t i : order) unknown[i]();
    std::printf("%s: %zu graphs, %zu of which no record knows, %zu of those judged\n", record.c_str(), all,
                unknown.size(), order.size());
  }

 private:
  std::vector<std::function<void()>> unknown_of(const Recorded& asked) {
    std::map<std::string, std::function<void()>> unknown;
    const auto add = [&](const auto& graphs) {
      for (const auto& g : graphs)
        if (std::string text = cuda::to_json(g); held_.count(untyped(g)) == 0 && seen_.insert(text).second)
          unknown[text] = [this, g] { judge_.judge(g); };
    };
    add(asked.convolutions);
    add(asked.attention);
    std::vector<std::function<void()>> in_order;
    in_order.reserve(unknown.size());
    for (auto& [text, judge] : unknown) in_order.push_back(std::move(judge));
    return in_order;
  }

  Judge& judge_;
  std::set<std::string> held_;  // of any type
  std::set<std::string> seen_;
};

int run(const Options& o) {
  Judge judge(o);
  std::mt19937 random(static_cast<std::mt19937::result_type>(o.seed));
  std::printf("TESSERA_SEED=%llu\n", static_cast<unsigned long long>(o.seed));
  if (!o.asked.empty() || !o.random.empty()) {
    AskedToday today(judge, recorded(o.graphs));
    if (!o.asked.empty()) today.judge(o.asked, 0, random);
    if (!o.random.empty()) today.judge(o.random, o.sample, random);
    return judge.report(true);
  }
  judge_recorded(judge, recorded(o.graphs), o, random);
  for (int i = 0; i < o.draws; ++i) {
    const cpu::ConvProblem p = draw(random);
    const bool bias = random() % 2 == 0;
    for (ConvKind kind : {ConvKind::Forward, ConvKind::DataGradient, ConvKind::WeightGradient})
      judge.judge_as(cuda::conv_form(kind, p, {bias}, false).graph, static_cast<unsigned>(random() % kTypes));
    if (i % 4 == 0) judge.judge_with_activation(p, random);
    if (i % 10 == 0) judge.judge_as(draw_attention(random), static_cast<unsigned>(random() % 2));
  }
  return judge.report();
}

}  // namespace

int main(int argc, char** argv) try { return run(parse(argc, argv)); } catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 2;
}
