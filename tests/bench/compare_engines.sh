#!/usr/bin/env bash
# Compares hearth with another engine's program on the same model file, the engines in turn, and prints a section for
# docs/benchmarks.md: date, machine, versions, medians with the least and the largest.
#   bash tests/bench/compare_engines.sh PROGRAM FILE.gguf [ROUNDS]       default: 3 rounds
# PROGRAM is the path of a program of llama.cpp or of a fork; its name selects the comparison. None is built here.
#   llama-bench           prefill of 512 tokens, decode of one sequence
#   llama-batched-bench   decode of 8 sequences together
#   llama-server          16 clients that stream 64 tokens each
#   llama-perplexity      KL divergence of FILE from itself in F32, over tests/published/text.txt
# HEARTH_BUILD names hearth's build folder (default: build/release, else build/cpu), HEARTH_THREADS the threads of both
# (default: the cores), HEARTH_PEER_FLAGS more flags for PROGRAM, such as -rtr 1.
# Run nothing else meanwhile.
set -euo pipefail
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if [[ $# -lt 2 || $# -gt 3 || ! -x $1 || ! -f $2 ]]; then
  sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
fi
build=${HEARTH_BUILD:-$tree/build/release}
if [[ ! -x $build/bin/hearth ]]; then build=$tree/build/cpu; fi
if [[ ! -x $build/bin/hearth || ! -x $build/bin/hearthd ]]; then
  echo "No hearth in build/release or build/cpu: build it, or name the folder with HEARTH_BUILD." >&2
  exit 1
fi
exec python3 "$tree/tests/bench/compare_engines.py" "$build/bin" "$tree" "$(realpath "$1")" "$(realpath "$2")" "${3:-3}"
