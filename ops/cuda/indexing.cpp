// Indexing and order on the device: the arguments of ops/cpu/indexing.h and ops/cpu/order.h made ready for
// launches. Nothing here waits for the device.
#include <array>
#include <bit>

#include "ops/cuda/indexing_kernels.h"
#include "ops/cuda/register.h"
#include "ops/cuda/upload.h"
#include "ops/indexing/kernels.h"
#include "runtime/cuda/array_walk.h"
#include "runtime/cuda/watch.h"
#include "runtime/error.h"

namespace tessera::cuda {
namespace {

Strided3 three(const Array& a) {
  TS_CHECK(a.dim() == 3, "indexing", "three dims are needed, given {}", a.sizes().str());
  Strided3 s{elements_of(a), {}, {}};
  for (int d = 0; d < 3; ++d) {
    s.size[d] = a.size(d);
    s.stride[d] = a.stride(d);
  }
  return s;
}

void check_sum(const cpu::IndexArgs& args) {
  const DType sum = is_half(args.from.dtype()) ? DType::F32 : args.from.dtype();
  TS_CHECK(args.to.dtype() == sum, "indexing", "sums of {} are made in {}, given {}",
           name_of(args.from.dtype()), name_of(sum), name_of(args.to.dtype()));
}

// Memory for sorting, free again in the order of the stream.
class SortMemory {
 public:
  SortMemory(std::int64_t rows, std::int64_t n, bool wide, int bits)
      : positions_(Array::empty({2, rows * n}, DType::I32, Device::Cuda)),
        keys_(Array::empty({2, rows * n}, wide ? DType::I64 : DType::I32, Device::Cuda)),
        counts_(Array::empty({sort_counts(rows, n)}, DType::I32, Device::Cuda)) {
    TS_CHECK(n <= INT32_MAX, "indexing", "{} numbers are too many to be put in order", n);
    sort_.rows = rows;
    sort_.n = n;
    sort_.bits = bits;
    sort_.wide = wide;
    for (int set = 0; set < 2; ++set) {
      sort_.keys[set] = static_cast<char*>(keys_.raw()) + set * rows * n * (wide ? 8 : 4);
      sort_.positions[set] = static_cast<std::uint32_t*>(positions_.raw()) + set * rows * n;
    }
    sort_.counts = static_cast<std::int32_t*>(counts_.raw());
  }
  const SortRows& sort() const { return sort_; }

