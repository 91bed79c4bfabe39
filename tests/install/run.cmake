cmake_minimum_required(VERSION 3.25)
# The prefix is moved after installing: nothing in it may remember where it was put, or where it was built.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "failed: ${ARGN}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${WORK_DIR}/first)
file(RENAME ${WORK_DIR}/first ${WORK_DIR}/prefix)
foreach(project user stencil)
  run(${CMAKE_COMMAND} -S ${${project}_DIR} -B ${WORK_DIR}/${project} -G ${GENERATOR} -DCMAKE_BUILD_TYPE=Release
      -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DCMAKE_CXX_FLAGS=${CXX_FLAGS} -DCMAKE_PREFIX_PATH=${WORK_DIR}/prefix)
  run(${CMAKE_COMMAND} --build ${WORK_DIR}/${project})
  run(${MPIEXEC} -q -n 2 ${WORK_DIR}/${project}/${project})
  message("${output}")
endforeach()

# The one library that came from PyPI must be found in the installed tree.
run(ldd ${WORK_DIR}/user/user)
if(NOT output MATCHES "libdnnl[^\n]*=> (${WORK_DIR}/prefix|/usr/)")
  message(FATAL_ERROR "the program does not take oneDNN from the installed tree:\n${output}")
endif()

# The build is one without CUDA (tests/CMakeLists.txt): its tree has no header of the backend.
file(GLOB_RECURSE headers RELATIVE ${WORK_DIR}/prefix ${WORK_DIR}/prefix/include/*)
list(LENGTH headers count)
if(count LESS 50)
  message(FATAL_ERROR "only ${count} headers are installed")
endif()
list(FILTER headers INCLUDE REGEX "/cuda/")
if(headers)
  message(FATAL_ERROR "headers of the CUDA backend are installed: ${headers}")
endif()
