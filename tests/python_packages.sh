# shellcheck shell=bash
# For scripts that test with packages from PyPI.
# python_with NAME PACKAGES: prints the Python of the virtual environment ${XDG_CACHE_HOME:-~/.cache}/hearth-tests/NAME with
# these packages, installed first where it has others. Without pip or network it prints why it is skipped and returns 1.
python_with() {
  local name=$1 wanted=$2 cache=${XDG_CACHE_HOME:-$HOME/.cache}/hearth-tests log
  mkdir -p "$cache"
  exec 9>"$cache/.$name.lock"
  flock 9  # one at a time
  if [[ ! -x $cache/$name/bin/python || $(cat "$cache/$name/wanted" 2>/dev/null) != "$wanted" ]]; then
    rm -rf "${cache:?}/$name"
    log=$(mktemp)
    # shellcheck disable=SC2086
    if ! python3 -m venv "$cache/$name" >"$log" 2>&1; then
      echo "[hearth-skip] $name: needs python3-venv"
    elif ! "$cache/$name/bin/python" -m pip install --quiet --retries 1 $wanted >"$log" 2>&1; then
      echo "[hearth-skip] $name: $wanted could not be installed: $(tail -n 1 "$log")"
    else
      echo "$wanted" >"$cache/$name/wanted"
    fi
    rm -f "$log"
  fi
  exec 9>&-
  if [[ ! -f $cache/$name/wanted ]]; then rm -rf "${cache:?}/$name"; return 1; fi
  echo "$cache/$name/bin/python"
}
