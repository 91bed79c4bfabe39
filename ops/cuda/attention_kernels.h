// Attention on the device: tiles of scores in registers, the running softmax of ops/cpu/attention.h, nothing
// of the size of the scores in memory. Deterministic: every result is written by one block, in a fixed order.
#pragma once
#include "runtime/cuda/copy_kernels.h"
#include "runtime/rng_key.h"

namespace tessera::cuda {

// [N, H, L, D] with any strides but that of the last dim, which is 1.
struct HeadRows {
  void* data = nullptr;
  std::int64_t batch = 0, head = 0, row = 0;  // strides in elements
};

struct AttentionExtent {
  std::int64_t batch = 0, heads = 0, key_heads = 1;
  std::int64_t rows = 0, keys = 0;
  std::int64_t d = 0, dv = 0;
};

// Positions of rows or keys in the whole sequence: two runs of consecutive ones, or a table on the device.
struct PositionRuns {
  const std::int64_t* table = nullptr;  // or null
  std::int64_t split = 0;               // so many of the first run
  std::int64_t first = 0, second = 0;   // where the runs start
};

enum class MaskKind : std::uint8_t { None, Keep, Add, AddBf16, AddF16 };
struct AttentionMaskElements {
  bool causal = false;
  PositionRuns rows, keys;
  MaskKind kind = MaskKind::None;
  const void* data = nullptr;  // bool; the accumulator's type; bf16; f16
  std::int64_t stride[4] = {};
};

// Which weights are dropped, by their place in the whole [N, H, L, S].
struct AttentionDropElements {
  bool any = false;
  RngKey key;
  std::uint32_t limit = 0;  // kept is what draws a word of at least this,
  double factor = 1.0;      // and counts so much
  PositionRuns batch, heads, rows, keys;
  std::int64_t all_heads = 0, all_rows = 0, all_keys = 0;
  std::int64_t index_offset = 0;
};

// What all passes read.
struct AttentionElements {
  DType dtype = DType::F32;  // of q, k, v; accumulators are f64 for f64, else f32
  AttentionExtent extent;
  HeadRows q, k, v;
  double scale = 1.0;
  AttentionMaskElements mask;
  AttentionDropElements drop;
};

// All keys at once: `out` (of q's type) and `lse` (may be null) are written. Or with `o`, an accumulator, the
// keys are folded into the state o, row_max, row_sum.
struct AttendElements {
  AttentionElements in;
  bool fold = false;
  HeadRows out;  // or o
  void* lse = nullptr;
  void* row_max = nullptr;
  void* row_sum = nullptr;
};
void attend_elements(const AttendElements& args, StreamHandle stream);

// Accumulators dq, dk, dv are added to, or written where nothing was added yet; dmask (may be null) is
// written where a row sees keys.
struct AttendBackwardElements {
  AttentionElements in;
  HeadRows dout;
  HeadRows dq, dk, dv;
  const void* lse = nullptr;
  const void* delta = nullptr;
  void* dmask = nullptr;
  bool first_of_dq = false;
  bool first_of_keys = false;  // of dk and dv
};
void attend_backward_elements(const AttendBackwardElements& args, StreamHandle stream);

// Of arrays [N, H, L, D] that a kernel takes row by row; the type is that of what is not a state.
struct HeadShape {
  DType dtype = DType::F32;
  std::int64_t heads = 0, rows = 0, dv = 0, batch = 0;
};

// What a library made of one block of keys, folded into the state of these rows: `block` (of q's type) and
// its log-sum-exp [N, H, rows], dense.
struct AttentionMergeElements : HeadShape {  // of block
  explicit AttentionMergeElements(const HeadShape& shape) : HeadShape(shape) {}
  HeadRows block, o;
  const void* lse = nullptr;
  void* row_max = nullptr;  // of the first of these rows
  void* row_sum = nullptr;
  std::int64_t state_rows = 0;  // from head to head in row_max and row_sum
};
void attention_merge_elements(const AttentionMergeElements& args, StreamHandle stream);

struct AttentionFinishElements : HeadShape {  // of out
  explicit AttentionFinishElements(const HeadShape& shape) : HeadShape(shape) {}
  HeadRows out, o;
  const void* row_max = nullptr;
  const void* row_sum = nullptr;
  void* lse = nullptr;  // or null
};
void attention_finish_elements(const AttentionFinishElements& args, StreamHandle stream);

struct AttentionDeltaElements : HeadShape {  // of dout and out
  explicit AttentionDeltaElements(const HeadShape& shape) : HeadShape(shape) {}
  HeadRows dout, out;
  void* delta = nullptr;
};
void attention_delta_elements(const AttentionDeltaElements& args, StreamHandle stream);

}  // namespace tessera::cuda
