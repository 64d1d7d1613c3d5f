#!/usr/bin/env bash
# KV events of a daemon with SmolLM2, read by vLLM's own structs (kv_events.py).
#   kv_events.sh PROGRAMS      the folder of hearth, hearthd and hearth-worker-cpu
# vLLM's wheel has 320 MiB, of which one file is kept; only HEARTH_TEST_FULL=1 downloads it. Without it, the packages or the model it
# prints that it is skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
programs=$(realpath "$1")
source tests/published/serve.sh
source tests/python_packages.sh
skip() { echo "[hearth-skip] KV events: $*"; exit 0; }

version=0.33.0
hash=82b362a0a7f89318d9127addfce254d537f5078a31aa87beb08493b0953895ee
structs=${XDG_CACHE_HOME:-$HOME/.cache}/hearth-tests/vllm-$version/kv_events.py
if [[ ! -f $structs ]]; then
  [[ ${HEARTH_TEST_FULL:-} == 1 ]] || skip "vLLM's structs are not downloaded; HEARTH_TEST_FULL=1 does it"
  wheel=$(mktemp -d)
  trap 'rm -rf "$wheel"' EXIT
  python3 -m pip download --quiet --retries 1 --no-deps --only-binary :all: --python-version 3.12 \
    --platform manylinux_2_28_x86_64 --dest "$wheel" "vllm==$version" >"$wheel/log" 2>&1 ||
    skip "vllm==$version could not be downloaded: $(tail -n 1 "$wheel/log")"
  mkdir -p "$(dirname "$structs")"
  python3 -c 'import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read("vllm/distributed/kv_events.py"))' \
    "$wheel"/vllm-*.whl >"$wheel/kv_events.py"
  echo "$hash  $wheel/kv_events.py" | sha256sum --check --quiet
  mv "$wheel/kv_events.py" "$structs"
  rm -rf "$wheel"
fi
python=$(python_with kv-events "pyzmq==27.3.0 msgspec==0.22.0 httpx==0.28.1") || {
  echo "$python"
  exit 0
}
serve_smollm2 "$programs" --set kv_events.publish=all --set kv_events.pod=box --set kv_events.listen=127.0.0.1:0 \
  --set kv_events.replay_listen=127.0.0.1:0
timeout 600 "$python" tests/published/kv_events.py "$structs" "http://127.0.0.1:$port" "$model" "$XDG_RUNTIME_DIR/hearth" "$work/log"
