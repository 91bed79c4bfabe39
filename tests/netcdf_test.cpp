#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>

#include "runtime/error.h"
#include "tests/netcdf_files.h"
#include "tests/support/world.h"
#include "train/netcdf.h"

using namespace tessera;
using namespace tessera::netcdf_files;
using data::NetCdfFile;

namespace {
const char* kRelief = "/usr/share/ferret-vis/data/etopo60.cdf";
}  // namespace

TEST_CASE("packed integers: masked as stored, then scaled") {
  // A float factor, an integer offset, fill value and missing value alike.
  std::vector<int> stored(15);
  for (int i = 0; i < 15; ++i)
    stored[static_cast<std::size_t>(i)] = static_cast<int>(std::lround(i * 1000.0 / 14));
  stored[3] = 9999;
  const auto got = read_vector(stored, {{"scale_factor", NC_FLOAT, {0.01}},
                                        {"add_offset", NC_INT, {20}},
                                        {"_FillValue", NC_INT, {9999}},
                                        {"missing_value", NC_INT, {9999}}});
  check_values(
      got,
      {20, 20.71, 21.43, kMissing, 22.86, 23.57, 24.29, 25, 25.71, 26.43, 27.14, 27.86, 28.57, 29.29, 30},
      1e-6);
  // Ranges are ranges of stored values, also when the factor is negative.
  check_values(read_vector<short>({0, 1, 2, 3, 4},
                                  {{"valid_range", NC_SHORT, {0, 4}}, {"scale_factor", NC_DOUBLE, {-1}}}),
               {0, -1, -2, -3, -4});
  check_values(read_vector<short>({-1, 0, 3, 4, 5}, {{"valid_min", NC_SHORT, {0}},
                                                     {"valid_max", NC_SHORT, {4}},
                                                     {"scale_factor", NC_DOUBLE, {-2}},
                                                     {"add_offset", NC_DOUBLE, {1}}}),
               {kMissing, 1, -5, -7, kMissing});
}

TEST_CASE("a missing value that the type cannot hold hits nothing, and is told") {
  const TemporaryFile file("wrong_missing.nc");
  write_vector<short>(file.path(), {0, 5, 10}, {{"missing_value", NC_DOUBLE, {1e20}}});
  const NetCdfFile in(file.path());
  check_values(in.read_all("x").to_vector(), {0, 5, 10});
  REQUIRE(in.variable("x").warnings.size() == 1);
  CHECK(in.variable("x").warnings[0] ==
        "'missing_value' of variable 'x' is left aside: its double value does not fit the variable's type "
        "short");
}

