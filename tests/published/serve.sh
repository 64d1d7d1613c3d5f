# shellcheck shell=bash
# For scripts that run programs against a daemon with SmolLM2.
model=SmolLM2-135M-Instruct.Q4_1
model_file=${XDG_CACHE_HOME:-$HOME/.cache}/hearth-tests/models/$model.gguf
if [[ ! -f $model_file ]]; then
  echo "[hearth-skip] SmolLM2 is not downloaded (tests/published/fetch.sh)"
  exit 0
fi

# serve_smollm2 PROGRAMS OPTION...: starts hearthd of this folder on a free TCP port, with HOME and XDG folders of its own. Sets
# `port` and `work` (a folder that is removed at the end).
serve_smollm2() {
  local programs=$1
  shift
  work=$(mktemp -d "${TMPDIR:-/tmp}/hearth-programs.XXXXXX")
  export HEARTH_ALLOW_ROOT=1 HOME=$work XDG_RUNTIME_DIR=$work/run XDG_DATA_HOME=$work/data XDG_STATE_HOME=$work/state
  export XDG_CONFIG_HOME=$work/config XDG_CACHE_HOME=$work/cache
  unset HEARTH_RUNTIME_DIR HEARTH_STATE_DIR HEARTH_CONFIG HEARTH_MODEL_DIRS
  mkdir -m 700 "$XDG_RUNTIME_DIR"
  "$programs/hearthd" --config /dev/null --model-dir "$(dirname "$model_file")" --set roles.default="$model" \
    --set http.listen=127.0.0.1:0 --set worker.tool_form=hermes "$@" >"$work/log" 2>&1 &
  daemon=$!
  trap 'kill $daemon 2>/dev/null || true; wait; rm -rf "$work"' EXIT
  port=
  for _ in $(seq 100); do
    port=$(grep -os 'tcp_port=[0-9]*' "$work/log" | tail -n 1 | cut -d= -f2) || true
    if [[ -n $port ]]; then return 0; fi
    sleep 0.1
  done
  cat "$work/log"
  exit 1
}
