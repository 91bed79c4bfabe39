#include "ops/cuda/indexing_kernels.h"

#include <type_traits>

#include "ops/cuda/index_math.h"
#include "runtime/cuda/elements.h"

namespace tessera::cuda {
namespace {

template <class T>
struct View3 {
  Ptr<T> data;
  std::int64_t stride[3];
  explicit View3(const Strided3& s) : data(static_cast<T*>(s.elements.data)) {
    for (int d = 0; d < 3; ++d) stride[d] = s.stride[d];
  }
  TS_DEVICE T& at(std::int64_t a, std::int64_t r, std::int64_t b) const {
    return data[a * stride[0] + r * stride[1] + b * stride[2]];
  }
};

struct Place3 {
  std::int64_t a, r, b;
};
// Of element i, b first.
TS_DEVICE Place3 place3(std::int64_t i, std::int64_t rows, std::int64_t columns) {
  const Division row = divided(i, columns);
  const Division outer = divided(row.quotient, rows);
  return {outer.quotient, outer.rest, row.rest};
}

// Of rows: the numbers have stride 0 along a and b.
template <class T>
struct TakeElements : Independent {
  View3<T> to;
  View3<const T> from;
  View3<const std::int64_t> numbers;
  std::int64_t m, b, total;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= total) return;
    const Place3 p = place3(i, m, b);
    const std::int64_t number = numbers.at(p.a, p.r, p.b);
    to.at(p.a, p.r, p.b) = number < 0 ? T{} : from.at(p.a, number, p.b);
  }
};

// What a term adds to a sum, as on the CPU: bools are or-ed, integers wrap around.
template <class A, class T>
TS_DEVICE A plus(A sum, const T& given) {
  const auto term = load(given);
  if constexpr (std::is_same_v<A, bool>) {
    return sum || term;
  } else if constexpr (std::is_integral_v<A>) {
    using U = std::make_unsigned_t<A>;
    return static_cast<A>(static_cast<U>(sum) + static_cast<U>(term));
  } else {
    return sum + static_cast<A>(term);
  }
}

template <class A, class T>
struct PutTerms : Independent {
  View3<A> to;
  View3<const T> from;
  Ptr<const std::uint32_t> starts;
  Ptr<const std::uint32_t> positions;
  std::int64_t n, m, b, total;
  bool one_list;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= total) return;
    const Place3 p = place3(i, n, b);
    const std::int64_t list = one_list ? 0 : p.a * b + p.b;
    const Ptr<const std::uint32_t> own = starts + list * (n + 1) + p.r;
    A& to_element = to.at(p.a, p.r, p.b);
    const Ptr<const T> column = from.data + p.a * from.stride[0] + p.b * from.stride[2];
    add_terms(to_element, column, positions + list * m + own[0], static_cast<std::int64_t>(own[1]) - own[0]);
  }
  TS_DEVICE void add_terms(A& to_element, Ptr<const T> column, Ptr<const std::uint32_t> term,
                           std::int64_t count) const {
    if (count == 0) return;
    A sum = load(to_element);
    for (std::int64_t k = 0; k < count; ++k) sum = plus<A>(sum, column[term[k] * from.stride[1]]);
    to_element = sum;
  }
};

template <class A, class T>
struct PutElements : Independent {
  View3<A> to;
  View3<const T> from;
  View3<const std::int64_t> numbers;
  std::int64_t m, b, columns;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= columns) return;
    const Division p = divided(i, b);
    for (std::int64_t r = 0; r < m; ++r) {
      const std::int64_t number = numbers.at(p.quotient, r, p.rest);
      if (number < 0) continue;
      A& sum = to.at(p.quotient, number, p.rest);
      sum = plus<A>(load(sum), from.at(p.quotient, r, p.rest));
    }
  }
};

struct NumberKeys : Independent {
  View3<const std::int64_t> numbers;  // [a, m, b]
  Ptr<std::uint32_t> keys;            // [a, b, m]
  Ptr<std::uint32_t> positions;
  std::int64_t m, b, n, total;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= total) return;
    const Division list = divided(i, m);
    const Division outer = divided(list.quotient, b);
    const std::int64_t number = numbers.at(outer.quotient, list.rest, outer.rest);
    keys[i] = static_cast<std::uint32_t>(number < 0 ? n : number);
    positions[i] = static_cast<std::uint32_t>(list.rest);
  }
};

struct FindStarts : Independent {
  Ptr<const std::uint32_t> keys;
  Ptr<std::uint32_t> starts;
  std::int64_t m, n, total;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= total) return;
    const Division at = divided(i, n + 1);
    starts[i] = static_cast<std::uint32_t>(
        lower_bound(keys + at.quotient * m, m, static_cast<std::uint32_t>(at.rest)));
  }
};

struct FindOwn : Independent {
  OwnNumbers args;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= args.count) return;
    const std::int64_t given = Ptr<const std::int64_t>(args.numbers)[i];
    const std::int64_t number = args.from_end && given < 0 ? given + args.n : given;
    const bool outside = number < 0 || number >= args.n;
    if (outside && args.wrong != nullptr) {
      const Ptr<std::int64_t> wrong(args.wrong);
      if (wrong[0] == 0) {
        wrong[1] = given;
        fence_for_host();  // which may look while graphs run
        wrong[0] = 1;
      }
    }
    const bool nothing = outside || number == args.padding;
    const Ptr<std::int64_t> own(args.own);
    own[i] = nothing ? -1 : args.all ? number : local(number);
  }
  TS_DEVICE HeldRun run(int k) const {
    if (args.many == nullptr) return args.few[k];
    const Ptr<const std::int64_t> at(args.many + 3 * k);
    return {at[0], at[1], at[2]};
  }
  // Runs are in ascending order.
  TS_DEVICE std::int64_t local(std::int64_t number) const {
    int lo = 0;
    int hi = args.runs;
    while (lo < hi) {
      const int middle = (lo + hi) / 2;
      const HeldRun held = run(middle);
      if (number < held.lo) {
        hi = middle;
      } else if (number >= held.hi) {
        lo = middle + 1;
      } else {
        return held.local + number - held.lo;
      }
    }
    return -1;
  }
};

