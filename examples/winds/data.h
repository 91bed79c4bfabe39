// Monthly surface winds (FNOC, 1980 to 1990) as a learning problem, read rank by rank.
//
// The file holds two components in m/s on a map of 73 latitudes (-90 to 90) by 144 longitudes, 132 months.
// Every rank reads all months of its own cells and nothing else. With x the wind, per cell and component:
//   climatology  c[m]  mean of the training months of calendar month m (0..11)
//   anomaly      a[t] = x[t] - c[t mod 12]
//   damping      k    = sum a[t] a[t+1] / sum a[t]^2 over the training months (the lag-one autocorrelation):
//   how
//                       much of an anomaly is left after a month
//   base         b[t] = c[t mod 12] + k a[t-1]: the forecast that a model must improve on
//   deviation    s    = root mean square of a over the training months and all cells, one per component
// The model sees 10 channels and gives the correction (x[t] - b[t]) / s in 2.
//
// All of that is local to a cell except s and the sums of the scores, which are summed over ranks in fixed
// point (see ExactSums), so every mesh gets the same bits. 73 rows are no multiple of a patch: the *model*
// pads with zeros to 76 rows at the far edge, and cuts its output back; data here are never padded.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "examples/maps/exact_sums.h"
#include "examples/maps/map_cut.h"
#include "runtime/array.h"

namespace tessera::winds {

constexpr const char* kWindFile = "monthly_navy_winds.cdf";
constexpr int kHistory = 3;  // months of anomalies that the model sees
// u, v of months t-1, t-2, t-3 (anomaly / s), u, v of c[t mod 12] / its deviation, sine and cosine of the
// month
constexpr int kInputs = 2 * kHistory + 4;
constexpr int kOutputs = 2;  // u, v

using maps::ExactSums;
using maps::Region;

struct WindSource {
  std::string path;
  std::string u = "UWND";  // [time, latitude, longitude], first month a January
  std::string v = "VWND";
  int held_out = 24;  // months at the end that are for scores only
};

struct GridShape {
  std::int64_t months = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

// monthly_navy_winds.cdf, see maps::find_ferret_file.
std::string find_wind_file(const std::string& given);

// Collective over `world`. What a mesh needs to know before a region can be chosen.
GridShape read_grid_shape(const WindSource& source, const Communicator& world);

struct WindBatch {
  Array input;   // [n, kInputs, rows, cols]
  Array target;  // [n, kOutputs, rows, cols], (x - base) / s
  Array base;    // [n, kOutputs, rows, cols], m/s
};

class WindData {
 public:
  // Collective over `world` (all ranks agree on the file) and `domain` (sums). The regions of the ranks of
  // `domain` must hold every cell once.
  WindData(const WindSource& source, const Region& region, const Communicator& world,
           const Communicator& domain);

  // All months below are indices into the file. Local: no communication. Any month from kHistory on.
  WindBatch make_batch(std::span<const int> months, DType dtype = DType::F32) const;
  // The model's output [n, kOutputs, rows, cols] as winds in m/s, f64: base + output * s.
  Array to_wind(const Array& output, std::span<const int> months) const;

  const std::vector<int>& train_months() const { return train_months_; }
  const std::vector<int>& test_months() const { return test_months_; }

  const GridShape& grid() const { return grid_; }
  std::int64_t rows() const { return rows_; }  // of this rank
  std::int64_t cols() const { return cols_; }
  std::int64_t cells() const { return rows_ * cols_; }
  const Communicator& domain() const { return domain_; }

  // One value per cell of this rank, row by row; `component` 0 is u, 1 is v.
  std::span<const double> wind(int month, int component) const { return plane(wind_, month, component); }
  std::span<const double> climatology(int month, int component) const {
    return plane(climatology_, month % 12, component);
  }
  std::vector<double> anomaly(int month, int component) const;
  std::span<const double> damping(int component) const { return plane(damping_, 0, component); }
  double deviation(int component) const { return deviation_[static_cast<std::size_t>(component)]; }
  // One coefficient for all cells: the least-squares fit of a[t+1] to a[t] over the training months, both
  // components and all cells, weighted by cos(latitude).
  double overall_damping() const { return overall_damping_; }
  // cos(latitude) of every cell of this rank, the weight of its area.
  const std::vector<double>& weights() const { return weights_; }

  // Coordinates of the whole map in degrees, on every rank.
  const std::vector<double>& latitudes() const { return latitudes_; }
  const std::vector<double>& longitudes() const { return longitudes_; }
  // Bytes of the two wind variables that this rank has read.
  std::int64_t bytes_read() const { return bytes_read_; }

 private:
  void read_winds(const WindSource& source, const Region& region, const Communicator& world);
  void fit(int train);
  void fill_inputs(int month, double* out) const;
  std::span<const double> plane(const std::vector<double>& all, int first, int component) const {
    const auto n = static_cast<std::size_t>(cells());
    return {all.data() + (static_cast<std::size_t>(first) * 2 + static_cast<std::size_t>(component)) * n, n};
  }

  GridShape grid_;
  Communicator domain_;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  std::vector<double> wind_;         // [month, component, cell]
  std::vector<double> climatology_;  // [12, component, cell]
  std::vector<double> damping_;      // [component, cell]
  double deviation_[2] = {0, 0};
  double climatology_deviation_[2] = {0, 0};
  double overall_damping_ = 0;
  std::vector<double> weights_;
  std::vector<double> latitudes_;
  std::vector<double> longitudes_;
  std::vector<int> train_months_;
  std::vector<int> test_months_;
  std::int64_t bytes_read_ = 0;
};

// The order in which training months are seen: every pass in a new order, the same on every mesh.
class SampleOrder {
 public:
  SampleOrder(std::vector<int> months, std::uint64_t seed) : months_(std::move(months)), seed_(seed) {}
  // Samples step * size, ... of the endless row of shuffled passes.
  std::vector<int> batch(std::int64_t step, int size) const;

 private:
  std::vector<int> months_;
  std::uint64_t seed_;
};

}  // namespace tessera::winds
