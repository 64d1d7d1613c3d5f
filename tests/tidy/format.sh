#!/usr/bin/env bash
# Every C++ and CUDA file is as clang-format 14 (Debian 12) leaves it.
#   bash tests/tidy/format.sh           names the files that are not
#   bash tests/tidy/format.sh --fix     formats them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [[ $(clang-format --version 2>/dev/null) != *'version 14.'* ]]; then
  echo "[hearth-skip] needs clang-format 14 (packaging/install_deps.sh --test)"
  exit 0
fi
options=(--dry-run -Werror)
if [[ ${1:-} == --fix ]]; then options=(-i); fi
find daemon engine ipc kernels models monitor tests \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 -P "$(nproc)" -n 40 clang-format "${options[@]}"
