// Trials of the property test: one random call on a random mesh against one rank in float64; and what makes a
// trial that fails small.
#pragma once
#include <sstream>

#include "tests/frames_from.h"
#include "tests/ops_cases.h"

namespace tessera::ops_cases {

using mesh_cases::pick;
using mesh_cases::true_everywhere;

// A number: everything that a trial draws depends on that, the seed and the family's name.
struct Trial {
  const OpFamily& family;
  // One of each shape for all trials: cached plans of one call must never serve another.
  const std::vector<DeviceMesh>& meshes;
  std::uint64_t number = 0;
  // Every other one in float32.
  DType dtype() const { return number % 2 == 1 ? DType::F32 : DType::F64; }
  // Half of the convolutions in frames, which maps of these sizes are too small for.
  std::int64_t frames() const { return number / 2 % 2 == 0 ? 0 : INT64_MAX; }
  Random random() const;
};

// What is made easier of what a trial draws.
struct Easing {
  bool flat = false;        // all ranks on one axis
  std::vector<Ease> held;   // of the tensors that are held on the mesh, in order; the rest as drawn
  std::string str() const;  // "flat,2,0,1"
  static Easing parse(const std::string& text);
};

struct Outcome {
  std::string failure;      // "" is well
  std::int64_t size = 0;    // elements that go in
  std::size_t tensors = 0;  // held on the mesh
};
// Collective. `at_most`: cases of this size or more are not run.
Outcome run_trial(const Trial& trial, const Easing& easing = {}, std::int64_t at_most = INT64_MAX);

struct Smallest {
  std::uint64_t number = 0;
  Easing easing;
  Outcome outcome;
};
// Other draws of the same operation, smaller and smaller (none with `draws` 0), then the tensors of the
// smallest held more and more simply: all as long as it fails. Collective.
Smallest smallest(const Trial& trial, const Outcome& failed, int draws = 400);

inline constexpr double kTrialTolerance = 1e-11;

// "" when the numbers are those of one rank in float64. In float32 the same call on plain tensors says how
// far off the operation is by itself.
inline std::string faults(const Parity& p, const Reference& reference, const Parity& plain, DType dtype) {
  std::string text;
  if (p.refused != reference.refused)
    text += fmt::format("\n  refused: \"{}\", on one rank: \"{}\"", p.refused, reference.refused);
  const auto check = [&](const char* what, double error, double by_itself, double factor) {
    const double allowed = dtype == DType::F32 ? 2e-5 + 20 * by_itself : factor * kTrialTolerance;
    if (!(error <= allowed))
      text += fmt::format("\n  {} off by {:.1e}, allowed {:.1e}", what, error, allowed);
  };
  check("outputs", p.outputs, plain.outputs, 1);
  check("gradients", p.gradients, plain.gradients, 1);
  check("second derivatives", p.second, plain.second, 10);
  if (!p.replicas) text += "\n  ranks hold different bits of a whole tensor";
  return text;
}

inline Random Trial::random() const {
  std::uint64_t h = test_seed() * 0x9e3779b97f4a7c15U + number;
  for (const char* c = family.name; *c != 0; ++c) h = (h ^ static_cast<unsigned char>(*c)) * 0x100000001b3U;
  return Random(h);
}

inline std::string Easing::str() const {
  std::string text = flat ? "flat" : "as drawn";
  for (const Ease e : held) text += fmt::format(",{}", static_cast<int>(e));
  return text;
}

inline Easing Easing::parse(const std::string& text) {
  Easing easing;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == "flat") {
      easing.flat = true;
    } else if (word != "as drawn") {
      easing.held.push_back(static_cast<Ease>(std::stoi(word)));
    }
  }
  return easing;
}

inline Outcome run_trial(const Trial& trial, const Easing& easing, std::int64_t at_most) {
  Random random = trial.random();
  const FramesFrom frames(trial.frames());
  const DeviceMesh& drawn = pick(random, trial.meshes);
  const DeviceMesh& mesh = easing.flat ? trial.meshes.front() : drawn;
  const OpCase c = trial.family.draw(random);
  Outcome outcome;
  for (const InputSpec& in : c.inputs) outcome.size += numel_of(in.sizes) + in.sizes.size();
  if (outcome.size >= at_most) return outcome;
  const Reference reference = run_plain(random, c, true);
  Parity plain;
  if (trial.dtype() == DType::F32)
    plain = run_on_mesh(random, DeviceMesh(), c, reference, {.floating = DType::F32});
  const Parity p = run_on_mesh(random, mesh, c, reference, {.floating = trial.dtype(), .ease = easing.held});
  outcome.tensors = p.tensors;
  std::string text = faults(p, reference, plain, trial.dtype());
  if (true_everywhere(text.empty())) return outcome;
  if (text.empty()) text = "\n  wrong on another rank";
  outcome.failure = fmt::format(
      "{} in {} on {}{}{}\n  alone: TESSERA_FAMILY='{}' TESSERA_TRIAL={} TESSERA_EASE='{}' --seed {}", c.text,
      name_of(trial.dtype()), mesh.str(), p.where, text, trial.family.name, trial.number, easing.str(),
      test_seed());
  return outcome;
}

inline Smallest smallest(const Trial& trial, const Outcome& failed, int draws) {
  Smallest s{trial.number, {}, failed};
  for (std::uint64_t i = 1; i <= static_cast<std::uint64_t>(draws); ++i) {
    const Trial other{trial.family, trial.meshes, trial.number + (i << 32U)};
    const Outcome next = run_trial(other, {}, s.outcome.size);
    if (!next.failure.empty()) s = {other.number, {}, next};
  }
  const auto try_out = [&](const Easing& easing) {
    const Outcome next = run_trial({trial.family, trial.meshes, s.number}, easing);
    if (next.failure.empty()) return false;
    s.easing = easing;
    s.outcome = next;
    return true;
  };
  Easing easier;
  easier.flat = true;
  try_out(easier);
  for (std::size_t i = 0; i < s.outcome.tensors; ++i)
    for (const Ease ease : {Ease::Whole, Ease::Even}) {
      Easing easing = s.easing;
      easing.held.resize(std::max(easing.held.size(), i + 1), Ease::AsDrawn);
      easing.held[i] = ease;
      if (try_out(easing)) break;
    }
  return s;
}

}  // namespace tessera::ops_cases
