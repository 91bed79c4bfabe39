// What the tests of point clouds share: clouds of every kind, and the answer by comparing all with all.
#pragma once
#include <algorithm>
#include <cmath>

#include "ops/ops.h"
#include "tests/mesh_cases.h"

namespace tessera::points_cases {

using namespace mesh_cases;

struct Cloud {
  std::int64_t rows = 0;
  std::int64_t dims = 0;
  std::vector<double> values;  // row-major, as stored in the dtype
};

enum class Kind { Uniform, Grid, Clusters, Line, Equal };

// In [0, 1) as a rule; rounded to f32 (to bf16 if asked), so that every dtype holds the values exactly.
inline Cloud random_cloud(Random& random, std::int64_t rows, std::int64_t dims, Kind kind,
                          DType dtype = DType::F32) {
  Cloud cloud{rows, dims, {}};
  const auto unit = [&] { return static_cast<double>(random_int(random, 0, 1 << 24)) / (1 << 24); };
  for (std::int64_t r = 0; r < rows; ++r) {
    const double along = unit();
    const auto cluster = static_cast<double>(random_int(random, 0, 3));
    for (std::int64_t d = 0; d < dims; ++d) {
      double v = unit();
      if (kind == Kind::Grid) v = static_cast<double>(random_int(random, 0, 3));
      if (kind == Kind::Clusters) v = 100 * cluster + 1e-3 * v;
      if (kind == Kind::Line) v = along * static_cast<double>(d + 1);
      if (kind == Kind::Equal) v = 0.25;
      if (dtype == DType::BF16) v = static_cast<float>(bf16(static_cast<float>(v)));
      cloud.values.push_back(static_cast<double>(static_cast<float>(v)));
    }
  }
  return cloud;
}

struct Found {
  double distance = 0;
  std::int64_t index = 0;
  bool operator<(const Found& o) const {
    return distance < o.distance || (distance == o.distance && index < o.index);
  }
};

// Every point of one query, nearest first.
template <class T>
std::vector<Found> all_points(const Cloud& points, const Cloud& queries, std::int64_t q) {
  std::vector<Found> list;
  for (std::int64_t p = 0; p < points.rows; ++p) {
    T sum = 0;
    for (std::int64_t d = 0; d < points.dims; ++d) {
      const T apart = static_cast<T>(queries.values[static_cast<std::size_t>(q * points.dims + d)]) -
                      static_cast<T>(points.values[static_cast<std::size_t>(p * points.dims + d)]);
      const volatile T square = apart * apart;  // volatile: rounded before it is added
      sum = sum + square;
    }
    list.push_back({static_cast<double>(std::sqrt(sum)), p});
  }
  std::sort(list.begin(), list.end());
  return list;
}
inline std::vector<Found> all_points(const Cloud& points, const Cloud& queries, std::int64_t q, DType dtype) {
  return dtype == DType::F64 ? all_points<double>(points, queries, q) : all_points<float>(points, queries, q);
}
inline std::vector<Found> within(std::vector<Found> list, double radius, std::size_t most = SIZE_MAX) {
  std::erase_if(list, [&](const Found& f) { return !(f.distance <= radius); });
  if (list.size() > most) list.resize(most);
  return list;
}
inline double rounded(double v, DType dtype) {
  return dtype == DType::BF16 ? static_cast<float>(bf16(static_cast<float>(v))) : v;
}

inline Tensor placed(const Cloud& cloud, const SpecPtr& spec, DType dtype) {
  const Dims sizes{cloud.rows, cloud.dims};
  if (!spec) return Tensor(Array::from(cloud.values, sizes, dtype));
  const auto value = [&](std::int64_t i) { return cloud.values[static_cast<std::size_t>(i)]; };
  return {local_part(*spec, spec->mesh().rank(), value, dtype), spec};
}
// Under a random spec, or now and then plain. Sums that are owed are exact for clouds of integers only.
inline Tensor placed_anyhow(Random& random, const DeviceMesh& mesh, const Cloud& cloud, DType dtype,
                            bool partial = false) {
  const bool plain = chance(random, 15);
  const SpecPtr spec = random_spec(random, mesh, {cloud.rows, cloud.dims}, {.partial = partial});
  return placed(cloud, plain ? nullptr : spec, dtype);
}

}  // namespace tessera::points_cases
