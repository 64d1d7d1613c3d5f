#!/usr/bin/env bash
# SGLang's router, which sends a prompt where its beginning went, in front of three daemons with SmolLM2 (routers.py, docs/routers.md).
#   routers.sh PROGRAMS      the folder of hearth, hearthd and hearth-worker-cpu
# Without the router, which it installs, or the model it prints that it is skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
programs=$(realpath "$1")
source tests/published/serve.sh
source tests/python_packages.sh
python=$(python_with sglang-router "sglang-router==0.3.2 httpx==0.28.1") || {
  echo "$python"
  exit 0
}
timeout 1500 "$python" tests/published/routers.py "$programs" "$model_file"
