# cmake --install, and what find_package(Tessera) reads.
include(CMakePackageConfigHelpers)
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tessera)

install(TARGETS tessera EXPORT TesseraTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
set_target_properties(tessera PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/tessera")
install(EXPORT TesseraTargets NAMESPACE Tessera:: DESTINATION ${config_dir})

install(DIRECTORY include/tessera/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera)
set(left_out "")
if(NOT TESSERA_CUDA_BACKEND)
  set(left_out PATTERN cuda EXCLUDE)
endif()
foreach(folder runtime comm mesh autograd ops nn train)
  install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tessera FILES_MATCHING PATTERN "*.h" ${left_out})
endforeach()

# A oneDNN that tools/setup fetched goes along, so that the installed tree needs nothing of this one.
if(DNNL_BUNDLED)
  get_filename_component(real_library ${DNNL_LIBRARY} REALPATH)
  install(PROGRAMS ${real_library} DESTINATION ${CMAKE_INSTALL_LIBDIR}/tessera RENAME libdnnl.so.3)
  install(DIRECTORY ${DNNL_INCLUDE_DIR}/ DESTINATION ${CMAKE_INSTALL_LIBDIR}/tessera/include)
endif()

configure_package_config_file(cmake/TesseraConfig.cmake.in ${PROJECT_BINARY_DIR}/TesseraConfig.cmake
                              INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TesseraConfig.cmake ${PROJECT_BINARY_DIR}/TesseraConfigVersion.cmake
              cmake/FindDNNL.cmake cmake/FindNetCDF.cmake DESTINATION ${config_dir})
