// The Earth's relief (ETOPO5) as a learning problem, read rank by rank.
//
// The file holds heights in m at 2161 latitudes, both poles among them, by 4320 longitudes, 5' apart. The
// last row is left out: it is the north pole, one point of the Earth 4320 times over. Blocks of reduce x
// reduce of what is left are averaged; this map is the truth. Its blocks of coarsen x coarsen cells are
// averaged again; this coarse map is all that bicubic interpolation and the model see. Interpolation with
// align_corners = false takes a coarse value for that of the middle of its block, which is what a mean stands
// for.
//
//   base      coarse map, bicubic: the forecast that the model must improve on
//   spread    standard deviation of the 5 x 5 coarse values around, bilinear, and no less than 20 m
//   model     (truth - base) / spread: how far off a guess is goes with how rough the Earth is
//
// Whole blocks are held out. Training minimizes the squared error of the cells outside of them, so no height
// inside has any part in it, however far a window of the model reaches: what a window reads are values of the
// coarse map, which are given everywhere, and never a truth.
//
// Cuts are at whole blocks, so means are local to a rank. Sums over ranks are made in fixed point (ExactSums,
// in km and km²): every mesh gets the same bits.
#pragma once
#include <string>
#include <vector>

#include "autograd/tensor.h"
#include "examples/maps/exact_sums.h"
#include "examples/maps/map_cut.h"

namespace tessera::relief {

constexpr const char* kProgram = "tessera-relief";
constexpr const char* kReliefFile = "etopo5.cdf";
// (base - mean around) / spread, (own block - base) / spread, base / 3000 m, log(spread / 200 m), sine and
// cosine of the latitude
constexpr int kInputs = 6;

// In degrees; it may cross the map's seam.
struct LonLatBox {
  int west = 0, east = 0, south = 0, north = 0;
  bool contains(double longitude, double latitude) const;
};
// Four numbers each; refuses what is no box.
std::vector<LonLatBox> regions_of(const std::vector<int>& numbers);

struct ReliefSource {
  std::string path;
  std::string variable = "ROSE";  // [latitude, longitude]
  int reduce = 5;
  int coarsen = 8;
  int levels = 4;  // of the model, whose coarsest cells must divide the map too
  std::vector<LonLatBox> held_out;

  std::int64_t unit() const;  // the map is cut at its multiples
};

// Collective over `world`. The map that the source asks for; refuses sizes that do not divide.
maps::MapShape read_map_shape(const ReliefSource& source, const Communicator& world);

class ReliefData {
 public:
  // Collective over `world` (all ranks agree on the file) and the cut's mesh.
  ReliefData(const ReliefSource& source, const maps::MapCut& cut, const Communicator& world);

  // [1, C, rows, cols] of the whole map, cut as told; the first three are f64 and in m.
  const Tensor& truth() const { return truth_; }
  const Tensor& blocks() const { return blocks_; }  // every cell its block's mean
  const Tensor& base() const { return base_; }
  Tensor inputs(DType dtype) const;
  // The loss is the sum of (factor · output - goal)²: the squared error over the cells of training, weighted
  // by their area and divided by that of `base`. 1 is as good as bicubic interpolation.
  Tensor factor(DType dtype) const;
  Tensor goal(DType dtype) const;
  // base + spread · output, f64.
  Tensor to_heights(const Tensor& output) const;

  // One value per cell of this rank, row by row.
  const std::vector<double>& weights() const { return weights_; }  // cos(latitude)
  const std::vector<char>& held_out() const { return held_; }
  std::int64_t rows() const { return rows_; }  // of this rank
  std::int64_t cols() const { return cols_; }

  // Of the middles of the whole map's cells, in degrees.
  const std::vector<double>& latitudes() const { return latitudes_; }
  const std::vector<double>& longitudes() const { return longitudes_; }
  // Of the middle of each cell's block, by which it is held out.
  const std::vector<double>& block_latitudes() const { return block_latitudes_; }
  const std::vector<double>& block_longitudes() const { return block_longitudes_; }
  const maps::MapCut& cut() const { return cut_; }
  // Bytes of the relief that this rank has read.
  std::int64_t bytes_read() const { return bytes_read_; }

 private:
  void read(const ReliefSource& source, const Communicator& world);
  void place(const ReliefSource& source);
  void interpolate_coarse(int coarsen);
  void weigh();
  Tensor as_tensor(const std::vector<double>& values, std::int64_t channels, DType dtype) const;

  const maps::MapCut& cut_;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  std::vector<double> heights_;  // of this rank's cells
  Tensor truth_, blocks_, base_, around_, spread_;
  std::vector<double> latitudes_;
  std::vector<double> longitudes_;
  std::vector<double> block_latitudes_;
  std::vector<double> block_longitudes_;
  std::vector<double> weights_;
  std::vector<char> held_;
  std::vector<double> loss_weights_;  // their squares weigh squared errors
  std::int64_t bytes_read_ = 0;
};

}  // namespace tessera::relief
