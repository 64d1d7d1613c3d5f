#!/usr/bin/env bash
# The documentation: every link leads to a file, every preset, configuration key and verb that it names exists.
#   bash tests/tidy/docs.sh [HEARTH]      HEARTH: the command line's program, asked for its verbs
set -euo pipefail
hearth=${1:-}
[[ -z $hearth ]] || hearth=$(realpath "$hearth")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
pages=(README.md CONTRIBUTING.md docs/*.md)
verbs=
if [[ -n $hearth ]]; then
  verbs=$("$hearth" --help | awk '/^Subcommands|^Verbs|^Commands/ { here = 1; next } here && /^  [a-z]/ { print $1 }')
fi
bad=0
complain() { echo "$1"; bad=1; }

for page in "${pages[@]}"; do
  # Links and pictures.
  while read -r target; do
    [[ $target =~ ^https?: || $target == \#* ]] && continue
    [[ -e $(dirname "$page")/${target%%#*} ]] || complain "$page: no file for the link $target"
  done < <(grep -oE '\]\([^)]+\)' "$page" | sed 's/^](//; s/)$//')
  # Files that are named by their path, or by its beginning.
  while read -r path; do
    compgen -G "$path*" >/dev/null || complain "$page: no file $path"
  done < <(grep -oE '`(bash )?(daemon|engine|ipc|kernels|models|monitor|packaging|tests|docs)/[A-Za-z0-9_./-]+' "$page" |
    sed -E 's/^`(bash )?//; s/[.,]$//' | grep -v '<')
  # Presets.
  while read -r preset; do
    grep -q "\"name\": \"$preset\"" CMakePresets.json || complain "$page: CMakePresets.json has no preset $preset"
  done < <(grep -oE -- '--preset [a-z0-9-]+' "$page" | sed 's/--preset //')
  # Configuration keys, as section.key.
  while read -r key; do
    section=${key%%.*} name=${key#*.}
    awk -v section="[$section]" -v name="$name" '
      /^#? ?\[/ { here = index($0, section) > 0 }
      here && $0 ~ "^#? *" name " *=" { found = 1 }
      END { exit !found }' packaging/hearth.toml || complain "$page: packaging/hearth.toml has no $key"
  done < <(grep -oE '`(server|http|limits|residency|worker|cache|kv_events)\.[a-z_]+' "$page" | tr -d '`' | grep -vx 'http.sock' | sort -u)
  # Verbs.
  if [[ -n $hearth ]]; then
    while read -r verb; do
      grep -qxE -- "$verb" <<<"$verbs" || complain "$page: hearth has no verb $verb"
    done < <(awk '/^```/ { code = !code; next } code && /^hearth / { print "`" $0 } !code { print }' "$page" |
      grep -oE '`hearth [a-z]+' | awk '{ print $2 }' | sort -u)
  fi
done
exit "$bad"
