// What follows from the sizes, types and options of a call alone is worked out, and refused, in its first one
// and kept: a small convolution takes no longer than that does. Each thread keeps its own. Internal to
// ops/conv.
#pragma once
#include <array>
#include <memory>

#include "ops/conv/conv_plan.h"

namespace tessera {

struct ConvKnown {
  ConvSetup setup;
  Dims y_sizes;
  std::size_t key = 0;  // what the plan depends on beside specs; plain calls have none
  // Of plain calls: without a plan, or with one where padding is taken from the map.
  cpu::ConvGeometry geometry;
  std::shared_ptr<const ConvPlan> plan;
};
// x [N, C, ...]. `sharded`: some input is.
ConvKnown known_conv(const ConvSetup& setup, const Dims& x, const Dims& w, bool sharded);

// A call as it is looked for; its bias is checked by whoever asks.
template <class Options>
struct ConvAsked {
  const Tensor& x;  // [N, C, ...]
  const Tensor& w;
  const Tensor& bias;
  const Options& options;
  bool sharded() const { return x.is_sharded() || w.is_sharded() || (bias.defined() && bias.is_sharded()); }
};

// The last calls of a thread, one of those that share a slot. What is found stays while it is held, whoever
// asks meanwhile.
template <class Options, class Known>
class KeptCalls {
 public:
  std::shared_ptr<const Known> find(const ConvAsked<Options>& a) const {
    if (!a.x.defined() || !a.w.defined()) return nullptr;
    const std::shared_ptr<const Entry>& e = slots_[slot_of(a)];
    if (e == nullptr || !e->fits(a)) return nullptr;
    return {e, &e->known};
  }
  std::shared_ptr<const Known> keep(const ConvAsked<Options>& a, Known known) {
    auto e = std::make_shared<const Entry>(Entry{a.x.sizes(), a.w.sizes(), a.options, a.x.dtype(),
                                                 a.sharded(), frames_from(), std::move(known)});
    slots_[slot_of(a)] = e;
    return {e, &e->known};
  }

 private:
  struct Entry {
    Dims x, w;
    Options options;
    DType dtype;
    bool sharded;
    std::int64_t frames;
    Known known;

    bool fits(const ConvAsked<Options>& a) const {
      return a.x.dtype() == dtype && a.w.dtype() == dtype && a.x.sizes() == x && a.w.sizes() == w &&
             a.options == options && a.sharded() == sharded && frames == frames_from();
    }
  };
  static constexpr std::size_t kSlots = 64;
  static std::size_t slot_of(const ConvAsked<Options>& a) {
    std::size_t mixed = 0;
    for (const Dims* sizes : {&a.x.sizes(), &a.w.sizes()})
      for (const std::int64_t n : *sizes) mixed = mixed * 37 + static_cast<std::size_t>(n);
    return (mixed ^ mixed >> 6U) % kSlots;
  }
  std::array<std::shared_ptr<const Entry>, kSlots> slots_;
};

}  // namespace tessera
