#include "ops/cpu/order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>
#include <vector>

#include "ops/cpu/parallel.h"
#include "runtime/error.h"

namespace tessera::cpu {
namespace {

// Unsigned integers in the order of the values.
template <class T>
using KeyOf = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <class F>
KeyOf<F> float_key(F v) {
  using K = KeyOf<F>;
  if (v != v) return std::numeric_limits<K>::max();
  constexpr K kSign = K{1} << (8 * sizeof(K) - 1);
  const K bits = std::bit_cast<K>(v == 0 ? F{0} : v);
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

template <class T>
KeyOf<T> key_of(T v, bool descending) {
  using K = KeyOf<T>;
  K key = 0;
  if constexpr (std::is_same_v<T, bf16>) {
    key = float_key(static_cast<float>(v));
  } else if constexpr (std::is_floating_point_v<T>) {
    key = float_key(v);
  } else {
    key = static_cast<K>(v) + (K{1} << (8 * sizeof(K) - 1));  // two's complement: negative ones first
  }
  return descending ? ~key : key;
}

template <class K>
struct Item {
  K key;
  std::uint32_t position;
};
template <class K>
bool before(const Item<K>& a, const Item<K>& b) {
  return a.key != b.key ? a.key < b.key : a.position < b.position;
}

constexpr std::int64_t kRadixFrom = 1024;
constexpr unsigned kDigitBits = 11;

// Least significant digit first; each pass keeps the order of the one before. Digits that all have in common
// are left out.
template <class K>
void radix_sort(std::vector<Item<K>>& items, std::vector<Item<K>>& spare) {
  constexpr std::size_t kDigits = 1U << kDigitBits;
  spare.resize(items.size());
  for (unsigned shift = 0; shift < 8 * sizeof(K); shift += kDigitBits) {
    const auto digit = [shift](const Item<K>& i) {
      return static_cast<std::size_t>(i.key >> shift) & (kDigits - 1);
    };
    std::array<std::size_t, kDigits> at{};
    for (const Item<K>& i : items) ++at[digit(i)];
    if (at[digit(items.front())] == items.size()) continue;
    std::size_t sum = 0;
    for (std::size_t& a : at) sum += std::exchange(a, sum);
    for (const Item<K>& i : items) spare[at[digit(i)]++] = i;
    items.swap(spare);
  }
}

template <class K>
void sort_first(std::vector<Item<K>>& items, std::vector<Item<K>>& spare, std::int64_t k) {
  const auto n = static_cast<std::int64_t>(items.size());
  if (k < n) {
    std::nth_element(items.begin(), items.begin() + k, items.end(), before<K>);
    items.resize(static_cast<std::size_t>(k));
  }
  if (k < kRadixFrom || k < n) return std::sort(items.begin(), items.end(), before<K>);
  radix_sort(items, spare);
}

// f(first, last) for pieces of so many rows of n elements.
template <class F>
void for_rows(std::int64_t rows, std::int64_t n, const F& f) {
  constexpr std::int64_t kPiece = 16384;
  const std::int64_t step = std::max<std::int64_t>(1, kPiece / std::max<std::int64_t>(1, n));
  parallel_for(ceil_div(rows, step), threads_for(8.0 * static_cast<double>(rows) * static_cast<double>(n)),
               [&](std::int64_t piece) { f(piece * step, std::min(rows, (piece + 1) * step)); });
}

}  // namespace

void order_rows(const OrderRowsArgs& args) {
  const std::int64_t rows = args.x.size(0);
  const std::int64_t n = args.x.size(1);
  const std::int64_t k = args.values.size(1);
  TS_CHECK(n <= std::numeric_limits<std::uint32_t>::max(), "order_rows", "rows of {} elements are too long",
           n);
  if (k == 0) return;
  dispatch(args.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_rows(rows, n, [&](std::int64_t first, std::int64_t last) {
      std::vector<Item<KeyOf<T>>> items;
      std::vector<Item<KeyOf<T>>> spare;
      for (std::int64_t r = first; r < last; ++r) {
        const T* x = args.x.data<T>() + r * n;
        items.resize(static_cast<std::size_t>(n));
        for (std::int64_t i = 0; i < n; ++i)
          items[static_cast<std::size_t>(i)] = {key_of(x[i], args.descending), static_cast<std::uint32_t>(i)};
        sort_first(items, spare, k);
        T* values = args.values.data<T>() + r * k;
        std::int64_t* numbers = args.numbers.data<std::int64_t>() + r * k;
        for (std::int64_t i = 0; i < k; ++i) {
          numbers[i] = items[static_cast<std::size_t>(i)].position;
          values[i] = x[numbers[i]];
        }
      }
    });
  });
}

namespace {

// A value as it is, with its number.
template <class T>
struct Pair {
  T value;
  std::int64_t number;
};
template <class T>
bool comes_before(const Pair<T>& a, const Pair<T>& b, bool descending) {
  const auto x = key_of(a.value, descending);
  const auto y = key_of(b.value, descending);
  return x != y ? x < y : a.number < b.number;
}

}  // namespace

void order_items(const OrderItemsArgs& args) {
  const std::int64_t rows = args.ends.numel();
  const std::int64_t* ends = args.ends.data<std::int64_t>();
  if (rows == 0 || ends[rows - 1] == 0) return;
  dispatch(args.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = args.x.data<T>();
    const std::int64_t* numbers = args.x_numbers.data<std::int64_t>();
    for_rows(rows, ends[rows - 1] / rows, [&](std::int64_t first, std::int64_t last) {
      std::vector<Pair<T>> items;
      for (std::int64_t r = first; r < last; ++r) {
        const std::int64_t start = r == 0 ? 0 : ends[r - 1];
        items.clear();
        for (std::int64_t i = start; i < ends[r]; ++i) items.push_back({x[i], numbers[i]});
        std::sort(items.begin(), items.end(),
                  [&](const Pair<T>& a, const Pair<T>& b) { return comes_before(a, b, args.descending); });
        for (std::int64_t i = start; i < ends[r]; ++i) {
          args.values.data<T>()[i] = items[static_cast<std::size_t>(i - start)].value;
          args.numbers.data<std::int64_t>()[i] = items[static_cast<std::size_t>(i - start)].number;
        }
      }
    });
  });
}

void cut_rows(const CutRowsArgs& args) {
  const std::int64_t n = args.values.size(1);
  const std::int64_t m = args.at_values.size(1);
  dispatch(args.values.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::int64_t j = 0; j < args.cuts.numel(); ++j) {
      const Pair<T> at{args.at_values.data<T>()[j], args.at_numbers.data<std::int64_t>()[j]};
      const T* values = args.values.data<T>() + j / m * n;
      const std::int64_t* numbers = args.numbers.data<std::int64_t>() + j / m * n;
      std::int64_t lo = 0;
      std::int64_t hi = n;
      while (lo < hi) {
        const std::int64_t middle = lo + (hi - lo) / 2;
        if (comes_before(Pair<T>{values[middle], numbers[middle]}, at, args.descending)) {
          lo = middle + 1;
        } else {
          hi = middle;
        }
      }
      args.cuts.data<std::int64_t>()[j] = lo;
    }
  });
}

}  // namespace tessera::cpu
