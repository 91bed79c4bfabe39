// The refusals that are tested, by family (ops_refusals_*_test.cpp); no operation is without one
// (ops_refusals_every_test.cpp).
#pragma once
#include "ops/ops.h"
#include "tests/refusal_cases.h"

namespace tessera::refusal_cases {

// Puts a list together whose inputs are all F32, of these sizes.
struct RefusalAdder {
  std::vector<Refusal> list = {};
  void operator()(const char* op, const std::vector<Dims>& sizes, std::function<void(const Tensors&)> call,
                  std::vector<std::string> said) {
    Refusal r{op, {}, std::move(call), std::move(said)};
    for (const Dims& s : sizes) r.inputs.emplace_back(s, DType::F32);
    list.push_back(std::move(r));
  }
};

using RefusalList = std::vector<Refusal> (*)();
// All of the lists below.
const std::vector<RefusalList>& refusal_lists();

// Mixtures of dtypes, integers where floats are needed.
std::vector<Refusal> mixture_refusals();
std::vector<Refusal> integer_refusals();
std::vector<Refusal> pointwise_dtype_refusals();
std::vector<Refusal> reduction_dtype_refusals();
std::vector<Refusal> loss_dtype_refusals();
std::vector<Refusal> window_dtype_refusals();
std::vector<Refusal> index_dtype_refusals();

// Sizes, ranks and arguments.
std::vector<Refusal> broadcast_refusals();
std::vector<Refusal> product_refusals();
std::vector<Refusal> reduction_refusals();
std::vector<Refusal> shape_refusals();
std::vector<Refusal> piece_refusals();
std::vector<Refusal> window_refusals();
std::vector<Refusal> index_refusals();
std::vector<Refusal> more_reduction_refusals();
std::vector<Refusal> more_norm_refusals();
std::vector<Refusal> more_loss_refusals();
std::vector<Refusal> more_convolution_refusals();
std::vector<Refusal> more_pool_refusals();
std::vector<Refusal> more_shape_refusals();
std::vector<Refusal> more_index_refusals();
std::vector<Refusal> huge_copy_refusals();
std::vector<Refusal> huge_shape_refusals();
std::vector<Refusal> huge_window_refusals();

}  // namespace tessera::refusal_cases
