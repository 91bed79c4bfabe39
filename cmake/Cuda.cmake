# The CUDA backend. TESSERA_CUDA says which:
#   OFF       none
#   ON        nvcc compiles the kernels; CUDA runtime, cuBLASLt, cuDNN and NCCL are linked
#   EMULATED  g++ compiles the same kernels, and emulated/ answers for the device and its libraries: for tests on
#             machines without a GPU. Needs CUDA's headers.
set(TESSERA_CUDA OFF CACHE STRING "CUDA backend: OFF, ON or EMULATED")
set_property(CACHE TESSERA_CUDA PROPERTY STRINGS OFF ON EMULATED)
if(NOT TESSERA_CUDA MATCHES "^(OFF|ON|EMULATED)$")
  message(FATAL_ERROR "TESSERA_CUDA=${TESSERA_CUDA} was given, allowed are OFF, ON and EMULATED")
endif()
set(TESSERA_CUDA_BACKEND OFF)
if(TESSERA_CUDA STREQUAL "OFF")
  return()
endif()
set(TESSERA_CUDA_BACKEND ON)

# Where MPI says whether it takes addresses of CUDA device memory: Open MPI and MVAPICH in mpi-ext.h, MPICH in mpi.h.
include(CheckCXXSourceCompiles)
set(TESSERA_MPI_KNOWS_CUDA OFF)
foreach(header mpi-ext mpi)
  string(MAKE_C_IDENTIFIER TESSERA_CUDA_IN_${header} found)
  set(CMAKE_REQUIRED_LIBRARIES MPI::MPI_CXX)
  check_cxx_source_compiles("#include <mpi.h>\n#include <${header}.h>\nint main() { return MPIX_Query_cuda_support(); }" ${found})
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(${found})
    set(TESSERA_MPI_KNOWS_CUDA ON)
    break()
  endif()
endforeach()

find_program(NVCC_PROGRAM nvcc HINTS /usr/local/cuda/bin)
if(NOT NVCC_PROGRAM)
  message(FATAL_ERROR "TESSERA_CUDA=${TESSERA_CUDA} needs the CUDA Toolkit, and there is no nvcc. Use --preset cpu.")
endif()
get_filename_component(cuda_root ${NVCC_PROGRAM} REALPATH)
get_filename_component(cuda_root ${cuda_root}/../.. ABSOLUTE)
find_path(TESSERA_CUDA_INCLUDE cuda_runtime_api.h HINTS ${cuda_root}/include ${cuda_root}/targets/x86_64-linux/include
                                                        REQUIRED)

# cuDNN: its frontend is headers alone (tools/setup fetches them); the library lies beside the toolkit.
find_path(TESSERA_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${PROJECT_SOURCE_DIR}/.deps/cudnn_frontend/include)
find_path(TESSERA_CUDNN_INCLUDE cudnn.h HINTS ${cuda_root}/include ${cuda_root}/targets/x86_64-linux/include)
find_library(TESSERA_CUDNN_LIBRARY cudnn HINTS ${cuda_root}/lib64 ${cuda_root}/lib ${cuda_root}/targets/x86_64-linux/lib)
if(NOT TESSERA_CUDNN_FRONTEND_INCLUDE)
  message(FATAL_ERROR "TESSERA_CUDA=${TESSERA_CUDA} needs the headers of cuDNN's frontend: run tools/setup")
endif()
if(NOT TESSERA_CUDNN_INCLUDE OR (TESSERA_CUDA STREQUAL "ON" AND NOT TESSERA_CUDNN_LIBRARY))
  message(FATAL_ERROR "TESSERA_CUDA=${TESSERA_CUDA} needs cuDNN 9 beside the CUDA Toolkit in ${cuda_root}")
endif()
find_file(TESSERA_CUDA_DRIVER_STUB libcuda.so HINTS ${cuda_root}/lib64/stubs ${cuda_root}/lib/stubs)

