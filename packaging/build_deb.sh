#!/usr/bin/env bash
# Builds the Debian packages (hearth; hearth-monitor where its libraries are) into build/package and lets
# lintian look at them.
#   bash packaging/build_deb.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=packaging/build_package.sh
source packaging/build_package.sh

rm -f "$build"/*.deb
(cd "$build" && cpack -G DEB)
for deb in "$build"/hearth*.deb; do
  lintian --fail-on error,warning "$deb"
  dpkg-deb --info "$deb"
  echo "$deb"
done
