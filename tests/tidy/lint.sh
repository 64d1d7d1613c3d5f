#!/usr/bin/env bash
# clang-tidy with the checks of .clang-tidy over all of our code but tests and device code.
#   bash tests/tidy/lint.sh [FOLDER...]    default: daemon engine ipc kernels models monitor
# Configures the release build, reads its flags and checks its units, eight files each:
# headers are parsed once a unit. Twenty minutes on two cores; a unit whose text passed before is not checked again
# (build/lint remembers it). HEARTH_JOBS sets the parallelism.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tool=$(command -v clang-tidy-19 || true)
if [[ -z $tool ]]; then
  echo "[hearth-skip] needs clang-tidy-19 (packaging/install_deps.sh --lint)"
  exit 0
fi
cmake --preset release >/dev/null  # again, too: units list files that may have moved since
folders=${*:-daemon engine ipc kernels models monitor}
mkdir -p build/lint
# What a unit's result depends on: its text with all headers and comments, the checks and the tool. 1: it has no text.
key_of() (
  set -o pipefail
  local command
  command=$(awk -v file="\"file\": \"$2\"" '/"command":/ { command = $0 } index($0, file) { print command; exit }' \
    build/release/compile_commands.json | sed -E 's/^ *"command": "//; s/",?$//; s/\\"/"/g; s/ -o [^ ]+ -c / -E -P -C /')
  { (cd build/release && eval "$command") && cat .clang-tidy && "$1" --version; } 2>/dev/null | sha256sum | cut -d' ' -f1
)
# One line "  12 s UNIT" each; findings after it.
check_unit() {
  local begun=$SECONDS out rc=0 key
  key=$(key_of "$@") || key=
  if [[ -n $key && -f build/lint/$key ]]; then
    printf 'known  %s\n' "${2#"$PWD"/build/release/}"
    return 0
  fi
  out=$("$1" -p build/release --quiet --extra-arg=-w "$2" 2>/dev/null) || rc=$?
  printf '%4d s %s\n%s' $((SECONDS - begun)) "${2#"$PWD"/build/release/}" "${out:+$out$'\n'}"
  if [[ $rc == 0 && -n $key ]]; then touch "build/lint/$key"; fi
  return "$rc"
}
export -f check_unit key_of
# Vector code, once for each instruction set, has a body of its own in plain.cpp.
sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' build/release/compile_commands.json | sort -u |
  grep -E "^$PWD/(build/release/)?(${folders// /|})/.*\.(cpp|cxx)$" | grep -vE '/(avx2|avx2vnni|avx512|avx512vnni|neon|neondot)\.cpp$' |
  xargs -P "${HEARTH_JOBS:-$(nproc)}" -I{} bash -c 'check_unit "$@"' _ "$tool" {}
