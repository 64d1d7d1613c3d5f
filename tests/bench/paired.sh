#!/usr/bin/env bash
# Decodes one sequence with hearth and with other engines' servers in short bursts, in random order, next to bursts that only
# read memory, and prints ratios of pairs for docs/benchmarks.md.
#   bash tests/bench/paired.sh FILE.gguf LLAMA_SERVER...
# Each LLAMA_SERVER is the path of a llama-server, of llama.cpp or of a fork, or of another build's hearthd; none is built here. All servers stay resident
# with the model and idle while another one computes. A round is a burst of about a second of each in an order drawn anew;
# ratios are of bursts of one round, so that a machine whose rates drift does not decide. Printed are medians with
# quartiles and, for hearth over each peer, a sign test: the chance of at least so many rounds won if both were equal.
# HEARTH_ROUNDS (default 40), HEARTH_BURST seconds (default 1), HEARTH_BUILD (hearth's build folder; default build/release,
# else build/cpu), HEARTH_THREADS (of all; default: the cores), HEARTH_PEER_FLAGS (more flags for the servers).
# Run nothing else meanwhile.
set -euo pipefail
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if [[ $# -lt 1 || ! -f $1 ]]; then
  sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
build=${HEARTH_BUILD:-$tree/build/release}
if [[ ! -x $build/bin/hearthd ]]; then build=$tree/build/cpu; fi
for program in hearth hearthd hearth-read-bench; do
  if [[ ! -x $build/bin/$program ]]; then
    echo "No $program in $build: build it, or name the folder with HEARTH_BUILD." >&2
    exit 1
  fi
done
exec python3 "$tree/tests/bench/paired.py" "$build/bin" "$tree" "$@"
