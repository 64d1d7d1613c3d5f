#!/usr/bin/env bash
# Replays every fuzz target's corpus and seeds under valgrind, which sees reads of memory that was never written, as the
# sanitizers of this build do not. Fails on any error that valgrind reports, and on a leak.
#   bash tests/fuzz/memcheck.sh [TARGET ...]      the replay programs of build/release, built where they are missing
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

targets=("$@")
if [[ ${#targets[@]} == 0 ]]; then mapfile -t targets < <(bash tests/fuzz/targets.sh); fi
bash packaging/install_deps.sh --fuzz
cmake --preset release >/dev/null
cmake --build --preset release -j "${HEARTH_JOBS:-$(nproc)}" --target fuzz_seeds "${targets[@]/%/_fuzz_replay}" >/dev/null
seeds=$(mktemp -d "${TMPDIR:-/tmp}/hearth-memcheck.XXXXXX")
trap 'rm -rf "$seeds"' EXIT
build/release/bin/fuzz_seeds "$seeds"

failed=0
for target in "${targets[@]}"; do
  begun=$SECONDS log=$seeds/$target.log
  mkdir -p "$seeds/$target"
  if valgrind --quiet --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite --num-callers=30 \
    "build/release/bin/${target}_fuzz_replay" "tests/fuzz/corpus/$target" "$seeds/$target" >"$log" 2>&1; then
    printf '%-11s %s under valgrind, no error (%d s)\n' "$target" "$(tail -n 1 "$log")" $((SECONDS - begun))
  else
    failed=1
    grep -B 1 -A 60 -m 3 '^==' "$log" || tail -n 20 "$log"
    echo "$target FAILED under valgrind"
  fi
done
exit "$failed"
