// Joining arrays whose elements lie alike in memory, against copies one after the other.
#include "tests/kernels_support.h"

#include "ops/memory_order.h"
#include "ops/shape/join_runs.h"

using namespace tessera;
using namespace tessera::kernel_tests;

namespace {

Dims any_order(Random& random, int dims) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(dims));
  for (std::size_t d = 0; d < order.size(); ++d) order[d] = static_cast<std::int64_t>(d);
  if (coin(random)) std::shuffle(order.begin(), order.end(), random);
  return Dims(std::span<const std::int64_t>(order));
}

}  // namespace

TEST_CASE("arrays are joined run by run as by copies", "[kernels]") {
  Random random(seed());
  int joined = 0;
  for (int trial = 0; trial < 300; ++trial) {
    const int dims = static_cast<int>(pick(random, 1, 4));
    const int dim = static_cast<int>(pick(random, 0, dims - 1));
    const Dims order = any_order(random, dims);
    const std::array<DType, 4> types{DType::F32, DType::F64, DType::BF16, DType::Bool};
    const DType dtype = types[static_cast<std::size_t>(pick(random, 0, 3))];
    Dims sizes = random_sizes(random, dims, trial % 3 == 0 ? 24 : 7);
    std::vector<Array> in;
    std::int64_t length = 0;
    const bool alike = pick(random, 0, 4) > 0;
    for (std::int64_t i = pick(random, 1, 3); i > 0; --i) {
      sizes[dim] = pick(random, 0, 40);
      length += sizes[dim];
      const Array x =
          alike ? empty_in_order(order, sizes, dtype, Device::Cpu) : awkward(sizes, dtype, random);
      x.copy_(random_array(sizes, dtype, random));
      in.push_back(x);
    }
    sizes[dim] = length;
    const Array out = empty_in_order(order, sizes, dtype, Device::Cpu);
    out.fill_(1);
    if (!cpu::join_runs(out, in, dim, order)) {
      CHECK((out.numel() == 0 || out.to_vector() == Array::full(sizes, 1, dtype).to_vector()));
      continue;
    }
    ++joined;
    INFO(name_of(dtype) << " " << sizes.str() << " along " << dim << ", order " << order.str());
    std::int64_t at = 0;
    for (const Array& x : in) {
      REQUIRE(out.slice(dim, at, x.size(dim)).to_vector() == x.to_vector());
      at += x.size(dim);
    }
  }
  CHECK(joined > 30);
}
