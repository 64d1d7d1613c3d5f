#!/usr/bin/env bash
# Builds the Debian packages (hearth; hearth-monitor where its libraries are; with --cuda hearth-cuda) into
# build/package and lets lintian look at them.
#   bash packaging/build_deb.sh [--cuda ARCHS]     ARCHS as of CMake: "75-real;80-real;90a-real;120"
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ $# -gt 0 ]]; then
  [[ $1 == --cuda && -n ${2:-} ]] || { echo "usage: build_deb.sh [--cuda ARCHS]" >&2; exit 2; }
  # shellcheck disable=SC2034
  cuda=ON archs=$2
fi
# shellcheck source=packaging/build_package.sh
source packaging/build_package.sh

rm -f "$build"/*.deb
(cd "$build" && cpack -G DEB)
for deb in "$build"/hearth*.deb; do
  lintian --fail-on error,warning "$deb"
  dpkg-deb --info "$deb"
  echo "$deb"
done
