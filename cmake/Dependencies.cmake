# Every library that Tessera uses, in one place. Debian 12 has all but oneDNN >= 3.1, which tools/setup puts
# into .deps/onednn.
find_package(MPI REQUIRED COMPONENTS C CXX)
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(fmt 9 REQUIRED)
find_package(DNNL 3.1 REQUIRED)
find_package(NetCDF REQUIRED)

# Header-only, used inside our sources and programs only, so an installed Tessera does not ask for them.
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_path(TOMLPLUSPLUS_INCLUDE_DIR toml++/toml.h REQUIRED)
add_library(tomlplusplus_headers INTERFACE)
target_include_directories(tomlplusplus_headers SYSTEM INTERFACE ${TOMLPLUSPLUS_INCLUDE_DIR})
add_library(Tessera::toml ALIAS tomlplusplus_headers)
set(TESSERA_HEADER_DEPENDENCIES $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>
                                $<BUILD_INTERFACE:Tessera::toml> $<BUILD_INTERFACE:CLI11::CLI11>)

if(TESSERA_TESTS)
  find_package(Catch2 2.13 REQUIRED)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
endif()
