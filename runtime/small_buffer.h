// n numbers of scratch memory, zeros at first, that lie on the stack where they are few: what a kernel adds
// up on the side of a small tensor costs no allocation.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace tessera {

template <class T, std::int64_t few = 64>
class SmallBuffer {
 public:
  explicit SmallBuffer(std::int64_t n) {
    if (n > few)
      more_.resize(static_cast<std::size_t>(n));
    else
      std::fill_n(own_.begin(), n, T());
  }
  T* data() { return more_.empty() ? own_.data() : more_.data(); }
  const T* data() const { return more_.empty() ? own_.data() : more_.data(); }
  T& operator[](std::int64_t i) { return data()[i]; }
  const T& operator[](std::int64_t i) const { return data()[i]; }

 private:
  std::array<T, few> own_;  // where they are few
  std::vector<T> more_;
};

}  // namespace tessera
