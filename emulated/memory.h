// Memory of the emulated device.
//
// Its addresses are a range that nobody may touch (PROT_NONE): host code that follows a device pointer
// crashes at once, as it does on a machine with a GPU. The same pages are mapped a second time, kMirror bytes
// higher, and only what runs "on the device" (kernels, copies, the stand-ins of the libraries) goes there.
//
// A block ends where its pages do, and around them lie pages that the device may not touch either: a kernel
// that goes 16 bytes past the end crashes, as does one that reads what was given back. The bytes up to there
// and those of the first page before the block are NaN; where one was written the process ends when the block
// is given back, or at its own end. The library asks for blocks that are as large as an array only with
// TESSERA_ALLOCATOR=system.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tessera::emulated {

constexpr std::uintptr_t kBase = std::uintptr_t{1} << 46;
constexpr std::uintptr_t kSize = std::uintptr_t{1} << 38;
constexpr std::ptrdiff_t kMirror = std::ptrdiff_t{1} << 44;

inline bool is_device_address(const void* p) { return reinterpret_cast<std::uintptr_t>(p) - kBase < kSize; }

// Where the device reaches `p`; addresses of the host are what they are.
template <class T>
T* reach(T* p) {
  if (!is_device_address(p)) return p;
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(p) + kMirror);
}

// nullptr when the device has no more (TESSERA_EMULATED_MEMORY bytes, 8 GiB unless said otherwise).
void* take_memory(std::size_t bytes);
// False if `p` is not the start of a block.
bool give_memory(void* p);
// Whether all of [p, p + bytes) is in one block that is taken; of page-locked memory, too.
bool is_within_block(const void* p, std::size_t bytes);
std::size_t memory_in_use();
std::size_t memory_limit();

// Page-locked memory of the host. Copies from and to it run late; other host memory is read at once.
void* take_pinned(std::size_t bytes);
bool give_pinned(void* p);
bool is_pinned(const void* p);

}  // namespace tessera::emulated
