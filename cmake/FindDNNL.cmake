# oneDNN as DNNL::dnnl. The system's own is taken if it is new enough (Debian 12 has 2.6, whose interface
# differs, and its config file asks for OpenCL), else the copy that tools/setup fetched, else DNNL_ROOT.
# DNNL_BUNDLED tells whether it is that copy, which an installed tree must then bring along.
set(DNNL_FETCHED_DIR ${CMAKE_CURRENT_LIST_DIR}/../.deps/onednn)
# In an installed tree the copy lies beside this file: <lib>/tessera/{include,libdnnl.so.3}.
set(DNNL_INSTALLED_DIR ${CMAKE_CURRENT_LIST_DIR}/../../tessera)

function(dnnl_version include_dir result)
  set(version 0)
  if(EXISTS ${include_dir}/oneapi/dnnl/dnnl_version.h)
    file(STRINGS ${include_dir}/oneapi/dnnl/dnnl_version.h lines REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH)")
    string(REGEX REPLACE "[^0-9;]" "" version "${lines}")
    string(REPLACE ";" "." version "${version}")
  endif()
  set(${result} ${version} PARENT_SCOPE)
endfunction()

if(DNNL_ROOT)
  find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp HINTS ${DNNL_ROOT}/include NO_DEFAULT_PATH)
  find_library(DNNL_LIBRARY NAMES dnnl libdnnl.so.3 HINTS ${DNNL_ROOT}/lib NO_DEFAULT_PATH)
else()
  find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
  find_library(DNNL_LIBRARY dnnl)
endif()
dnnl_version("${DNNL_INCLUDE_DIR}" DNNL_VERSION)

if(NOT DNNL_ROOT AND (NOT DNNL_LIBRARY OR DNNL_VERSION VERSION_LESS "${DNNL_FIND_VERSION}"))
  foreach(dir ${DNNL_FETCHED_DIR} ${DNNL_INSTALLED_DIR})
    unset(DNNL_INCLUDE_DIR CACHE)
    unset(DNNL_LIBRARY CACHE)
    find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp HINTS ${dir}/include NO_DEFAULT_PATH)
    find_library(DNNL_LIBRARY NAMES libdnnl.so.3 HINTS ${dir}/lib ${dir} NO_DEFAULT_PATH)
    if(DNNL_LIBRARY)
      break()
    endif()
  endforeach()
  dnnl_version("${DNNL_INCLUDE_DIR}" DNNL_VERSION)
endif()
set(DNNL_BUNDLED OFF)
if(DNNL_LIBRARY MATCHES "/[.]deps/onednn/")
  set(DNNL_BUNDLED ON)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  DNNL REQUIRED_VARS DNNL_LIBRARY DNNL_INCLUDE_DIR VERSION_VAR DNNL_VERSION
  REASON_FAILURE_MESSAGE "run tools/setup, or give -DDNNL_ROOT=<prefix> of a oneDNN >= ${DNNL_FIND_VERSION}")
mark_as_advanced(DNNL_INCLUDE_DIR DNNL_LIBRARY)

if(DNNL_FOUND AND NOT TARGET DNNL::dnnl)
  add_library(DNNL::dnnl SHARED IMPORTED)
  set_target_properties(
    DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY} IMPORTED_SONAME libdnnl.so.3
                          INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR}
                          INTERFACE_SYSTEM_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
endif()
