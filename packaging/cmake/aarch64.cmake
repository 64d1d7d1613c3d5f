# Debian's cross compiler, the libraries that packaging/aarch64_sysroot.sh unpacks, and QEMU to run
# what comes of them: preset cpu-aarch64.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

cmake_path(SET root NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../../build/aarch64-sysroot")
set(HEARTH_SYSROOT "${root}" CACHE PATH "arm64 libraries, by packaging/aarch64_sysroot.sh")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES HEARTH_SYSROOT)
if(NOT EXISTS "${HEARTH_SYSROOT}/usr/include")
  message(FATAL_ERROR "No arm64 libraries in ${HEARTH_SYSROOT}: bash packaging/install_deps.sh --aarch64")
endif()
set(CMAKE_SYSROOT "${HEARTH_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_DIR} "")
set(ENV{PKG_CONFIG_LIBDIR}
  "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${CMAKE_SYSROOT}")

find_program(HEARTH_QEMU qemu-aarch64-static)
if(HEARTH_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${HEARTH_QEMU};-L;${CMAKE_SYSROOT}")
endif()
