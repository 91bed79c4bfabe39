// Loops over independent pieces, on this rank's threads, with the progress hook between pieces.
#pragma once
#include <cstdint>
#include <type_traits>

namespace tessera::cpu {

// Opening a parallel region costs more than a microsecond; below this much work it does not pay.
inline constexpr double kParallelFlops = 5e4;

// Threads worth using for so many floating-point operations (or moved elements).
int threads_for(double flops);

namespace detail {
using PieceFunction = void (*)(const void* body, std::int64_t piece);
void run_pieces(std::int64_t pieces, int threads, const void* body, PieceFunction call);
}  // namespace detail

// body(i) for i in [0, pieces), in any order. Which thread runs a piece must not change its result.
template <class Body>
void parallel_for(std::int64_t pieces, int threads, const Body& body) {
  detail::run_pieces(pieces, threads, &body,
                     [](const void* b, std::int64_t piece) { (*static_cast<const Body*>(b))(piece); });
}

// For a >= 0, b > 0, up to the largest numbers.
inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace tessera::cpu
