// Is the file as long as its header says? Answered without the NetCDF library, which does not ask.
#pragma once
#include <cstdint>
#include <string>

namespace tessera::data {

struct FileCheck {
  std::string problem;  // "" = as long as it must be; else a phrase such as "is truncated: ..."
  std::string format;   // "classic", "64-bit offset", "CDF-5", "NetCDF-4"
  std::int64_t length = 0;
};

// Reads the header of a classic, 64-bit offset or CDF-5 file (layout: NetCDF Users' Guide, "File format
// specifications") and works out where the last byte of data lies; for NetCDF-4 the end of file that the HDF5
// superblock names (HDF5 File Format Specification, III.A).
FileCheck check_netcdf_file(const std::string& path);

}  // namespace tessera::data
