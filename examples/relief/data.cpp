#include "examples/relief/data.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <numeric>

#include "ops/ops.h"
#include "runtime/error.h"
#include "train/netcdf.h"

namespace tessera::relief {
namespace {

constexpr int kAround = 2;              // coarse cells on each side that the spread is taken of
constexpr double kLeastSpread = 20.0;   // m; a plain is never quite flat
constexpr double kHeight = 3000.0;      // m, the unit of heights for the model
constexpr double kUsualSpread = 200.0;  // m
constexpr double kMetresPerUnit = 1000.0;

Interval only(const std::vector<Interval>& intervals) {
  return intervals.empty() ? Interval{0, 0} : intervals.front();
}

// The rows that are used, and the columns: a map of the whole globe in equal steps, perhaps with both poles.
Dims used_sizes(const data::NetCdfFile& file, const ReliefSource& source) {
  const Dims sizes = file.variable(source.variable).sizes();
  const bool globe =
      sizes.size() == 2 && sizes[1] % 2 == 0 && (sizes[0] == sizes[1] / 2 || sizes[0] == sizes[1] / 2 + 1);
  TS_CHECK(
      globe, kProgram,
      "variable '{}' of '{}' has sizes {}; wanted is [latitude, longitude] of the whole globe, n or n + 1 "
      "by 2n",
      source.variable, file.path(), sizes.str());
  return {sizes[1] / 2, sizes[1]};
}

// Middles of blocks of n coordinates.
std::vector<double> middles(const std::vector<double>& all, int n, std::int64_t count) {
  std::vector<double> result;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto first = all.begin() + i * n;
    result.push_back(std::accumulate(first, first + n, 0.0) / n);
  }
  return result;
}

// Every block of n x n becomes its mean. [rows, cols] -> [rows / n, cols / n]
std::vector<double> block_means(const std::vector<double>& values, std::int64_t cols, int n) {
  const std::int64_t out_cols = cols / n;
  const std::int64_t out_rows = cols > 0 ? static_cast<std::int64_t>(values.size()) / cols / n : 0;
  std::vector<double> result(static_cast<std::size_t>(out_rows * out_cols));
  for (std::int64_t r = 0; r < out_rows * n; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      result[static_cast<std::size_t>(r / n * out_cols + c / n)] +=
          values[static_cast<std::size_t>(r * cols + c)];
  for (double& v : result) v /= n * n;
  return result;
}

// With `n` more columns at either side, from the other end of the map.
Tensor around_the_globe(const Tensor& x, int n) { return pad(x, {n, n, 0, 0}, PadMode::Circular); }

// Onto the cells of the map; the seam is like any other place.
Tensor enlarge(const Tensor& coarse, int factor, InterpolateMode mode, const SpecPtr& spec) {
  constexpr int kMargin = 2;
  InterpolateOptions o;
  o.scale_factor = {static_cast<double>(factor)};
  o.mode = mode;
  if (mode != InterpolateMode::Nearest) o.align_corners = false;
  const Tensor wide = interpolate(around_the_globe(coarse, kMargin), o);
  return redistribute(slice(wide, 3, kMargin * factor, (kMargin + coarse.size(3)) * factor), spec);
}

// The mean of the coarse values around each.
Tensor mean_around(const Tensor& coarse) {
  AvgPoolOptions o;
  o.stride = {1};
  o.padding = {kAround, 0};
  o.count_include_pad = false;
  return redistribute(avg_pool2d(around_the_globe(coarse, kAround), {2 * kAround + 1}, o), coarse.spec());
}

}  // namespace

bool LonLatBox::contains(double longitude, double latitude) const {
  double eastward = std::fmod(longitude - west, 360.0);
  if (eastward < 0) eastward += 360.0;
  return eastward < east - west && latitude >= south && latitude < north;
}

std::vector<LonLatBox> regions_of(const std::vector<int>& numbers) {
  TS_CHECK(!numbers.empty() && numbers.size() % 4 == 0, kProgram,
           "held_out needs four numbers a region (west, east, south, north), given {} numbers",
           numbers.size());
  std::vector<LonLatBox> boxes;
  for (std::size_t i = 0; i < numbers.size(); i += 4) {
    const LonLatBox b{numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3]};
    TS_CHECK(
        b.west < b.east && b.east - b.west <= 360 && -90 <= b.south && b.south < b.north && b.north <= 90,
        kProgram,
        "held-out region {},{},{},{} is no west, east, south, north in degrees (-90 to 90 for the last two)",
        b.west, b.east, b.south, b.north);
    boxes.push_back(b);
  }
  return boxes;
}

