#include "examples/winds/data.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>
#include <numeric>

#include "examples/maps/files.h"
#include "runtime/error.h"
#include "train/netcdf.h"

namespace tessera::winds {
namespace {

constexpr const char* kOp = "winds";

std::int64_t length(const std::vector<Interval>& intervals) {
  return std::accumulate(intervals.begin(), intervals.end(), std::int64_t{0},
                         [](std::int64_t sum, Interval i) { return sum + i.length(); });
}

void check_source(const data::NetCdfFile& file, const WindSource& source) {
  const data::NetCdfVariable& u = file.variable(source.u);
  const data::NetCdfVariable& v = file.variable(source.v);
  TS_CHECK(u.dims.size() == 3 && u.sizes() == v.sizes(), kOp,
           "variables '{}' and '{}' of '{}' have sizes {} and {}; wanted are two of the same sizes "
           "[time, latitude, longitude]",
           source.u, source.v, file.path(), u.sizes().str(), v.sizes().str());
  const std::int64_t least = std::int64_t{source.held_out} + 12 + kHistory;
  TS_CHECK(source.held_out >= 1 && u.dims[0].size >= least, kOp,
           "'{}' has {} months; {} held out need at least {} (at least 1 held out)", file.path(),
           u.dims[0].size, source.held_out, least);
}

GridShape shape_of(const data::NetCdfFile& file, const WindSource& source) {
  const Dims sizes = file.variable(source.u).sizes();
  return {sizes[0], sizes[1], sizes[2]};
}

// splitmix64 (Steele, Lea, Flood 2014): the same numbers with every compiler, unlike <random>'s
// distributions.
std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31U);
}

template <class Get>
Array to_array(const Dims& sizes, DType dtype, Get get) {
  std::vector<double> values(static_cast<std::size_t>(numel_of(sizes)));
  get(values.data());
  return Array::from(values, sizes, dtype);
}

}  // namespace

std::string find_wind_file(const std::string& given) { return maps::find_ferret_file(kOp, given, kWindFile); }

GridShape read_grid_shape(const WindSource& source, const Communicator& world) {
  const data::NetCdfFile file = data::NetCdfFile::open_on_all(world, source.path);
  check_source(file, source);
  return shape_of(file, source);
}

WindData::WindData(const WindSource& source, const Region& region, const Communicator& world,
                   const Communicator& domain)
    : domain_(domain), rows_(length(region.rows)), cols_(length(region.cols)) {
  read_winds(source, region, world);
  ExactSums held(1);
  held.add(0, static_cast<double>(cells()));
  const double total = held.reduce(domain_, "the file's values")[0];
  TS_CHECK(total == static_cast<double>(grid_.rows * grid_.cols), kOp,
           "the ranks' regions hold {} cells, the map has {} x {} = {}", total, grid_.rows, grid_.cols,
           grid_.rows * grid_.cols);
  const int months = static_cast<int>(grid_.months);
  const int train = months - source.held_out;
  for (int m = kHistory; m < months; ++m) (m < train ? train_months_ : test_months_).push_back(m);
  fit(train);
}

