#!/usr/bin/env bash
# The systemd units are ones that systemd understands, and the service is closed tightly.
#   units_test.sh UNIT_DIRECTORY PROGRAM_DIRECTORY SOURCE_DIRECTORY
set -euo pipefail

if ! command -v systemd-analyze >/dev/null; then
  echo "[hearth-skip] no systemd-analyze"
  exit 0
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/hearth-units.XXXXXX")
trap 'rm -rf "$work"' EXIT
for kind in system user; do
  mkdir "$work/$kind"
  # The program as it was built: it need not be installed.
  sed "s#^ExecStart=.*/hearthd#ExecStart=$2/hearthd#" "$1/$kind/hearth.service" >"$work/$kind/hearth.service"
done
# An unknown key is a warning with status 0, so any output fails.
output=$(systemd-analyze verify --man=no "$work/system/hearth.service" 2>&1 |
  grep -F "$work" || true)
output+=$(XDG_RUNTIME_DIR=$work systemd-analyze verify --user --man=no "$work/user/hearth.service" 2>&1 |
  grep -F "$work" || true)
if [[ -n $output ]]; then
  echo "$output"
  exit 1
fi
# With the drop-in of hearth-cuda, which adds to the same section.
sed "/^\[Install\]/e sed '/^\\[Service\\]/d' '$3/packaging/systemd/cuda.conf'" "$work/system/hearth.service" >"$work/hearth-cuda.service"
grep -q '^PrivateDevices=no' "$work/hearth-cuda.service"
output=$(systemd-analyze verify --man=no "$work/hearth-cuda.service" 2>&1 | grep -F "$work" || true)
if [[ -n $output ]]; then
  echo "$output"
  exit 1
fi
# Ten times the score: 15 is 1.5.
systemd-analyze security --offline=true --no-pager --threshold=20 "$work/hearth-cuda.service" | tail -n 1
systemd-analyze security --offline=true --no-pager --threshold=15 "$work/system/hearth.service" | tail -n 1