TEST_CASE("missing values of all kinds") {
  using A = std::vector<Attribute>;
  // Several values, of another type than the variable.
  check_values(read_vector<short>({1, 2, 3, -9, -99}, A{{"missing_value", NC_DOUBLE, {-9, -99}}}),
               {1, 2, 3, kMissing, kMissing});
  // A double attribute on a float variable: compared after rounding to float.
  check_values(read_vector<float>({1.5F, -99.9F}, A{{"missing_value", NC_DOUBLE, {-99.9}}}), {1.5, kMissing});
  // Default fill values, but not with a _FillValue of one's own, and not for bytes.
  check_values(read_vector<float>({1, NC_FILL_FLOAT}, A{}), {1, kMissing});
  check_values(read_vector<double>({1, NC_FILL_DOUBLE}, A{}), {1, kMissing});
  check_values(read_vector<short>({1, NC_FILL_SHORT}, A{}), {1, kMissing});
  check_values(read_vector<int>({1, NC_FILL_INT}, A{{"_FillValue", NC_INT, {1}}}), {kMissing, NC_FILL_INT});
  check_values(read_vector<int>({1, NC_FILL_INT}, A{{"missing_value", NC_INT, {1}}}), {kMissing, kMissing});
  check_values(read_vector<signed char>({1, NC_FILL_BYTE}, A{}), {1, NC_FILL_BYTE});
  // NaN stays NaN whatever else is said.
  check_values(read_vector<float>({1, std::nanf("")},
                                  A{{"_FillValue", NC_FLOAT, {kMissing}}, {"valid_max", NC_FLOAT, {0.5}}}),
               {kMissing, kMissing});
  // 64-bit integers are compared as such: as doubles these two would be equal.
  const TemporaryFile file("wide.nc");
  {
    Writer w(file.path(), NC_NETCDF4);
    const int v = w.var("x", NC_INT64, {w.dim("n", 2)});
    const long long fill = 9007199254740993;
    NC(nc_put_att_longlong(w.id, v, "_FillValue", NC_INT64, 1, &fill));
    const long long values[] = {9007199254740992, 9007199254740993};
    NC(nc_put_var_longlong(w.id, v, values));
  }
  const NetCdfFile wide(file.path());
  check_values(wide.read_all("x", DType::F64).to_vector(), {9007199254740992.0, kMissing});
  // Integer outputs: the stored values.
  CHECK(wide.read_all("x", DType::I64).data<std::int64_t>()[1] == 9007199254740993);
  // Text where a number is meant.
  check_values(read_vector<short>(
                   {1, 2}, A{{"_FillValue_", NC_CHAR, {}, "none"}, {"missing_value", NC_CHAR, {}, "2"}}),
               {1, 2});
}

TEST_CASE("signed bytes that mean unsigned ones, and the other way round") {
  check_values(read_vector<signed char>({0, 127, -128, -2, -1}, {{"_Unsigned", NC_CHAR, {}, "true"},
                                                                 {"_FillValue", NC_BYTE, {-1}},
                                                                 {"scale_factor", NC_DOUBLE, {0.5}}}),
               {0, 63.5, 64, 127, kMissing});
  check_values(read_vector<signed char>({0, 127, -128, -2, -1}, {{"_Unsigned", NC_CHAR, {}, "true"},
                                                                 {"valid_range", NC_BYTE, {1, -2}}}),
               {kMissing, 127, 128, 254, kMissing});
  check_values(
      read_vector<unsigned char>({0, 127, 128, 255}, {{"_Unsigned", NC_CHAR, {}, "false"}}, NC_NETCDF4),
      {0, 127, -128, -1});
  check_values(read_vector<signed char>({0, -1}, {{"_Unsigned", NC_CHAR, {}, "false"}}), {0, -1});
}

TEST_CASE("a record variable that was never written is missing throughout") {
  const TemporaryFile file("unwritten.nc");
  {
    Writer w(file.path(), 0);
    const int t = w.dim("time", NC_UNLIMITED);
    const int level = w.dim("level", 4);
    const int lat = w.dim("lat", 5);
    const int lon = w.dim("lon", 10);
    w.var("temp", NC_FLOAT, {t, level, lat, lon});
    const int rh = w.var("rh", NC_FLOAT, {t, lat, lon});
    w.end();
    std::vector<float> values(50);
    for (std::size_t i = 0; i < 50; ++i) values[i] = static_cast<float>(i % 10) / 10.0F;
    const std::size_t start[] = {0, 0, 0};
    const std::size_t count[] = {1, 5, 10};
    NC(nc_put_vara_float(w.id, rh, start, count, values.data()));
  }
  const NetCdfFile in(file.path());
  CHECK(in.format() == "classic");
  const auto& temp = in.variable("temp");
  CHECK(temp.sizes() == Dims{1, 4, 5, 10});
  CHECK(temp.dims[0].unlimited);
  CHECK_FALSE(temp.dims[1].unlimited);
  CHECK(temp.dims[3].name == "lon");
  for (const double v : in.read_all("temp").to_vector()) CHECK(std::isnan(v));
  CHECK(sum(in.read_all("rh")) == Approx(22.5));
  const double per_cut[] = {3.0, 7.5, 12.0};
  std::int64_t lo = 0;
  for (int p = 0; p < 3; ++p) {
    const std::int64_t n = p == 0 ? 4 : 3;
    CHECK(sum(in.read("rh", {{0, 0, lo}, {1, 5, n}})) == Approx(per_cut[p]));
    lo += n;
  }
}

