// DeviceMesh: the ranks of a communicator arranged as a grid with named axes.
//
// A mesh is a value: copies are the same mesh, two meshes over two communicators live side by side, and a
// sub-mesh (`mesh["domain"]`) is the row of the grid that runs through this rank. Rank r of the communicator
// has the row-major coordinates of r. What was once worked out for a mesh (interned specs, plans) is kept
// beside it and goes with its last handle.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace tessera {

struct MeshAxis {
  std::string name;
  int size = 1;
};

class MeshCore;
class MeshCache;

class DeviceMesh {
 public:
  DeviceMesh() = default;  // undefined
  // Collective over `comm`. The sizes must multiply to the number of ranks; names are unique. Axes that
  // differ between ranks are refused in the mode that checks calls alone: without it nothing is said of them.
  DeviceMesh(const Communicator& comm, std::vector<MeshAxis> axes);

  bool defined() const { return core_ != nullptr; }
  bool operator==(const DeviceMesh& o) const { return core_ == o.core_; }

  int ndim() const;
  int size() const;  // number of ranks
  int size(int axis) const;
  const std::vector<MeshAxis>& axes() const;
  int axis(const std::string& name) const;  // refuses an unknown name, listing the known ones
  bool has_axis(const std::string& name) const;
  int rank() const;                // row-major position of this rank
  int coordinate(int axis) const;  // of this rank
  int coordinate(int axis, int rank) const;
  std::string str() const;  // "ddp=2,domain=4"

  // The sub-mesh of the named axes that holds this rank. Not a collective; asking twice gives the same mesh.
  DeviceMesh operator[](const std::string& name) const { return submesh({name}); }
  DeviceMesh submesh(const std::vector<std::string>& names) const;

  const Communicator& comm() const;  // all ranks, in mesh order
  // The ranks that differ from this one only on the axes in `mask` (bit a = axis a), in mesh order.
  const Communicator& group(unsigned mask) const;

  const std::shared_ptr<MeshCore>& core() const { return core_; }
  const std::shared_ptr<MeshCache>& cache() const { return cache_; }
  DeviceMesh(std::shared_ptr<MeshCore> core, std::shared_ptr<MeshCache> cache);

 private:
  std::shared_ptr<MeshCore> core_;
  std::shared_ptr<MeshCache> cache_;
};

}  // namespace tessera