if(TESSERA_CUDA STREQUAL "ON")
  # Real code for A100 and H100/H200, and PTX for what comes after.
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual)
  endif()
  set(CMAKE_CUDA_COMPILER ${NVCC_PROGRAM})
  if(CCACHE_PROGRAM AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  find_library(TESSERA_NCCL nccl HINTS ${cuda_root}/lib ${cuda_root}/lib64 REQUIRED)
endif()

# tessera_cuda_kernels(a.cu ...): sources of kernels, relative to the calling folder, for whichever compiler builds
# them. Products and sums are never contracted: the results are those of the CPU.
function(tessera_cuda_kernels)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE sources)
  if(TESSERA_CUDA STREQUAL "ON")
    if(NOT TARGET tessera_cuda_objects)
      # A target of its own, with the flag given by hand: CMake 3.25 knows no C++20 for nvcc.
      add_library(tessera_cuda_objects OBJECT)
      set_target_properties(tessera_cuda_objects PROPERTIES CUDA_STANDARD_REQUIRED OFF CXX_STANDARD_REQUIRED OFF)
      target_include_directories(tessera_cuda_objects PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/runtime/cuda/native)
      target_compile_options(tessera_cuda_objects PRIVATE -std=c++20 --expt-relaxed-constexpr --fmad=false --resource-usage)
      if(TESSERA_WERROR)
        target_compile_options(tessera_cuda_objects PRIVATE -Werror=all-warnings -Xcompiler=-Wall,-Wextra,-Werror)
      endif()
      target_sources(tessera PRIVATE $<TARGET_OBJECTS:tessera_cuda_objects>)
    endif()
    target_sources(tessera_cuda_objects PRIVATE ${sources})
  else()
    target_sources(tessera PRIVATE ${sources})
    set_source_files_properties(${sources} TARGET_DIRECTORY tessera PROPERTIES LANGUAGE CXX)
    set_property(SOURCE ${sources} TARGET_DIRECTORY tessera APPEND PROPERTY COMPILE_OPTIONS -x c++ -ffp-contract=off)
  endif()
endfunction()

# The one file that includes cuDNN's frontend, and the graphs' JSON, as objects: the library and the test cudnn_plans
# link the same. The host passes through it once a convolution: a little of the optimizer is enough, more takes minutes.
function(tessera_cudnn_graphs)
  add_library(tessera_cudnn_graphs OBJECT ${PROJECT_SOURCE_DIR}/ops/cuda/cudnn_graphs.cpp
                                          ${PROJECT_SOURCE_DIR}/ops/cuda/cudnn_graph_json.cpp)
  tessera_compile_options(tessera_cudnn_graphs)
  target_compile_options(tessera_cudnn_graphs PRIVATE -O1)
  target_include_directories(tessera_cudnn_graphs PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(tessera_cudnn_graphs SYSTEM PRIVATE ${TESSERA_CUDNN_FRONTEND_INCLUDE} ${TESSERA_CUDNN_INCLUDE}
                                                                 ${TESSERA_CUDA_INCLUDE})
  target_link_libraries(tessera_cudnn_graphs PRIVATE nlohmann_json::nlohmann_json)
  target_sources(tessera PRIVATE $<TARGET_OBJECTS:tessera_cudnn_graphs>)
endfunction()

# After all sources are known. Only the backend's own files see CUDA's headers: for all others the compiler is called
# as in the CPU build, so that ccache serves both.
function(tessera_link_cuda)
  tessera_cudnn_graphs()
  if(TESSERA_CUDA STREQUAL "ON")
    set(port ${PROJECT_SOURCE_DIR}/runtime/cuda/native_host)
  else()
    set(port ${PROJECT_SOURCE_DIR}/emulated/port)
  endif()
  get_target_property(sources tessera SOURCES)
  list(FILTER sources INCLUDE REGEX "/cuda/[^/]*[.](cpp|cu)$")
  set_property(SOURCE ${sources} TARGET_DIRECTORY tessera APPEND PROPERTY COMPILE_OPTIONS -I${port} -isystem
                                                                          ${TESSERA_CUDA_INCLUDE})
  # What registers the backend is not referred to by name: the linker is told to look for it.
  foreach(layer runtime comm ops nn)
    target_link_options(tessera INTERFACE LINKER:--undefined=tessera_cuda_${layer})
  endforeach()
  if(TESSERA_CUDA STREQUAL "ON")
    foreach(library CUDA::cublasLt ${TESSERA_NCCL} ${TESSERA_CUDNN_LIBRARY} CUDA::nvrtc CUDA::cudart_static)
      target_link_libraries(tessera PRIVATE $<LINK_ONLY:${library}>)
    endforeach()
  else()
    target_link_libraries(tessera PRIVATE $<LINK_ONLY:tessera_emulated>)
    # MPI's library has all that emulated/mpi.cpp stands for.
    target_link_options(tessera INTERFACE LINKER:--undefined=tessera_emulated_mpi)
  endif()
endfunction()
