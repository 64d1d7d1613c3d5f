#!/usr/bin/env bash
# From nothing to streamed text: installs what is missing, builds the three programs that the demo
# runs, starts a daemon of its own in a private directory, asks the bundled model for a story twice
# (the second time the prompt is already computed), shows `hearth ps`, stops the daemon.
#   bash packaging/demo.sh ["how the story begins"]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

prompt=${1:-"Once upon a time there was a poor woodcutter who lived with his two children at the edge of a great forest. One evening the"}
build=build/demo
step() { printf '\n\033[1m== %s\033[0m\n' "$*"; }

step "What it needs"
bash packaging/install_deps.sh
echo "All packages are here."

step "Building hearthd, hearth and hearth-worker-cpu"
mkdir -p "$build"
log=$build/demo.log
# Shows what failed; without a FAILED step the end of the log.
failed() {
  printf '\nBuilding failed:\n'
  awk '/^FAILED: /{ found = 1 } found && lines++ < 60' "$log" | grep . || tail -n 40 "$log"
  echo "The whole log is $log."
  exit 1
} >&2
# Reads Ninja's "[finished/all] ..." lines and shows how far it is: on a terminal one line, drawn anew, elsewhere a
# line for every tenth. The time left is an estimate from the steps finished so far.
show_progress() {
  local line finished all percent passed left tenth=-1
  SECONDS=0
  while IFS= read -r line; do
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
    finished=${BASH_REMATCH[1]} all=${BASH_REMATCH[2]}
    percent=$((100 * finished / all)) passed=$SECONDS left=
    if ((passed >= 15 && 20 * finished >= all && finished < all)); then
      left=$(((all - finished) * passed / finished))
      left=$(printf ', about %d:%02d left' $((left / 60)) $((left % 60)))
    fi
    line=$(printf '%3d %%  step %d of %d, %d:%02d so far%s' $percent "$finished" "$all" $((passed / 60)) $((passed % 60)) \
      "$left")
    if [[ -t 1 ]]; then
      printf '\r%s\033[K' "$line"
    elif ((percent / 10 > tenth)); then
      tenth=$((percent / 10))
      echo "$line"
    fi
  done
  if [[ -t 1 && -n ${percent:-} ]]; then echo; fi
}
cmake --preset demo >"$log" 2>&1 || failed
if [[ ! -x $build/bin/hearth-worker-cpu ]]; then
  echo "The first time this takes about 8 minutes of one core's time; this machine has $(nproc) cores. Log: $log"
fi
cmake --build --preset demo 2>&1 | tee -a "$log" | show_progress || failed

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
if [[ $(id -u) == 0 ]]; then as_root=(--allow-root); fi   # in a container, for example
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
echo "Next: $build/bin/hearth run ${as_root[*]:+${as_root[*]} }tales     (starts a daemon for you if none runs)"
