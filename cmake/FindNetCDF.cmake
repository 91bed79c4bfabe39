# The serial C library as NetCDF::netcdf: it reads classic files, which Debian's parallel build refuses.
find_path(NetCDF_INCLUDE_DIR netcdf.h)
find_library(NetCDF_LIBRARY netcdf)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NetCDF REQUIRED_VARS NetCDF_LIBRARY NetCDF_INCLUDE_DIR)
mark_as_advanced(NetCDF_INCLUDE_DIR NetCDF_LIBRARY)
if(NetCDF_FOUND AND NOT TARGET NetCDF::netcdf)
  add_library(NetCDF::netcdf UNKNOWN IMPORTED)
  set_target_properties(NetCDF::netcdf PROPERTIES IMPORTED_LOCATION ${NetCDF_LIBRARY}
                                                  INTERFACE_INCLUDE_DIRECTORIES ${NetCDF_INCLUDE_DIR})
endif()
