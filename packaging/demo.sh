#!/usr/bin/env bash
# From nothing to streamed text: installs what is missing, builds the three programs that the demo
# runs, starts a daemon of its own in a private directory, asks the bundled model for a story twice
# (the second time the prompt is already computed), shows `hearth ps`, stops the daemon.
#   bash packaging/demo.sh ["how the story begins"]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

prompt=${1:-"Once upon a time there was a poor woodcutter who lived with his two children at the edge of a great forest. One evening the"}
build=build/cpu
step() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

step "What it needs"
bash packaging/install_deps.sh
echo "All packages are here."

step "Building hearthd, hearth and hearth-worker-cpu (the first time takes a few minutes)"
cmake --preset cpu >"${TMPDIR:-/tmp}/hearth-demo-configure.$$" 2>&1 || {
  cat "${TMPDIR:-/tmp}/hearth-demo-configure.$$"
  exit 1
}
rm -f "${TMPDIR:-/tmp}/hearth-demo-configure.$$"
cmake --build --preset cpu --target hearthd hearth hearth-worker-cpu

private=$(mktemp -d "${TMPDIR:-/tmp}/hearth-demo.XXXXXX")
export HEARTH_RUNTIME_DIR=$private/run HEARTH_STATE_DIR=$private/state
daemon=
finish() {
  if [[ -n $daemon ]] && kill -0 "$daemon" 2>/dev/null; then
    kill -TERM "$daemon"
    wait "$daemon" || true
  fi
  rm -rf "$private"
}
trap finish EXIT

step "Starting the daemon"
as_root=()
if [[ $(id -u) == 0 ]]; then as_root=(--allow-root); fi   # in a container, say
"$build/bin/hearthd" "${as_root[@]}" --model-dir models/demo >"$private/hearthd.log" 2>&1 &
daemon=$!
if ! "$build/bin/hearth" ping --wait-ms 5000; then
  cat "$private/hearthd.log"
  exit 1
fi

ask() { printf '%s' "$prompt"; "$build/bin/hearth" run tales --no-start --stats --max-tokens 220 --seed 7 "$prompt"; }
step "A story:   hearth run tales \"${prompt:0:40}...\""
ask
step "The same again: the prompt's blocks are cached"
ask
step "hearth ps"
"$build/bin/hearth" ps

step "Stopping the daemon"
kill -TERM "$daemon"
if wait "$daemon"; then echo "stopped cleanly"; else
  echo "the daemon ended with an error:"
  cat "$private/hearthd.log"
  exit 1
fi
daemon=
echo
echo "Next: build/cpu/bin/hearth run ${as_root[*]:+${as_root[*]} }tales     (starts a daemon for you if none runs)"