TEST_CASE("files of others, as they came", "[netcdf]") {
  const NetCdfFile packed(TESSERA_TEST_FILES "example_2.nc");
  check_values(
      packed.read_all("Temperature").to_vector(),
      {20, 20.71, 21.43, kMissing, 22.86, 23.57, 24.29, 25, 25.71, 26.43, 27.14, 27.86, 28.57, 29.29, 30},
      1e-6);

  const Communicator world = test_world();
  const NetCdfFile file = NetCdfFile::open_on_all(world, TESSERA_TEST_FILES "example_1.nc");
  CHECK(file.variable("rh").dims[0].unlimited);
  // Cut along lon in three: each part is some rank's.
  const std::int64_t cuts[] = {0, 4, 7, 10};
  const double sums[] = {4.2, 5.5, 11.8};
  double total = 0;
  for (int part = world.rank(); part < 3; part += world.size()) {
    const std::int64_t columns = cuts[part + 1] - cuts[part];
    const Array rh = file.read("rh", {{0, 0, cuts[part]}, {1, 5, columns}});
    CHECK(rh.sizes() == Dims{1, 5, columns});
    CHECK(sum(rh) == Approx(sums[part]));
    total += sum(rh);
  }
  const Array all = Array::from(std::vector<double>{total}, {1}, DType::F64);
  world.all_reduce(all, ReduceOp::Sum).wait();
  CHECK(all.at(0) == Approx(21.5));
  const std::vector<double> rh = file.read_all("rh").to_vector();
  CHECK(*std::min_element(rh.begin(), rh.end()) == 0);
  CHECK(*std::max_element(rh.begin(), rh.end()) == Approx(0.9));
  // Never written, and without an attribute that says what stands for missing.
  const std::vector<double> temp = file.read_all("temp").to_vector();
  CHECK(temp.size() == 200);
  CHECK(std::all_of(temp.begin(), temp.end(), [](double v) { return std::isnan(v); }));
  const std::vector<double> lat = file.read_all("lat").to_vector();
  CHECK(lat.front() == 20);
  CHECK(lat.back() == 60);
}

TEST_CASE("a classic file is read by all ranks at once, each its own rows and no others") {
  INFO("Debian package ferret-datasets");
  REQUIRE(std::filesystem::exists(kRelief));
  const Communicator world = test_world();
  const std::int64_t cuts[] = {0, 60, 107, 180};
  const double sums[] = {-39838072.1184969, -47674619.3265982, -35347047.1607267};
  double total = 0;
  for (int part = 0; part < 3; ++part) {
    // Each part is some rank's; that rank reads no other rank's rows.
    if (part % world.size() != world.rank()) continue;
    const NetCdfFile file(kRelief);
    const std::int64_t rows = cuts[part + 1] - cuts[part];
    const Array values = file.read("ROSE", {{cuts[part], 0}, {rows, 360}}, DType::F64);
    CHECK(values.sizes() == Dims{rows, 360});
    CHECK(sum(values) == Approx(sums[part]).epsilon(1e-13));
    CHECK(file.bytes_read() == rows * 360 * 4);
    total += sum(values);
  }
  const Array all = Array::from(std::vector<double>{total}, {1}, DType::F64);
  world.all_reduce(all, ReduceOp::Sum).wait();
  CHECK(all.at(0) == Approx(-122859738.60582188).epsilon(1e-13));
  const NetCdfFile file = NetCdfFile::open_on_all(world, kRelief);
  CHECK(file.read("ROSE", {{90, 180}, {1, 1}}, DType::F64).at(0) == -4743.97216796875);
  CHECK(file.variable("ROSE").attribute("missing_value") != nullptr);
}