std::int64_t ReliefSource::unit() const {
  return std::lcm(std::int64_t{coarsen}, std::int64_t{1} << (levels - 1));
}

maps::MapShape read_map_shape(const ReliefSource& source, const Communicator& world) {
  const data::NetCdfFile file = data::NetCdfFile::open_on_all(world, source.path);
  const Dims used = used_sizes(file, source);
  TS_CHECK(used[0] % source.reduce == 0 && used[1] % source.reduce == 0, kProgram,
           "blocks of reduce {} do not divide the {} rows and {} columns of '{}'", source.reduce, used[0],
           used[1], source.path);
  const maps::MapShape shape{used[0] / source.reduce, used[1] / source.reduce, source.unit(), source.unit()};
  TS_CHECK(
      shape.rows % shape.row_unit == 0 && shape.cols % shape.col_unit == 0, kProgram,
      "coarsen {} and {} levels of the model need multiples of {} rows and columns; reduced {} times, the "
      "map has {} x {}",
      source.coarsen, source.levels, shape.row_unit, source.reduce, shape.rows, shape.cols);
  return shape;
}

ReliefData::ReliefData(const ReliefSource& source, const maps::MapCut& cut, const Communicator& world)
    : cut_(cut), rows_(only(cut.region.rows).length()), cols_(only(cut.region.cols).length()) {
  const NoGrad guard;
  read(source, world);
  place(source);
  interpolate_coarse(source.coarsen);
  weigh();
}

// Only what this rank's cells are made of, one row of cells after another.
void ReliefData::read(const ReliefSource& source, const Communicator& world) {
  const data::NetCdfFile file = data::NetCdfFile::open_on_all(world, source.path);
  const auto& dims = file.variable(source.variable).dims;
  const std::int64_t n = source.reduce;
  latitudes_ = middles(file.read_all(dims[0].name, DType::F64).to_vector(), source.reduce, cut_.shape.rows);
  longitudes_ = middles(file.read_all(dims[1].name, DType::F64).to_vector(), source.reduce, cut_.shape.cols);
  const std::int64_t before = file.bytes_read();
  const std::int64_t left = only(cut_.region.cols).lo * n;
  std::string failure;
  for (std::int64_t row = only(cut_.region.rows).lo; rows_ > 0 && row < only(cut_.region.rows).hi; ++row) {
    const Box box{{row * n, left}, {n, cols_ * n}};
    const std::vector<double> values = file.read(source.variable, box, DType::F64).to_vector();
    for (std::size_t i = 0; i < values.size() && failure.empty(); ++i)
      if (!std::isfinite(values[i]))
        failure = fmt::format("'{}' has no finite '{}' at row {}, column {}; all are needed", source.path,
                              source.variable, row * n + static_cast<std::int64_t>(i) / (cols_ * n),
                              left + static_cast<std::int64_t>(i) % (cols_ * n));
    const std::vector<double> means = block_means(values, cols_ * n, source.reduce);
    heights_.insert(heights_.end(), means.begin(), means.end());
  }
  agree(world, kProgram, failure);
  bytes_read_ = file.bytes_read() - before;
  truth_ = as_tensor(heights_, 1, DType::F64);
}

// Area and membership of this rank's cells. A block is held out as a whole, with its middle.
void ReliefData::place(const ReliefSource& source) {
  const auto n = static_cast<std::size_t>(source.coarsen);
  const auto of_blocks = [&](const std::vector<double>& cells) {
    const std::vector<double> blocks =
        middles(cells, source.coarsen, static_cast<std::int64_t>(cells.size() / n));
    std::vector<double> each;
    for (std::size_t i = 0; i < cells.size(); ++i) each.push_back(blocks[i / n]);
    return each;
  };
  block_latitudes_ = of_blocks(latitudes_);
  block_longitudes_ = of_blocks(longitudes_);
  const std::int64_t top = only(cut_.region.rows).lo;
  const std::int64_t left = only(cut_.region.cols).lo;
  for (std::int64_t r = top; r < top + rows_; ++r)
    for (std::int64_t c = left; c < left + cols_; ++c) {
      weights_.push_back(std::cos(latitudes_[static_cast<std::size_t>(r)] * std::numbers::pi / 180.0));
      bool held = false;
      for (const LonLatBox& box : source.held_out)
        held = held || box.contains(block_longitudes_[static_cast<std::size_t>(c)],
                                    block_latitudes_[static_cast<std::size_t>(r)]);
      held_.push_back(held ? 1 : 0);
    }
}

