#include "ops/cpu/order.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "ops/cpu/order_key.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/workspace.h"
#include "runtime/error.h"

namespace tessera::cpu {
namespace {

template <class T>
using KeyOf = OrderKey<T>;
template <class T>
KeyOf<T> key_of(T v, bool descending) {
  return order_key(v, descending);
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

// Shorter rows are compared. Long ones are worth the larger tables of longer digits.
constexpr std::size_t kRadixFrom = 96;
constexpr std::size_t kLong = 4096;

// Least significant digit first; each pass keeps the order of the one before. A digit that all have in common
// is left out.
template <unsigned kBits, class K>
void radix_sort(std::vector<Item<K>>& items, std::vector<Item<K>>& spare) {
  constexpr std::size_t kDigits = 1U << kBits;
  spare.resize(items.size());
  for (unsigned shift = 0; shift < 8 * sizeof(K); shift += kBits) {
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

// Items of one row, in order of their positions, and room to sort them.
template <class K>
class Row {
 public:
  // Of the items (i, key(i)) the first k in order.
  template <class F>
  const std::vector<Item<K>>& first(std::int64_t n, std::int64_t k, const F& key) {
    items_.clear();
    if (8 * k <= n) {
      keep_best(n, k, key);
      return items_;
    }
    for (std::int64_t i = 0; i < n; ++i) items_.push_back({key(i), static_cast<std::uint32_t>(i)});
    if (k < n) {
      std::nth_element(items_.begin(), items_.begin() + k, items_.end(), before<K>);
      items_.resize(static_cast<std::size_t>(k));
    }
    if (k < n || items_.size() < kRadixFrom) {
      std::sort(items_.begin(), items_.end(), before<K>);
    } else if (items_.size() < kLong) {
      radix_sort<8>(items_, spare_);
    } else {
      radix_sort<11>(items_, spare_);
    }
    return items_;
  }

 private:
  // A heap of the best so far with the worst of them on top: most items are refused by one comparison.
  template <class F>
  void keep_best(std::int64_t n, std::int64_t k, const F& key) {
    for (std::int64_t i = 0; i < n; ++i) {
      const Item<K> item{key(i), static_cast<std::uint32_t>(i)};
      if (i >= k) {
        if (!before(item, items_.front())) continue;
        std::pop_heap(items_.begin(), items_.end(), before<K>);
        items_.pop_back();
      }
      items_.push_back(item);
      std::push_heap(items_.begin(), items_.end(), before<K>);
    }
    std::sort_heap(items_.begin(), items_.end(), before<K>);
  }

  std::vector<Item<K>> items_;
  std::vector<Item<K>> spare_;
};

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
      Row<KeyOf<T>> row;
      for (std::int64_t r = first; r < last; ++r) {
        const T* x = args.x.data<T>() + r * n;
        const auto& items = row.first(n, k, [&](std::int64_t i) { return key_of(x[i], args.descending); });
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

// Where the middle one of n elements is, `step` apart. `items`: room for them.
template <class T>
std::int64_t place_of_middle(const T* x, std::int64_t n, std::int64_t step, Item<KeyOf<T>>* items) {
  for (std::int64_t i = 0; i < n; ++i) {
    const T v = x[i * step];
    if (v != v) return i;
    items[i] = {key_of(v, false), static_cast<std::uint32_t>(i)};
  }
  const std::int64_t middle = (n - 1) / 2;
  std::nth_element(items, items + middle, items + n, before<KeyOf<T>>);
  return items[middle].position;
}

}  // namespace

void median(const MedianArgs& args) {
  const std::int64_t n = args.x.size(1);
  const std::int64_t inner = args.x.size(2);
  TS_CHECK(n <= std::numeric_limits<std::uint32_t>::max(), "median", "rows of {} elements are too long", n);
  dispatch(args.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_rows(args.values.numel(), n, [&](std::int64_t first, std::int64_t last) {
      auto* items = Workspace::begin().take<Item<KeyOf<T>>>(n);
      for (std::int64_t r = first; r < last; ++r) {
        const T* x = args.x.data<T>() + r / inner * n * inner + r % inner;
        const std::int64_t place = place_of_middle(x, n, inner, items);
        args.values.data<T>()[r] = x[place * inner];
        args.numbers.data<std::int64_t>()[r] = place;
      }
    });
  });
}

namespace {

template <class T>
struct Numbered {
  KeyOf<T> key;
  T value;
  std::int64_t number;
};
template <class T>
bool comes_before(const Numbered<T>& a, const Numbered<T>& b) {
  return a.key != b.key ? a.key < b.key : a.number < b.number;
}

// Items usually come as a few runs that are in order already (one from each rank): neighbouring runs are
// merged until one is left.
template <class T>
void merge_runs(std::vector<Numbered<T>>& items, std::vector<Numbered<T>>& spare) {
  std::vector<std::ptrdiff_t> starts{0};
  const auto n = static_cast<std::ptrdiff_t>(items.size());
  for (std::ptrdiff_t i = 1; i < n; ++i)
    if (comes_before(items[static_cast<std::size_t>(i)], items[static_cast<std::size_t>(i - 1)]))
      starts.push_back(i);
  spare.resize(items.size());
  while (starts.size() > 1) {
    std::vector<std::ptrdiff_t> merged;
    for (std::size_t r = 0; r < starts.size(); r += 2) {
      const std::ptrdiff_t middle = r + 1 < starts.size() ? starts[r + 1] : n;
      const std::ptrdiff_t end = r + 2 < starts.size() ? starts[r + 2] : n;
      std::merge(items.begin() + starts[r], items.begin() + middle, items.begin() + middle,
                 items.begin() + end, spare.begin() + starts[r], comes_before<T>);
      merged.push_back(starts[r]);
    }
    starts.swap(merged);
    items.swap(spare);
  }
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
      std::vector<Numbered<T>> items;
      std::vector<Numbered<T>> spare;
      for (std::int64_t r = first; r < last; ++r) {
        const std::int64_t start = r == 0 ? 0 : ends[r - 1];
        items.clear();
        for (std::int64_t i = start; i < ends[r]; ++i)
          items.push_back({key_of(x[i], args.descending), x[i], numbers[i]});
        merge_runs(items, spare);
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
    const auto item = [&](const Array& values, const Array& numbers, std::int64_t i) {
      const T value = values.data<T>()[i];
      return Numbered<T>{key_of(value, args.descending), value, numbers.data<std::int64_t>()[i]};
    };
    for (std::int64_t j = 0; j < args.cuts.numel(); ++j) {
      const Numbered<T> at = item(args.at_values, args.at_numbers, j);
      const std::int64_t row = j / m * n;
      std::int64_t lo = 0;
      std::int64_t hi = n;
      while (lo < hi) {
        const std::int64_t middle = lo + (hi - lo) / 2;
        if (comes_before(item(args.values, args.numbers, row + middle), at)) {
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
