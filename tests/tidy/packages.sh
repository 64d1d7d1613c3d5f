#!/usr/bin/env bash
# Every Debian package that packaging/install_deps.sh installs is used: the table gives the proof.
#   bash tests/tidy/packages.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# PACKAGE=EXPRESSION that some file of the tree matches because of it.
table='g++=CXX_STANDARD 20
cmake=cmake_minimum_required
ninja-build="generator": "Ninja"
pkg-config=pkg_check_modules
ccache=find_program\([A-Z_]* ccache
libboost1.81-dev=#include <boost/asio
libzmq3-dev=#include <zmq
cppzmq-dev=find_package\(cppzmq
libsqlite3-dev=#include <sqlite3.h>
doctest-dev=#include <doctest/doctest.h>
nlohmann-json3-dev=#include <nlohmann/json
libtomlplusplus-dev=#include <toml
libcli11-dev=#include <CLI/CLI.hpp>
libfmt-dev=#include <fmt/
libspdlog-dev=#include <spdlog/
libxxhash-dev=#include <xxhash.h>
libsodium-dev=#include <sodium.h>
libssl-dev=#include <openssl/
libutf8proc-dev=#include <utf8proc.h>
libsystemd-dev=libsystemd
libcurl4-openssl-dev=#include <curl/curl.h>
clang-tidy-19=clang-tidy-19
libedit-dev=#include <(histedit|editline/readline).h>
python3-zmq=import zmq
python3-jinja2=import jinja2
libboost-context1.81-dev=#include <boost/context
libpcre2-dev=#include <pcre2.h>
libimgui-dev=#include <imgui.h>
libstb-dev=#include <.*stb_
libglfw3-dev=#include <GLFW/glfw3.h>
libgl-dev=OpenGL
libegl-dev=#include <EGL/egl.h>
libgl1-mesa-dri=(LIBGL|llvmpipe|EGL)
fonts-dejavu-core=DejaVu
xvfb=Xvfb|xvfb-run
xauth=Xvfb|xvfb-run
xdotool=xdotool
debootstrap=debootstrap
python3-pip=pip (download|install)
python3-venv=-m venv
clang-format=clang-format --version
clang-14=clang\+\+-14
libclang-rt-14-dev=fsanitize=fuzzer
llvm-14=llvm-(cov|profdata|symbolizer)
valgrind=valgrind --quiet'

bad=0
while read -r package; do
  expression=$(awk -v name="$package" 'index($0, name "=") == 1 { print substr($0, length(name) + 2) }' <<<"$table")
  if [[ -z $expression ]]; then
    echo "$package: tests/tidy/packages.sh does not know what uses it"
    bad=1
  elif ! grep -rqE --include=*.{h,cpp,cu,txt,cmake,sh,py,json} --exclude=install_deps.sh --exclude=packages.sh \
    --exclude-dir=build -- "$expression" CMakeLists.txt CMakePresets.json daemon engine ipc kernels models monitor packaging tests; then
    echo "$package: nothing in the tree matches $expression, which would use it"
    bad=1
  fi
done < <(sed -n '/^[a-z]*_packages=(/,/)/p' packaging/install_deps.sh | tr ' ()' '\n\n\n' | grep -E '^[a-z0-9.+-]+$')
exit "$bad"
