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
  explicit SmallBuffer(std::int64_t n)
      : size_(n) {  // NOLINT(cppcoreguidelines-pro-type-member-init): see fill
    if (n > few)
      more_.resize(static_cast<std::size_t>(n));
    else
      std::fill_n(own_.begin(), n, T());
  }
  std::int64_t size() const { return size_; }
  T* data() { return more_.empty() ? own_.data() : more_.data(); }
  const T* data() const { return more_.empty() ? own_.data() : more_.data(); }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  T& operator[](std::int64_t i) { return data()[i]; }
  const T& operator[](std::int64_t i) const { return data()[i]; }

 private:
  std::int64_t size_;
  std::array<T, few> own_;  // the first `size_`, where they are few
  std::vector<T> more_;
};

}  // namespace tessera
