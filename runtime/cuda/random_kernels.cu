// The same arithmetic as on the CPU (runtime/rng_math.h), one element a thread.
#include "runtime/cuda/random_kernels.h"

#include "runtime/cuda/elements.h"
#include "runtime/cuda/philox_words.h"
#include "runtime/rng_math.h"

namespace tessera::cuda {
namespace {

using detail::kWordsPerBlock;

TS_DEVICE double standard_normal(RngKey key, std::int64_t index, std::uint64_t lane) {
  const detail::PhiloxBlock w = words(key, index, lane);
  const std::int64_t pair = index % kWordsPerBlock / 2 * 2;
  const detail::NormalPair z = detail::box_muller(word_of(w, pair), word_of(w, pair + 1));
  return index % 2 == 0 ? z.first : z.second;
}

// Values outside the bounds are drawn again from the next lane.
TS_DEVICE double within_bounds(const RandomElements& e, const RngKey& key, std::int64_t index) {
  double value = std::fma(e.b, standard_normal(key, index, 0), e.a);
  for (std::uint64_t lane = 2; (value < e.lo || value > e.hi) && lane <= 250; ++lane)
    value = std::fma(e.b, standard_normal(key, index, lane), e.a);
  return value < e.lo ? e.lo : value > e.hi ? e.hi : value;
}

template <class T>
TS_DEVICE T uniform(const RandomElements& e, const RngKey& key, std::int64_t index) {
  double u = 0;
  if constexpr (std::is_same_v<T, double>)
    u = detail::unit_53(word(key, index, 0), word(key, index, 1));
  else
    u = detail::unit_24(word(key, index, 0));
  const T value = detail::round_to<T>(std::fma(u, e.b - e.a, e.a));
  return static_cast<double>(value) < e.b ? value : detail::below<T>(e.b);
}

template <class T>
TS_DEVICE T dropped(const RandomElements& e, const RngKey& key, std::int64_t index, const T& in) {
  using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const A value = static_cast<A>(load(in)) * static_cast<A>(e.b);
  const bool keep = word(key, index, 0) >= static_cast<std::uint32_t>(detail::drop_threshold(e.a));
  return convert<T>(keep ? value : A(0));
}

template <class T>
struct Random : Independent {
  RandomElements e;
  Ptr<T> out;
  Ptr<const T> in;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= e.walk.numel) return;
    std::int64_t at[3];
    e.walk.offsets(i, at);
    const std::int64_t index = e.first_index + at[2];
    const RngKey key = key_of_launch(e.key);
    switch (e.kind) {
      case RandomKind::Uniform:
        out[at[0]] = uniform<T>(e, key, index);
        break;
      case RandomKind::Normal:
        out[at[0]] = detail::round_to<T>(std::fma(e.b, standard_normal(key, index, 0), e.a));
        break;
      case RandomKind::TruncatedNormal:
        out[at[0]] = detail::round_to<T>(within_bounds(e, key, index));
        break;
      case RandomKind::Dropout:
        out[at[0]] = dropped<T>(e, key, index, in[at[1]]);
        break;
    }
  }
};

}  // namespace

void fill_random(const RandomElements& e, StreamHandle stream) {
  dispatch_floating(e.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(Random<T>{{}, e, static_cast<T*>(e.out), static_cast<const T*>(e.in)}, one_each(e.walk.numel),
           stream);
  });
}

}  // namespace tessera::cuda
