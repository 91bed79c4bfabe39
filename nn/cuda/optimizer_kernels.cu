#include "nn/cuda/optimizer_kernels.h"

#include <cmath>

#include "runtime/cuda/block_reduce.h"

namespace tessera::cuda {
namespace {

// What one block works on: elements [lo, hi) of tensor i.
struct Chunk {
  int tensor;
  std::int64_t lo;
  std::int64_t hi;
};

template <int Operands>
TS_DEVICE Chunk chunk_of(const TensorList<Operands>& list, std::int64_t block) {
  int lo = 0;
  int hi = list.count;  // first_block[lo] <= block < first_block[hi]
  while (hi - lo > 1) {
    const int middle = (lo + hi) / 2;
    if (list.first_block[middle] <= block) {
      lo = middle;
    } else {
      hi = middle;
    }
  }
  const std::int64_t start = (block - list.first_block[lo]) * kElementsOfBlock;
  const std::int64_t end = start + kElementsOfBlock;
  return {lo, start, end < list.numel[lo] ? end : list.numel[lo]};
}

template <class T, int Operands>
TS_DEVICE Ptr<T> operand(const TensorList<Operands>& list, int k, int tensor) {
  return Ptr<T>(static_cast<T*>(list.data[k][tensor]));
}

// The coefficients of ops/cpu/adamw.cpp.
struct Coefficients : Independent {
  AdamWConstants constants;
  Ptr<const double> scalars;
  Ptr<double> out;
  TS_DEVICE void operator()(const Block&) const {
    const double lr = scalars[0];
    const double step = scalars[1];
    const double c1 = 1.0 - std::pow(constants.beta1, step);
    const double c2 = 1.0 - std::pow(constants.beta2, step);
    out[0] = 1.0 - lr * constants.weight_decay;
    out[1] = constants.beta1;
    out[2] = constants.beta2;
    out[3] = 1.0 - constants.beta1;
    out[4] = 1.0 - constants.beta2;
    out[5] = lr / c1;
    out[6] = 1.0 / std::sqrt(c2);
    out[7] = constants.eps;
    out[8] = scalars[2];
  }
};

template <class T>
struct AdamW : Independent {
  TensorList<4> list;
  Ptr<const double> c;
  TS_DEVICE void operator()(const Block& block) const {
    const Chunk chunk = chunk_of(list, block.index());
    const Ptr<T> p = operand<T>(list, 0, chunk.tensor);
    const Ptr<T> g = operand<T>(list, 1, chunk.tensor);
    const Ptr<T> m = operand<T>(list, 2, chunk.tensor);
    const Ptr<T> v = operand<T>(list, 3, chunk.tensor);
    const T decay = number(0), beta2 = number(2), one_minus_beta1 = number(3), one_minus_beta2 = number(4);
    const T step_size = number(5), inv_sqrt_c2 = number(6), eps = number(7), grad_scale = number(8);
    for (std::int64_t i = chunk.lo + block.thread(); i < chunk.hi; i += block.threads()) {
      const T gi = grad_scale * g[i];
      const T mi = m[i] + one_minus_beta1 * (gi - m[i]);
      const T vi = beta2 * v[i] + one_minus_beta2 * (gi * gi);
      const T denominator = std::sqrt(vi) * inv_sqrt_c2 + eps;
      m[i] = mi;
      v[i] = vi;
      p[i] = p[i] * decay - step_size * (mi / denominator);
    }
  }
  TS_DEVICE T number(int k) const { return static_cast<T>(c[k]); }
};

template <class T>
struct Sgd : Independent {
  TensorList<3> list;
  SgdConstants constants;
  Ptr<const double> scalars;
  TS_DEVICE void operator()(const Block& block) const {
    const Chunk chunk = chunk_of(list, block.index());
    const Ptr<T> p = operand<T>(list, 0, chunk.tensor);
    const Ptr<T> g = operand<T>(list, 1, chunk.tensor);
    const Ptr<T> buffer = operand<T>(list, 2, chunk.tensor);
    const T lr = static_cast<T>(scalars[0]);
    const bool first_step = scalars[1] < 1.5;
    const T grad_scale = static_cast<T>(scalars[2]);
    const T momentum = static_cast<T>(constants.momentum);
    const T taken = static_cast<T>(1.0 - constants.dampening);
    const T weight_decay = static_cast<T>(constants.weight_decay);
    for (std::int64_t i = chunk.lo + block.thread(); i < chunk.hi; i += block.threads()) {
      const T d = grad_scale * g[i] + weight_decay * p[i];
      if (!constants.buffers) {
        p[i] -= lr * d;
        continue;
      }
      const T moved = momentum * buffer[i] + taken * d;
      const T b = first_step ? d : moved;
      buffer[i] = b;
      p[i] -= lr * (constants.nesterov ? d + momentum * b : b);
    }
  }
};

template <class T>
struct Squares : Cooperative {
  TensorList<1> list;
  Ptr<double> sums;
  TS_DEVICE void operator()(const Block& block) const {
    const Chunk chunk = chunk_of(list, block.index());
    const Ptr<T> x = operand<T>(list, 0, chunk.tensor);
    double sum = 0;
    for (std::int64_t i = chunk.lo + block.thread(); i < chunk.hi; i += block.threads()) {
      const double value = static_cast<double>(x[i]);
      sum += value * value;
    }
    sum = block_reduce(block, sum, Plus<double>());
    if (block.thread() == 0) sums[block.index()] = sum;
  }
};

struct SumNumbers : Cooperative {
  Ptr<const double> numbers;
  std::int64_t count;
  Ptr<double> out;
  TS_DEVICE void operator()(const Block& block) const {
    double sum = 0;
    for (std::int64_t i = block.thread(); i < count; i += block.threads()) sum += numbers[i];
    sum = block_reduce(block, sum, Plus<double>());
    if (block.thread() == 0) out[0] = sum;
  }
};

template <class T>
struct Scale : Independent {
  TensorList<1> list;
  Ptr<const double> factor;
  TS_DEVICE void operator()(const Block& block) const {
    const Chunk chunk = chunk_of(list, block.index());
    const Ptr<T> x = operand<T>(list, 0, chunk.tensor);
    const T by = static_cast<T>(factor[0]);
    for (std::int64_t i = chunk.lo + block.thread(); i < chunk.hi; i += block.threads()) x[i] = by * x[i];
  }
};

struct Clip : Independent {
  Ptr<double> norm;
  Ptr<double> factor;
  double max_norm;
  TS_DEVICE void operator()(const Block&) const {
    const double n = std::sqrt(norm[0]);
    norm[0] = n;
    const bool finite = n - n == 0;
    factor[0] = finite && n > max_norm ? max_norm / n : 1.0;
  }
};

template <int Operands>
LaunchShape shape_of(const TensorList<Operands>& list, int shared_bytes = 0) {
  return {list.first_block[list.count], 256, shared_bytes};
}

}  // namespace

void adamw_coefficients(const AdamWConstants& constants, const void* scalars, void* coefficients,
                        StreamHandle stream) {
  launch(Coefficients{{}, constants, static_cast<const double*>(scalars), static_cast<double*>(coefficients)},
         {1, 1, 0}, stream);
}

void adamw_tensors(const TensorList<4>& tensors, const void* coefficients, StreamHandle stream) {
  const auto* c = static_cast<const double*>(coefficients);
  if (tensors.wide) {
    launch(AdamW<double>{{}, tensors, c}, shape_of(tensors), stream);
  } else {
    launch(AdamW<float>{{}, tensors, c}, shape_of(tensors), stream);
  }
}

void sgd_tensors(const TensorList<3>& tensors, const SgdConstants& constants, const void* scalars,
                 StreamHandle stream) {
  const auto* s = static_cast<const double*>(scalars);
  if (tensors.wide) {
    launch(Sgd<double>{{}, tensors, constants, s}, shape_of(tensors), stream);
  } else {
    launch(Sgd<float>{{}, tensors, constants, s}, shape_of(tensors), stream);
  }
}

void square_tensors(const TensorList<1>& tensors, double* sums, StreamHandle stream) {
  if (tensors.wide) {
    launch(Squares<double>{{}, tensors, sums}, shape_of(tensors, kReduceBytes), stream);
  } else {
    launch(Squares<float>{{}, tensors, sums}, shape_of(tensors, kReduceBytes), stream);
  }
}

void sum_numbers(const double* numbers, std::int64_t count, double* out, StreamHandle stream) {
  launch(SumNumbers{{}, numbers, count, out}, {1, threads_for_row(count), kReduceBytes}, stream);
}

void scale_tensors(const TensorList<1>& tensors, const double* factor, StreamHandle stream) {
  if (tensors.wide) {
    launch(Scale<double>{{}, tensors, factor}, shape_of(tensors), stream);
  } else {
    launch(Scale<float>{{}, tensors, factor}, shape_of(tensors), stream);
  }
}

void clip_by_norm(double* norm, double* factor, double max_norm, StreamHandle stream) {
  launch(Clip{{}, norm, factor, max_norm}, {1, 1, 0}, stream);
}

}  // namespace tessera::cuda