void WindData::read_winds(const WindSource& source, const Region& region, const Communicator& world) {
  const data::NetCdfFile file = data::NetCdfFile::open_on_all(world, source.path);
  check_source(file, source);
  grid_ = shape_of(file, source);
  const auto& dims = file.variable(source.u).dims;
  latitudes_ = file.read_all(dims[1].name, DType::F64).to_vector();
  longitudes_ = file.read_all(dims[2].name, DType::F64).to_vector();
  wind_.resize(static_cast<std::size_t>(grid_.months * 2 * cells()));
  const std::int64_t before = file.bytes_read();
  std::string failure;
  for (int component = 0; component < 2; ++component) {
    const std::string& name = component == 0 ? source.u : source.v;
    std::int64_t to_row = 0;
    for (const Interval& rows : region.rows) {
      std::int64_t to_col = 0;
      for (const Interval& cols : region.cols) {
        const Box box{{0, rows.lo, cols.lo}, {grid_.months, rows.length(), cols.length()}};
        const Array values = file.read(name, box, DType::F64);
        const double* from = values.numel() > 0 ? values.data<double>() : nullptr;
        for (std::int64_t i = 0; i < values.numel(); ++i) {
          const std::int64_t c = i % cols.length();
          const std::int64_t r = i / cols.length() % rows.length();
          const std::int64_t t = i / cols.length() / rows.length();
          if (!std::isfinite(from[i]))
            failure = fmt::format("'{}' has no finite '{}' in month {} at row {}, column {}; all are needed",
                                  source.path, name, t, rows.lo + r, cols.lo + c);
          wind_[static_cast<std::size_t>(((t * 2 + component) * rows_ + to_row + r) * cols_ + to_col + c)] =
              from[i];
        }
        to_col += cols.length();
      }
      to_row += rows.length();
    }
  }
  agree(world, kOp, failure);
  bytes_read_ = file.bytes_read() - before;
  for (const Interval& rows : region.rows)
    for (std::int64_t r = rows.lo; r < rows.hi; ++r)
      weights_.insert(weights_.end(), static_cast<std::size_t>(cols_),
                      std::cos(latitudes_[static_cast<std::size_t>(r)] * std::numbers::pi / 180.0));
}

void WindData::fit(int train) {
  const auto n = static_cast<std::size_t>(cells());
  climatology_.assign(24 * n, 0.0);
  damping_.assign(2 * n, 0.0);
  std::vector<int> count(12);
  for (int t = 0; t < train; ++t) ++count[static_cast<std::size_t>(t % 12)];
  for (int t = 0; t < train; ++t)
    for (std::size_t i = 0; i < 2 * n; ++i)
      climatology_[static_cast<std::size_t>(t % 12) * 2 * n + i] +=
          wind_[static_cast<std::size_t>(t) * 2 * n + i];
  for (std::size_t i = 0; i < climatology_.size(); ++i)
    climatology_[i] /= static_cast<double>(count[n > 0 ? i / (2 * n) : 0]);

  // squares of u, v; weighted products, weighted squares; climatology u, v: sums and squares
  ExactSums sums(8);
  for (int component = 0; component < 2; ++component) {
    std::vector<double> squares(n);
    std::vector<double> products(n);
    std::vector<double> last(n);
    std::vector<double> before;
    for (int t = 0; t < train; ++t) {
      std::vector<double> a = anomaly(t, component);
      for (std::size_t i = 0; i < n; ++i) {
        squares[i] += a[i] * a[i];
        if (t > 0) products[i] += before[i] * a[i];
        last[i] = a[i] * a[i];
      }
      before = std::move(a);
    }
    for (std::size_t i = 0; i < n; ++i) {
      damping_[static_cast<std::size_t>(component) * n + i] = squares[i] > 0 ? products[i] / squares[i] : 0.0;
      sums.add(static_cast<std::size_t>(component), squares[i]);
      sums.add(2, weights_[i] * products[i]);
      sums.add(3, weights_[i] * (squares[i] - last[i]));
    }
    for (int m = 0; m < 12; ++m)
      for (const double c : climatology(m, component)) {
        sums.add(4 + static_cast<std::size_t>(component), c);
        sums.add(6 + static_cast<std::size_t>(component), c * c);
      }
  }
  const std::vector<double> total = sums.reduce(domain_, "the file's values");
  const auto map = static_cast<double>(grid_.rows * grid_.cols);
  for (std::size_t c = 0; c < 2; ++c) {
    deviation_[c] = std::sqrt(total[c] / (map * train));
    const double mean = total[4 + c] / (map * 12);
    climatology_deviation_[c] = std::sqrt(std::max(total[6 + c] / (map * 12) - mean * mean, 0.0));
    TS_CHECK(deviation_[c] > 0 && climatology_deviation_[c] > 0, kOp,
             "component {} of the wind does not vary", c);
  }
  overall_damping_ = total[2] / total[3];
}

