#!/usr/bin/env bash
# Numbers hidden in 32,000 tokens are found again with each KV type (needle.py), by Gemma 3 270M. Takes half an hour: only with
# HEARTH_TEST_FULL=1.
#   needle.sh PROGRAMS      the folder of hearth, hearthd and hearth-worker-cpu
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
skip() { echo "[hearth-skip] needle: $*"; exit 0; }
model=${XDG_CACHE_HOME:-$HOME/.cache}/hearth-tests/models/gemma-3-270m-q4_k_m.gguf
[[ ${HEARTH_TEST_FULL:-} == 1 ]] || skip "Gemma 3 270M is run with HEARTH_TEST_FULL=1"
[[ -f $model ]] || skip "Gemma 3 270M is not downloaded (tests/published/fetch.sh --all)"
PYTHONDONTWRITEBYTECODE=1 python3 tests/published/needle.py "$1" "$model" --least 0.7
