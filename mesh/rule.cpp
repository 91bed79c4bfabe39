#include "mesh/rule.h"

#include "mesh/mesh_state.h"
#include "mesh/redistribute.h"
#include "runtime/error.h"

namespace tessera {
namespace {

// What one mesh axis does: shard a letter, keep a Partial (which input, or -1 for all), or nothing.
struct AxisChoice {
  char letter = 0;
  bool partial = false;
  int partial_input = -1;
  ReduceOp op = ReduceOp::Sum;
};

class Resolver {
 public:
  explicit Resolver(const RuleProblem& problem) : p_(problem), rule_(*problem.rule) {
    for (const SpecPtr& s : p_.inputs)
      if (s) mesh_ = s->mesh();
    collect_letters();
  }

  Strategy best() {
    std::vector<std::vector<AxisChoice>> candidates;
    candidates.reserve(static_cast<std::size_t>(mesh_.ndim()));
    for (int a = 0; a < mesh_.ndim(); ++a) candidates.push_back(candidates_of(a));
    Strategy best;
    bool found = false;
    std::vector<std::size_t> index(candidates.size(), 0);
    while (true) {
      std::vector<AxisChoice> choice;
      for (std::size_t a = 0; a < candidates.size(); ++a) choice.push_back(candidates[a][index[a]]);
      std::optional<Strategy> s;
      if (is_allowed(choice)) s = build(choice);
      if (s && (!found || s->cost < best.cost)) {
        best = std::move(*s);
        found = true;
      }
      std::size_t a = candidates.size();
      while (a > 0 && ++index[a - 1] == candidates[a - 1].size()) index[--a] = 0;
      if (a == 0) break;
    }
    for (std::size_t o = 0; o < rule_.outputs.size(); ++o)
      best.outputs.push_back(output_spec(best_choice_, rule_.outputs[o], p_.output_sizes[o]));
    return best;
  }

 private:
  void collect_letters() {
    for (std::size_t i = 0; i < rule_.inputs.size(); ++i) {
      if (!p_.inputs[i]) continue;
      for (std::size_t d = 0; d < rule_.inputs[i].size(); ++d) {
        const RuleDim& t = rule_.inputs[i][d];
        if (t.letter == 0) continue;
        if (t.whole) whole_.push_back(t.letter);
        sizes_[t.letter] = p_.inputs[i]->sizes()[static_cast<int>(d)];
      }
    }
  }

  bool in_output(char letter) const {
    return std::all_of(rule_.outputs.begin(), rule_.outputs.end(), [&](const RuleTerm& t) {
      return std::any_of(t.begin(), t.end(), [&](const RuleDim& d) { return d.letter == letter; });
    });
  }

  bool may_cut(char letter) const {
    if (letter == 0 || std::find(whole_.begin(), whole_.end(), letter) != whole_.end()) return false;
    return in_output(letter) || rule_.may_miss;
  }

  bool is_window(char letter) const {
    return std::any_of(rule_.inputs.begin(), rule_.inputs.end(), [&](const RuleTerm& t) {
      return std::any_of(t.begin(), t.end(),
                         [&](const RuleDim& d) { return d.letter == letter && d.window; });
    });
  }

  // Where input i is cut along a dim that may not be: the letters that its cut could move to, which moves a
  // part of it, where making it whole would bring all of it to every rank. Those that keep most ranks at work
  // first, then those without windows.
  std::vector<char> refuges_of(std::size_t i, int axis) const {
    std::vector<char> letters;
    for (const RuleDim& d : rule_.inputs[i])
      if (may_cut(d.letter) && in_output(d.letter) && sizes_.at(d.letter) > 1) letters.push_back(d.letter);
    const auto busy = [&](char letter) {
      return std::min<std::int64_t>(sizes_.at(letter), mesh_.size(axis));
    };
    std::stable_sort(letters.begin(), letters.end(), [&](char a, char b) {
      return busy(a) != busy(b) ? busy(a) > busy(b) : is_window(a) < is_window(b);
    });
    return letters;
  }

