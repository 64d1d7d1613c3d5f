# The Debian package `hearth`, by CPack; build_deb.sh calls it.
string(TIMESTAMP today "%a, %d %b %Y 00:00:00 +0000" UTC)
set(HEARTH_PACKAGE_DATE "${today}" CACHE STRING "Date of the package's changelog entry")
configure_file(${CMAKE_CURRENT_SOURCE_DIR}/debian/changelog.in debian/changelog @ONLY)
set(packed ${CMAKE_CURRENT_BINARY_DIR}/debian/changelog.gz)
add_custom_command(OUTPUT ${packed}
  COMMAND ${GZIP} -9nc ${CMAKE_CURRENT_BINARY_DIR}/debian/changelog > ${packed}
  DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/debian/changelog VERBATIM)
add_custom_target(debian_changelog ALL DEPENDS ${packed})
install(FILES ${packed} debian/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES debian/lintian-overrides DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides
        RENAME hearth)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME hearth)
set(CPACK_PACKAGE_VENDOR "the hearth authors")
set(CPACK_PACKAGE_CONTACT "the hearth authors <maintainers@hearth.example.org>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION misc)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "systemd | systemd-standalone-sysusers")
# The first line is the project's own description.
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "hearthd owns the compute engine: paged KV cache, quantized weights and
continuous batching, on a plain CPU and from stock GGUF files. Local programs
send it requests over a socket and get tokens streamed back.

A small bundled model that writes fairy tales shows that it works.")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
  ${CMAKE_CURRENT_SOURCE_DIR}/debian/conffiles ${CMAKE_CURRENT_SOURCE_DIR}/debian/postinst
  ${CMAKE_CURRENT_SOURCE_DIR}/debian/prerm ${CMAKE_CURRENT_SOURCE_DIR}/debian/postrm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
