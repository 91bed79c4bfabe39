// Products for which cuBLASLt has no algorithm, on the emulated device: our own kernel makes them.
#include "emulated/cublaslt_product.h"
#include "ops/cpu/matmul.h"
#include "ops/cuda/library_log.h"
#include "ops/kernels.h"
#include "ops/matmul/linear_kernel.h"
#include "tests/device/kernel_support.h"

using namespace tessera;
using namespace tessera::device_kernels;

namespace {

// Some of what the heuristic was asked for since, and not all of it, was refused.
class SomeRefused {
 public:
  ~SomeRefused() {
    const long long asked = emulated::product_counters().asked - before_.asked;
    const long long refused = emulated::product_counters().refused - before_.refused;
    CHECK(refused > asked / 8);
    CHECK(refused < asked - asked / 8);
  }

 private:
  const emulated::ProductCounters before_ = emulated::product_counters();
};

}  // namespace

TEST_CASE("products whose shape is refused are those of the CPU", "[device]") {
  const SomeRefused some;
  Random random = test_random(31);
  for (int trial = 0; trial < 120; ++trial) {
    const DType t = kFloating[trial % 4];
    const std::int64_t batch = random_int(random, 1, 3);
    const std::int64_t m = random_int(random, 1, 20);
    const std::int64_t n = random_int(random, 1, 20);
    const std::int64_t k = random_int(random, 1, 20);
    const bool by_columns = trial % 3 == 0;  // then a bias is what the sum starts from
    const Array c =
        by_columns ? filled(random, {batch, n, m}, t).transpose(1, 2) : filled(random, {batch, m, n}, t);
    const Array bias = trial % 5 == 0 ? filled(random, {n}, t) : Array();
    check(kernels::matmul, cpu::MatmulArgs{c, scattered(random, {batch, m, k}, t),
                                           scattered(random, {batch, k, n}, t), bias, trial % 2 == 0});
  }
}

TEST_CASE("linear layers whose shape is refused are those of the CPU", "[device]") {
  const SomeRefused some;
  Random random = test_random(32);
  for (int trial = 0; trial < 80; ++trial) {
    const DType t = kFloating[trial % 4];
    const Dims sizes{random_int(random, 1, 30), random_int(random, 1, 30)};
    const std::int64_t out = 8 * random_int(random, 1, 5);
    const Dims results{sizes[0], out};
    const Array bias = trial % 5 == 0 ? Array() : filled(random, {out}, t);
    check(kernels::linear, cpu::LinearArgs{Array::zeros(results, t), Array::zeros(results, t),
                                           filled(random, sizes, t), filled(random, {sizes[1], out}, t), bias,
                                           static_cast<cpu::Activation>(random_int(random, 0, 4))});
  }
}

TEST_CASE("a linear layer whose bias is refused is made by cuBLASLt all the same", "[device]") {
  Random random = test_random(34);
  const cuda::LibraryLog log;
  for (int trial = 0; trial < 40; ++trial) {
    const DType t = kFloating[trial % 4];
    const std::int64_t rows = random_int(random, 2, 30);
    const std::int64_t in = random_int(random, 1, 30);
    const std::int64_t out = random_int(random, 2, 30);  // one column's bias always begins the sum
    check(kernels::matmul, cpu::MatmulArgs{Array::zeros({rows, out}, t), filled(random, {rows, in}, t),
                                           filled(random, {in, out}, t), filled(random, {out}, t), false});
  }
  int begun_with_bias = 0;
  for (const cuda::LibraryCall& call : log.calls()) {
    const auto& shape = std::get<cuda::BlasShape>(call);
    CHECK(shape.bias != shape.accumulate);
    if (shape.accumulate) ++begun_with_bias;
  }
  CHECK(begun_with_bias > 0);
  CHECK(begun_with_bias < std::ssize(log.calls()));
}

TEST_CASE("a product of one column adds a bias to what is there", "[device]") {
  Random random = test_random(33);
  for (const DType t : kFloating)
    for (const std::int64_t m : {1, 2, 17})
      check(kernels::matmul, cpu::MatmulArgs{filled(random, {2, m, 1}, t), scattered(random, {2, m, 9}, t),
                                             scattered(random, {2, 9, 1}, t), filled(random, {1}, t), true});
}
