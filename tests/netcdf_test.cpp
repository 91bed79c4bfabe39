#include "train/netcdf.h"

#include <netcdf.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>

#include "runtime/error.h"
#include "tests/support/world.h"

using namespace tessera;
using data::NetCdfFile;

namespace {

// A file of this rank's own, gone at the end of the case.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& name)
      : path_(
            (std::filesystem::temp_directory_path() / ("tessera_" + std::to_string(::getpid()) + "_" + name))
                .string()) {}
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

#define NC(call) REQUIRE((call) == NC_NOERR)

// Writes a file through the C API: create, define, end, data, close.
class Writer {
 public:
  Writer(const std::string& path, int mode) { NC(nc_create(path.c_str(), NC_CLOBBER | mode, &id)); }
  ~Writer() { nc_close(id); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
  int dim(const char* name, std::size_t n) {
    int d = 0;
    NC(nc_def_dim(id, name, n, &d));
    return d;
  }
  int var(const char* name, nc_type type, const std::vector<int>& dims) {
    int v = 0;
    NC(nc_def_var(id, name, type, static_cast<int>(dims.size()), dims.data(), &v));
    return v;
  }
  void end() { NC(nc_enddef(id)); }
  int id = 0;
};

template <class T>
nc_type nc_type_of() {
  if constexpr (std::is_same_v<T, signed char>) return NC_BYTE;
  if constexpr (std::is_same_v<T, unsigned char>) return NC_UBYTE;
  if constexpr (std::is_same_v<T, short>) return NC_SHORT;
  if constexpr (std::is_same_v<T, int>) return NC_INT;
  if constexpr (std::is_same_v<T, long long>) return NC_INT64;
  if constexpr (std::is_same_v<T, float>) return NC_FLOAT;
  return NC_DOUBLE;
}

struct Attribute {
  std::string name;
  nc_type type;
  std::vector<double> values;  // or
  std::string text = "";
};

// One variable "x" of dim "n" with these stored values and attributes.
template <class T>
void write_vector(const std::string& path, const std::vector<T>& values,
                  const std::vector<Attribute>& attributes, int mode = 0) {
  Writer w(path, mode);
  const int v = w.var("x", nc_type_of<T>(), {w.dim("n", values.size())});
  for (const Attribute& a : attributes) {
    if (!a.text.empty()) {
      NC(nc_put_att_text(w.id, v, a.name.c_str(), a.text.size(), a.text.data()));
    } else {
      NC(nc_put_att_double(w.id, v, a.name.c_str(), a.type, a.values.size(), a.values.data()));
    }
  }
  w.end();
  NC(nc_put_var(w.id, v, values.data()));
}

template <class T>
std::vector<double> read_vector(const std::vector<T>& values, const std::vector<Attribute>& attributes,
                                int mode = 0) {
  const TemporaryFile file("vector.nc");
  write_vector(file.path(), values, attributes, mode);
  return NetCdfFile(file.path()).read_all("x", DType::F64).to_vector();
}

// Equal, NaN where NaN is meant.
void check_values(const std::vector<double>& got, const std::vector<double>& wanted, double tolerance = 0) {
  REQUIRE(got.size() == wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i, got[i], wanted[i]);
    if (std::isnan(wanted[i])) {
      CHECK(std::isnan(got[i]));
    } else {
      CHECK(std::abs(got[i] - wanted[i]) <= tolerance);
    }
  }
}
const double kMissing = std::nan("");

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    CHECK(e.message().find('\n') == std::string::npos);
    return e.message();
  }
  return "no error";
}

