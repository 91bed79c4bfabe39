// An operation from outside the library: the 5-point Laplacian of a map that is periodic in both directions,
// cut over the ranks in any way, and a diffusion step made of it that can be differentiated, twice.
#include <tessera/tessera.h>

namespace ts = tessera;

namespace {

// ---- one device -------------------------------------------------------------------------------------------
// y [n, h, w] from a buffer [n, h + 2, w + 2] that holds a ring of neighbours.
using Stencil = void(const ts::Array& y, const ts::Array& buffer);

void laplacian_cpu(const ts::Array& y, const ts::Array& buffer_any) {
  const ts::Array buffer = buffer_any.contiguous();
  const std::int64_t h = y.size(1);
  const std::int64_t w = y.size(2);
  ts::dispatch_floating(y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::int64_t n = 0; n < y.size(0); ++n)
      for (std::int64_t i = 0; i < h; ++i) {
        const T* row = buffer.data<T>() + (n * (h + 2) + i + 1) * (w + 2) + 1;
        T* out = y.data<T>() + (n * h + i) * w;
        for (std::int64_t j = 0; j < w; ++j)
          out[j] = static_cast<T>(row[j - w - 2] + row[j + w + 2] + row[j - 1] + row[j + 1] - 4 * row[j]);
      }
  });
}
ts::Kernel<Stencil> laplacian_kernel{"laplacian", nullptr};

// ---- all ranks --------------------------------------------------------------------------------------------
// x [n, h, w]. Communicates one exchange of edge rows (or columns) where h (or w) is cut.
ts::Tensor laplacian(const ts::Tensor& x) {
  static const ts::OpDef op{"laplacian"};
  TS_CHECK(x.defined() && x.dim() == 3 && ts::is_floating(x.dtype()), op.name,
           "needs a floating map [n, h, w], given {}", x.defined() ? x.sizes().str() : "an undefined tensor");
  const ts::Window ring{.kernel = 3, .pad_lo = 1, .pad_hi = 1, .mode = ts::PaddingMode::Circular};
  const std::vector<ts::Window> windows{ts::Window(), ring, ring};
  auto plan = [&](const std::vector<ts::SpecPtr>& in) {
    const ts::Rule rule = ts::parse_rule("n h~ w~ -> n h w", ts::Linearity::First);
    ts::Strategy s = ts::resolve({&rule, in, {x.sizes()}, {{'h', ring}, {'w', ring}}});
    s.extra = ts::halo_of(s.inputs[0], s.outputs[0], x.sizes(), windows);
    return s;
  };
  auto local = [&](ts::LocalCall& call) {
    const ts::Array& mine = call.in[0];
    const auto halo = call.plan ? std::static_pointer_cast<const ts::Halo>(call.plan->extra)
                                : ts::halo_of(nullptr, nullptr, x.sizes(), windows);
    call.out[0] = ts::Array::empty(mine.sizes(), mine.dtype(), mine.device());
    laplacian_kernel(mine.device(), call.out[0], halo->gather(mine));
  };
  // Every cell reads its neighbours with equal weights and is read by them so: the Laplacian is its own
  // adjoint.
  auto gradient = [](std::span<const ts::Tensor>, std::span<const ts::Tensor>) -> ts::GradFunction {
    return [](const ts::BackwardContext&, const ts::Tensors& dy) { return ts::Tensors{laplacian(dy[0])}; };
  };
  return ts::call_one({.op = &op,
                       .inputs = {&x, 1},
                       .output_sizes = {&x.sizes(), 1},
                       .plan = plan,
                       .local = local,
                       .gradient = gradient});
}

// x + k·∇²x with a conductivity k [h, w] that may be learned.
ts::Tensor diffuse(const ts::Tensor& x, const ts::Tensor& k) { return x + k * laplacian(x); }

// The same from the library's rolls: registered in the operation's place, it must give the same numbers.
bool laplacian_of_rolls(const ts::OpDef&, std::span<const ts::Tensor> in, ts::Tensors& out) {
  const ts::Tensor& x = in[0];
  out = {ts::roll(x, {1}, {1}) + ts::roll(x, {-1}, {1}) + ts::roll(x, {1}, {2}) + ts::roll(x, {-1}, {2}) -
         x * 4.0};
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  ts::register_kernel(laplacian_kernel, ts::Device::Cpu, &laplacian_cpu);
  return ts::run_program(argc, argv, [](ts::Runtime& runtime, int, char**) {
    const ts::DeviceMesh mesh(runtime.world(), {{"domain", runtime.size()}});
    ts::Generator random(3);
    const ts::Dims sizes{2, 7, 6};
    ts::Tensor k = ts::rand({7, 6}, random, ts::DType::F64).set_requires_grad();
    double worst = 0;
    for (int dim = 0; dim < 3; ++dim) {  // cut along samples, rows, columns
      const ts::SpecPtr spec = ts::ShardSpec::make(mesh, {ts::Shard(dim)}, sizes);
      ts::Tensor x = ts::randn(sizes, random, ts::DType::F64, spec).set_requires_grad();
      const auto checked = ts::gradcheck(
          [](const ts::Tensors& in) { return ts::Tensors{diffuse(in[0], in[1])}; }, {x, k}, {.second = true});
      TS_CHECK(checked.ok, "stencil", "gradient: {}", checked.message);
      const auto ours = diffuse(x, k).to_vector();
      ts::register_op_handler("laplacian", laplacian_of_rolls);
      const auto rolled = diffuse(x, k).to_vector();
      ts::remove_op_handler("laplacian");
      for (std::size_t i = 0; i < ours.size(); ++i) worst = std::max(worst, std::abs(ours[i] - rolled[i]));
    }
    ts::log_info("{} ranks: gradients agree with finite differences, rolls give the same to {:.0e}",
                 runtime.size(), worst);
    return worst < 1e-12 ? 0 : 1;
  });
}
