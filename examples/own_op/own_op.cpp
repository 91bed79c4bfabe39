// An operation of one's own, outside the library: y = x³ + b for each channel, with its gradient, on every
// placement.
#include <tessera/tessera.h>

namespace ts = tessera;

namespace {

// What one device does, on local arrays. Any strides come in; make them dense where the loop wants that.
void cube_plus(const ts::Array& out, const ts::Array& x_any, const ts::Array& b_any) {
  const ts::Array x = x_any.contiguous();
  const ts::Array b = b_any.contiguous();
  const std::int64_t inner = x.size(2);
  ts::dispatch_floating(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::int64_t row = 0; row < x.size(0) * x.size(1); ++row)
      for (std::int64_t i = 0; i < inner; ++i) {
        const T v = x.data<T>()[row * inner + i];
        out.data<T>()[row * inner + i] = static_cast<T>(v * v * v + b.data<T>()[row % x.size(1)]);
      }
  });
}
ts::Kernel<void(const ts::Array&, const ts::Array&, const ts::Array&)> cube_kernel{"cube_plus", &cube_plus};

// x [n, c, h], b [c]. The rule says all that sharding needs: any of the three may be cut, b follows its
// channels.
ts::Tensor cube_plus(const ts::Tensor& x, const ts::Tensor& b) {
  static const ts::OpDef op{"cube_plus"};
  TS_CHECK(x.dim() == 3 && b.dim() == 1 && x.size(1) == b.size(0), op.name,
           "needs x [n, c, h] and b [c], given {} and {}", x.sizes().str(), b.sizes().str());
  const std::array<ts::Tensor, 2> inputs{x, b};
  auto rule = [] { return ts::parse_rule("n c h, c -> n c h"); };
  auto local = [&](ts::LocalCall& call) {
    call.out[0] = ts::Array::empty(call.in[0].sizes(), call.in[0].dtype(), call.in[0].device());
    cube_kernel(call.in[0].device(), call.out[0], call.in[0], call.in[1]);
  };
  // Written with public ops, so it works on every placement and can be differentiated again.
  auto gradient = [](std::span<const ts::Tensor> in, std::span<const ts::Tensor>) -> ts::GradFunction {
    return [x = ts::SavedTensor(in[0])](const ts::BackwardContext& needs, const ts::Tensors& dy) {
      ts::Tensors grads(2);
      if (needs.needs(0)) grads[0] = dy[0] * ts::square(x.unpack("cube_plus")) * 3.0;
      if (needs.needs(1)) grads[1] = ts::sum(dy[0], {0, 2});
      return grads;
    };
  };
  ts::OpCall call;
  call.op = &op;
  call.inputs = inputs;
  call.output_sizes = {&x.sizes(), 1};
  call.rule = rule;
  call.local = local;
  call.gradient = gradient;
  return ts::call_one(call);
}

}  // namespace

int main(int argc, char** argv) {
  return ts::run_program(argc, argv, [](ts::Runtime& runtime, int, char**) {
    ts::DeviceMesh mesh(runtime.world(), {{"domain", runtime.size()}});
    ts::Generator random(1);
    ts::Tensor b = ts::randn({3}, random, ts::DType::F64).set_requires_grad();
    bool right = true;
    for (int dim = 0; dim < 3; ++dim) {  // cut along the batch, the channels, the cells
      const ts::SpecPtr spec = ts::ShardSpec::make(mesh, {ts::Shard(dim)}, {2, 3, 5});
      ts::Tensor x = ts::randn({2, 3, 5}, random, ts::DType::F64, spec).set_requires_grad();
      const ts::GradcheckResult result =
          ts::gradcheck([](const ts::Tensors& in) { return ts::Tensors{cube_plus(in[0], in[1])}; }, {x, b},
                        {.second = true});
      ts::log_info("cut along dim {}: largest error {:.1e} {}", dim, result.worst, result.message);
      right = right && result.ok;
    }
    return right ? 0 : 1;
  });
}
