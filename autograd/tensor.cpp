#include "autograd/tensor.h"

#include "autograd/adjoints.h"
#include "autograd/node.h"
#include "runtime/error.h"

namespace tessera {
namespace {

thread_local bool grad_mode = true;

std::shared_ptr<TensorImpl> make_impl(Array local, SpecPtr spec) {
  auto impl = std::make_shared<TensorImpl>();
  impl->sizes = spec ? spec->sizes() : local.sizes();
  impl->local = std::move(local);
  impl->spec = std::move(spec);
  return impl;
}

int next_hook_id() {
  thread_local int id = 0;
  return ++id;
}

}  // namespace

Tensor::Tensor(Array local) : impl_(make_impl(std::move(local), nullptr)) {}

Tensor::Tensor(Array local, SpecPtr spec) {
  TS_CHECK(local.sizes() == spec->local_sizes(), "Tensor",
           "local sizes {} of rank {} do not fit the spec {}, of which that rank holds {}",
           local.sizes().str(), spec->mesh().rank(), spec->str(), spec->local_sizes().str());
  impl_ = make_impl(std::move(local), std::move(spec));
}

namespace {

const TensorImpl& required(const std::shared_ptr<TensorImpl>& impl) {
  TS_CHECK(impl != nullptr, "Tensor", "the tensor is undefined");
  return *impl;
}

}  // namespace

const Dims& Tensor::sizes() const { return required(impl_).sizes; }
std::int64_t Tensor::size(std::int64_t d) const {
  return impl_->sizes[wrap_dim("size", d, impl_->sizes.size())];
}
std::int64_t Tensor::numel() const { return numel_of(impl_->sizes); }
DType Tensor::dtype() const { return required(impl_).local.dtype(); }
Device Tensor::device() const { return impl_->local.device(); }
const Array& Tensor::local() const { return required(impl_).local; }
const SpecPtr& Tensor::spec() const { return required(impl_).spec; }

Tensor Tensor::redistribute(const SpecPtr& to) const { return tessera::redistribute(*this, to); }

Tensor Tensor::redistribute(const Placements& placements) const {
  TS_CHECK(is_sharded(), "redistribute", "a plain tensor has no mesh; give a spec");
  return tessera::redistribute(*this, with_placements(*spec(), placements));
}

Tensor Tensor::redistribute(const DeviceMesh& mesh, const Placements& placements) const {
  return tessera::redistribute(*this, mesh, placements);
}

Tensor Tensor::full_tensor() const {
  if (!is_sharded()) return *this;
  const Tensor whole = tessera::redistribute(*this, ShardSpec::replicated(spec()->mesh(), sizes()));
  Tensor plain(whole.local());
  record_simple(
      "full_tensor", {this, 1}, {&plain, 1},
      [own = spec()](const BackwardContext&, const Tensors& g) { return Tensors{on_mesh_of(own, g[0])}; });
  return plain;
}

double Tensor::item() const {
  TS_CHECK(defined() && numel() == 1, "item", "needs a tensor of one element, given {}",
           defined() ? sizes().str() : "an undefined tensor");
  const NoGrad guard;
  return full_tensor().local().at(0);
}

std::vector<double> Tensor::to_vector() const {
  const NoGrad guard;
  return full_tensor().local().to_vector();
}

bool Tensor::requires_grad() const { return impl_ && impl_->requires_grad; }

Tensor& Tensor::set_requires_grad(bool on) {
  TS_CHECK(is_leaf(), "set_requires_grad", "only leaves can be told; this tensor is the result of {}",
           grad_fn()->name);
  TS_CHECK(!on || is_floating(dtype()), "set_requires_grad",
           "only floating tensors have gradients, this one is {}", name_of(dtype()));
  impl_->requires_grad = on;
  if (on && !impl_->accumulator) {
    impl_->leaf = std::make_shared<LeafState>();
    impl_->accumulator = std::make_shared<Node>("leaf", 0);
    impl_->accumulator->leaf = true;
    impl_->accumulator->variable = impl_;
  }
  return *this;
}

bool Tensor::is_leaf() const { return impl_->grad_fn == nullptr; }
const std::shared_ptr<Node>& Tensor::grad_fn() const { return impl_->grad_fn; }

Tensor Tensor::grad() const {
  if (!impl_->leaf || !impl_->leaf->grad.defined()) return {};
  Tensor& g = impl_->leaf->grad;
  if (is_sharded()) {
    const SpecPtr own = without_partial(*spec());
    if (g.spec() != own) g = tessera::redistribute(g, own);
  } else if (g.is_sharded()) {
    g = g.full_tensor();
  }
  return g;
}

void Tensor::set_grad(const Tensor& grad) const {
  if (!impl_->leaf) {
    TS_CHECK(!grad.defined(), "set_grad", "this tensor does not require a gradient");
    return;
  }
  if (grad.defined()) {
    TS_CHECK(grad.sizes() == sizes(), "set_grad", "the gradient has sizes {}, the tensor {}",
             grad.sizes().str(), sizes().str());
    TS_CHECK(grad.dtype() == dtype(), "set_grad", "the gradient has dtype {}, the tensor {}",
             name_of(grad.dtype()), name_of(dtype()));
  }
  impl_->leaf->grad = grad;
}

void Tensor::backward(const Tensor& grad, const BackwardOptions& options) const {
  run_backward({*this}, {grad}, {}, options);
}

Tensor Tensor::detach() const {
  Tensor t(std::make_shared<TensorImpl>());
  t.impl_->local = impl_->local;
  t.impl_->spec = impl_->spec;
  t.impl_->sizes = impl_->sizes;
  return t;
}

int Tensor::register_hook(TensorHook hook) const {
  TS_CHECK(requires_grad(), "register_hook", "this tensor does not require a gradient");
  const int id = next_hook_id();
  if (is_sharded())  // what made the tensor takes nothing from another mesh
    hook = [hook = std::move(hook), own = spec()](const Tensor& g) {
      const Tensor given = hook(g);
      return given.defined() ? on_mesh_of(own, given) : given;
    };
  if (impl_->leaf) {
    impl_->leaf->hooks.emplace_back(id, std::move(hook));
  } else {
    auto& hooks = impl_->grad_fn->hooks;
    hooks.resize(static_cast<std::size_t>(impl_->grad_fn->outputs));
    hooks[static_cast<std::size_t>(impl_->output)].emplace_back(id, std::move(hook));
  }
  return id;
}

void Tensor::remove_hook(int id) const {
  auto drop = [id](auto& list) { std::erase_if(list, [id](const auto& h) { return h.first == id; }); };
  if (impl_->leaf) drop(impl_->leaf->hooks);
  if (impl_->grad_fn)
    for (auto& list : impl_->grad_fn->hooks) drop(list);
}

ShardTensor::ShardTensor(const Tensor& t) : Tensor(t) {
  TS_CHECK(t.defined() && t.is_sharded(), "ShardTensor", "the tensor is plain");
}

ShardTensor ShardTensor::from_local(const Array& local, const SpecPtr& spec) { return {Tensor(local, spec)}; }

namespace {

// What one rank gives from_local, as it travels: how many dims, which dtype, how many placements, the sizes,
// one number per placement.
constexpr int kHead = 3;

struct Given {
  std::int64_t dims = 0;
  DType dtype = DType::F32;
  std::int64_t axes = 0;
  Dims sizes;
  Placements placements;
};

std::int64_t number_of(const Placement& p, int dims) {
  const int dim = p.dim < 0 ? p.dim + dims : p.dim;  // Shard(-1) of two dims is Shard(1)
  const int detail = p.is_shard() ? dim : p.is_partial() ? static_cast<int>(p.op) : 0;
  return 4 * std::int64_t{detail} + static_cast<int>(p.kind);
}

Placement placement_of(std::int64_t number) {
  const auto detail = static_cast<int>(number >> 2);
  const auto kind = static_cast<PlacementKind>(number & 3);
  if (kind == PlacementKind::Partial) return Partial(static_cast<ReduceOp>(detail));
  return kind == PlacementKind::Shard ? Shard(detail) : Replicate();
}

// One row; of more placements than the mesh has axes only how many they are.
Array row_of(const Array& local, const DeviceMesh& mesh, const Placements& placements) {
  const int axes = mesh.ndim();
  Array row = Array::full({1, kHead + Dims::kMax + axes}, -1, DType::I64);
  auto* m = row.data<std::int64_t>();
  m[0] = local.dim();
  m[1] = static_cast<std::int64_t>(local.dtype());
  m[2] = static_cast<std::int64_t>(placements.size());
  for (int d = 0; d < local.dim(); ++d) m[kHead + d] = local.size(d);
  for (int a = 0; a < std::min<int>(axes, static_cast<int>(placements.size())); ++a)
    m[kHead + Dims::kMax + a] = number_of(placements[static_cast<std::size_t>(a)], local.dim());
  return row;
}

Given given_in(const Array& rows, int rank) {
  const auto* row = rows.data<std::int64_t>() + rank * rows.size(1);
  Given g{row[0], static_cast<DType>(row[1]), row[2], {}, {}};
  for (std::int64_t d = 0; d < g.dims; ++d) g.sizes.push_back(row[kHead + d]);
  const std::int64_t axes = std::min(g.axes, rows.size(1) - kHead - Dims::kMax);
  for (std::int64_t a = 0; a < axes; ++a) g.placements.push_back(placement_of(row[kHead + Dims::kMax + a]));
  return g;
}

std::string difference(const Given& given, const Given& first, int rank) {
  if (given.dims != first.dims)
    return fmt::format("rank {} gives {} dims, rank 0 gives {}", rank, given.dims, first.dims);
  if (given.dtype != first.dtype)
    return fmt::format("rank {} gives {}, rank 0 gives {}", rank, name_of(given.dtype), name_of(first.dtype));
  if (given.axes != first.axes)
    return fmt::format("rank {} gives {} placements, rank 0 gives {}", rank, given.axes, first.axes);
  if (given.placements != first.placements)
    return fmt::format("placements must be the same on every rank; rank {} gives {}, rank 0 gives {}", rank,
                       str(given.placements), str(first.placements));
  return {};
}

// The global sizes and one length list per cut dim, from what every rank holds. Ranks in mesh order.
struct Gathered {
  Dims sizes;
  std::vector<std::optional<DimCut>> cuts;
  std::string fault;
};

Gathered gather_sizes(const std::vector<Dims>& all, const DeviceMesh& mesh, const Placements& placements) {
  Gathered g;
  g.sizes = all.front();
  g.cuts.resize(static_cast<std::size_t>(g.sizes.size()));
  for (int d = 0; d < g.sizes.size(); ++d) {
    std::vector<int> axes;
    int parts = 1;
    for (int a = 0; a < mesh.ndim(); ++a) {
      const Placement& p = placements[static_cast<std::size_t>(a)];
      if (!p.is_shard() || (p.dim < 0 ? p.dim + g.sizes.size() : p.dim) != d) continue;
      axes.push_back(a);
      parts *= mesh.size(a);
    }
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(parts), -1);
    for (int r = 0; r < mesh.size(); ++r) {
      int c = 0;
      for (int a : axes) c = c * mesh.size(a) + mesh.coordinate(a, r);
      std::int64_t& l = lengths[static_cast<std::size_t>(c)];
      const std::int64_t theirs = all[static_cast<std::size_t>(r)][d];
      if (l >= 0 && l != theirs)
        g.fault = fmt::format("dim {} has size {} on one rank and {} on rank {}, which must agree", d, l,
                              theirs, r);
      l = theirs;
    }
    std::int64_t sum = 0;
    for (std::int64_t l : lengths) sum += l;
    g.sizes[d] = sum;
    if (!axes.empty()) g.cuts[static_cast<std::size_t>(d)] = cut_from_lengths(axes, lengths);
  }
  return g;
}

}  // namespace

