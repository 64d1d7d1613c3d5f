#!/usr/bin/env bash
# Runs the Python clients of OpenAI, Anthropic and Ollama, unchanged, against a daemon with SmolLM2 (clients.py).
#   clients.sh PROGRAMS      the folder of hearth, hearthd and hearth-worker-cpu
# tests/e2e/clients.sh installs them. Without them or the model it prints that it is skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
programs=$(realpath "$1")
source tests/published/serve.sh
python=$(bash tests/e2e/clients.sh)
if [[ $python == "[hearth-skip]"* ]]; then
  echo "$python"
  exit 0
fi
serve_smollm2 "$programs"
timeout 900 "$python" tests/published/clients.py "http://127.0.0.1:$port" "$model"
