// Scratch memory of one thread: kept between calls, grown when a call needs more, so that a kernel in the
// steady state takes no memory from the system. What take() gives is undefined numbers, valid until the next
// begin().
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace tessera::cpu {

class Workspace {
 public:
  // This thread's, empty. A kernel begins once per piece of work and hands nothing on to the next.
  static Workspace& begin();

  // n elements at a multiple of 64 bytes.
  template <class T>
  T* take(std::int64_t n) {
    return static_cast<T*>(take_bytes(n * static_cast<std::int64_t>(sizeof(T))));
  }

 private:
  struct Free {
    void operator()(char* p) const;
  };
  struct Chunk {
    std::unique_ptr<char, Free> memory;
    std::int64_t size = 0;
  };
  void* take_bytes(std::int64_t bytes);
  void add_chunk(std::int64_t bytes);
  void reset();

  std::vector<Chunk> chunks_;  // one, except while a call needs more than ever before
  std::int64_t used_ = 0;      // of the last chunk
  std::int64_t total_ = 0;     // taken since begin()
};

}  // namespace tessera::cpu