std::vector<double> WindData::anomaly(int month, int component) const {
  const auto x = wind(month, component);
  const auto c = climatology(month, component);
  std::vector<double> a(x.size());
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = x[i] - c[i];
  return a;
}

void WindData::fill_inputs(int month, double* out) const {
  for (int back = 1; back <= kHistory; ++back)
    for (int component = 0; component < 2; ++component)
      for (const double a : anomaly(month - back, component)) *out++ = a / deviation(component);
  for (int component = 0; component < 2; ++component)
    for (const double c : climatology(month, component))
      *out++ = c / climatology_deviation_[static_cast<std::size_t>(component)];
  const double phase = 2.0 * std::numbers::pi * (month % 12) / 12.0;
  for (const double value : {std::sin(phase), std::cos(phase)}) out = std::fill_n(out, cells(), value);
}

WindBatch WindData::make_batch(std::span<const int> months, DType dtype) const {
  for (const int month : months)
    TS_CHECK(month >= kHistory && month < grid_.months, kOp,
             "month {} is no sample; samples are months {} to {}", month, kHistory, grid_.months - 1);
  const auto n = static_cast<std::int64_t>(months.size());
  WindBatch batch;
  batch.input = to_array({n, kInputs, rows_, cols_}, dtype, [&](double* out) {
    for (const int month : months) {
      fill_inputs(month, out);
      out += kInputs * cells();
    }
  });
  std::vector<double> base;
  for (const int month : months)
    for (int component = 0; component < kOutputs; ++component) {
      const std::vector<double> a = anomaly(month - 1, component);
      for (std::size_t i = 0; i < a.size(); ++i)
        base.push_back(climatology(month, component)[i] + damping(component)[i] * a[i]);
    }
  const Dims out_sizes{n, kOutputs, rows_, cols_};
  batch.base = Array::from(base, out_sizes, dtype);
  batch.target = to_array(out_sizes, dtype, [&](double* out) {
    const double* b = base.data();
    for (const int month : months)
      for (int component = 0; component < kOutputs; ++component)
        for (const double x : wind(month, component)) *out++ = (x - *b++) / deviation(component);
  });
  return batch;
}

Array WindData::to_wind(const Array& output, std::span<const int> months) const {
  const Dims sizes{static_cast<std::int64_t>(months.size()), kOutputs, rows_, cols_};
  TS_CHECK(output.sizes() == sizes, kOp, "the output has sizes {}, wanted are {}", output.sizes().str(),
           sizes.str());
  const std::vector<double> correction = output.to_vector();
  std::vector<double> result = make_batch(months, DType::F64).base.to_vector();
  for (std::size_t i = 0; i < result.size(); ++i) {
    const int component = static_cast<int>(static_cast<std::int64_t>(i) / cells() % kOutputs);
    result[i] += correction[i] * deviation(component);
  }
  return Array::from(result, sizes, DType::F64);
}

std::vector<int> SampleOrder::batch(std::int64_t step, int size) const {
  const auto n = static_cast<std::int64_t>(months_.size());
  std::vector<int> result;
  std::vector<int> shuffled;
  std::int64_t of_pass = -1;
  for (std::int64_t i = step * size; i < (step + 1) * size; ++i) {
    if (i / n != of_pass) {
      of_pass = i / n;
      shuffled = months_;
      std::uint64_t state = seed_ ^ (static_cast<std::uint64_t>(of_pass) * 0xd1342543de82ef95ULL);
      for (std::size_t left = shuffled.size(); left > 1; --left)
        std::swap(shuffled[left - 1], shuffled[next_random(state) % left]);
    }
    result.push_back(shuffled[static_cast<std::size_t>(i % n)]);
  }
  return result;
}

}  // namespace tessera::winds
