// What a DeviceMesh handle points to. Internal to mesh/ and ops/.
#pragma once
#include <any>
#include <unordered_map>

#include "mesh/spec.h"

namespace tessera {

class MeshCore {
 public:
  std::vector<MeshAxis> axes;
  Communicator comm;
  std::vector<Communicator> groups;  // by axis mask; [0] undefined
  int rank = 0;
  int size = 1;
  std::vector<int> strides;  // of the row-major coordinates
  int coordinate(int axis, int r) const {
    const auto a = static_cast<std::size_t>(axis);
    return r / strides[a] % axes[a].size;
  }
  // Whether two ranks differ on no axis of the mask.
  bool same_coordinates(unsigned mask, int a, int b) const {
    for (int i = 0; i < static_cast<int>(axes.size()); ++i)
      if ((mask >> static_cast<unsigned>(i) & 1U) != 0 && coordinate(i, a) != coordinate(i, b)) return false;
    return true;
  }
};

// Interned specs (weak) and whatever upper layers keep per mesh. Specs point to it weakly, so there is no
// cycle.
class MeshCache {
 public:
  static constexpr std::size_t kMaxEntries = 4096;
  std::unordered_multimap<std::size_t, std::weak_ptr<const ShardSpec>> specs;
  std::size_t sweep_at = 1024;
  std::int64_t planned = 0;  // strategies and exchange plans worked out so far: still once all are cached
  std::unordered_map<std::string, DeviceMesh> submeshes;
  // Slots for upper layers, keyed by their own tag object's address (call plans, exchange plans).
  std::unordered_map<const void*, std::shared_ptr<void>> slots;
  template <class T>
  T& slot(const void* tag) {
    std::shared_ptr<void>& s = slots[tag];
    if (!s) s = std::make_shared<T>();
    return *static_cast<T*>(s.get());
  }
};

}  // namespace tessera