void ReliefData::interpolate_coarse(int coarsen) {
  const std::vector<double> means = block_means(heights_, cols_, coarsen);
  const Dims sizes{1, 1, rows_ / coarsen, cols_ / coarsen};
  const Tensor coarse(Array::from(means, sizes, DType::F64), cut_.spec(1, 1, coarsen));
  const SpecPtr fine = cut_.spec(1, 1);
  blocks_ = enlarge(coarse, coarsen, InterpolateMode::Nearest, fine);
  base_ = enlarge(coarse, coarsen, InterpolateMode::Bicubic, fine);
  const Tensor mean = mean_around(coarse);
  const Tensor variance = mean_around(square(coarse - mean));
  around_ = enlarge(mean, coarsen, InterpolateMode::Bilinear, fine);
  spread_ = enlarge(sqrt(variance + kLeastSpread * kLeastSpread), coarsen, InterpolateMode::Bilinear, fine);
}

void ReliefData::weigh() {
  const std::vector<double> base = base_.local().to_vector();
  maps::ExactSums sums(2);  // squared error of the base over the cells of training; cells that are held out
  for (std::size_t i = 0; i < held_.size(); ++i) {
    const double error = (heights_[i] - base[i]) / kMetresPerUnit;
    if (held_[i] == 0) sums.add(0, weights_[i] * error * error);
    sums.add(1, held_[i]);
  }
  const std::vector<double> total = sums.reduce(cut_.domain.comm(), "the file's values");
  const auto cells = static_cast<double>(cut_.shape.rows * cut_.shape.cols);
  TS_CHECK(total[0] > 0 && total[1] > 0 && total[1] < cells, kProgram,
           "{} of {} cells are held out; some must be, and some of those left must be uneven", total[1],
           cells);
  for (std::size_t i = 0; i < held_.size(); ++i)
    loss_weights_.push_back(held_[i] != 0 ? 0.0 : std::sqrt(weights_[i] / total[0]) / kMetresPerUnit);
}

Tensor ReliefData::as_tensor(const std::vector<double>& values, std::int64_t channels, DType dtype) const {
  return Tensor(Array::from(values, {1, channels, rows_, cols_}, dtype), cut_.spec(1, channels));
}

Tensor ReliefData::inputs(DType dtype) const {
  const NoGrad guard;
  std::vector<double> angles[2];
  const std::int64_t top = only(cut_.region.rows).lo;
  for (std::int64_t r = top; r < top + rows_; ++r) {
    const double phi = latitudes_[static_cast<std::size_t>(r)] * std::numbers::pi / 180.0;
    angles[0].insert(angles[0].end(), static_cast<std::size_t>(cols_), std::sin(phi));
    angles[1].insert(angles[1].end(), static_cast<std::size_t>(cols_), std::cos(phi));
  }
  const Tensor all = cat(
      {(base_ - around_) / spread_, (blocks_ - base_) / spread_, base_ / kHeight, log(spread_ / kUsualSpread),
       as_tensor(angles[0], 1, DType::F64), as_tensor(angles[1], 1, DType::F64)},
      1);
  return to(all, dtype);
}

Tensor ReliefData::factor(DType dtype) const {
  const NoGrad guard;
  return to(spread_ * as_tensor(loss_weights_, 1, DType::F64), dtype);
}

Tensor ReliefData::goal(DType dtype) const {
  const NoGrad guard;
  return to((truth_ - base_) * as_tensor(loss_weights_, 1, DType::F64), dtype);
}

Tensor ReliefData::to_heights(const Tensor& output) const {
  return base_ + spread_ * redistribute(to(output, DType::F64), base_.spec());
}

}  // namespace tessera::relief
