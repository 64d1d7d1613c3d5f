#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each for a while, from its corpus. A crash, a leak, a
# hang or too much memory fails the run and names the input that shows it.
#   bash tests/fuzz/run.sh [TARGET ...]          HEARTH_FUZZ_SECONDS each (default 600)
#   bash tests/fuzz/run.sh --keep [TARGET ...]   the same, then minimises what was found into the corpus
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

keep=0
if [[ ${1:-} == --keep ]]; then keep=1; shift; fi
targets=("$@")
if [[ ${#targets[@]} == 0 ]]; then mapfile -t targets < <(bash tests/fuzz/targets.sh); fi
seconds=${HEARTH_FUZZ_SECONDS:-600}
jobs=${HEARTH_JOBS:-$(nproc)}
declare -A max_len=([gguf]=16384 [imatrix]=4096 [vocabulary]=2048 [tokenizer]=1024 [wire]=4096 [store]=2048 [http]=2048 [remote]=1024 [template]=4096 [grammar]=2048 [answer]=1024 [zmtp]=1024)

bash packaging/install_deps.sh --fuzz
CC=clang-14 CXX=clang++-14 cmake --preset fuzz >/dev/null
cmake --build --preset fuzz -j "$jobs"

found=$(mktemp -d "${TMPDIR:-/tmp}/hearth-fuzz.XXXXXX")
build/fuzz/bin/fuzz_seeds "$found/seeds"
mkdir -p "$found/crashes"

fuzz() {
  local target=$1 log="$found/$1.log"
  mkdir -p "$found/$target"
  if ! "build/fuzz/bin/${target}_fuzz" -max_total_time="$seconds" -max_len="${max_len[$target]}" \
    -rss_limit_mb=2048 -timeout=20 -print_final_stats=1 -artifact_prefix="$found/crashes/$target-" \
    "$found/$target" "$found/seeds/$target" "tests/fuzz/corpus/$target" >"$log" 2>&1; then
    tail -n 60 "$log"
    echo "fuzz $target failed; inputs that show it:"
    find "$found/crashes" -type f
    return 1
  fi
  printf '\n== fuzz %s, %s s\n' "$target" "$seconds"
  grep -E 'DONE|stat::(number_of_executed|average_exec)' "$log"
  if [[ $keep == 1 ]]; then
    mkdir -p "$found/new/$target"
    "build/fuzz/bin/${target}_fuzz" -merge=1 -max_len="${max_len[$target]}" "$found/new/$target" \
      "tests/fuzz/corpus/$target" "$found/seeds/$target" "$found/$target" >>"$log" 2>&1
    rm -rf "tests/fuzz/corpus/$target"
    mv "$found/new/$target" "tests/fuzz/corpus/$target"
    du -sb "tests/fuzz/corpus/$target"
  fi
}

# As many targets at a time as there are cores.
failed=0 running=0
for target in "${targets[@]}"; do
  if ((running >= jobs)); then
    wait -n || failed=1
    running=$((running - 1))
  fi
  fuzz "$target" &
  running=$((running + 1))
done
for ((; running > 0; --running)); do wait -n || failed=1; done
if [[ $failed == 1 ]]; then exit 1; fi
rm -rf "$found"
