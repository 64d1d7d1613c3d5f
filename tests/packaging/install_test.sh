#!/usr/bin/env bash
# Installed files find each other: programs, worker, bundled model, manuals.
#   install_test.sh BUILD_DIRECTORY
set -Eeuo pipefail
trap 'echo "install_test.sh: line $LINENO failed" >&2' ERR
work=$(mktemp -d "${TMPDIR:-/tmp}/hearth-install.XXXXXX")
trap 'rm -rf "$work"' EXIT
cmake --install "$1" --prefix "$work/usr" >/dev/null
# Reads to the end: with grep -q a program that still writes would die of SIGPIPE.
prints() { grep -c -- "$1" >/dev/null; }
export HEARTH_RUNTIME_DIR=$work/run HOME=$work PATH=/usr/bin:/bin
unset HEARTH_MODEL_DIRS XDG_DATA_HOME
hearth=$work/usr/bin/hearth
[[ $("$hearth" tokenize tales --ids --raw "Once upon") == "2440 667" ]]
"$hearth" inspect tales | prints "runs here *yes"
"$hearth" config | prints "$work/usr/share/hearth/models"
[[ ! -e $work/usr/bin/hearth-worker-cpu && -x $work/usr/libexec/hearth/hearth-worker-cpu ]]
"$hearth" plan tales --bandwidth 10GB/s --memory 1GB --json | prints '"fits":true'
[[ ! -e $work/usr/bin/hearth-pull ]] && "$hearth" pull --help | prints sha256
for page in man1/hearth.1 man8/hearthd.8 man5/hearth.toml.5; do
  gzip -t "$work/usr/share/man/$page.gz"
done
sh -n "$work/usr/lib/systemd/system-sleep/hearth"
grep -q "^ExecStart=/.*/hearthd$" "$work/usr/lib/systemd/system/hearth.service"
[[ -f $work/usr/etc/hearth/hearth.toml || -f $work/etc/hearth/hearth.toml ]]
echo "what is installed works"
