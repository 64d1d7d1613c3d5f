#!/usr/bin/env bash
# Builds the Debian packages (hearth; hearth-monitor where its libraries are) into build/package and lets
# lintian look at them.
#   bash packaging/build_deb.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bash packaging/install_deps.sh --package
build=build/package
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DHEARTH_CUDA=OFF -DHEARTH_TESTS=OFF \
  -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_SYSCONFDIR=/etc -DHEARTH_SYSTEMD_DIR=/lib/systemd \
  -DCMAKE_CXX_FLAGS="-D_FORTIFY_SOURCE=2 -fstack-protector-strong" -DCMAKE_EXE_LINKER_FLAGS="-Wl,-z,relro,-z,now" \
  -DCMAKE_POSITION_INDEPENDENT_CODE=ON >/dev/null
rm -f "$build"/*.deb
cmake --build "$build" -j "${HEARTH_JOBS:-$(nproc)}"
(cd "$build" && cpack -G DEB)
for deb in "$build"/hearth*.deb; do
  lintian --fail-on error,warning "$deb"
  dpkg-deb --info "$deb"
  echo "$deb"
done
