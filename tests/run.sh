#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test that this machine can run.
#   bash tests/run.sh          release, then our own code under ASan + UBSan, reduced counts
#   bash tests/run.sh --full   full counts, TSan, soaks, fuzzing, demo, tests and packages on a bare Debian 12
#                              and, where packaging/install_deps.sh --aarch64 was run, the kernels for AArch64
#                              in QEMU too; adds a row to tests/bench/RESULTS.md
# Published models, the official HTTP clients and a bare Debian 12 are downloaded once, into ~/.cache/hearth-tests;
# without network the tests that need them show as skipped. HEARTH_TEST_DATA names a directory with real models and
# tokenizers; without it the tests that need them show as skipped. HEARTH_JOBS sets the parallelism (default: the
# cores), HEARTH_FUZZ_SECONDS the time of each fuzz target in --full (default 600).
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
export TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp"
# A case that fails on a busy machine gets a second try and is named at the end; in --full it fails.
repeat=(--repeat until-pass:2)
if [[ $full == 1 ]]; then repeat=(); fi

bash packaging/install_deps.sh --test

results=()
second_tries=()
# The tests of a log of ctest that failed and then passed.
passed_at_second_try() {
  awk '/Test +#[0-9]+: / {
    name = $0; sub(/^.*Test +#[0-9]+: /, "", name); sub(/ \.\.*.*$/, "", name)
    if (/   Passed  /) { if (name in failed) print name } else if (!/\*\*\*(Skipped|Not Run)/) failed[name]
  }' "$1"
}
note() { printf '\n== %s (after %d min)\n' "$1" $((($(date +%s) - started) / 60)); }
# run_preset PRESET TARGETS... -- CTEST_OPTIONS...
run_preset() {
  local preset=$1 targets=()
  shift
  while [[ $1 != -- ]]; do targets+=("$1"); shift; done
  shift
  note "$preset: build"
  cmake --preset "$preset" >/dev/null
  cmake --build --preset "$preset" -j "$jobs" ${targets:+--target "${targets[@]}"}
  note "$preset: test"
  local log="build/$preset/ctest.log" rc name
  set +e  # the pipeline's own status is grep's; ctest's is wanted
  ctest --test-dir "build/$preset" --output-on-failure -j "$jobs" "${repeat[@]}" "$@" 2>&1 | tee "$log" |
    grep -vE '^ *Start +[0-9]+:|  Passed  '
  rc=${PIPESTATUS[0]}
  set -e
  while read -r name; do second_tries+=("$preset: $name"); done < <(passed_at_second_try "$log")
  results+=("$preset: $(grep -oE '[0-9]+% tests passed.*' "$log" | tail -n 1)")
  return "$rc"
}

# The sanitized builds first, the release build last: the output ends with its summary.
run_preset asan --
if [[ $full == 1 ]]; then
  run_preset tsan base_tests kernels_tests models_tests engine_tests store_tests ipc_tests broker_tests \
    worker_tests op_tests sim_tests hearth -- -L 'unit|sim|op' -E '^fuzz:'
  if command -v aarch64-linux-gnu-g++ >/dev/null && command -v qemu-aarch64-static >/dev/null &&
    [[ -d build/aarch64-sysroot ]]; then
    run_preset cpu-aarch64 op_tests kernels_tests -- -L 'unit|op' --timeout 1800
  else
    results+=("cpu-aarch64: skipped, needs packaging/install_deps.sh --aarch64")
  fi
  export HEARTH_TEST_FULL=1  # where counts cost minutes and not hours
fi
run_preset release --
if [[ $full == 0 ]]; then
  printf '\n%d tests passed at the second try alone\n' ${#second_tries[@]}
  if [[ ${#second_tries[@]} -gt 0 ]]; then printf '  %s\n' "${second_tries[@]}"; fi
fi
if [[ $full == 1 ]]; then
  note fuzz
  HEARTH_FUZZ_SECONDS=${HEARTH_FUZZ_SECONDS:-600} bash tests/fuzz/run.sh
  results+=("fuzz: ${HEARTH_FUZZ_SECONDS:-600} s a target, no crash")
  note "bare machine"
  bash tests/packaging/bare.sh --full | tee build/bare.log
  results+=("bare machine: $(grep -m 1 '^\[hearth-skip\] bare machine' build/bare.log || echo "demo, tests, packages")")
  minutes=$((($(date +%s) - started + 59) / 60))
  cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
  note done
  printf '%s\n' "${results[@]}"
  row=$(printf '| %s | %s | %s, %s cores | %s | %s |' "$(date -u +%F)" "$(git rev-parse --short HEAD)" \
    "$cpu" "$(nproc)" "$(IFS=';'; echo "${results[*]}")" "$minutes min")
  # Into the table at the top, newest first.
  awk -v row="$row" '{ print } /^\|---/ && !done { print row; done = 1 }' tests/bench/RESULTS.md >build/RESULTS.md
  cp build/RESULTS.md tests/bench/RESULTS.md
fi
