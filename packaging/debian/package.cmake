# The Debian packages `hearth`, `hearth-monitor` where it is built, and `hearth-cuda` where there is a
# worker for it, by CPack; build_deb.sh calls it.
string(TIMESTAMP today "%a, %d %b %Y 00:00:00 +0000" UTC)
set(HEARTH_PACKAGE_DATE "${today}" CACHE STRING "Date of the package's changelog entry")
configure_file(${CMAKE_CURRENT_SOURCE_DIR}/debian/changelog.in debian/changelog @ONLY)
set(packed ${CMAKE_CURRENT_BINARY_DIR}/debian/changelog.gz)
add_custom_command(OUTPUT ${packed}
  COMMAND ${GZIP} -9nc ${CMAKE_CURRENT_BINARY_DIR}/debian/changelog > ${packed}
  DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/debian/changelog VERBATIM)
add_custom_target(debian_changelog ALL DEPENDS ${packed})
# Each package has its own copy of what Debian's policy wants.
set(components hearth)
if(HEARTH_HAVE_MONITOR)
  list(APPEND components monitor)
endif()
if(TARGET hearth-worker-cuda)
  list(APPEND components cuda)
endif()
foreach(component ${components})
  set(package hearth)
  if(NOT component STREQUAL hearth)
    set(package hearth-${component})
  endif()
  install(FILES ${packed} debian/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package}
          COMPONENT ${component})
  set(HEARTH_PACKAGE ${package})
  set(HEARTH_MORE_OVERRIDES "")
  if(NOT component STREQUAL monitor)
    set(HEARTH_MORE_OVERRIDES "# The scripts start, restart and stop nothing where systemd does not run.
${package}: maintainer-script-calls-systemctl
")
  endif()
  configure_file(debian/lintian-overrides.in debian/overrides/${package} @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/debian/overrides/${package}
          DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides COMPONENT ${component})
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${package})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SHLIBDEPS ON)
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL ${components})
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_PACKAGE_NAME hearth)
set(CPACK_PACKAGE_VENDOR "the hearth authors")
set(CPACK_PACKAGE_CONTACT "the hearth authors <maintainers@hearth.example.org>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION misc)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
# The first line of each is the project's own description.
set(CPACK_COMPONENT_HEARTH_DESCRIPTION "hearthd owns the compute engine: paged KV cache, quantized weights and
continuous batching, on a plain CPU and from stock GGUF files. Local programs
send it requests over a socket and get tokens streamed back.

A small bundled model that writes fairy tales shows that it works.")
set(CPACK_DEBIAN_HEARTH_PACKAGE_DEPENDS "systemd | systemd-standalone-sysusers")
set(CPACK_DEBIAN_HEARTH_PACKAGE_SUGGESTS "hearth-monitor")
set(CPACK_DEBIAN_HEARTH_PACKAGE_CONTROL_EXTRA
  ${CMAKE_CURRENT_SOURCE_DIR}/debian/conffiles ${CMAKE_CURRENT_SOURCE_DIR}/debian/postinst
  ${CMAKE_CURRENT_SOURCE_DIR}/debian/prerm ${CMAKE_CURRENT_SOURCE_DIR}/debian/postrm)
set(CPACK_DEBIAN_HEARTH_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_COMPONENT_MONITOR_DESCRIPTION "This package holds the dashboard: throughput, what waits and why, the life of
every request, models, blocks of the KV cache. It looks over the daemon's
sockets; requests, models and kept prefixes can be managed from it.")
set(CPACK_DEBIAN_MONITOR_PACKAGE_DEPENDS "fonts-dejavu-core")
set(CPACK_DEBIAN_MONITOR_PACKAGE_RECOMMENDS "hearth, libgl1-mesa-dri")
set(CPACK_COMPONENT_CUDA_DESCRIPTION "This package holds the worker that computes on NVIDIA GPUs, and what the
service needs to reach them. The driver and cuBLAS come from elsewhere.")
set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "hearth (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_CUDA_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_SOURCE_DIR}/debian/cuda/postinst
  ${CMAKE_CURRENT_SOURCE_DIR}/debian/cuda/postrm)
set(CPACK_DEBIAN_CUDA_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
