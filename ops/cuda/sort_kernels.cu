#include "ops/cuda/sort_kernels.h"

#include "ops/cpu/order_key.h"
#include "ops/cuda/index_math.h"
#include "runtime/cuda/elements.h"

namespace tessera::cuda {
namespace {

constexpr int kDigits = 256;  // one for each thread of a block
constexpr std::int64_t kPiece = 2048;

std::int64_t pieces_of(std::int64_t n) { return (n + kPiece - 1) / kPiece; }

// One block works on a piece of a row.
template <class K>
struct Pass : Cooperative {
  std::int64_t n;
  std::int64_t pieces;
  int shift;
  Ptr<const K> keys;
  Ptr<const std::uint32_t> positions;
  Ptr<std::int32_t> counts;  // [row, digit, piece]

  TS_DEVICE std::int64_t begin(const Block& block) const {
    return block.index() / pieces * n + block.index() % pieces * kPiece;
  }
  TS_DEVICE int length(const Block& block) const {
    const std::int64_t left = n - block.index() % pieces * kPiece;
    return static_cast<int>(left < kPiece ? left : kPiece);
  }
  // The digits of the piece, for all threads.
  TS_DEVICE const unsigned char* digits(const Block& block) const {
    auto* list = block.shared<unsigned char>();
    const std::int64_t first = begin(block);
    for (int i = block.thread(); i < length(block); i += block.threads())
      list[i] = static_cast<unsigned char>(keys[first + i] >> shift);
    block.sync();
    return list;
  }
  TS_DEVICE std::int32_t& count(const Block& block) const {
    return counts[(block.index() / pieces * kDigits + block.thread()) * pieces + block.index() % pieces];
  }
};

template <class K>
struct Count : Pass<K> {
  TS_DEVICE void operator()(const Block& block) const {
    const unsigned char* digits = this->digits(block);
    const int length = this->length(block);
    std::int32_t found = 0;
    for (int i = 0; i < length; ++i) found += digits[i] == block.thread() ? 1 : 0;
    this->count(block) = found;
  }
};

// Counts become the places where the digits of the pieces begin. One block a row.
struct Places : Cooperative {
  std::int64_t pieces;
  Ptr<std::int32_t> counts;
  TS_DEVICE void operator()(const Block& block) const {
    const Ptr<std::int32_t> own = counts + (block.index() * kDigits + block.thread()) * pieces;
    std::int32_t sum = 0;
    for (std::int64_t p = 0; p < pieces; ++p) sum += own[p];
    auto* sums = block.shared<std::int32_t>();
    sums[block.thread()] = sum;
    block.sync();
    std::int32_t at = 0;
    for (int d = 0; d < block.thread(); ++d) at += sums[d];
    for (std::int64_t p = 0; p < pieces; ++p) {
      const std::int32_t here = own[p];
      own[p] = at;
      at += here;
    }
  }
};

template <class K>
struct Move : Pass<K> {
  Ptr<K> to_keys;
  Ptr<std::uint32_t> to_positions;
  TS_DEVICE void operator()(const Block& block) const {
    const unsigned char* digits = this->digits(block);
    const int length = this->length(block);
    const std::int64_t from = this->begin(block);
    std::int64_t to = block.index() / this->pieces * this->n + this->count(block);
    for (int i = 0; i < length; ++i) {
      if (digits[i] != block.thread()) continue;
      to_keys[to] = this->keys[from + i];
      to_positions[to] = this->positions[from + i];
      ++to;
    }
  }
};

// Short rows: every thread counts what comes before its item.
constexpr std::int64_t kShort = 128;

template <class K>
struct Rank : Independent {
  std::int64_t n;
  std::int64_t total;
  Ptr<const K> keys;
  Ptr<const std::uint32_t> positions;
  Ptr<K> to_keys;
  Ptr<std::uint32_t> to_positions;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= total) return;
    const K key = keys[i];
    const std::int64_t own = divided(i, n).rest;
    const Ptr<const K> row = keys + (i - own);
    std::int64_t to = i - own;
    for (std::int64_t j = 0; j < n; ++j) {
      const K other = row[j];
      to += other < key || (other == key && j < own) ? 1 : 0;
    }
    to_keys[to] = key;
    to_positions[to] = positions[i];
  }
};

template <class K>
void sort_short(const SortRows& s, StreamHandle stream) {
  const std::int64_t total = s.rows * s.n;
  const int set = sorted_set(s.n, s.bits);
  launch(Rank<K>{{},
                 s.n,
                 total,
                 static_cast<const K*>(s.keys[0]),
                 s.positions[0],
                 static_cast<K*>(s.keys[set]),
                 s.positions[set]},
         one_each(total), stream);
}

