#!/usr/bin/env bash
# The runbook on a machine without a GPU: everything is run and fails, nothing is skipped, and every filter names a case.
#   bash tests/cuda/run_on_device_test.sh BIN_FOLDER
set -euo pipefail
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=$(cd "$1" && pwd)
fail() { echo "run_on_device_test.sh: $*" >&2; exit 1; }
if [[ -e /dev/nvidiactl ]]; then
  echo "[hearth-skip] there is a GPU here"
  exit 0
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for program in cuda_gpu_test hearth-cuda-bench; do ln -s "$bin/$program" "$folder/"; done
cp "$source_dir/tests/cuda/run_on_device.sh" "$folder/run.sh"
eval "$(sed -n '/^sanitized=/,/)$/p' "$folder/run.sh")"
for filter in "${sanitized[@]}"; do
  [[ $("$bin/cuda_gpu_test" -ltc "-tc=$filter" | tail -n 1) != *": 0" ]] || fail "no case: $filter"
done
eval "$(grep '^profiled=' "$folder/run.sh")"
for kernel in "${profiled[@]}"; do
  grep -rq "$kernel(" "$source_dir/kernels/cuda" || fail "no kernel: $kernel"
done

rc=0
OUT=$folder/out bash "$folder/run.sh" tests few >"$folder/screen" || rc=$?
[[ $rc == 1 ]] || fail "status $rc"
cases=$("$bin/cuda_gpu_test" -ltc | sed -e '/^\[doctest\]/d' -e '/^=*$/d' | wc -l)
want=$(printf '%-14s %4d passed %3d failed %3d skipped' tests 0 "$cases" 0)
grep -q "^$want" "$folder/screen" || fail "want '$want' in: $(cat "$folder/screen")"
grep -q '^few .* 1 failed' "$folder/screen" || fail "the bench did not fail"
(($(wc -c <"$folder/screen") < 12000)) || fail "the output is too long"
python3 - "$folder/out/results.json" "$cases" <<'P'
import json, sys
rows = json.load(open(sys.argv[1]))
tests = [row for row in rows if row["step"] == "tests"]
assert len(tests) == int(sys.argv[2]), len(tests)
assert all(row["status"] == "fail, status 1" and "device_required" in row["detail"] for row in tests), tests[:2]
P
HEARTH_CALL_SECONDS=0 OUT=$folder/out bash "$folder/run.sh" few >"$folder/screen" && fail "no time, and no failure"
grep -q 'not run' "$folder/screen" || fail "what had no time is not reported"
