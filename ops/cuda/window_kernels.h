// Pooling and maps along dims on the device (ops/window/max_pool_kernels.h, sparse_rows.h).
#pragma once
#include <cstdint>

#include "runtime/cuda/copy_kernels.h"

namespace tessera::cuda {

// A sparse matrix in the device's memory: row o reads positions index[first[o]] … with these weights.
struct DeviceRows {
  const std::int64_t* first = nullptr;
  const std::int64_t* index = nullptr;
  const double* weight = nullptr;
};

// y[i, o, j] = Σ weight x[i, index, j], contiguous.
struct ApplyRows {
  Elements y;
  Elements x;
  std::int64_t outer = 0, outputs = 0, inputs = 0, inner = 0;
  DeviceRows rows;
};
void apply_rows(const ApplyRows& args, StreamHandle stream);

// [N, C, D, H, W] with any strides.
struct Map5 {
  Elements elements;
  std::int64_t size[5] = {};
  std::int64_t stride[5] = {};
};
// No more elements than this in one map.
constexpr std::int64_t kElementsOfMap = 0xFFFFFFFF;

struct PoolGeometry {
  DeviceRows rows[3];         // by spatial dim; for scatter_max transposed: the outputs that read a position
  std::int64_t base[3] = {};  // of the buffer in the map
  std::int64_t map[3] = {};
};
void max_pool(const Map5& y, const Map5& indices, const Map5& x, const PoolGeometry& geometry,
              StreamHandle stream);
// Every element of the buffer is one thread's, which looks through the outputs that read it, in their order.
void scatter_max(const Map5& buffer, const Map5& y, const Map5& indices, const PoolGeometry& geometry,
                 StreamHandle stream);
void gather_max(const Map5& buffer, const Map5& y, const Map5& indices, const PoolGeometry& geometry,
                StreamHandle stream);

}  // namespace tessera::cuda
