#!/usr/bin/env bash
# Texts that SmolLM2 writes under grammars in Lark's notation are read by Lark itself (lark_texts.py).
#   lark.sh PROGRAMS      the folder of hearth, hearthd and hearth-worker-cpu
# Without Lark, which it installs, or the model it prints that it is skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
programs=$(realpath "$1")
source tests/published/serve.sh
source tests/python_packages.sh
python=$(python_with lark "lark==1.3.1 httpx==0.28.1") || {
  echo "$python"
  exit 0
}
serve_smollm2 "$programs"
timeout 900 "$python" tests/published/lark_texts.py "http://127.0.0.1:$port" "$model"
