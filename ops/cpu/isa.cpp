#include "ops/cpu/isa.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include "runtime/environment.h"
#include "runtime/error.h"

namespace tessera::cpu {

namespace {

constexpr const char* kVariable = "TESSERA_ISA";

Isa initial_isa() {
  const char* text = std::getenv(kVariable);
  if (text == nullptr || *text == '\0') return machine_isa();
  for (Isa isa : {Isa::Baseline, Isa::Avx2, Isa::Avx512})
    if (std::string_view(text) == name_of(isa)) return std::min(isa, machine_isa());
  TS_FAIL(Usage, kVariable, "'{}' is not an instruction set; allowed are baseline, avx2 and avx512", text);
}

std::atomic<Isa>& active() {
  static std::atomic<Isa> isa{initial_isa()};
  return isa;
}

// What was asked for, not what the machine has: hosts may be of several kinds.
std::string asked() {
  active();
  const char* text = std::getenv(kVariable);
  return text == nullptr || *text == '\0' ? "not set" : text;
}

[[maybe_unused]] const bool compared = (add_common_setting(kVariable, &asked), true);

}  // namespace

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::Avx2:
      return "avx2";
    case Isa::Avx512:
      return "avx512";
    default:
      return "baseline";
  }
}

Isa active_isa() { return active().load(std::memory_order_relaxed); }
void set_active_isa(Isa isa) { active().store(std::min(isa, machine_isa()), std::memory_order_relaxed); }

}  // namespace tessera::cpu
