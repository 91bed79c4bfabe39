#include "ops/cuda/matmul_kernels.h"

#include <type_traits>

#include "runtime/cuda/elements.h"

namespace tessera::cuda {
namespace {

template <class T, bool = std::is_integral_v<T>>
struct SumOf {
  using type = double;
};
template <class T>
struct SumOf<T, true> {
  using type = std::make_unsigned_t<T>;
};

template <class T>
struct MultiplyElements : Independent {
  MatmulElements args;
  Ptr<T> c;
  Ptr<const T> a;
  Ptr<const T> b;
  Ptr<const T> bias;
  TS_DEVICE void operator()(const Block& block) const {
    using A = typename SumOf<T>::type;
    const std::int64_t number = global_thread(block);
    const std::int64_t size = args.m * args.n;
    if (number >= size * args.batch.numel) return;
    std::int64_t at[3];
    args.batch.offsets(number / size, at);
    const std::int64_t row = number % size / args.n;
    const std::int64_t col = number % args.n;
    at[0] += row * args.c_row + col * args.c_col;
    at[1] += row * args.a_row;
    at[2] += col * args.b_col;
    A sum = 0;
    for (std::int64_t p = 0; p < args.k; ++p)
      sum +=
          static_cast<A>(load(a[at[1] + p * args.a_col])) * static_cast<A>(load(b[at[2] + p * args.b_row]));
    if (bias) sum += static_cast<A>(load(bias[col * args.bias_stride]));
    if (args.accumulate) sum += static_cast<A>(load(c[at[0]]));
    if constexpr (std::is_integral_v<T>)
      c[at[0]] = static_cast<T>(sum);
    else
      c[at[0]] = convert<T>(sum);
  }
};

template <class T>
void multiply_typed(const MatmulElements& m, StreamHandle stream) {
  const MultiplyElements<T> kernel{{},
                                   m,
                                   static_cast<T*>(m.c),
                                   static_cast<const T*>(m.a),
                                   static_cast<const T*>(m.b),
                                   static_cast<const T*>(m.bias)};
  launch(kernel, one_each(m.m * m.n * m.batch.numel), stream);
}

}  // namespace

void multiply_elements(const MatmulElements& args, StreamHandle stream) {
  switch (args.dtype) {
    case DType::F32:
      return multiply_typed<float>(args, stream);
    case DType::F64:
      return multiply_typed<double>(args, stream);
    case DType::BF16:
      return multiply_typed<bf16>(args, stream);
    case DType::F16:
      return multiply_typed<f16>(args, stream);
    case DType::I32:
      return multiply_typed<std::int32_t>(args, stream);
    default:
      return multiply_typed<std::int64_t>(args, stream);
  }
}

}  // namespace tessera::cuda