TEST_CASE("a rank with nothing to read gets an empty array of the right shape") {
  const Communicator world = test_world();
  for (const int mode : {0, NC_NETCDF4}) {
    const TemporaryFile file("empty.nc");
    {
      Writer w(file.path(), mode);
      const int v = w.var("x", NC_FLOAT, {w.dim("y", 3), w.dim("x", 2)});
      w.end();
      const float values[] = {0, 1, 2, 3, 4, 5};
      NC(nc_put_var_float(w.id, v, values));
    }
    const NetCdfFile in = NetCdfFile::open_on_all(world, file.path());
    for (int empty = 0; empty < 4; ++empty) {  // the part that has no row: first, in the middle, last
      std::int64_t row = 0;
      double total = 0;
      for (int part = 0; part < 4; ++part) {
        const std::int64_t rows = part == empty ? 0 : 1;
        const Array values = in.read("x", {{row, 0}, {rows, 2}});
        CHECK(values.sizes() == Dims{rows, 2});
        total += sum(values);
        row += rows;
      }
      CHECK(total == 15);
    }
    CHECK(in.bytes_read() == 4 * 24);
    CHECK(in.read("x", {{0, 2}, {3, 0}}).sizes() == Dims{3, 0});
  }
}

TEST_CASE("any box of any type gives the elements of the whole") {
  std::mt19937_64 random = test_random();
  for (const int mode : {0, NC_NETCDF4}) {
    const TemporaryFile file("boxes.nc");
    write_records(file.path(), mode, 4);
    const NetCdfFile in(file.path());
    const Array whole = in.read_all("a", DType::F64);
    for (int trial = 0; trial < 30; ++trial) {
      Box box;
      for (int d = 0; d < 3; ++d) {
        const std::int64_t lo = random_int(random, 0, whole.size(d));
        box.lo.push_back(lo);
        box.extent.push_back(random_int(random, 0, whole.size(d) - lo));
      }
      const std::vector<double> wanted = whole.box(box.lo, box.extent).to_vector();
      for (const DType type : {DType::F32, DType::F64, DType::I32, DType::I64})
        check_values(in.read("a", box, type).to_vector(), wanted);
    }
    CHECK(in.read("a", {{3, 2, 0}, {1, 1, 5}}, DType::BF16).at(0) == 310);
  }
}

TEST_CASE("groups, scalars and text") {
  const TemporaryFile file("groups.nc");
  {
    Writer w(file.path(), NC_NETCDF4);
    const int t = w.dim("t", NC_UNLIMITED);
    int group = 0;
    NC(nc_def_grp(w.id, "ocean", &group));
    int v = 0;
    NC(nc_def_var(group, "salt", NC_FLOAT, 1, &t, &v));
    int scalar = 0;
    NC(nc_def_var(w.id, "scalar", NC_INT, 0, nullptr, &scalar));
    w.var("name", NC_CHAR, {t});
    const std::size_t start = 0;
    const std::size_t count = 2;
    const float values[] = {34.5F, 35.5F};
    NC(nc_put_vara_float(group, v, &start, &count, values));
    const int seven = 7;
    NC(nc_put_var_int(w.id, scalar, &seven));
    const char* units[] = {"psu"};
    NC(nc_put_att_string(group, v, "units", 1, units));
    NC(nc_put_att_text(w.id, NC_GLOBAL, "title", 4, "test"));
  }
  const NetCdfFile in(file.path());
  check_values(in.read_all("ocean/salt").to_vector(), {34.5, 35.5});
  CHECK(in.variable("ocean/salt").dims[0].unlimited);
  CHECK(in.variable("ocean/salt").attribute("units")->text() == "psu");
  CHECK(in.read_all("scalar").dim() == 0);
  CHECK(in.read_all("scalar").at(0) == 7);
  CHECK(in.attributes().at(0).text() == "test");
  CHECK(error_of([&] { in.read_all("name"); }).find("holds char values, numbers are needed") !=
        std::string::npos);
}
