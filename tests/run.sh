#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test that this machine can run.
#   bash tests/run.sh             our own code under ASan + UBSan, then release without nvcc, reduced counts
#   bash tests/run.sh --release   release alone
#   bash tests/run.sh --full      full counts, all that ASan and UBSan check, TSan, CUDA kernels under ASan on the CPU and
#                                 compiled for all architectures of the packages, clang-tidy, soaks, attacks, valgrind, fuzzing, demo, tests and packages on a bare Debian 12
#                                 and, where packaging/install_deps.sh --aarch64 was run, the kernels for AArch64 in
#                                 QEMU too
#   bash tests/run.sh --full STAGE...   these stages of --full alone
# --full takes hours and is made of stages. A stage that fails does not stop the others. In a clean tree a stage that
# passes writes its row into docs/benchmarks.md, and build/full/ remembers it for these sources: started again, --full
# runs only the others. Remove build/full to run all again.
# Published models, the official HTTP clients, in --full other programs (2.5 GB), and a bare Debian 12 are downloaded
# once, into ~/.cache/hearth-tests;
# without network the tests that need them show as skipped. HEARTH_TEST_DATA names a directory with real models and
# tokenizers; without it the tests that need them show as skipped. HEARTH_JOBS sets the parallelism (default: the
# cores), HEARTH_FUZZ_SECONDS the time of each fuzz target in --full (default 600).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

all_stages=(asan tsan aarch64 release cuda lint soak siege memcheck coverage fuzz bare-presets bare-demo bare-packages bare-tests)
full=0 release_only=0 wanted=()
usage() {
  printf 'usage: bash tests/run.sh [--release|--full [STAGE...]]\nstages: %s\n' "${all_stages[*]}" >&2
  exit 2
}
case ${1:-} in
  "") ;;
  --full)
    full=1
    wanted=("${@:2}")
    for stage in "${wanted[@]}"; do [[ " ${all_stages[*]} " == *" $stage "* ]] || usage; done
    ;;
  --release) release_only=1 ;;
  *) usage ;;
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
# A tree without changes, except in the page of results, is named by its sources and by its commit.
clean() { [[ -z $(git status --porcelain -- . ':!docs/benchmarks.md' 2>&1) ]]; }
sources() { git ls-tree -r HEAD | grep -v 'docs/benchmarks\.md$' | git hash-object --stdin; }
# record STAGE RESULT MINUTES: the stage's row in docs/benchmarks.md.
record() {
  local cpu
  cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
  awk -v stage="$1" -v row="| $1 | $(date -u +%F) | $(git rev-parse --short HEAD) | $cpu, $(nproc) cores | $2 | $3 min |" '
    function put() { if (at == 3 && !done) { print row; done = 1 } }
    /^\| stage \| date \| commit \|/ { at = 1 }
    at == 1 && /^\|---/ { at = 2; print; at = 3; next }
    at == 3 && !/^\|/ { put(); at = 4 }
    at == 3 && index($0, "| " stage " |") == 1 { put(); next }
    { print }
    END { put() }' docs/benchmarks.md >build/full/benchmarks.md
  cp build/full/benchmarks.md docs/benchmarks.md
}

