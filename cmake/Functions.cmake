# tessera_program(name SOURCES a.cpp ...): a program in build/<preset>/bin that is installed too.
function(tessera_program name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES")
  add_executable(${name} ${arg_SOURCES})
  tessera_compile_options(${name})
  target_link_libraries(${name} PRIVATE tessera ${TESSERA_HEADER_DEPENDENCIES})
  set_target_properties(
    ${name} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};$ORIGIN/../${CMAKE_INSTALL_LIBDIR}/tessera")
  install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# What Open MPI needs to run as root, with more ranks than cores, without tying ranks to cores.
set(TESSERA_TEST_ENVIRONMENT
    OMPI_ALLOW_RUN_AS_ROOT=1
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    OMPI_MCA_rmaps_base_oversubscribe=1
    OMPI_MCA_hwloc_base_binding_policy=none
    OMPI_MCA_mpi_yield_when_idle=1
    OMP_NUM_THREADS=1
    OPENBLAS_NUM_THREADS=1
    ASAN_OPTIONS=detect_leaks=0
    TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/cmake/tsan.supp)

# tessera_mpi_test(name RANKS 1 2 TARGET program [ARGS ...] [LABELS ...] [TIMEOUT s]): runs a program under
# mpirun as ctest's name.np1, name.np2.
function(tessera_mpi_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TARGET;TIMEOUT" "RANKS;ARGS;LABELS")
  if(NOT arg_RANKS OR NOT arg_TARGET)
    message(FATAL_ERROR "tessera_mpi_test(${name}): RANKS and TARGET must be given")
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 240)
  endif()
  foreach(ranks ${arg_RANKS})
    add_test(NAME ${name}.np${ranks} COMMAND ${MPIEXEC_EXECUTABLE} -q ${MPIEXEC_NUMPROC_FLAG} ${ranks}
                                             $<TARGET_FILE:${arg_TARGET}> ${arg_ARGS})
    set_tests_properties(
      ${name}.np${ranks} PROPERTIES PROCESSORS ${ranks} TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}"
                                    ENVIRONMENT "${TESSERA_TEST_ENVIRONMENT}"
                                    WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
  endforeach()
endfunction()

# tessera_test(name RANKS 1 2 4 SOURCES a_test.cpp ... [LABELS nightly] [TIMEOUT s]): Catch2 cases in one
# program, linked with the MPI main of tests/support, run once per rank count.
function(tessera_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT" "RANKS;SOURCES;LABELS")
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "tessera_test(${name}): SOURCES must be given")
  endif()
  add_executable(test_${name} ${arg_SOURCES})
  tessera_compile_options(test_${name})
  target_link_libraries(test_${name} PRIVATE tessera_test_main ${TESSERA_HEADER_DEPENDENCIES})
  tessera_precompile_tests(test_${name})
  set_target_properties(test_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  tessera_mpi_test(${name} RANKS ${arg_RANKS} TARGET test_${name} LABELS ${arg_LABELS} TIMEOUT ${arg_TIMEOUT})
endfunction()
