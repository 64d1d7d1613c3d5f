#!/usr/bin/env bash
# clang-tidy with the checks of .clang-tidy over all of our code but tests and device code.
#   bash tests/tidy/lint.sh [FOLDER...]    default: daemon engine ipc kernels models monitor
# Configures the release build, reads its flags and checks its units, eight files each:
# headers are parsed once a unit. Twenty minutes on two cores. HEARTH_JOBS sets the parallelism.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tool=$(command -v clang-tidy-19 || true)
if [[ -z $tool ]]; then
  echo "[hearth-skip] needs clang-tidy-19 (packaging/install_deps.sh --lint)"
  exit 0
fi
cmake --preset release >/dev/null  # again, too: units list files that may have moved since
folders=${*:-daemon engine ipc kernels models monitor}
# One line "  12 s UNIT" each; findings after it.
check_unit() {
  local begun=$SECONDS out rc=0
  out=$("$1" -p build/release --quiet --extra-arg=-w "$2" 2>/dev/null) || rc=$?
  printf '%4d s %s\n%s' $((SECONDS - begun)) "${2#"$PWD"/build/release/}" "${out:+$out$'\n'}"
  return "$rc"
}
export -f check_unit
# Vector code, once for each instruction set, has a body of its own in plain.cpp.
sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' build/release/compile_commands.json | sort -u |
  grep -E "^$PWD/(build/release/)?(${folders// /|})/.*\.(cpp|cxx)$" | grep -vE '/(avx2|avx512|avx512vnni|neon|neondot)\.cpp$' |
  xargs -P "${HEARTH_JOBS:-$(nproc)}" -I{} bash -c 'check_unit "$@"' _ "$tool" {}
