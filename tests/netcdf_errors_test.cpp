#include <catch2/catch.hpp>
#include <filesystem>

#include "runtime/error.h"
#include "tests/netcdf_files.h"
#include "tests/support/world.h"
#include "train/netcdf.h"

using namespace tessera;
using namespace tessera::netcdf_files;
using data::NetCdfFile;

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
  CHECK(error_of([&] { in.read_all("c", DType::I32); }).find("allowed are f32, f64, bf16, f16") !=
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
