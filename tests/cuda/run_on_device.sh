#!/usr/bin/env bash
# Runs what carry.sh packed, on a machine with a GPU, in three calls of at most nine minutes each.
#   bash run.sh 1       device, doctor, op tests, whole models, ceilings, products of few rows
#   bash run.sh 2       engine, speculation, a daemon with clients, all op measurements, kernels that no device has run yet, numerics
#                       fast, row bits, the 8 B shape in Q4_K_M
#   bash run.sh 3       the 8 B shape in Q8_0 and F16, sanitizers, profiles of six kernels
#   bash run.sh STEP... steps alone: device tests golden ceilings few engine speculate daemon ops unconfirmed fast row-bits sanitize profile
#                       model-Q4_K_M model-Q8_0 model-F16
# $OUT or logs/ gets run.log (all output) and results.json (every case and figure). A step prints a line when it ends;
# the last output is a table of at most 12,000 characters. Each test case is a process of its own with a time limit, because a
# fault ends the CUDA context of its process. Without a device all fail. Exit status: 1 if anything failed.
# HEARTH_CALL_SECONDS (default 540) bounds a call: what does not begin in time is reported as not run.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

if [[ -f programs.tar.gz && ! -e cuda_gpu_test ]]; then tar -xzf programs.tar.gz || exit 1; fi
logs=${OUT:-logs}
mkdir -p "$logs"
log=$logs/run.log results=$logs/results.json rows=$logs/rows
: >"$log"
: >"$rows"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
call_seconds=${HEARTH_CALL_SECONDS:-540}
export HEARTH_REQUIRE_DEVICE=1 HEARTH_TEST_DATA=${HEARTH_TEST_DATA:-$PWD}
# cuBLASLt may lie in the toolkit's folder or in that of a Python package.
cublaslt=$(timeout 20 find -L /usr/local /usr/lib /opt -name 'libcublasLt.so.13' -print -quit 2>/dev/null)
export LD_LIBRARY_PATH=$PWD/lib${cublaslt:+:$(dirname "$cublaslt")}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