template <class K>
void sort_typed(const SortRows& s, StreamHandle stream) {
  if (s.n <= kShort) return sort_short<K>(s, stream);
  const std::int64_t pieces = pieces_of(s.n);
  const LaunchShape each_piece{s.rows * pieces, kDigits, static_cast<int>(kPiece)};
  int set = 0;
  for (int shift = 0; shift < s.bits; shift += 8, set = 1 - set) {
    const Pass<K> pass{{},      s.n, pieces, shift, static_cast<const K*>(s.keys[set]), s.positions[set],
                       s.counts};
    launch(Count<K>{pass}, each_piece, stream);
    launch(Places{{}, pieces, s.counts}, {s.rows, kDigits, kDigits * 4}, stream);
    launch(Move<K>{pass, static_cast<K*>(s.keys[1 - set]), s.positions[1 - set]}, each_piece, stream);
  }
}

template <class T>
struct ValueKeys : Independent {
  std::int64_t n;
  std::int64_t total;
  bool descending;
  Ptr<const T> x;
  Ptr<cpu::OrderKey<T>> keys;
  Ptr<std::uint32_t> positions;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= total) return;
    if constexpr (std::is_same_v<T, bool>) {
      keys[i] = cpu::order_key<bool>(load(x[i]), descending);
    } else {
      keys[i] = cpu::order_key<T>(x[i], descending);
    }
    positions[i] = static_cast<std::uint32_t>(divided(i, n).rest);
  }
};

template <class T>
struct TakeOrdered : Independent {
  std::int64_t n;
  std::int64_t k;
  std::int64_t total;
  Ptr<const T> x;
  Ptr<const std::uint32_t> positions;
  Ptr<T> values;
  Ptr<std::int64_t> numbers;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= total) return;
    const Division at = divided(i, k);
    const std::int64_t position = positions[at.quotient * n + at.rest];
    numbers[i] = position;
    values[i] = x[at.quotient * n + position];
  }
};

// One thread a row. NaN come last, in the order of their positions.
template <class T>
struct TakeMiddle : Independent {
  std::int64_t n;
  std::int64_t rows;
  Ptr<const T> x;
  Ptr<const std::uint32_t> positions;
  Ptr<T> values;
  Ptr<std::int64_t> numbers;
  TS_DEVICE bool nan_at(std::int64_t row, std::int64_t i) const {
    const T v = x[row * n + positions[row * n + i]];
    return v != v;
  }
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t row = global_thread(block);
    if (row >= rows) return;
    std::int64_t at = (n - 1) / 2;
    if (nan_at(row, n - 1)) {
      std::int64_t hi = n - 1;  // the first one is in [at, hi]
      at = 0;
      while (at < hi) {
        const std::int64_t middle = (at + hi) / 2;
        if (nan_at(row, middle)) {
          hi = middle;
        } else {
          at = middle + 1;
        }
      }
    }
    const std::int64_t position = positions[row * n + at];
    numbers[row] = position;
    values[row] = x[row * n + position];
  }
};

}  // namespace

std::int64_t sort_counts(std::int64_t rows, std::int64_t n) {
  return n <= kShort ? 0 : rows * kDigits * pieces_of(n);
}

int sorted_set(std::int64_t n, int bits) { return n <= kShort ? 1 : (bits + 7) / 8 % 2; }

void sort_rows(const SortRows& sort, StreamHandle stream) {
  if (sort.wide) {
    sort_typed<std::uint64_t>(sort, stream);
  } else {
    sort_typed<std::uint32_t>(sort, stream);
  }
}

void value_keys(const SortRows& sort, Elements x, bool descending, StreamHandle stream) {
  const std::int64_t total = sort.rows * sort.n;
  dispatch(x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(ValueKeys<T>{{},
                        sort.n,
                        total,
                        descending,
                        static_cast<const T*>(x.data),
                        static_cast<cpu::OrderKey<T>*>(sort.keys[0]),
                        sort.positions[0]},
           one_each(total), stream);
  });
}

void take_ordered(const SortRows& sort, const OrderedRows& rows, StreamHandle stream) {
  const std::int64_t total = sort.rows * rows.k;
  dispatch(rows.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(TakeOrdered<T>{{},
                          sort.n,
                          rows.k,
                          total,
                          static_cast<const T*>(rows.x.data),
                          sort.positions[sorted_set(sort.n, sort.bits)],
                          static_cast<T*>(rows.values.data),
                          static_cast<std::int64_t*>(rows.numbers)},
           one_each(total), stream);
  });
}

void take_middle(const SortRows& sort, const OrderedRows& rows, StreamHandle stream) {
  dispatch(rows.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(TakeMiddle<T>{{},
                         sort.n,
                         sort.rows,
                         static_cast<const T*>(rows.x.data),
                         sort.positions[sorted_set(sort.n, sort.bits)],
                         static_cast<T*>(rows.values.data),
                         static_cast<std::int64_t*>(rows.numbers)},
           one_each(sort.rows), stream);
  });
}

}  // namespace tessera::cuda
