#!/usr/bin/env bash
# Installs what building hearth needs (with --test testing it, the dashboard where its packages can be
# had, --fuzz fuzzing, --lint tests/tidy/lint.sh, --package packaging it too, --monitor the dashboard with its tests, --aarch64 building
# for AArch64 and running that in QEMU) from Debian 12's own packages. Prints what it installs; does nothing
# where all of it is there. Needs root or sudo only then.
set -euo pipefail

build_packages=(
  g++ cmake ninja-build pkg-config ccache
  libboost1.81-dev libzmq3-dev cppzmq-dev libsqlite3-dev doctest-dev nlohmann-json3-dev
  libtomlplusplus-dev libcli11-dev libfmt-dev libspdlog-dev libxxhash-dev libsodium-dev libssl-dev
  libutf8proc-dev libcurl4-openssl-dev libedit-dev)
test_packages=(python3-zmq python3-jinja2 libboost-context1.81-dev libpcre2-dev clang-format)
monitor_packages=(libimgui-dev libstb-dev libglfw3-dev libgl-dev libegl-dev libgl1-mesa-dri fonts-dejavu-core
  xvfb xauth xdotool)
# For tests/packaging/bare.sh, and for what tests download from PyPI.
outside_packages=(debootstrap python3-pip python3-venv)
fuzz_packages=(clang-14 libclang-rt-14-dev llvm-14 valgrind)

wanted=("${build_packages[@]}")
optional=()
case ${1:-} in
  --test)
    wanted+=("${test_packages[@]}")
    optional=("${monitor_packages[@]}" "${outside_packages[@]}")
    ;;
  --monitor) wanted+=("${test_packages[@]}" "${monitor_packages[@]}") ;;
  --package) wanted+=(dpkg-dev lintian patchelf) ;;
  --aarch64) wanted+=(g++-aarch64-linux-gnu qemu-user-static) ;;
  --lint) wanted+=(clang-tidy-19) ;;
  --fuzz) wanted+=("${test_packages[@]}" "${fuzz_packages[@]}") ;;
esac

# missing_of PACKAGE...: those that are not installed.
missing_of() {
  local package status
  for package in "$@"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [[ $status == installed ]] || echo "$package"
  done
}
# install_missing PACKAGE...: fails where they are unavailable.
install_missing() {
  local missing as_root=()
  mapfile -t missing < <(missing_of "$@")
  if [[ ${#missing[@]} -eq 0 ]]; then return 0; fi
  echo "Installing from Debian: ${missing[*]}"
  if [[ $(id -u) -ne 0 ]]; then
    if ! command -v sudo >/dev/null; then
      echo "These packages are missing, and neither root nor sudo is at hand. As root, run:" >&2
      echo "  apt-get install -y --no-install-recommends ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -qq || return 1
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

install_missing "${wanted[@]}" || exit 1
if [[ ${#optional[@]} -gt 0 ]] && ! install_missing "${optional[@]}"; then
  echo "Without them hearth-monitor is not built, and its tests, those of a bare machine and of published models are skipped." >&2
fi
if [[ ${1:-} == --aarch64 ]]; then bash "$(dirname "${BASH_SOURCE[0]}")/aarch64_sysroot.sh"; fi