# stage NAME COMMAND...: runs the command, which sets $outcome, unless it passed for these sources before.
failed_stages=0
stage() {
  local name=$1 kept=build/full/$1 begun before= rc=0
  shift
  if [[ ${#wanted[@]} -gt 0 && " ${wanted[*]} " != *" $name "* ]]; then return; fi
  mkdir -p build/full
  if [[ $full == 1 ]] && clean; then before=$(sources); fi
  if [[ -n $before && -f $kept && $(sed -n 1p "$kept") == "$before" ]]; then
    note "$name: passed before for these sources"
    results+=("$(sed -n 2p "$kept")")
    return
  fi
  begun=$(date +%s)
  outcome=
  if [[ $full == 1 ]]; then
    set +e  # not in a condition, where a failing command of the stage would not end it
    (
      set -e
      "$@"
      echo "$outcome" >build/full/outcome
    )
    rc=$?
    set -e
    if [[ $rc == 0 ]]; then outcome=$(<build/full/outcome); else outcome="FAILED with status $rc"; fi
  else
    "$@"
  fi
  local took=$((($(date +%s) - begun + 59) / 60))
  results+=("$name: $outcome, $took min")
  if [[ $rc != 0 ]]; then
    failed_stages=$((failed_stages + 1))
  elif [[ -n $before ]] && clean && [[ $(sources) == "$before" ]]; then
    printf '%s\n%s\n' "$before" "${results[-1]}" >"$kept"
    record "$name" "$outcome" $took
  fi
}

# build_preset PRESET TARGETS...
build_preset() {
  local preset=$1 configure=()
  shift
  # Under AddressSanitizer the CUDA kernels on the CPU take a third of the tests' time, and the release build runs
  # them, too. Checks of scopes and of vector code take nearly half of the build's time.
  if [[ $preset == asan ]]; then
    local all=OFF
    if [[ $full == 1 ]]; then all=ON; fi
    configure=(-D "HEARTH_SHIM_TESTS=$all" -D "HEARTH_SANITIZE_ALL=$all")
  fi
  # nvcc takes four minutes of processor time. g++ compiles the same kernels for their tests on the CPU.
  if [[ $preset == release && $full == 0 && $release_only == 0 ]]; then configure=(-D HEARTH_CUDA=OFF); fi
  note "$preset: build"
  cmake --preset "$preset" "${configure[@]}" >/dev/null
  cmake --build --preset "$preset" -j "$jobs" ${1:+--target "$@"}
}
# test_preset PRESET CTEST_OPTIONS...
test_preset() {
  local preset=$1
  shift
  note "$preset: test"
  local log="build/$preset/ctest.log" rc name
  set +e  # the pipeline's own status is grep's; ctest's is wanted
  ctest --test-dir "build/$preset" --output-on-failure -j "$jobs" "${repeat[@]}" "$@" 2>&1 | tee "$log" |
    grep -vE '^ *Start +[0-9]+:|  Passed  '
  rc=${PIPESTATUS[0]}
  set -e
  while read -r name; do second_tries+=("$preset: $name"); done < <(passed_at_second_try "$log")
  outcome=$(grep -oE '[0-9]+% tests passed.*' "$log" | tail -n 1)
  return "$rc"
}
# run_preset PRESET TARGETS... -- CTEST_OPTIONS...
run_preset() {
  local preset=$1 targets=()
  shift
  while [[ $1 != -- ]]; do targets+=("$1"); shift; done
  shift
  build_preset "$preset" "${targets[@]}"
  test_preset "$preset" "$@"
}
# Tests wait for processes and timers, so the release build fills the time that the sanitized tests leave.
run_asan_next_to_release_build() {
  build_preset asan
  set -m  # a process group of its own, to be ended as one
  (renice -n 15 -p $BASHPID >/dev/null; build_preset release) >build/release.log 2>&1 &
  local build=$!
  set +m
  trap "kill -- -$build 2>/dev/null || true" EXIT
  test_preset asan
  note "release: build, begun during these tests"
  wait $build || { cat build/release.log; return 1; }
  trap - EXIT
}

run_aarch64() {
  if command -v aarch64-linux-gnu-g++ >/dev/null && command -v qemu-aarch64-static >/dev/null &&
    [[ -d build/aarch64-sysroot ]]; then
    run_preset cpu-aarch64 op_tests kernels_tests -- -R '^(op_tests|kernels_tests)' --timeout 1800
  else
    outcome="skipped, needs packaging/install_deps.sh --aarch64"
  fi
}
run_soak() {
  note soak
  python3 tests/soak/soak.py build/release/bin models/demo --hours 0.1
  outcome="6 min, nothing grew"
}
run_siege() {
  note siege
  python3 tests/soak/siege.py build/release/bin models/demo --minutes 3 | tee build/release/siege.log
  outcome=$(tail -n 1 build/release/siege.log)
}
run_memcheck() {
  note memcheck
  bash tests/fuzz/memcheck.sh
  outcome="no error under valgrind"
}
run_coverage() {
  note "fuzz coverage"
  bash tests/fuzz/coverage.sh | tee build/coverage.log
  outcome=$(awk '/ lines, / { lines += $2; missed += $4 } END { printf "%d lines of parsers, %.1f %% covered", lines, 100 - 100 * missed / lines }' \
    build/coverage.log)
}
run_fuzz() {
  note fuzz
  HEARTH_FUZZ_SECONDS=${HEARTH_FUZZ_SECONDS:-600} bash tests/fuzz/run.sh
  outcome="${HEARTH_FUZZ_SECONDS:-600} s a target, no crash"
}
run_cuda() {
  note "CUDA for all architectures"
  bash tests/cuda/architectures.sh | tee build/full/cuda.log
  outcome=$(grep -o '\[hearth-skip\].*' build/full/cuda.log || echo "no stack, no spills: $(paste -sd ';' build/full/cuda.log)")
}
run_lint() {
  note lint
  bash packaging/install_deps.sh --lint
  bash tests/tidy/lint.sh | tee build/full/lint.log
  outcome=$(grep -o '\[hearth-skip\].*' build/full/lint.log || echo "clang-tidy finds nothing in $(grep -cE '^( *[0-9]+ s|known) ' build/full/lint.log) units")
}
run_bare() {
  note "bare machine: $1"
  mkdir -p build/full
  bash tests/packaging/bare.sh "--$1" 2>&1 | tee "build/full/bare-$1.log"
  outcome=$(grep -m 1 -o '\[hearth-skip\] bare machine.*' "build/full/bare-$1.log" || echo passed)
}

# The sanitized builds first, the release build last: the output ends with its summary.
if [[ $full == 1 ]]; then
  stage asan run_preset asan --
elif [[ $release_only == 0 ]]; then
  stage asan run_asan_next_to_release_build
fi
if [[ $full == 1 ]]; then
  stage tsan run_preset tsan base_tests kernels_tests models_tests engine_tests store_tests ipc_tests broker_tests \
    worker_tests op_tests sim_tests hearth -- -L 'unit|sim|op' -E '^fuzz:'
  stage aarch64 run_aarch64
  export HEARTH_TEST_FULL=1  # where counts cost minutes and not hours
  export HEARTH_TEST_NOISE=1  # a second user's small requests to every daemon of the tests
  stage release run_preset release -- -LE '^bare$'  # which has stages of its own
  stage cuda run_cuda
  stage lint run_lint
  stage soak run_soak
  stage siege run_siege
  stage memcheck run_memcheck
  stage coverage run_coverage
  stage fuzz run_fuzz
  for part in presets demo packages tests; do stage "bare-$part" run_bare "$part"; done
else
  stage release run_preset release --
  printf '\n%d tests passed at the second try alone\n' ${#second_tries[@]}
  if [[ ${#second_tries[@]} -gt 0 ]]; then printf '  %s\n' "${second_tries[@]}"; fi
fi
note done
printf '%s\n' "${results[@]}"
if [[ $failed_stages != 0 ]]; then exit 1; fi
