#pragma once

namespace tessera {

// Puts a message where it belongs, straight from where the transport has it: one copy less than by way of a
// buffer.
class Placing {
 public:
  Placing() = default;
  virtual ~Placing() = default;
  Placing(const Placing&) = delete;
  Placing& operator=(const Placing&) = delete;
  // `bytes` hold the whole message during this call only.
  virtual void place(const void* bytes) = 0;
};

}  // namespace tessera
