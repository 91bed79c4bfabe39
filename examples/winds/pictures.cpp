#include "examples/winds/pictures.h"

#include <fmt/format.h>

#include <filesystem>

#include "examples/maps/files.h"
#include "runtime/error.h"
#include "train/netcdf.h"

namespace tessera::winds {

std::string month_name(int month) {
  static constexpr const char* kNames[] = {"January",   "February", "March",    "April",
                                           "May",       "June",     "July",     "August",
                                           "September", "October",  "November", "December"};
  return fmt::format("{} {}", kNames[month % 12], 1980 + month / 12);
}

void write_map(const std::string& path, const WindData& data, const Array& truth, const Array& forecast) {
  const GridShape& grid = data.grid();
  const Dims sizes{2, grid.rows, grid.cols};
  TS_CHECK(truth.sizes() == sizes && forecast.sizes() == sizes, "winds",
           "maps of sizes {} and {}, wanted are {}", truth.sizes().str(), forecast.sizes().str(),
           sizes.str());
  const std::vector<double> t = truth.to_vector();
  const std::vector<double> f = forecast.to_vector();
  const auto n = static_cast<std::size_t>(grid.rows * grid.cols);
  std::string text = "# longitude latitude u_true v_true u_forecast v_forecast\n";
  for (std::size_t i = 0; i < n; ++i) {
    const std::size_t col = i % static_cast<std::size_t>(grid.cols);
    const std::size_t row = i / static_cast<std::size_t>(grid.cols);
    if (col == 0 && row > 0) text += "\n";
    text += fmt::format("{} {} {:.5f} {:.5f} {:.5f} {:.5f}\n", data.longitudes()[col], data.latitudes()[row],
                        t[i], t[n + i], f[i], f[n + i]);
  }
  maps::write_text("winds", path, text);
}

bool write_relief(const std::string& path, const std::string& wind_file) {
  const std::string relief = (std::filesystem::path(wind_file).parent_path() / "etopo60.cdf").string();
  if (std::error_code ignored; !std::filesystem::exists(relief, ignored)) return false;
  const data::NetCdfFile file(relief);
  const auto& dims = file.variable("ROSE").dims;
  const std::vector<double> height = file.read_all("ROSE", DType::F64).to_vector();
  const std::vector<double> lat = file.read_all(dims[0].name, DType::F64).to_vector();
  const std::vector<double> lon = file.read_all(dims[1].name, DType::F64).to_vector();
  std::string text = "# longitude latitude height\n";
  for (std::size_t row = 0; row < lat.size(); ++row) {
    for (std::size_t col = 0; col < lon.size(); ++col)
      text += fmt::format("{} {} {:.1f}\n", lon[col], lat[row], height[row * lon.size() + col]);
    text += "\n";
  }
  maps::write_text("winds", path, text);
  return true;
}

}  // namespace tessera::winds
