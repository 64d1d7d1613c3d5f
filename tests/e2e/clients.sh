#!/usr/bin/env bash
# Installs OpenAI's and Anthropic's Python clients for tests/e2e/http_clients.py into a virtual environment in
# ${XDG_CACHE_HOME:-~/.cache}/hearth-tests/clients. Without pip or network it prints that it is skipped.
set -euo pipefail
wanted="openai==3.51.0 anthropic==2.10.0"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/hearth-tests
skip() { echo "[hearth-skip] official clients: $*"; exit 0; }

mkdir -p "$cache"
exec 9>"$cache/.clients.lock"
flock 9  # one at a time
if [[ -x $cache/clients/bin/python && $(cat "$cache/clients/wanted" 2>/dev/null) == "$wanted" ]]; then
  echo "$cache/clients has $wanted."
  exit 0
fi
rm -rf "$cache/clients"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
python3 -m venv "$cache/clients" >"$log" 2>&1 || { rm -rf "$cache/clients"; skip "needs python3-venv"; }
# shellcheck disable=SC2086
"$cache/clients/bin/python" -m pip install --quiet --retries 1 $wanted >"$log" 2>&1 || {
  tail -n 3 "$log"
  rm -rf "$cache/clients"
  skip "$wanted could not be installed"
}
echo "$wanted" >"$cache/clients/wanted"
echo "$cache/clients has $wanted."
