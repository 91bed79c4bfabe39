#include "mesh/device_mesh.h"

#include <set>

#include "mesh/mesh_state.h"
#include "runtime/error.h"

namespace tessera {
namespace {

constexpr int kMaxAxes = 6;

std::string text_of(const std::vector<MeshAxis>& axes) {
  std::string text;
  for (const MeshAxis& a : axes) text += fmt::format("{}{}={}", text.empty() ? "" : ",", a.name, a.size);
  return text;
}

void check_axes(const Communicator& comm, const std::vector<MeshAxis>& axes) {
  TS_CHECK(comm.defined(), "DeviceMesh", "the communicator is undefined (this rank is not part of it)");
  check_same(comm, "DeviceMesh " + text_of(axes));
  TS_CHECK(!axes.empty() && axes.size() <= kMaxAxes, "DeviceMesh", "{} axes given, 1 to {} are allowed",
           axes.size(), kMaxAxes);
  std::set<std::string> names;
  double product = 1;  // exact as far as it matters, and never too large
  for (const MeshAxis& a : axes) {
    TS_CHECK(!a.name.empty() && names.insert(a.name).second, "DeviceMesh",
             "axis names must be unique and not empty, given '{}' twice or empty", a.name);
    TS_CHECK(a.size >= 1, "DeviceMesh", "axis {} has size {}, at least 1 is needed", a.name, a.size);
    product *= a.size;
  }
  TS_CHECK(product == comm.size(), "DeviceMesh", "mesh {} needs {:.0f} ranks, the communicator has {}",
           text_of(axes), product, comm.size());
}

std::vector<std::vector<int>> groups_of(const MeshCore& core, unsigned mask) {
  std::vector<std::vector<int>> groups;
  std::vector<int> index(static_cast<std::size_t>(core.size), -1);
  for (int r = 0; r < core.size; ++r) {
    int base = r;
    for (int a = 0; a < static_cast<int>(core.axes.size()); ++a)
      if ((mask >> static_cast<unsigned>(a) & 1U) != 0)
        base -= core.coordinate(a, r) * core.strides[static_cast<std::size_t>(a)];
    int& slot = index[static_cast<std::size_t>(base)];
    if (slot < 0) {
      slot = static_cast<int>(groups.size());
      groups.emplace_back();
    }
    groups[static_cast<std::size_t>(slot)].push_back(r);
  }
  return groups;
}

void set_strides(MeshCore& core) {
  core.strides.assign(core.axes.size(), 1);
  for (int a = static_cast<int>(core.axes.size()) - 2; a >= 0; --a)
    core.strides[static_cast<std::size_t>(a)] =
        core.strides[static_cast<std::size_t>(a) + 1] * core.axes[static_cast<std::size_t>(a) + 1].size;
}

}  // namespace

DeviceMesh::DeviceMesh(std::shared_ptr<MeshCore> core, std::shared_ptr<MeshCache> cache)
    : core_(std::move(core)), cache_(std::move(cache)) {}

DeviceMesh::DeviceMesh(const Communicator& comm, std::vector<MeshAxis> axes)
    : core_(std::make_shared<MeshCore>()), cache_(std::make_shared<MeshCache>()) {
  check_axes(comm, axes);
  core_->axes = std::move(axes);
  core_->comm = comm;
  core_->rank = comm.rank();
  core_->size = comm.size();
  set_strides(*core_);
  const unsigned all = (1U << core_->axes.size()) - 1U;
  core_->groups.resize(all + 1U);
  for (unsigned mask = 1; mask < all; ++mask) core_->groups[mask] = comm.subgroup(groups_of(*core_, mask));
  core_->groups[all] = comm;
}

int DeviceMesh::ndim() const { return static_cast<int>(core_->axes.size()); }
int DeviceMesh::size() const { return core_->size; }
int DeviceMesh::size(int axis) const { return core_->axes[static_cast<std::size_t>(axis)].size; }
const std::vector<MeshAxis>& DeviceMesh::axes() const { return core_->axes; }
int DeviceMesh::rank() const { return core_->rank; }
int DeviceMesh::coordinate(int axis) const { return core_->coordinate(axis, core_->rank); }
int DeviceMesh::coordinate(int axis, int rank) const { return core_->coordinate(axis, rank); }
const Communicator& DeviceMesh::comm() const { return core_->comm; }
const Communicator& DeviceMesh::group(unsigned mask) const { return core_->groups[mask]; }

bool DeviceMesh::has_axis(const std::string& name) const {
  return std::any_of(core_->axes.begin(), core_->axes.end(),
                     [&](const MeshAxis& a) { return a.name == name; });
}

int DeviceMesh::axis(const std::string& name) const {
  for (int a = 0; a < ndim(); ++a)
    if (core_->axes[static_cast<std::size_t>(a)].name == name) return a;
  TS_FAIL(Usage, "DeviceMesh", "no axis named '{}', the mesh is {}", name, str());
}

std::string DeviceMesh::str() const { return text_of(core_->axes); }

DeviceMesh DeviceMesh::submesh(const std::vector<std::string>& names) const {
  TS_CHECK(!names.empty(), "DeviceMesh", "a sub-mesh needs at least one axis of {}", str());
  std::string key;
  for (const std::string& n : names) key += n + ",";
  if (auto it = cache_->submeshes.find(key); it != cache_->submeshes.end()) return it->second;

  auto sub = std::make_shared<MeshCore>();
  std::vector<int> from;
  for (const std::string& n : names) {
    const int a = axis(n);
    TS_CHECK(from.empty() || a > from.back(), "DeviceMesh", "sub-mesh axes must come in the mesh's order {}",
             str());
    from.push_back(a);
    sub->axes.push_back(core_->axes[static_cast<std::size_t>(a)]);
  }
  sub->groups.resize(1U << from.size());
  for (unsigned mask = 1; mask < sub->groups.size(); ++mask) {
    unsigned outer = 0;
    for (std::size_t i = 0; i < from.size(); ++i)
      if ((mask >> i & 1U) != 0) outer |= 1U << static_cast<unsigned>(from[i]);
    sub->groups[mask] = group(outer);
  }
  sub->comm = sub->groups.back();
  sub->rank = sub->comm.rank();
  sub->size = sub->comm.size();
  set_strides(*sub);
  DeviceMesh mesh(std::move(sub), std::make_shared<MeshCache>());
  cache_->submeshes.emplace(key, mesh);
  return mesh;
}

}  // namespace tessera