text() { printf '%s' "$1" | tr '[:cntrl:]' ' ' | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g'; }
# result STEP NAME STATUS SECONDS [DETAIL]: a row of results.json.
result() {
  printf '{"step":"%s","name":"%s","status":"%s","seconds":%s,"detail":"%s"}\n' "$(text "$1")" "$(text "$2")" "$3" "$4" \
    "$(text "${5:-}")" >>"$rows"
}

declare -A passed failed skipped
failures=() figures=() steps_done=()
# start OUTPUT SECONDS COMMAND...: one process; its output, status and seconds go to files named OUTPUT*.
start() {
  local to=$1 limit=$2 left=$((call_seconds - SECONDS)) begun=$SECONDS rc
  shift 2
  if ((left < 5)); then
    echo "not run 0" >"$to.status"
    return
  fi
  timeout -k 5 "$((limit < left ? limit : left))" "$@" >"$to" 2>&1
  rc=$?
  echo "$rc $((SECONDS - begun))" >"$to.status"
}
# collect STEP NAME OUTPUT: counts what start() left. Status 1 if it failed.
collect() {
  local step=$1 name=$2 to=$3 rc seconds status detail=
  read -r rc seconds <"$to.status"
  case $rc in
    0) if grep -q '\[hearth-skip\]' "$to"; then status=skip; else status=pass; fi ;;
    77) status=skip ;;
    124 | 137) status="time limit" ;;
    not) status="not run" seconds=0 ;;
    *) status="fail, status $rc" ;;
  esac
  { printf '\n== %s, %s: %s\n' "$step" "$name" "$status"; cat "$to"; } >>"$log" 2>/dev/null
  [[ $status == pass ]] || detail=$(grep -aE 'ERROR|error|hearth-skip|what\(\)|CHECK|REQUIRE' "$to" 2>/dev/null | head -n 2 | cut -c 1-160)
  result "$step" "$name" "$status" "$seconds" "$detail"
  case $status in
    pass) ((passed[$step] += 1)) ;;
    skip) ((skipped[$step] += 1)) ;;
    *)
      ((failed[$step] += 1))
      failures+=("$step: $name: $status: $detail")
      return 1
      ;;
  esac
}
# run STEP NAME SECONDS COMMAND...: one process alone on the device; its output stays in $output.
run() {
  local step=$1 name=$2
  output=$scratch/output
  : >"$output"
  start "$output" "${@:3}"
  collect "$step" "$name" "$output"
}
# together STEP SECONDS NAME COMMAND [NAME COMMAND]...: processes side by side, HEARTH_AT_ONCE (8) at a time. A command is
# one word, which the shell reads.
together() {
  local step=$1 limit=$2 at_once=${HEARTH_AT_ONCE:-8} i words
  shift 2
  words=("$@")
  for ((i = 0; i < ${#words[@]}; i += 2)); do
    while (($(jobs -rp | wc -l) >= at_once)); do wait -n; done
    start "$scratch/$step.$i" "$limit" bash -c "exec ${words[i + 1]}" &
  done
  wait
  for ((i = 0; i < ${#words[@]}; i += 2)); do collect "$step" "${words[i]}" "$scratch/$step.$i"; done
}
# cases STEP SECONDS PROGRAM [FILTER...]: each case that matches in a process of its own.
cases() {
  local step=$1 limit=$2 program=$3 names name words=()
  shift 3
  mapfile -t names < <("./$program" -ltc "$@" | sed -e '/^\[doctest\]/d' -e '/^=*$/d')
  for name in "${names[@]}"; do words+=("$name" "./$program $(printf '%q' "-tc=${name//,/\\,}")"); done
  together "$step" "$limit" "${words[@]}"
}
# figures_of STEP: the lines of $output that have figures, for the table.
figures_of() {
  local line
  while IFS= read -r line; do
    figures+=("$1: $line")
    result "$1" "$line" figure 0
  done < <(grep -aE 'GB/s|tokens/s|Top/s|Gop/s|idle|graph|ratio|accepted|differ|equal' "$output" | tr -s ' ' | cut -c 1-150)
}
model() {  # the 8 B shape (M) with random weights, made in memory
  run "model-$1" "$1" 240 ./hearth-worker-cuda bench --shape M --type "$1" --device cuda:0 --quick --read-mib 4096 &&
    figures_of "model-$1"
}

# serve_clients FOLDER: a daemon over the demo's model; 16 clients at once get the text of one alone.
serve_clients() {
  export HEARTH_RUNTIME_DIR=$1/run HEARTH_STATE_DIR=$1/state
  local daemon i pids=() ask=(./hearth run tales --no-start --max-tokens 200 --temperature 0 "Once upon a time there was a")
  ./hearthd --allow-root --model-dir demo --set worker.device=cuda:0 >"$1/hearthd.log" 2>&1 &
  daemon=$!
  trap 'kill "$daemon"; wait "$daemon"; cat "$1/hearthd.log"' RETURN
  ./hearth ping --wait-ms 30000 && "${ask[@]}" >"$1/alone" || return 1
  for i in {1..16}; do "${ask[@]}" >"$1/of.$i" & pids+=($!); done
  wait "${pids[@]}"
  for i in {1..16}; do cmp "$1/alone" "$1/of.$i" || return 1; done
  ./hearth ps | tee "$1/ps"
  cat "$1/alone"
  grep -q cuda "$1/ps" && (($(wc -c <"$1/alone") > 300))
}

# What a sanitizer or the profiler runs; run_on_device_test.sh checks that each names a case.
sanitized=('attention: head sizes*' 'attention: contexts of several splits' 'attention: all kernels*' 'attention: a row*' 'matmul: many rows*' 'matmul: joined*'
  'matmul: rows of 16*' 'moe_matmul: a row*' 'moe_matmul: types*' 'draw' 'best logits' 'draw: noise*' 'rms_norm' 'rotate_and_store*')
profiled=(matmul_super_row_kernel matmul_super_tiles_kernel matmul_half_wide_kernel few_rows_kernel wgmma_rows_kernel matmul_super_mma_tiles_kernel)

do_step() {
  local filter tool kernel
  case $1 in
    device)
      run device nvidia-smi 30 nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,power.limit --format=csv,noheader &&
        figures+=("device: $(head -n 1 "$output")")
      run device doctor 60 ./hearth-worker-cuda doctor
      ;;
    tests) cases tests 120 cuda_gpu_test ;;
    golden) cases golden 180 cuda_gpu_golden_test ;;
    engine) cases engine 120 cuda_gpu_engine_test ;;
    speculate)
      for filter in 0 0.8; do
        run speculate "tales at temperature $filter" 120 ./hearth-worker-cuda bench demo/tales.gguf --speculate --tokens 160 --draft none \
          --temperature "$filter" --device cuda:0 && figures_of speculate
      done
      ;;
    daemon) run daemon "16 clients of one daemon" 90 bash -c "$(declare -f serve_clients); serve_clients '$scratch'" && figures_of daemon ;;
    ceilings) run ceilings ceilings 60 ./hearth-cuda-bench --only ceilings && figures_of ceilings ;;
    few) run few "products of at most 32 rows" 120 ./hearth-cuda-bench --only few && figures_of few ;;
    ops) run ops "products of many rows, other types, attention" 200 ./hearth-cuda-bench --only many,types,attention && figures_of ops ;;
    unconfirmed)  # what no device has run yet: its cases, then measurements of the kernels in use and of the new ones
      cases unconfirmed 120 cuda_gpu_test '-tc=at once*'
      cases unconfirmed 120 cuda_gpu_engine_test '-tc=engine: launches*,engine: pools that take*'
      run unconfirmed "launches in use" 60 ./hearth-cuda-bench --only layer,attention && figures_of "in use"
      run unconfirmed "launches not confirmed" 60 ./hearth-cuda-bench --only layer,attention --unconfirmed && figures_of unconfirmed
      # Products of many rows as devices without wgmma compute them.
      run unconfirmed "in use without wgmma" 100 ./hearth-cuda-bench --only many --no-wgmma && figures_of "no wgmma"
      run unconfirmed "not confirmed yet" 100 ./hearth-cuda-bench --only many --no-wgmma --unconfirmed && figures_of unconfirmed
      ;;
    fast) run fast "numerics fast" 120 ./hearth-cuda-bench --numerics fast && figures_of fast ;;
    row-bits) run row-bits "bits of cuBLASLt by row count" 60 ./hearth-cuda-bench --row-bits && figures_of row-bits ;;
    sanitize)
      local words=()
      for tool in memcheck racecheck; do
        for filter in "${sanitized[@]}"; do
          # One test asks for more memory than there is, on purpose: errors of the API are not defects.
          words+=("$tool: $filter" "compute-sanitizer --tool $tool --report-api-errors no --error-exitcode 9 ./cuda_gpu_test $(printf '%q' "-tc=$filter")")
        done
      done
      together sanitize 150 "${words[@]}"
      ;;
    profile)
      for kernel in "${profiled[@]}"; do
        local flags=()
        if [[ $kernel == *_mma_tiles_* ]]; then flags=(--no-wgmma --unconfirmed); fi
        run profile "$kernel" 60 ncu --clock-control none --kill yes -k "regex:^$kernel" --launch-skip 2 --launch-count 1 --section SpeedOfLight \
          --section Occupancy ./hearth-cuda-bench --only few,many,attention "${flags[@]}" &&
          figures+=("profile: $kernel: $(grep -aE 'Throughput|Achieved Occupancy' "$output" | tr -s ' ' | paste -sd ';' | cut -c 1-400)")
      done
      ;;
    model-*) model "${1#model-}" ;;
    *) echo "no step $1" >&2; exit 2 ;;
  esac
}

