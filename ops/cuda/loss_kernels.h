// Losses on the device (ops/cpu/pair_loss.h and class_loss.h say what is computed). Sums run in double by
// parts that depend on sizes alone.
#pragma once
#include "ops/cpu/pair_loss_kinds.h"
#include "ops/cuda/number_list.h"
#include "runtime/cuda/copy_kernels.h"

namespace tessera::cuda {

struct PairElements {
  Walk<4> walk;  // out (of sums: x again), x, target, positive
  Elements out;
  Elements x;
  Elements target;
  const void* positive = nullptr;  // null: ones
  const void* factor = nullptr;    // one element; null: 1
  cpu::PairLoss loss = cpu::PairLoss::Square;
  cpu::PairPart part = cpu::PairPart::Value;
  double alpha = 1;
  double scale = 1;
};
void pair_elements(const PairElements& args, StreamHandle stream);
// Elements (rows of classes) whose sum one block makes; how many doubles the sums below need.
constexpr std::int64_t kSumPart = 2048;
inline std::int64_t sum_parts(std::int64_t numel) { return (numel + kSumPart - 1) / kSumPart; }
// out: one element.
void pair_sum(const PairElements& args, double* partial, StreamHandle stream);

// fault: 0, or 1 if an x is outside [0, 1] or NaN, or else 2 if a target is.
struct UnitRange {
  Walk<2> walk;
  Elements x;
  Elements target;
  double* fault = nullptr;
};
void unit_range(const UnitRange& args, double* partial, StreamHandle stream);

// x [N, C, S] of `dtype`, contiguous; what is kept per row is of its accumulating type.
struct ClassElements {
  std::int64_t samples = 0;
  std::int64_t here = 0;  // classes in x
  std::int64_t space = 0;
  DType dtype = DType::F32;
  const void* x = nullptr;
  const std::int64_t* target = nullptr;
  const void* weight = nullptr;  // of all classes; null: ones
  const void* weight_here = nullptr;
  // A class's place in x: class less `first`, or as the table says (-1: not here).
  std::int64_t first = 0;
  const std::int64_t* places = nullptr;
  bool logits = true;
  std::int64_t classes = 0;
  std::int64_t ignore = 0;
  double smoothing = 0;
  std::int64_t terms = 1;
  const double* total_weight = nullptr;  // null: `classes`

  std::int64_t rows() const { return samples * space; }
};
void sum_weights(const void* weight, std::int64_t n, DType dtype, double* sum, StreamHandle stream);

void class_statistics(const ClassElements& data, void* stats, StreamHandle stream);

struct ClassLosses {
  ClassElements data;
  void* losses = nullptr;  // null: not wanted
  void* lse = nullptr;
  double* sums = nullptr;  // 4
  const void* parts = nullptr;
  std::int64_t ranks = 1;
};
// partial: 3 sum_parts(rows) doubles, none where that is one part.
void class_losses(const ClassLosses& args, double* partial, StreamHandle stream);

struct ClassTotals {
  std::int64_t numel = 1;  // of `loss`
  DType dtype = DType::F32;
  void* loss = nullptr;
  double* total = nullptr;
  const double* sums = nullptr;  // 4 a rank
  std::int64_t ranks = 1;
  bool mean = false;
  bool each = false;
};
void class_total(const ClassTotals& args, StreamHandle stream);

struct ClassGradients {
  ClassElements data;
  void* dx = nullptr;
  const void* dy = nullptr;
  bool dy_each = false;  // one a row
  const void* lse = nullptr;
  const double* total = nullptr;  // null: 1
};
void class_gradients(const ClassGradients& args, StreamHandle stream);

}  // namespace tessera::cuda
