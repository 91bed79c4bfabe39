#pragma once
#include "ops/window/window_buffer.h"

namespace tessera {

// Convolutions, pools and interpolation of inputs of at least so many elements without a copy of the map with
// its halo, while it lives.
class FramesFrom {
 public:
  explicit FramesFrom(std::int64_t elements) { set_frames_from(elements); }
  ~FramesFrom() { set_frames_from(before_); }
  FramesFrom(const FramesFrom&) = delete;
  FramesFrom& operator=(const FramesFrom&) = delete;

 private:
  std::int64_t before_ = frames_from();
};

}  // namespace tessera
