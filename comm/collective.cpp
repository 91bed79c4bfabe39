#include "comm/collective.h"

#include <numeric>

#include "comm/device_link.h"

namespace tessera {

Target::Target(const Array& array, Load load)
    : array_(array),
      packed_(array.is_contiguous() ? array
              : load == Load::Yes   ? array.contiguous()
                                    : Array::empty(array.sizes(), array.dtype(), array.device())) {}

void Target::store() const {
  if (array_.is_contiguous()) {
    array_.bump_version();
  } else {
    array_.copy_(packed_);
  }
}

Rows rows_of(const Array& array) {
  Rows rows{1, size_of(array.dtype())};
  if (array.dim() > 0) rows.count = array.size(0);
  for (int d = 1; d < array.dim(); ++d) rows.bytes *= array.size(d);
  return rows;
}

void check_readable(const Call& call, const Array& array, const char* name) {
  COMM_CHECK(array.defined(), call, "{} is undefined", name);
}

void check_writable(const Call& call, const Array& array, const char* name) {
  check_readable(call, array, name);
  for (int d = 0; d < array.dim(); ++d) {
    COMM_CHECK(array.stride(d) != 0 || array.size(d) <= 1, call,
               "{} of sizes {} and strides {} overlaps itself and cannot be written", name,
               array.sizes().str(), array.strides().str());
  }
}

void check_alike(const Call& call, const Array& out, const Array& in) {
  COMM_CHECK(out.dtype() == in.dtype(), call, "out is {} but in is {}", name_of(out.dtype()),
             name_of(in.dtype()));
  COMM_CHECK(out.device() == in.device(), call, "out is on {} but in is on {}", name_of(out.device()),
             name_of(in.device()));
  const int dims = std::max(in.dim(), 1);
  bool alike = std::max(out.dim(), 1) == dims;
  for (int d = 1; alike && d < dims; ++d) alike = out.size(d) == in.size(d);
  COMM_CHECK(alike, call, "out has sizes {}, in has {}; they may differ in dim 0 only", out.sizes().str(),
             in.sizes().str());
}

void check_counts(const Call& call, const Group& group, std::span<const std::int64_t> counts,
                  std::int64_t rows) {
  COMM_CHECK(static_cast<int>(counts.size()) == group.size(), call, "{} counts are given for {} ranks",
             counts.size(), group.size());
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) {
    COMM_CHECK(count >= 0, call, "a count is {}", count);
    sum += count;
  }
  COMM_CHECK(sum == rows, call, "the counts add up to {} rows, the array has {}", sum, rows);
}

void check_root(const Call& call, const Group& group, int root) {
  COMM_CHECK(root >= 0 && root < group.size(), call, "root {} does not exist in a group of {}", root,
             group.size());
}

bool begin_collective(Group& group, const Call& call, const Array& array, std::int64_t bytes) {
  const bool alone = group.size() == 1;
  group.record(call, alone ? 0 : 1, alone ? 0 : bytes, array.device());
  prepare_device_link(group, array.device(), call);
  if (!group.records_only() && array.device() != Device::Meta) return true;
  group.next_sequence();
  return false;
}

std::vector<std::int64_t> even_counts(const Call& call, const Group& group, std::int64_t rows) {
  COMM_CHECK(rows % group.size() == 0, call, "{} rows cannot be shared out evenly over {} ranks", rows,
             group.size());
  return std::vector<std::int64_t>(static_cast<std::size_t>(group.size()), rows / group.size());
}

std::vector<std::int64_t> offsets_of(std::span<const std::int64_t> counts) {
  std::vector<std::int64_t> offsets(counts.size() + 1, 0);
  std::partial_sum(counts.begin(), counts.end(), offsets.begin() + 1);
  return offsets;
}

Array scratch_bytes(std::int64_t bytes, Device device) { return Array::empty({bytes}, DType::Bool, device); }

}  // namespace tessera
