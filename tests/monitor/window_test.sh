#!/usr/bin/env bash
# A real window under Xvfb, driven by keyboard and mouse: what was pressed shows in the settings that
# the program leaves.
#   window_test.sh BUILD_DIRECTORY
set -euo pipefail
if [[ $1 == --drive ]]; then
  "$monitor" --runtime-dir "$work" --exit-after 120 &
  pid=$! window=
  for _ in $(seq 300); do
    window=$(xdotool search --onlyvisible --name '^hearth$' 2>/dev/null | head -n 1) && [[ -n $window ]] && break
    sleep 0.1
  done
  [[ -n $window ]] || { echo "no window"; kill "$pid"; exit 1; }
  xdotool windowfocus "$window" || true
  sleep 1
  xdotool key --window "$window" 3
  sleep 0.5
  xdotool key --window "$window" t
  sleep 0.5
  # The fourth entry of the list at the left: Requests.
  xdotool mousemove --window "$window" 80 205
  sleep 0.5
  xdotool click 1
  sleep 1
  xdotool key --window "$window" q
  wait "$pid"
  exit
fi
for tool in xvfb-run xdotool; do
  command -v "$tool" >/dev/null || { echo "[hearth-skip] no $tool"; exit 0; }
done
work=$(mktemp -d "${TMPDIR:-/tmp}/hearth-window.XXXXXX")
trap 'rm -rf "$work"' EXIT
export XDG_CONFIG_HOME=$work LIBGL_ALWAYS_SOFTWARE=1 monitor=$1/bin/hearth-monitor work
xvfb-run -a -s "-screen 0 1280x800x24" bash "${BASH_SOURCE[0]}" --drive
cat "$work/hearth/monitor.conf"
grep -qx "theme light" "$work/hearth/monitor.conf"
grep -qx "panel requests" "$work/hearth/monitor.conf"
echo "keyboard and mouse work"