ShardTensor ShardTensor::from_local(const Array& local, const DeviceMesh& mesh,
                                    const Placements& placements) {
  const Array mine = row_of(local, mesh, placements);
  const Array all = Array::empty({mesh.size(), mine.size(1)}, DType::I64);
  mesh.comm().all_gather(all, mine).wait();
  std::vector<Dims> sizes;
  std::string fault;
  const Given first = given_in(all, 0);
  for (int r = 0; r < mesh.size(); ++r) {
    const Given given = given_in(all, r);
    if (fault.empty()) fault = difference(given, first, r);
    sizes.push_back(given.sizes);
  }
  TS_CHECK(fault.empty(), "from_local", "{}", fault);
  TS_CHECK(static_cast<int>(placements.size()) == mesh.ndim(), "from_local",
           "{} placements given, the mesh {} has {} axes", placements.size(), mesh.str(), mesh.ndim());
  Gathered g = gather_sizes(sizes, mesh, placements);
  TS_CHECK(g.fault.empty(), "from_local", "{}", g.fault);
  return {Tensor(local, ShardSpec::make(mesh, placements, g.sizes, std::move(g.cuts)))};
}

bool grad_enabled() { return grad_mode; }
GradMode::GradMode(bool enabled) : previous_(grad_mode) { grad_mode = enabled; }
GradMode::~GradMode() { grad_mode = previous_; }

}  // namespace tessera
