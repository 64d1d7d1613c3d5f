#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test that this machine can run.
#   bash tests/run.sh          release, then our own code under ASan + UBSan, reduced counts
#   bash tests/run.sh --full   full counts, TSan and soaks too; adds a row to tests/bench/RESULTS.md
# HEARTH_TEST_DATA names a directory with real models and tokenizers; without it the tests that
# need them show as skipped. HEARTH_JOBS sets the build's parallelism (default: the cores).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

full=0
case ${1:-} in
  "") ;;
  --full) full=1 ;;
  *) echo "usage: bash tests/run.sh [--full]" >&2; exit 2 ;;
esac
jobs=${HEARTH_JOBS:-$(nproc)}
started=$(date +%s)
if [[ $full == 1 ]]; then export HEARTH_TEST_FULL=1; fi

bash packaging/install_deps.sh --test

results=()
run_preset() {
  local preset=$1
  shift
  printf '\n== %s: build\n' "$preset"
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset" -j "$jobs"
  printf '\n== %s: test\n' "$preset"
  local log="build/$preset/ctest.log" rc
  set +e  # the pipeline's own status is grep's; ctest's is wanted
  ctest --test-dir "build/$preset" --output-on-failure "$@" 2>&1 | tee "$log" |
    grep -vE '^ *Start +[0-9]+:|  Passed  '
  rc=${PIPESTATUS[0]}
  set -e
  results+=("$preset $(grep -oE '[0-9]+% tests passed.*' "$log" | tail -n 1)")
  return "$rc"
}

# The sanitized build first, the release build last: the output ends with its summary.
run_preset asan
if [[ $full == 1 ]]; then run_preset tsan -L 'unit|sim|op'; fi
run_preset release

minutes=$((($(date +%s) - started + 59) / 60))
if [[ $full == 1 ]]; then
  cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
  printf '| %s | %s | %s, %s cores | %s | %s |\n' "$(date -u +%F)" "$(git rev-parse --short HEAD)" \
    "$cpu" "$(nproc)" "$(IFS=';'; echo "${results[*]}")" "$minutes min" >>tests/bench/RESULTS.md
fi
