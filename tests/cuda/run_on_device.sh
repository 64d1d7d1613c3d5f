#!/usr/bin/env bash
# Runs what carry.sh packed, on a machine with a GPU: what there is, the tests, then the measurements.
#   bash run.sh [STEPS...]     device tests sanitize kernels model; default: all but sanitize
# Logs go to $OUT, or to logs/ next to this script. The last lines are a summary.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

logs=${OUT:-logs}
mkdir -p "$logs"
summary=()
export LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# step NAME COMMAND...: its output to the screen and to a log
step() {
  local name=$1 started=$SECONDS rc
  shift
  printf '\n== %s: %s\n' "$name" "$*"
  "$@" 2>&1 | tee "$logs/$name.log"
  rc=${PIPESTATUS[0]}
  summary+=("$name: rc $rc, $((SECONDS - started)) s")
}

export HEARTH_TEST_DATA=${HEARTH_TEST_DATA:-$PWD}

steps=("$@")
[[ ${#steps[@]} -gt 0 ]] || steps=(device tests kernels model)
for wanted in "${steps[@]}"; do
  case $wanted in
    device)
      step nvidia-smi nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,power.limit --format=csv
      step doctor ./hearth-worker-cuda doctor
      ;;
    tests)
      step op-tests ./cuda_gpu_test -d
      step golden-tests ./cuda_gpu_golden_test -d
      ;;
    sanitize)
      step memcheck compute-sanitizer --tool memcheck --error-exitcode 9 ./cuda_gpu_test
      step racecheck compute-sanitizer --tool racecheck --error-exitcode 9 ./cuda_gpu_test -tc='*types*,*rms_norm*,*mixed*'
      ;;
    kernels)
      step bench ./hearth-cuda-bench
      step bench-fast ./hearth-cuda-bench --numerics fast
      step row-bits ./hearth-cuda-bench --row-bits
      ;;
    model)
      # The 8 B shape (M) with random weights, made in memory.
      for type in Q4_K_M Q8_0 F16; do
        step "model-$type" ./hearth-worker-cuda bench --shape M --type "$type" --device cuda:0 --quick --read-mib 4096
        step "model-$type-fast" ./hearth-worker-cuda bench --shape M --type "$type" --device cuda:0 --quick --read-mib 4096 --numerics fast
      done
      ;;
    *) echo "no step $wanted" >&2; exit 2 ;;
  esac
done
printf '\n== summary\n'
printf '%s\n' "${summary[@]}"