double sum(const Array& a) {
  const std::vector<double> values = a.to_vector();
  return std::accumulate(values.begin(), values.end(), 0.0);
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// An unlimited time, two record variables of odd lengths (padded records), one fixed; `time` records.
void write_records(const std::string& path, int mode, std::size_t time) {
  Writer w(path, mode);
  const int t = w.dim("time", NC_UNLIMITED);
  const int y = w.dim("y", 3);
  const int x = w.dim("x", 5);
  const int a = w.var("a", NC_SHORT, {t, y, x});
  const int b = w.var("b", NC_BYTE, {t, x});
  const int c = w.var("c", NC_DOUBLE, {y});
  w.end();
  const std::vector<double> fixed{1, 2, 3};
  NC(nc_put_var_double(w.id, c, fixed.data()));
  for (std::size_t i = 0; i < time; ++i) {
    std::vector<int> values(15);
    std::iota(values.begin(), values.end(), static_cast<int>(100 * i));
    const std::size_t start[] = {i, 0, 0};
    const std::size_t count_a[] = {1, 3, 5};
    const std::size_t count_b[] = {1, 5};
    NC(nc_put_vara_int(w.id, a, start, count_a, values.data()));
    values.assign(5, static_cast<int>(i));
    NC(nc_put_vara_int(w.id, b, start, count_b, values.data()));
  }
}

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

TEST_CASE("a file that one rank cannot open is refused by all with the same line") {
  const Communicator world = test_world();
  const TemporaryFile file("mine.nc");
  write_records(file.path(), 0, 2);
  const TemporaryFile cut("cut.nc");
  write_bytes(cut.path(), bytes_of(file.path()).substr(0, bytes_of(file.path()).size() - 20));
  const int bad = world.size() - 1;
  for (const std::string& wrong : {std::string("no/such/file.nc"), cut.path()}) {
    const std::string message =
        error_of([&] { NetCdfFile::open_on_all(world, world.rank() == bad ? wrong : file.path()); });
    CHECK(message != "no error");
    CHECK((message.find("does not exist") != std::string::npos ||
           message.find("is truncated") != std::string::npos));
    if (world.size() > 1) CHECK(message.find("rank " + std::to_string(bad)) != std::string::npos);
    for (const std::string& theirs : world.all_gather_bytes(message)) CHECK(theirs == message);
  }
  // All ranks can open it, but one sees another file.
  const TemporaryFile other("other.nc");
  write_records(other.path(), 0, 3);
  if (world.size() > 1) {
    const std::string message =
        error_of([&] { NetCdfFile::open_on_all(world, world.rank() == bad ? other.path() : file.path()); });
    CHECK(message.find("is not the same on all ranks") != std::string::npos);
    CHECK(message.find("rank " + std::to_string(bad) + " sees") != std::string::npos);
  }
  world.barrier();
}

TEST_CASE("a truncated file is refused whatever is left of it") {
  for (const int mode : {0, NC_64BIT_OFFSET, NC_CDF5}) {
    const TemporaryFile whole("whole.nc");
    write_records(whole.path(), mode, 3);
    const std::string bytes = bytes_of(whole.path());
    const NetCdfFile in(whole.path());
    CHECK(in.format() == (mode == 0 ? "classic" : mode == NC_CDF5 ? "CDF-5" : "64-bit offset"));
    CHECK(in.read_all("a").at(44) == 214);
    // The last record of `b` is 5 bytes and 3 of padding, which may be absent.
    const TemporaryFile cut("part.nc");
    for (std::size_t n = 0; n < bytes.size() - 3; n += n + 12 < bytes.size() ? 7 : 1) {
      write_bytes(cut.path(), bytes.substr(0, n));
      const std::string message = error_of([&] { NetCdfFile part(cut.path()); });
      CAPTURE(n, message);
      CHECK(message.rfind("NetCdfFile: file '" + cut.path() + "' ", 0) == 0);
    }
    write_bytes(cut.path(), bytes.substr(0, bytes.size() - 3));
    CHECK(error_of([&] { NetCdfFile part(cut.path()); }) == "no error");
  }
  const TemporaryFile whole("whole4.nc");
  write_records(whole.path(), NC_NETCDF4, 3);
  const std::string bytes = bytes_of(whole.path());
  CHECK(NetCdfFile(whole.path()).format() == "NetCDF-4");
  for (const std::size_t n : {std::size_t{20}, std::size_t{100}, bytes.size() / 2, bytes.size() - 1}) {
    const TemporaryFile cut("part4.nc");
    write_bytes(cut.path(), bytes.substr(0, n));
    CHECK(error_of([&] { NetCdfFile part(cut.path()); }).find("is truncated") != std::string::npos);
  }
}

TEST_CASE("one record variable alone has records without padding") {
  const TemporaryFile file("alone.nc");
  {
    Writer w(file.path(), 0);
    const int v = w.var("x", NC_SHORT, {w.dim("t", NC_UNLIMITED), w.dim("n", 3)});
    w.end();
    const std::size_t start[] = {0, 0};
    const std::size_t count[] = {5, 3};
    std::vector<int> values(15);
    std::iota(values.begin(), values.end(), 0);
    NC(nc_put_vara_int(w.id, v, start, count, values.data()));
  }
  check_values(NetCdfFile(file.path()).read("x", {{4, 0}, {1, 3}}).to_vector(), {12, 13, 14});
  const std::string bytes = bytes_of(file.path());
  const TemporaryFile cut("alone_cut.nc");
  write_bytes(cut.path(), bytes.substr(0, bytes.size() - 4));
  CHECK(error_of([&] { NetCdfFile part(cut.path()); }).find("is truncated") != std::string::npos);
}

TEST_CASE("wrong calls are refused in one line") {
  const TemporaryFile file("calls.nc");
  write_records(file.path(), 0, 2);
  const NetCdfFile in(file.path());
  CHECK(error_of([&] { in.read_all("wind"); }) ==
        "NetCdfFile: file '" + file.path() + "' has no variable 'wind'; it has a, b, c");
  CHECK(error_of([&] {
          in.read("a", {{1, 0, 0}, {2, 3, 5}});
        }).find("leaves variable 'a' of sizes [2, 3, 5] in dim 0") != std::string::npos);
  CHECK(error_of([&] {
          in.read("a", {{0, -1, 0}, {1, 1, 5}});
        }).find("leaves variable 'a'") != std::string::npos);
  CHECK(error_of([&] { in.read("a", {{0}, {1}}); }).find("the box has 1 dims") != std::string::npos);
  CHECK(error_of([&] {
          in.read("c", {{0}, {3}}, DType::Bool);
        }).find("holds double values and cannot be read as bool") != std::string::npos);
  CHECK(error_of([&] { in.read_all("c", DType::I32); }).find("allowed are f32, f64, bf16") !=
        std::string::npos);
  CHECK(error_of([&] { NetCdfFile missing("no/such.nc"); }) ==
        "NetCdfFile: file 'no/such.nc' does not exist");
  CHECK(error_of([&] { NetCdfFile folder("/"); }) == "NetCdfFile: file '/' is a directory");
  const TemporaryFile text("text.nc");
  write_bytes(text.path(), "time,wind\n1,2\n");
  CHECK(error_of([&] { NetCdfFile t(text.path()); }).find("is not a NetCDF file") != std::string::npos);
  write_bytes(text.path(), "");
  CHECK(error_of([&] { NetCdfFile t(text.path()); }).find("is empty") != std::string::npos);
  write_bytes(text.path(), std::string("CDF\x01", 4) + std::string(60, '\x07'));
  CHECK(error_of([&] { NetCdfFile t(text.path()); }).find("is damaged") != std::string::npos);
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
