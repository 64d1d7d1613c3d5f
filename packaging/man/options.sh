#!/usr/bin/env bash
# Prints a manual page with every option of every verb, as in --help, in place of its line
# `.\" OPTIONS`.
#   options.sh PROGRAM PAGE
set -euo pipefail
program=$1

verbs_of() { # the verbs listed in the help of these words
  "$program" "$@" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z-]*\).*/\1/p'
}
options_of() { # a heading and the options of one verb, if it has any except --help
  "$program" "$@" --help | awk -v heading=".SS hearth $*" '
    function text(line) { gsub(/\\/, "\\e", line); return line ~ /^[.'"'"']/ ? "\\&" line : line }
    function dashes(line) { line = text(line); gsub(/-/, "\\-", line); return line }
    /^  (-.,)?--[a-z0-9-]+/ {
      line = $0
      sub(/^ +/, "", line)
      flag = line
      sub(/ .*/, "", flag)
      if (flag == "-h,--help") { next }
      value = ""
      rest = substr(line, length(flag) + 1)
      if (match(rest, /^ [^ ]/)) {  # a value follows directly, its meaning after two blanks
        value = substr(rest, 2)
        at = match(value, /  +/)
        rest = at ? substr(value, at) : ""
        if (at) value = substr(value, 1, at - 1)
        sub(/^[A-Z]+:/, "", value)
      }
      sub(/^ +/, "", rest)
      sub(/,/, "\\fR, \\fB", flag)
      if (heading != "") { print heading; heading = "" }
      print ".TP"
      gsub(/-/, "\\-", flag)
      print "\\fB" flag "\\fR" (value == "" ? "" : " \\fI" dashes(value) "\\fR")
      if (rest != "") print text(rest)
      follows = 1
      next
    }
    follows && /^            / { sub(/^ +/, ""); print text($0); next }
    { follows = 0 }'
}

sed '/^\.\\" OPTIONS$/,$d' "$2"
echo ".SH OPTIONS"
mapfile -t verbs < <(verbs_of)
for verb in "${verbs[@]}"; do
  options_of "$verb"
  mapfile -t below < <(verbs_of "$verb")
  for each in "${below[@]}"; do options_of "$verb" "$each"; done
done
sed '1,/^\.\\" OPTIONS$/d' "$2"
