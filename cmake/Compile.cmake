# Flags that all our targets share. Release is the default: timings of a debug build mislead.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

if(TESSERA_SANITIZE)
  # g++ documents that sanitizers make it warn of uninitialized values where there are none.
  set(TESSERA_SANITIZER_FLAGS -fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer -Wno-maybe-uninitialized)
  add_link_options(-fsanitize=${TESSERA_SANITIZE})
  if(TESSERA_SANITIZE_FOLDERS)
    list(APPEND TESSERA_SANITIZER_FLAGS -O1 -g1)  # the rest is optimized
  else()
    add_compile_options(${TESSERA_SANITIZER_FLAGS})
  endif()
endif()

# Call when the library knows its sources: sanitizes those of TESSERA_SANITIZE_FOLDERS alone. The objects of
# the others are the same as without sanitizers, so a compiler cache has them.
function(tessera_sanitize_folders)
  if(NOT TESSERA_SANITIZE OR NOT TESSERA_SANITIZE_FOLDERS)
    return()
  endif()
  get_target_property(sources tessera SOURCES)
  foreach(folder ${TESSERA_SANITIZE_FOLDERS})
    set(chosen ${sources})
    list(FILTER chosen INCLUDE REGEX "^(${PROJECT_SOURCE_DIR}/)?${folder}/")
    if(NOT chosen)
      message(FATAL_ERROR "TESSERA_SANITIZE_FOLDERS: the library has no sources in '${folder}'")
    endif()
    set_property(SOURCE ${chosen} TARGET_DIRECTORY tessera APPEND PROPERTY COMPILE_OPTIONS ${TESSERA_SANITIZER_FLAGS})
  endforeach()
endfunction()

# From a precompiled header g++ takes the standard library's code for ours, and 12 sees too long copies in it
# where there are none.
function(tessera_quiet_precompiled target)
  target_compile_options(${target} PRIVATE -Wno-stringop-overflow -Wno-array-bounds)
endfunction()

# Call when the library knows its sources: half the time of compiling most of them is reading the standard
# library. A compiler cache would not know again what was compiled so, so this is for builds without one.
function(tessera_precompile_headers)
  if(CMAKE_CXX_COMPILER_LAUNCHER OR TESSERA_SANITIZE)
    return()
  endif()
  target_precompile_headers(tessera PRIVATE <algorithm> <array> <cmath> <functional> <map> <memory> <mutex> <optional>
                            <span> <string> <unordered_map> <vector> <fmt/core.h>)
  tessera_quiet_precompiled(tessera)
  # The header is compiled with the flags of the target alone.
  get_target_property(sources tessera SOURCES)
  foreach(source ${sources})
    get_property(flags SOURCE ${source} TARGET_DIRECTORY tessera PROPERTY COMPILE_OPTIONS)
    if(flags)
      set_property(SOURCE ${source} TARGET_DIRECTORY tessera PROPERTY SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()

# For folders of tests: what they call is optimized, they themselves need not be.
macro(tessera_compile_quickly)
  add_compile_options($<$<CONFIG:Release>:-O1>)
endmacro()

# Whether a target may read the headers of all tests from one compiled file. With a compiler cache it may not
# (it would not know again what was compiled so) unless TESSERA_PRECOMPILE_TESTS says that building from
# nothing counts.
function(tessera_precompile_tests target)
  if(TESSERA_SANITIZE OR (CMAKE_CXX_COMPILER_LAUNCHER AND NOT TESSERA_PRECOMPILE_TESTS))
    return()
  endif()
  # In the command of the compiler this looks alike in all builds, which is how a cache knows it again.
  set(compiled CMakeFiles/tessera_test_headers.dir/cmake_pch.hxx)
  set(others ${TESSERA_PRECOMPILED_BY}/tests/${compiled})
  tessera_quiet_precompiled(${target})
  if(TESSERA_PRECOMPILED_BY AND EXISTS ${others}.gch AND NOT TESSERA_PRECOMPILED_BY STREQUAL PROJECT_BINARY_DIR)
    target_compile_options(${target} PRIVATE "SHELL:-Winvalid-pch -include ${others}")
    return()
  endif()
  if(NOT TARGET tessera_test_headers)
    file(WRITE ${PROJECT_BINARY_DIR}/test_headers.cpp "")
    add_library(tessera_test_headers OBJECT ${PROJECT_BINARY_DIR}/test_headers.cpp)
    # As programs are compiled: g++ asks for the same flags.
    set_target_properties(tessera_test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(tessera_test_headers PRIVATE -fPIE)
    tessera_compile_options(tessera_test_headers)
    tessera_quiet_precompiled(tessera_test_headers)
    target_link_libraries(tessera_test_headers PRIVATE tessera ${TESSERA_HEADER_DEPENDENCIES} Catch2::Catch2)
    target_precompile_headers(tessera_test_headers PRIVATE <algorithm> <array> <cmath> <functional> <map> <memory> <mutex>
                              <optional> <random> <span> <string> <thread> <unordered_map> <vector> <fmt/format.h>
                              <catch2/catch.hpp>)
  endif()
  get_target_property(folder tessera_test_headers BINARY_DIR)
  target_compile_options(${target} PRIVATE "SHELL:-Winvalid-pch -include ${folder}/${compiled}")
  add_dependencies(${target} tessera_test_headers)
  get_target_property(sources ${target} SOURCES)
  set_property(SOURCE ${sources} APPEND PROPERTY OBJECT_DEPENDS ${folder}/${compiled}.gch)
endfunction()

function(tessera_compile_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow)
  # g++ 12 sees overlapping copies in std::string's operator+ where there are none (its bug 105651).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  if(TESSERA_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()

# tessera_source_flags(SOURCES a_avx2.cpp FLAGS -mavx2 -mfma): flags for single files of the library. Source
# properties are seen only by targets of the same folder unless the target is named, hence this function.
function(tessera_source_flags)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "SOURCES;FLAGS")
  list(TRANSFORM arg_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  set_property(SOURCE ${arg_SOURCES} TARGET_DIRECTORY tessera APPEND PROPERTY COMPILE_OPTIONS ${arg_FLAGS})
endfunction()
