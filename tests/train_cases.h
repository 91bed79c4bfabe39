// What the tests of training over a ddp x domain mesh share.
#pragma once
#include "autograd/adjoints.h"
#include "tests/nn_cases.h"

namespace tessera {

struct Layout {
  DeviceMesh mesh;
  DeviceMesh domain;  // where activations live; undefined: plain tensors
  std::vector<int> dims;
};

inline DeviceMesh mesh_of_world(std::vector<MeshAxis> axes) {
  return DeviceMesh(test_world(), std::move(axes));
}

// Samples shared out, samples cut, and both, in either order of the axes.
inline std::vector<Layout> ddp_and_domain_layouts() {
  const int ranks = test_world().size();
  const DeviceMesh ddp = mesh_of_world({{"ddp", ranks}});
  const DeviceMesh domain = mesh_of_world({{"domain", ranks}});
  const DeviceMesh both = mesh_of_world({{"ddp", 1}, {"domain", ranks}});
  std::vector<Layout> list{{ddp, DeviceMesh(), {}}, {domain, domain, {2}}, {both, both["domain"], {2}}};
  if (ranks == 4) {
    const DeviceMesh two = mesh_of_world({{"ddp", 2}, {"domain", 2}});
    list.push_back({two, two["domain"], {2}});
    const DeviceMesh turned = mesh_of_world({{"domain", 2}, {"ddp", 2}});
    list.push_back({turned, turned["domain"], {3}});
  }
  return list;
}

inline int ddp_size(const DeviceMesh& mesh) { return mesh.has_axis("ddp") ? mesh.size(mesh.axis("ddp")) : 1; }

// Some samples of a batch, cut over the domain as the whole batch is by `cut`.
inline Tensor cut_like(const Tensor& samples, const DeviceMesh& domain, const SpecPtr& cut) {
  std::vector<std::optional<DimCut>> cuts;
  for (int d = 0; d < cut->dim(); ++d)
    cuts.push_back(cut->cut(d) ? std::optional<DimCut>(*cut->cut(d)) : std::nullopt);
  return redistribute(samples, ShardSpec::make(domain, cut->placements(), samples.sizes(), cuts));
}

}  // namespace tessera
