// Random words of single elements on the device (runtime/rng.h says which).
#pragma once
#include "runtime/cuda/kernel_context.h"
#include "runtime/philox.h"

namespace tessera::cuda {

TS_DEVICE std::uint32_t word_of(const detail::PhiloxBlock& b, std::int64_t k) {
  return k == 0 ? b.w0 : k == 1 ? b.w1 : k == 2 ? b.w2 : b.w3;
}
TS_DEVICE detail::PhiloxBlock words(RngKey key, std::int64_t index, std::uint64_t lane) {
  return detail::philox_block(
      key, static_cast<std::uint64_t>(index / detail::kWordsPerBlock) | lane << detail::kLaneShift);
}
TS_DEVICE std::uint32_t word(RngKey key, std::int64_t index, std::uint64_t lane) {
  return word_of(words(key, index, lane), index % detail::kWordsPerBlock);
}

// A replay of a graph draws from other streams than the one before.
TS_DEVICE RngKey key_of_launch(RngKey key) {
  if (key.drawn != nullptr) key.stream += *Ptr<const std::uint64_t>(key.drawn);
  return key;
}

}  // namespace tessera::cuda
