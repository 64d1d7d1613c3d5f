#!/usr/bin/env bash
# The fuzz targets, one a line, as tests/fuzz/CMakeLists.txt names them.
sed -n 's/^set(HEARTH_FUZZ_TARGETS \(.*\))$/\1/p' "$(dirname "${BASH_SOURCE[0]}")/CMakeLists.txt" | tr ' ' '\n'
