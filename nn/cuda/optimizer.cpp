// Optimizer steps, norms of gradients and clipping on the device. Nothing here waits for it.
#include <array>

#include "nn/cuda/optimizer_kernels.h"
#include "nn/optimizer_kernels.h"

namespace tessera::cuda {
namespace {

template <std::size_t Operands>
using Roles = std::array<std::span<const Array>, Operands>;

// f(list) for the tensors in lists of one type, as few as can be.
template <std::size_t Operands, class F>
void in_lists(const Roles<Operands>& roles, const F& f) {
  for (const bool wide : {false, true}) {
    TensorList<static_cast<int>(Operands)> list;
    const auto flush = [&] {
      if (list.count > 0) f(list);
      list.count = 0;
    };
    list.wide = wide;
    list.first_block[0] = 0;
    for (std::size_t i = 0; i < roles[0].size(); ++i) {
      const Array& first = roles[0][i];
      if ((first.dtype() == DType::F64) != wide || first.numel() == 0) continue;
      const std::int64_t blocks = (first.numel() + kElementsOfBlock - 1) / kElementsOfBlock;
      TS_CHECK(blocks <= INT32_MAX / 2, "optimizer", "a parameter of {} elements is too large",
               first.numel());
      if (list.count == kTensorsOfLaunch || list.first_block[list.count] > INT32_MAX / 2) flush();
      const int at = list.count++;
      for (std::size_t k = 0; k < Operands; ++k)
        list.data[k][at] = roles[k].empty() ? nullptr : roles[k][i].raw();
      list.numel[at] = first.numel();
      list.first_block[at + 1] = list.first_block[at] + static_cast<std::int32_t>(blocks);
    }
    flush();
  }
}

// {lr, step, grad_scale} in the device's memory.
Array scalars_of(const Array& given, double lr, double step, double grad_scale) {
  if (given.defined()) return given;
  return Array::from(std::array{lr, step, grad_scale}, {3}, DType::F64).to(Device::Cuda);
}

void adamw_cuda(const cpu::AdamWArgs& args) {
  cpu::check_adamw(args);
  const Array scalars = scalars_of(args.scalars, args.lr, static_cast<double>(args.step), args.grad_scale);
  const Array coefficients = Array::empty({kAdamWCoefficients}, DType::F64, Device::Cuda);
  adamw_coefficients({args.beta1, args.beta2, args.eps, args.weight_decay}, scalars.raw(), coefficients.raw(),
                     current_stream());
  in_lists<4>({args.params, args.grads, args.exp_avg, args.exp_avg_sq},
              [&](const auto& list) { adamw_tensors(list, coefficients.raw(), current_stream()); });
  check_launch("adamw");
}

void sgd_cuda(const cpu::SgdArgs& args) {
  cpu::check_sgd(args);
  const Array scalars = scalars_of(args.scalars, args.lr, args.first_step ? 1 : 2, args.grad_scale);
  const SgdConstants constants{args.momentum, args.dampening, args.weight_decay, args.nesterov,
                               !args.momentum_buffers.empty()};
  in_lists<3>({args.params, args.grads, args.momentum_buffers},
              [&](const auto& list) { sgd_tensors(list, constants, scalars.raw(), current_stream()); });
  check_launch("sgd");
}

void sum_of_squares_cuda(std::span<const Array> arrays, const Array& out) {
  std::int64_t blocks = 0;
  for (const Array& a : arrays) {
    cpu::check_flat("sum_of_squares", a);
    blocks += (a.numel() + kElementsOfBlock - 1) / kElementsOfBlock;
  }
  const Array sums = Array::empty({blocks}, DType::F64, Device::Cuda);
  auto* at = static_cast<double*>(sums.raw());
  in_lists<1>({arrays}, [&](const auto& list) {
    square_tensors(list, at, current_stream());
    at += list.first_block[list.count];
  });
  sum_numbers(static_cast<double*>(sums.raw()), blocks, static_cast<double*>(out.raw()), current_stream());
  check_launch("sum_of_squares");
}

void scale_all_cuda(std::span<const Array> arrays, const Array& factor) {
  for (const Array& a : arrays) cpu::check_flat("scale_all", a);
  in_lists<1>({arrays}, [&](const auto& list) {
    scale_tensors(list, static_cast<const double*>(factor.raw()), current_stream());
  });
  check_launch("scale_all");
}

void clip_factor_cuda(const Array& norm, const Array& factor, double max_norm) {
  clip_by_norm(static_cast<double*>(norm.raw()), static_cast<double*>(factor.raw()), max_norm,
               current_stream());
  check_launch("clip_factor");
}

const bool registered = [] {
  kernels::adamw.set(Device::Cuda, &adamw_cuda);
  kernels::sgd.set(Device::Cuda, &sgd_cuda);
  kernels::sum_of_squares.set(Device::Cuda, &sum_of_squares_cuda);
  kernels::scale_all.set(Device::Cuda, &scale_all_cuda);
  kernels::clip_factor.set(Device::Cuda, &clip_factor_cuda);
  return true;
}();

}  // namespace
}  // namespace tessera::cuda

extern "C" bool tessera_cuda_nn() { return tessera::cuda::registered; }