 private:
  Array positions_;
  Array keys_;
  Array counts_;
  SortRows sort_;
};

// Terms are brought in the order of the rows that they are added to.
void put_sorted(const cpu::IndexArgs& args, const Strided3& numbers, std::int64_t lists) {
  const std::int64_t rows = args.to.size(1);
  TS_CHECK(rows < INT32_MAX, "indexing", "{} rows are too many", rows);
  const int bits = std::bit_width(static_cast<std::uint64_t>(rows));
  const SortMemory memory(lists, numbers.size[1], false, bits);
  const Array starts = Array::empty({lists, rows + 1}, DType::I32, Device::Cuda);
  const TermLists terms{memory.sort(), rows, static_cast<std::uint32_t*>(starts.raw())};
  number_keys(terms, numbers, current_stream());
  sort_rows(terms.sort, current_stream());
  find_starts(terms, current_stream());
  put_terms(three(args.to), three(args.from), terms, current_stream());
}

// So few terms are added one after the other, by a thread for each column: to bring them in order would take
// half a dozen launches.
constexpr std::int64_t kFewTerms = 32;

void take_rows_cuda(const cpu::IndexArgs& args) {
  if (args.to.numel() == 0) return;
  const Array numbers = args.numbers.to(Device::Cuda);
  take_rows(three(args.to), three(args.from), static_cast<const std::int64_t*>(numbers.raw()),
            current_stream());
  check_launch("take_rows");
}

void put_rows_cuda(const cpu::IndexArgs& args) {
  check_sum(args);
  if (args.from.numel() == 0 || args.to.numel() == 0) return;
  const Array numbers = args.numbers.to(Device::Cuda);
  const std::int64_t m = args.from.size(1);
  if (m <= kFewTerms) {
    put_elements(three(args.to), three(args.from),
                 three(numbers.as_strided(args.from.sizes(), {0, 1, 0}, numbers.offset())), current_stream());
  } else {
    put_sorted(args, three(numbers.as_strided({1, m, 1}, {m, 1, 1}, numbers.offset())), 1);
  }
  check_launch("put_rows");
}

void take_elements_cuda(const cpu::IndexArgs& args) {
  if (args.to.numel() == 0) return;
  take_elements(three(args.to), three(args.from), three(args.numbers.to(Device::Cuda)), current_stream());
  check_launch("take_elements");
}

void put_elements_cuda(const cpu::IndexArgs& args) {
  check_sum(args);
  if (args.from.numel() == 0 || args.to.numel() == 0) return;
  const Array numbers = args.numbers.to(Device::Cuda);
  // Where there are columns enough for all threads, each of them takes one.
  const std::int64_t columns = args.from.size(0) * args.from.size(2);
  if (columns >= args.from.size(1) || args.from.size(1) <= kFewTerms) {
    put_elements(three(args.to), three(args.from), three(numbers), current_stream());
  } else {
    put_sorted(args, three(numbers), columns);
  }
  check_launch("put_elements");
}

void own_numbers_cuda(const cpu::OwnNumbersArgs& args) {
  OwnNumbers own;
  own.count = args.own.numel();
  if (own.count == 0) return;
  const Array numbers = args.numbers.to(Device::Cuda);
  own.numbers = static_cast<const std::int64_t*>(numbers.raw());
  own.own = static_cast<std::int64_t*>(args.own.raw());
  own.n = args.n;
  own.padding = args.padding;
  own.all = args.all;
  own.from_end = args.from_end;
  own.runs = static_cast<int>(args.held.size());
  Array many;
  if (own.runs > kRunsInLaunch) {
    many = Array::empty({own.runs, 3}, DType::I64);
    for (int k = 0; k < own.runs; ++k) {
      const cpu::HeldRows& h = args.held[static_cast<std::size_t>(k)];
      std::int64_t* at = many.data<std::int64_t>() + 3 * k;
      at[0] = h.lo;
      at[1] = h.hi;
      at[2] = h.local;
    }
    many = uploaded(
        std::span<const std::int64_t>(many.data<std::int64_t>(), static_cast<std::size_t>(many.numel())));
    own.many = static_cast<const std::int64_t*>(many.raw());
  } else {
    for (int k = 0; k < own.runs; ++k) {
      const cpu::HeldRows& h = args.held[static_cast<std::size_t>(k)];
      own.few[k] = {h.lo, h.hi, h.local};
    }
  }
  if (args.op == nullptr) {
    own_numbers(own, current_stream());
  } else {
    ValueWatch watch(args.op, args.refusal);
    own.wrong = watch.slot();
    own_numbers(own, current_stream());
    watch.launched(current_stream());
  }
  check_launch("own_numbers");
}

void order_rows_cuda(const cpu::OrderRowsArgs& args) {
  const std::int64_t rows = args.x.size(0);
  const std::int64_t k = args.values.size(1);
  if (rows == 0 || k == 0) return;
  const bool wide = size_of(args.x.dtype()) == 8;
  const SortMemory memory(rows, args.x.size(1), wide, wide ? 64 : 32);
  value_keys(memory.sort(), elements_of(args.x), args.descending, current_stream());
  sort_rows(memory.sort(), current_stream());
  take_ordered(memory.sort(), {elements_of(args.x), elements_of(args.values), args.numbers.raw(), k},
               current_stream());
  check_launch("order_rows");
}

void median_cuda(const cpu::MedianArgs& args) {
  const std::int64_t rows = args.values.numel();
  if (rows == 0) return;
  const std::int64_t n = args.x.size(1);
  const Array x = args.x.transpose(1, 2).contiguous();
  const bool wide = size_of(x.dtype()) == 8;
  const SortMemory memory(rows, n, wide, wide ? 64 : 32);
  value_keys(memory.sort(), elements_of(x), false, current_stream());
  sort_rows(memory.sort(), current_stream());
  take_middle(memory.sort(), {elements_of(x), elements_of(args.values), args.numbers.raw()},
              current_stream());
  check_launch("median");
}

}  // namespace

void register_indexing() {
  kernels::take_rows.set(Device::Cuda, &take_rows_cuda);
  kernels::put_rows.set(Device::Cuda, &put_rows_cuda);
  kernels::take_elements.set(Device::Cuda, &take_elements_cuda);
  kernels::put_elements.set(Device::Cuda, &put_elements_cuda);
  kernels::own_numbers.set(Device::Cuda, &own_numbers_cuda);
  kernels::order_rows.set(Device::Cuda, &order_rows_cuda);
  kernels::median.set(Device::Cuda, &median_cuda);
}

}  // namespace tessera::cuda
