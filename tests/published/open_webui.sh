#!/usr/bin/env bash
# Runs the server of open-webui, unchanged, against a daemon with SmolLM2, and asks through it (open_webui.py).
#   open_webui.sh PROGRAMS      the folder of hearth, hearthd and hearth-worker-cpu
# It is installed without what its chats do not need (its own requirements-slim.txt, 0.8 GB), so only HEARTH_TEST_FULL=1 runs this.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [[ ${HEARTH_TEST_FULL:-} != 1 ]]; then
  echo "[hearth-skip] open-webui: run with HEARTH_TEST_FULL=1"
  exit 0
fi
programs=$(realpath "$1")
source tests/published/serve.sh
source tests/python_packages.sh
python=$(python_with open-webui "--no-deps open-webui==0.12.4") || {
  echo "$python"
  exit 0
}
bin=$(dirname "$python")
if [[ ! -f $bin/slim ]]; then
  if ! "$python" -m pip install --quiet --retries 1 --only-binary :all: -r "$bin"/../lib/python3*/site-packages/requirements-slim.txt \
    >/dev/null 2>&1; then
    echo "[hearth-skip] open-webui: its requirements-slim.txt could not be installed"
    exit 0
  fi
  touch "$bin/slim"
fi
serve_smollm2 "$programs"
export DATA_DIR=$work/open-webui USE_SLIM_DOCKER=true WEBUI_AUTH=False WEBUI_SECRET_KEY=x OFFLINE_MODE=True HF_HUB_OFFLINE=1
export ENABLE_OLLAMA_API=True OLLAMA_BASE_URL=http://127.0.0.1:$port RAG_EMBEDDING_ENGINE=openai
export OPENAI_API_BASE_URL=http://127.0.0.1:$port/v1 OPENAI_API_KEY=x
mkdir "$DATA_DIR"
own_port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$bin/open-webui" serve --host 127.0.0.1 --port "$own_port" >"$work/open-webui.log" 2>&1 &
server=$!
trap 'kill $server $daemon 2>/dev/null || true; wait; rm -rf "$work"' EXIT
"$python" tests/published/open_webui.py "http://127.0.0.1:$own_port" "$model" || {
  tail -n 20 "$work/open-webui.log"
  exit 1
}