  std::vector<AxisChoice> candidates_of(int axis) const {
    std::vector<AxisChoice> list;
    const auto add = [&](char letter) {
      const bool known =
          std::any_of(list.begin(), list.end(), [&](const AxisChoice& c) { return c.letter == letter; });
      if (!known) list.push_back({letter, false, -1, ReduceOp::Sum});
    };
    std::vector<std::size_t> stuck;
    for (std::size_t i = 0; i < p_.inputs.size(); ++i) {
      if (!p_.inputs[i]) continue;
      const Placement& p = p_.inputs[i]->placement(axis);
      if (!p.is_shard()) continue;
      const char letter = rule_.inputs[i][static_cast<std::size_t>(p.dim)].letter;
      if (may_cut(letter)) {
        add(letter);
      } else {
        stuck.push_back(i);
      }
    }
    for (std::size_t i : stuck)
      for (char letter : refuges_of(i, axis)) add(letter);
    for (std::size_t i = 0; i < p_.inputs.size(); ++i) {
      if (!p_.inputs[i] || !p_.inputs[i]->placement(axis).is_partial()) continue;
      const ReduceOp op = p_.inputs[i]->placement(axis).op;
      const bool sum = op == ReduceOp::Sum;
      const bool each = rule_.linearity == Linearity::Each || (rule_.linearity == Linearity::First && i == 0);
      if ((each && sum) || rule_.linearity == Linearity::Select)
        list.push_back({0, true, static_cast<int>(i), op});
      if (is_joint(i) && sum) {
        list.push_back({0, true, -1, op});
        break;
      }
    }
    list.push_back({});
    return list;
  }

  // Whether input i may owe together with others.
  bool is_joint(std::size_t i) const {
    return rule_.linearity == Linearity::Joint || (rule_.linearity == Linearity::Rest && i > 0);
  }

  // A product of two inputs that both owe sums would not see what the other is.
  bool is_allowed(const std::vector<AxisChoice>& choice) const {
    if (rule_.linearity != Linearity::Each) return true;
    int owing = -1;
    for (const AxisChoice& c : choice) {
      if (!c.partial) continue;
      if (owing >= 0 && owing != c.partial_input) return false;
      owing = c.partial_input;
    }
    return true;
  }

  // The cut that a letter gets when exactly `axes` shard it: an input's own where one fits, else the default.
  std::optional<DimCut> cut_of(char letter, const std::vector<int>& axes) const {
    const bool window = p_.windows.contains(letter);
    const DimCut* best = nullptr;
    std::int64_t largest = -1;
    for (std::size_t i = 0; i < p_.inputs.size(); ++i) {
      if (!p_.inputs[i]) continue;
      const ShardSpec& s = *p_.inputs[i];
      for (std::size_t d = 0; d < rule_.inputs[i].size(); ++d) {
        const int dim = static_cast<int>(d);
        if (rule_.inputs[i][d].letter != letter || !s.cut(dim)) continue;
        std::vector<int> sorted = s.cut(dim)->axes;
        std::sort(sorted.begin(), sorted.end());
        if (sorted != axes || (window && !s.single_interval(dim))) continue;
        if (numel_of(s.sizes()) > largest) {
          largest = numel_of(s.sizes());
          best = s.cut(dim).get();
        }
      }
    }
    if (best != nullptr) return *best;
    DimCut cut;
    cut.axes = axes;
    int parts = 1;
    for (int a : axes) parts *= mesh_.size(a);
    for (Interval i : default_partition(sizes_.at(letter), parts)) cut.parts.push_back({i});
    return cut;
  }

  static std::vector<int> axes_of(const std::vector<AxisChoice>& choice, char letter) {
    std::vector<int> axes;
    for (std::size_t a = 0; a < choice.size(); ++a)
      if (choice[a].letter == letter && letter != 0) axes.push_back(static_cast<int>(a));
    return axes;
  }

  SpecPtr input_spec(const std::vector<AxisChoice>& choice, std::size_t i) const {
    const ShardSpec& now = *p_.inputs[i];
    Placements placements(choice.size());
    std::vector<std::optional<DimCut>> cuts(static_cast<std::size_t>(now.dim()));
    for (int d = 0; d < now.dim(); ++d) {
      const char letter = rule_.inputs[i][static_cast<std::size_t>(d)].letter;
      const std::vector<int> axes = axes_of(choice, letter);
      if (axes.empty()) continue;
      for (int a : axes) placements[static_cast<std::size_t>(a)] = Shard(d);
      cuts[static_cast<std::size_t>(d)] = cut_of(letter, axes);
    }
    for (std::size_t a = 0; a < choice.size(); ++a)
      if (choice[a].partial &&
          (choice[a].partial_input < 0 ? is_joint(i) : choice[a].partial_input == static_cast<int>(i)))
        placements[a] = Partial(choice[a].op);
    return ShardSpec::make(mesh_, placements, now.sizes(), std::move(cuts));
  }

