// Which attention cuDNN is given, decided from sizes, types and positions alone, before anything is called
// (as conv_rule.h does for convolutions); the test cudnn_plans looks for plans that cuDNN refuses afterwards.
// It does so for a device of 9.0. For others (8.x, 10.x, 12.x) the rule is what cuDNN's documents and
// frontend say, and no cuDNN has judged it: what it refuses all the same is refused to the caller.
//
// cuDNN takes bf16 and f16, without a mask or with the causal one from the first key on. Rows and keys of a
// ring see each other in rectangles of these two kinds: each is a call of its own, whose result and
// log-sum-exp are merged in f32. (It must not be asked for results in f32: see cudnn_graphs.cpp.) The
// backward pass with the same bits every time needs memory of the scores' size. So everything else goes to
// our own kernels: f32 and f64, masks (a row that sees no key must give 0, which only its values tell),
// dropout (which weights stay is drawn by the library's own generator, whose bits are those of every mesh and
// of the CPU), rows and keys in many runs, and sequences whose scores of one head need more than the limit.
#pragma once
#include <array>

#include "ops/cpu/attention_common.h"
#include "ops/cuda/attention_graph.h"

namespace tessera::cuda {

// Rows that see all of the keys, or row i the keys 0 to i, counted from the piece's first ones.
struct AttentionPiece {
  std::int64_t row = 0, rows = 0;
  std::int64_t key = 0, keys = 0;
  bool causal = false;
};
// What may be seen, in pieces that no row and key share. Two runs of consecutive positions each (the two of a
// balanced cut) make eight.
struct AttentionPieces {
  bool known = false;  // else: it cannot be said so, with a mask or more runs, or weights are dropped
  int count = 0;
  std::array<AttentionPiece, 8> piece;
};
AttentionPieces pieces_of(const cpu::AttentionMask& mask, const cpu::AttentionSizes& sizes);

// The graph, but for its layouts.
AttentionGraph attention_form(AttentionPass pass, DType dtype, const cpu::AttentionSizes& sizes, bool causal,
                              double scale);

struct AttentionLimits {
  int capability = 90;                               // of the device, as 90 for 9.0
  std::int64_t cudnn = 91900;                        // the version, as 91900 for 9.19.0
  std::int64_t score_bytes = std::int64_t{2} << 30;  // for the backward pass
};
// Why our own kernels work it out; nullptr: cuDNN does.
const char* why_own_kernel(const AttentionGraph& graph, const AttentionLimits& limits);

// How many samples and key heads (with their query heads) a call of the backward pass may take at once.
struct AttentionPart {
  std::int64_t batch = 1, key_heads = 1;
};
AttentionPart largest_part(const AttentionGraph& backward, std::int64_t score_bytes);

}  // namespace tessera::cuda
