// Small NetCDF files, written through the C API, and what tests ask of them.
#pragma once
#include <netcdf.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>

#include "runtime/error.h"
#include "train/netcdf.h"

namespace tessera::netcdf_files {

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
  return data::NetCdfFile(file.path()).read_all("x", DType::F64).to_vector();
}

// Equal, NaN where NaN is meant.
inline void check_values(const std::vector<double>& got, const std::vector<double>& wanted,
                         double tolerance = 0) {
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
inline const double kMissing = std::nan("");

inline std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    CHECK(e.message().find('\n') == std::string::npos);
    return e.message();
  }
  return "no error";
}

inline double sum(const Array& a) {
  const std::vector<double> values = a.to_vector();
  return std::accumulate(values.begin(), values.end(), 0.0);
}

inline std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// An unlimited time, two record variables of odd lengths (padded records), one fixed; `time` records.
inline void write_records(const std::string& path, int mode, std::size_t time) {
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

}  // namespace tessera::netcdf_files
