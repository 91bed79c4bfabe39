#include "ops/cpu/indexing.h"

#include <algorithm>
#include <iterator>

#include "ops/cpu/parallel.h"
#include "runtime/error.h"

namespace tessera::cpu {
namespace {

// Elements of one piece of work.
constexpr std::int64_t kPiece = 32768;

template <class T>
struct View {
  explicit View(const Array& a) : data(a.data<T>()) {
    TS_CHECK(a.dim() == 3, "indexing", "three dims are needed, given {}", a.sizes().str());
    for (int d = 0; d < 3; ++d) {
      size[static_cast<std::size_t>(d)] = a.size(d);
      stride[static_cast<std::size_t>(d)] = a.stride(d);
    }
  }
  T* row(std::int64_t a, std::int64_t r) const { return data + a * stride[0] + r * stride[1]; }
  T* data;
  std::array<std::int64_t, 3> size{};
  std::array<std::int64_t, 3> stride{};
};

// f(lo, hi) for pieces of [0, jobs), each job of `work` elements.
template <class F>
void in_pieces(std::int64_t jobs, std::int64_t work, const F& f) {
  if (jobs == 0) return;
  const std::int64_t step = std::max<std::int64_t>(1, kPiece / std::max<std::int64_t>(1, work));
  const int threads = threads_for(static_cast<double>(jobs) * static_cast<double>(work));
  parallel_for(ceil_div(jobs, step), threads,
               [&](std::int64_t piece) { f(piece * step, std::min(jobs, (piece + 1) * step)); });
}

// Moving elements needs their size only.
template <class F>
void dispatch_bits(DType t, const F& f) {
  switch (size_of(t)) {
    case 1:
      return f(TypeTag<std::uint8_t>{});
    case 2:
      return f(TypeTag<std::uint16_t>{});
    case 4:
      return f(TypeTag<std::uint32_t>{});
    default:
      return f(TypeTag<std::uint64_t>{});
  }
}

// f(tag of to, tag of from) for the pairs that put allows.
template <class F>
void dispatch_sum(const IndexArgs& args, const F& f) {
  const DType sum = is_half(args.from.dtype()) ? DType::F32 : args.from.dtype();
  TS_CHECK(args.to.dtype() == sum, "indexing", "sums of {} are made in {}, given {}",
           name_of(args.from.dtype()), name_of(sum), name_of(args.to.dtype()));
  dispatch(args.from.dtype(), [&](auto from) {
    if constexpr (kHalf<typename decltype(from)::type>) {
      f(TypeTag<float>{}, from);
    } else {
      f(from, from);
    }
  });
}

template <class A, class T>
void add_to(A& to, T from) {
  if constexpr (std::is_same_v<A, bool>) {
    to = to || from;
  } else {
    to = static_cast<A>(to + static_cast<A>(from));
  }
}

template <class A, class T>
void add_run(A* to, std::int64_t to_stride, const T* from, std::int64_t from_stride, std::int64_t n) {
  if (to_stride == 1 && from_stride == 1) {
    for (std::int64_t i = 0; i < n; ++i) add_to(to[i], from[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) add_to(to[i * to_stride], from[i * from_stride]);
  }
}

// Rows of one element.
template <class T>
struct Line {
  T* data;
  std::int64_t stride;
};
template <class T>
Line(T*, std::int64_t) -> Line<T>;

template <class T>
void take_line(Line<T> to, Line<const T> from, const std::int64_t* numbers, Interval which) {
  for (std::int64_t i = which.lo; i < which.hi; ++i)
    to.data[i * to.stride] = numbers[i] < 0 ? T{} : from.data[numbers[i] * from.stride];
}

template <class A, class T>
void put_line(Line<A> to, Line<T> from, const std::int64_t* numbers, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    if (numbers[i] >= 0) add_to(to.data[numbers[i] * to.stride], from.data[i * from.stride]);
}

// The columns b of every a, in blocks: whoever works on one alone writes there.
constexpr std::int64_t kColumns = 64;

struct ColumnBlock {
  std::int64_t a = 0;
  std::int64_t lo = 0;
  std::int64_t hi = 0;
};

template <class F>
void for_column_blocks(const Array& numbers, const F& f) {
  const std::int64_t b = numbers.size(2);
  const std::int64_t blocks = ceil_div(b, kColumns);
  in_pieces(numbers.size(0) * blocks, numbers.size(1) * std::min(b, kColumns),
            [&](std::int64_t first, std::int64_t last) {
              for (std::int64_t job = first; job < last; ++job) {
                const std::int64_t lo = job % blocks * kColumns;
                f(ColumnBlock{job / blocks, lo, std::min(b, lo + kColumns)});
              }
            });
}

}  // namespace

void take_rows(const IndexArgs& args) {
  const std::int64_t* numbers = args.numbers.data<std::int64_t>();
  dispatch_bits(args.to.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const View<T> to(args.to);
    const View<const T> from(args.from);
    const std::int64_t m = to.size[1];
    const std::int64_t b = to.size[2];
    const bool runs = to.stride[2] == 1 && from.stride[2] == 1;
    const auto take_row = [&](T* t, const T* s) {
      if (s != nullptr && runs) {
        std::copy_n(s, b, t);
      } else {
        for (std::int64_t i = 0; i < b; ++i) t[i * to.stride[2]] = s == nullptr ? T{} : s[i * from.stride[2]];
      }
    };
    in_pieces(to.size[0] * m, b, [&](std::int64_t lo, std::int64_t hi) {
      while (lo < hi) {
        const std::int64_t a = lo / m;
        const std::int64_t first = lo % m;
        const std::int64_t last = std::min(m, first + hi - lo);
        if (b == 1) {
          take_line(Line{to.row(a, 0), to.stride[1]}, Line{from.row(a, 0), from.stride[1]}, numbers,
                    {first, last});
        } else {
          for (std::int64_t i = first; i < last; ++i)
            take_row(to.row(a, i), numbers[i] < 0 ? nullptr : from.row(a, numbers[i]));
        }
        lo += last - first;
      }
    });
  });
}

void put_rows(const IndexArgs& args) {
  const std::int64_t* numbers = args.numbers.data<std::int64_t>();
  dispatch_sum(args, [&](auto sum, auto term) {
    const View<typename decltype(sum)::type> to(args.to);
    const View<const typename decltype(term)::type> from(args.from);
    const std::int64_t m = from.size[1];
    const std::int64_t b = from.size[2];
    // Every piece reads all numbers and writes rows of its own.
    const std::int64_t rows = to.size[1];
    const std::int64_t pieces =
        std::min<std::int64_t>(rows, threads_for(static_cast<double>(from.size[0] * m * b)));
    parallel_for(pieces, static_cast<int>(pieces), [&](std::int64_t piece) {
      const std::int64_t lo = rows * piece / pieces;
      const std::int64_t hi = rows * (piece + 1) / pieces;
      for (std::int64_t a = 0; a < from.size[0]; ++a)
        for (std::int64_t i = 0; i < m; ++i) {
          if (numbers[i] < lo || numbers[i] >= hi) continue;
          if (b == 1) {
            add_to(*to.row(a, numbers[i]), *from.row(a, i));
          } else {
            add_run(to.row(a, numbers[i]), to.stride[2], from.row(a, i), from.stride[2], b);
          }
        }
    });
  });
}

void take_elements(const IndexArgs& args) {
  dispatch_bits(args.to.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const View<T> to(args.to);
    const View<const T> from(args.from);
    const View<const std::int64_t> numbers(args.numbers);
    for_column_blocks(args.numbers, [&](const ColumnBlock& block) {
      if (to.size[2] == 1)
        return take_line(Line{to.row(block.a, 0), to.stride[1]}, Line{from.row(block.a, 0), from.stride[1]},
                         numbers.row(block.a, 0), {0, to.size[1]});
      for (std::int64_t i = 0; i < to.size[1]; ++i) {
        const std::int64_t* which = numbers.row(block.a, i);
        T* t = to.row(block.a, i);
        for (std::int64_t c = block.lo; c < block.hi; ++c)
          t[c * to.stride[2]] = which[c] < 0 ? T{} : from.row(block.a, which[c])[c * from.stride[2]];
      }
    });
  });
}