// Moving elements needs their size only, and sixteen bytes at a time are moved where all lies so.
struct alignas(16) Sixteen {
  std::uint64_t half[2];
};
template <class F>
void dispatch_bits(std::int64_t bytes, const F& f) {
  switch (bytes) {
    case 1:
      return f(TypeTag<std::uint8_t>{});
    case 2:
      return f(TypeTag<std::uint16_t>{});
    case 4:
      return f(TypeTag<std::uint32_t>{});
    case 8:
      return f(TypeTag<std::uint64_t>{});
    default:
      return f(TypeTag<Sixteen>{});
  }
}

// How many elements may be moved as one.
std::int64_t joined(const Strided3& to, const Strided3& from) {
  const std::int64_t bytes = size_of(to.elements.dtype);
  const std::int64_t many = 16 / bytes;
  if (to.size[2] % many != 0) return 1;
  for (const Strided3* s : {&to, &from}) {
    if (s->stride[2] != 1 || reinterpret_cast<std::uintptr_t>(s->elements.data) % 16 != 0) return 1;
    for (int d = 0; d < 2; ++d)
      if (s->stride[d] % many != 0) return 1;
  }
  return many;
}

Strided3 in_units(Strided3 s, std::int64_t unit) {
  s.size[2] /= unit;
  for (int d = 0; d < 2; ++d) s.stride[d] /= unit;
  return s;
}

std::int64_t elements_of(const Strided3& s) { return s.size[0] * s.size[1] * s.size[2]; }

// f(tag of the sum, tag of the terms).
template <class F>
void dispatch_sum(DType terms, const F& f) {
  dispatch(terms, [&](auto from) {
    if constexpr (kHalf<typename decltype(from)::type>) {
      f(TypeTag<float>{}, from);
    } else {
      f(from, from);
    }
  });
}

// Elements of `bytes` bytes, as bit patterns.
void launch_take(std::int64_t bytes, const Strided3& to, const Strided3& from, const Strided3& numbers,
                 StreamHandle stream) {
  dispatch_bits(bytes, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(TakeElements<T>{{},
                           View3<T>(to),
                           View3<const T>(from),
                           View3<const std::int64_t>(numbers),
                           to.size[1],
                           to.size[2],
                           elements_of(to)},
           one_each(elements_of(to)), stream);
  });
}

}  // namespace

void take_rows(const Strided3& to, const Strided3& from, const std::int64_t* numbers, StreamHandle stream) {
  const std::int64_t unit = joined(to, from);
  const Strided3 t = in_units(to, unit);
  const Strided3 each{{const_cast<std::int64_t*>(numbers), DType::I64}, {1, t.size[1], 1}, {0, 1, 0}};
  launch_take(unit * size_of(to.elements.dtype), t, in_units(from, unit), each, stream);
}

void take_elements(const Strided3& to, const Strided3& from, const Strided3& numbers, StreamHandle stream) {
  launch_take(size_of(to.elements.dtype), to, from, numbers, stream);
}

void number_keys(const TermLists& lists, const Strided3& numbers, StreamHandle stream) {
  const SortRows& s = lists.sort;
  const std::int64_t total = s.rows * s.n;
  launch(NumberKeys{{},
                    View3<const std::int64_t>(numbers),
                    static_cast<std::uint32_t*>(s.keys[0]),
                    s.positions[0],
                    s.n,
                    numbers.size[2],
                    lists.n,
                    total},
         one_each(total), stream);
}

void find_starts(const TermLists& lists, StreamHandle stream) {
  const SortRows& s = lists.sort;
  const std::int64_t total = s.rows * (lists.n + 1);
  launch(FindStarts{{},
                    static_cast<const std::uint32_t*>(s.keys[sorted_set(s.n, s.bits)]),
                    lists.starts,
                    s.n,
                    lists.n,
                    total},
         one_each(total), stream);
}

void put_terms(const Strided3& to, const Strided3& from, const TermLists& lists, StreamHandle stream) {
  const SortRows& s = lists.sort;
  dispatch_sum(from.elements.dtype, [&](auto sum, auto term) {
    using A = typename decltype(sum)::type;
    using T = typename decltype(term)::type;
    launch(PutTerms<A, T>{{},
                          View3<A>(to),
                          View3<const T>(from),
                          lists.starts,
                          s.positions[sorted_set(s.n, s.bits)],
                          to.size[1],
                          s.n,
                          to.size[2],
                          elements_of(to),
                          s.rows == 1},
           one_each(elements_of(to)), stream);
  });
}

void put_elements(const Strided3& to, const Strided3& from, const Strided3& numbers, StreamHandle stream) {
  const std::int64_t columns = from.size[0] * from.size[2];
  dispatch_sum(from.elements.dtype, [&](auto sum, auto term) {
    using A = typename decltype(sum)::type;
    using T = typename decltype(term)::type;
    launch(PutElements<A, T>{{},
                             View3<A>(to),
                             View3<const T>(from),
                             View3<const std::int64_t>(numbers),
                             from.size[1],
                             from.size[2],
                             columns},
           one_each(columns), stream);
  });
}

void own_numbers(const OwnNumbers& args, StreamHandle stream) {
  launch(FindOwn{{}, args}, one_each(args.count), stream);
}

}  // namespace tessera::cuda