  std::optional<Strategy> build(const std::vector<AxisChoice>& choice) {
    Strategy s;
    for (std::size_t i = 0; i < p_.inputs.size(); ++i) {
      if (!p_.inputs[i]) {
        s.inputs.push_back(nullptr);
        continue;
      }
      s.inputs.push_back(input_spec(choice, i));
      s.cost += redistribute_cost(*p_.inputs[i], *s.inputs.back());
    }
    if (!has_best_ || s.cost < best_cost_) {
      has_best_ = true;
      best_cost_ = s.cost;
      best_choice_ = choice;
    }
    return s;
  }

  SpecPtr output_spec(const std::vector<AxisChoice>& choice, const RuleTerm& term, const Dims& sizes) const {
    Placements placements(choice.size());
    std::vector<std::optional<DimCut>> cuts(term.size());
    for (std::size_t a = 0; a < choice.size(); ++a) {
      if (choice[a].partial) placements[a] = Partial(choice[a].op);
      if (choice[a].letter == 0) continue;
      placements[a] = Partial(rule_.missing);
      for (std::size_t d = 0; d < term.size(); ++d)
        if (term[d].letter == choice[a].letter) placements[a] = Shard(static_cast<int>(d));
    }
    for (std::size_t d = 0; d < term.size(); ++d) {
      const std::vector<int> axes = axes_of(choice, term[d].letter);
      if (axes.empty()) continue;
      DimCut cut = *cut_of(term[d].letter, axes);
      if (auto w = p_.windows.find(term[d].letter); w != p_.windows.end())
        cut = window_output_cut(cut, w->second, sizes_.at(term[d].letter));
      cuts[d] = std::move(cut);
    }
    return ShardSpec::make(mesh_, placements, sizes, std::move(cuts));
  }

  const RuleProblem& p_;
  const Rule& rule_;
  DeviceMesh mesh_;
  std::map<char, std::int64_t> sizes_;
  std::vector<char> whole_;
  std::vector<AxisChoice> best_choice_;
  double best_cost_ = 0;
  bool has_best_ = false;
};

RuleTerm parse_term(std::string_view text, std::string_view whole_text) {
  RuleTerm term;
  for (char c : text) {
    if (c == ' ') continue;
    if (c == '~' || c == '!') {
      TS_CHECK(!term.empty(), "rule", "'{}' without a letter in \"{}\"", c, whole_text);
      (c == '~' ? term.back().window : term.back().whole) = true;
      continue;
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    TS_CHECK(letter || c == '.', "rule", "unexpected '{}' in \"{}\"", c, whole_text);
    RuleDim dim;
    dim.letter = letter ? c : '\0';
    term.push_back(dim);
  }
  return term;
}

std::vector<RuleTerm> parse_terms(std::string_view text, std::string_view whole_text) {
  std::vector<RuleTerm> terms;
  while (true) {
    const std::size_t comma = text.find(',');
    terms.push_back(parse_term(text.substr(0, comma), whole_text));
    if (comma == std::string_view::npos) return terms;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

Rule parse_rule(std::string_view text, Linearity linearity) {
  const std::size_t arrow = text.find("->");
  TS_CHECK(arrow != std::string_view::npos, "rule", "\"{}\" has no \"->\"", text);
  Rule rule;
  rule.inputs = parse_terms(text.substr(0, arrow), text);
  rule.outputs = parse_terms(text.substr(arrow + 2), text);
  rule.linearity = linearity;
  return rule;
}

std::string str(const Rule& rule) {
  auto terms = [](const std::vector<RuleTerm>& list) {
    std::string s;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (i > 0) s += ",";
      for (const RuleDim& d : list[i]) {
        s += s.empty() ? "" : " ";
        s += d.letter == 0 ? '.' : d.letter;
        if (d.window) s += '~';
        if (d.whole) s += '!';
      }
    }
    return s;
  };
  return terms(rule.inputs) + " -> " + terms(rule.outputs);
}

Strategy resolve(const RuleProblem& problem) { return Resolver(problem).best(); }

}  // namespace tessera