void own_numbers(const OwnNumbersArgs& args) {
  const std::int64_t* numbers = args.numbers.data<std::int64_t>();
  std::int64_t* own = args.own.data<std::int64_t>();
  for (std::int64_t i = 0; i < args.own.numel(); ++i) {
    std::int64_t number = numbers[i];
    if (args.from_end && number < 0) {
      number += args.n;
    } else if (number == args.padding) {
      number = -1;
    }
    own[i] = args.all ? number : -1;
    if (args.all || number < 0) continue;
    const auto after = std::upper_bound(args.held.begin(), args.held.end(), number,
                                        [](std::int64_t r, const HeldRows& h) { return r < h.lo; });
    if (after == args.held.begin()) continue;
    const HeldRows& held = *std::prev(after);
    if (number < held.hi) own[i] = held.local + number - held.lo;
  }
}

void put_elements(const IndexArgs& args) {
  dispatch_sum(args, [&](auto sum, auto term) {
    const View<typename decltype(sum)::type> to(args.to);
    const View<const typename decltype(term)::type> from(args.from);
    const View<const std::int64_t> numbers(args.numbers);
    for_column_blocks(args.numbers, [&](const ColumnBlock& block) {
      if (from.size[2] == 1)
        return put_line(Line{to.row(block.a, 0), to.stride[1]}, Line{from.row(block.a, 0), from.stride[1]},
                        numbers.row(block.a, 0), from.size[1]);
      for (std::int64_t i = 0; i < from.size[1]; ++i) {
        const std::int64_t* which = numbers.row(block.a, i);
        const auto* f = from.row(block.a, i);
        for (std::int64_t c = block.lo; c < block.hi; ++c)
          if (which[c] >= 0) add_to(to.row(block.a, which[c])[c * to.stride[2]], f[c * from.stride[2]]);
      }
    });
  });
}

}  // namespace tessera::cpu