wanted=()
for word in "${@:-1}"; do
  case $word in
    1) wanted+=(device tests golden ceilings few) ;;
    2) wanted+=(engine speculate daemon ops unconfirmed fast row-bits model-Q4_K_M) ;;
    3) wanted+=(model-Q8_0 model-F16 sanitize profile) ;;
    *) wanted+=("$word") ;;
  esac
done
for step in "${wanted[@]}"; do
  begun=$SECONDS
  passed[$step]=0 failed[$step]=0 skipped[$step]=0
  do_step "$step"
  line=$(printf '%-14s %4d passed %3d failed %3d skipped %4d s' "$step" "${passed[$step]}" "${failed[$step]}" "${skipped[$step]}" $((SECONDS - begun)))
  steps_done+=("$line")
  echo "$line"
done
{ echo '['; sed '$!s/$/,/' "$rows"; echo ']'; } >"$results"
rm -f "$rows"
{
  printf '\n== %s\n' "table ($(date -u +%F), $(nproc) CPUs, ${cublaslt:-no libcublasLt.so.13})"
  printf '%s\n' "${steps_done[@]}"
  printf '%s\n' "${failures[@]+"${failures[@]}"}" | head -c 3500
  printf '%s\n' "${figures[@]+"${figures[@]}"}" | head -c 7500
} | head -c 12000
[[ ${#failures[@]} -eq 0 ]]
