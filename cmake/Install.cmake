# medley_install(<target>): installs the shared library <target> with the headers of include/medley, as medley::medley for
# find_package(medley).
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

function(medley_install target)
  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/medley)
  set_target_properties(${target} PROPERTIES EXPORT_NAME medley VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(${target} INTERFACE cxx_std_20)
  install(TARGETS ${target} EXPORT medley-targets)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/medley DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT medley-targets NAMESPACE medley:: DESTINATION ${package})
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/medley-config.cmake.in
    ${PROJECT_BINARY_DIR}/medley-config.cmake INSTALL_DESTINATION ${package})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/medley-config-version.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/medley-config.cmake ${PROJECT_BINARY_DIR}/medley-config-version.cmake DESTINATION ${package})
endfunction()
