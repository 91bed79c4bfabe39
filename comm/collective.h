// What the collectives have in common: refusals, the record, and contiguous stand-ins for strided arrays.
#pragma once
#include <span>

#include "comm/work_state.h"

namespace tessera {

// An array that a collective writes. Messages land in `packed`, which is the array itself if that is
// contiguous; otherwise `store` spreads it, so that only the view's own elements change.
class Target {
 public:
  enum class Load { No, Yes };  // Yes: the array's values are read too
  Target(const Array& array, Load load);
  const Array& packed() const { return packed_; }
  void store() const;

 private:
  Array array_;
  Array packed_;
};

// How an array is cut along dim 0 (a scalar counts as one row).
struct Rows {
  std::int64_t count = 0;
  std::int64_t bytes = 0;  // of one row
};
Rows rows_of(const Array& array);

void check_readable(const Call& call, const Array& array, const char* name);
void check_writable(const Call& call, const Array& array, const char* name);
// `out` holds rows like those of `in`: same dtype, device and sizes but for dim 0.
void check_alike(const Call& call, const Array& out, const Array& in);
// One non-negative count per rank, `rows` in sum.
void check_counts(const Call& call, const Group& group, std::span<const std::int64_t> counts,
                  std::int64_t rows);
void check_root(const Call& call, const Group& group, int root);

// Counts the call with `bytes` of this rank's. False: nothing is to be moved (recording, meta device).
bool begin_collective(Group& group, const Call& call, const Array& array, std::int64_t bytes);

std::vector<std::int64_t> even_counts(const Call& call, const Group& group, std::int64_t rows);
// Where each rank's rows begin; one entry more than counts.
std::vector<std::int64_t> offsets_of(std::span<const std::int64_t> counts);
Array scratch_bytes(std::int64_t bytes, Device device);
inline char* bytes_of(const Array& array) { return static_cast<char*>(array.raw()); }

}  // namespace tessera
