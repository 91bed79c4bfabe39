#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise_call.h"
#include "ops/memory_order.h"
#include "runtime/copy.h"
#include "runtime/device.h"

namespace tessera {

Tensor to(const Tensor& x, Device device) {
  static const OpDef op{"to_device"};
  TS_CHECK(x.defined(), "to", "the input is undefined");
  if (x.device() == device) return x;
  require_device("to", device);
  const Dims& sizes = x.sizes();
  auto local = [&](LocalCall& l) {
    const Array& a = l.in[0];
    l.out[0] = empty_in_order(memory_order(a), a.sizes(), a.dtype(), device);
    copy_strided(l.out[0], a);
  };
  auto rule = [&] { return broadcast_rule({&x, 1}, sizes, Linearity::Each); };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    return
        [back = in[0].device()](const BackwardContext&, const Tensors& g) { return Tensors{to(g[0], back)}; };
  };
  OpCall c;
  c.op = &op;
  c.inputs = {&x, 1};
  c.output_sizes = {&sizes, 1};
  c.parameters = Hash().add(static_cast<std::int64_t>(device));
  c.rule = rule;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

Tensor Tensor::to(Device device) const { return tessera::to(*this, device); }
Tensor Tensor::to(DType dtype) const { return tessera::to(*this, dtype); }

}  // namespace tessera
