#!/usr/bin/env bash
# Completion for bash and zsh and the manual pages contain every verb and every option of --help.
#   completion_test.sh SOURCE_DIRECTORY PROGRAM_DIRECTORY MANUALS_DIRECTORY
set -euo pipefail
PATH=$2:$PATH
# shellcheck source=/dev/null
source "$1/packaging/completions/hearth.bash"

complete_words() {
  COMP_WORDS=("$@")
  COMP_CWORD=$(($# - 1))
  COMPREPLY=()
  _hearth
}
want() {
  if [[ " ${COMPREPLY[*]} " != *" $1 "* ]]; then
    echo "want $1 among: ${COMPREPLY[*]}"
    exit 1
  fi
}
complete_words hearth ""
for verb in run models load unload swap inspect bench plan pull quantize imatrix convert perplexity render tokenize config doctor; do want "$verb"; done
complete_words hearth ins
[[ ${COMPREPLY[*]} == inspect ]] || { echo "ins: ${COMPREPLY[*]}"; exit 1; }
complete_words hearth run --temp
want --temperature
complete_words hearth bench --
want --shape
want --write-shape
complete_words hearth load --
want --keep-alive
complete_words hearth models rm --
want --yes
complete_words hearth models ""
want rm
complete_words hearth run --f
want --file

# zsh_words WORD...: what zsh offers after these words; builtins that need a terminal print their words.
zsh_words() {
  zsh -fc 'compadd() { [[ $1 == -a ]] && print -l -- ${(P)2} || print -l -- $@; }
    _describe() { print -l -- ${(P)2}; }; _files() { :; }
    words=("${@[2,-1]}"); CURRENT=$#words; functions[_hearth_all]="$(grep -v "^#compdef" "$1")"; _hearth_all' \
    zsh "$source/packaging/completions/_hearth" "$@"
}
# Answers of a daemon: roles and models after swap.
stub=$(mktemp -d)
trap 'rm -rf "$stub"' EXIT
cat >"$stub/hearth" <<'END'
#!/bin/sh
echo '{"models":[{"name":"tales","roles":["default","fast"],"state":"resident"},{"name":"small","roles":[]}],"folders":[]}'
END
chmod +x "$stub/hearth"
swap_words() { PATH=$stub:$PATH complete_words hearth swap "$@"; }
swap_words ""
[[ ${COMPREPLY[*]} == "default fast" ]] || { echo "swap: ${COMPREPLY[*]}"; exit 1; }
swap_words fast ""
want tales
want small
# Names with blanks are one word each, and ids of live requests are offered.
cat >"$stub/hearth" <<'END'
#!/bin/sh
case $1 in
  ps) echo '{"requests":[{"id":"r-1","owner":"uid:1","model":"m"},{"id":"r-2","owner":"uid:1","model":"m"}],"models":[{"name":"m"}]}' ;;
  *) echo '{"models":[{"name":"my model","roles":["default","fast"],"state":"resident"},{"name":"small","roles":[]}],"folders":[]}' ;;
esac
END
PATH=$stub:$PATH complete_words hearth run my
[[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == 'my model' ]] || { echo "run my: ${COMPREPLY[*]}"; exit 1; }
PATH=$stub:$PATH complete_words hearth cancel ""
[[ ${COMPREPLY[*]} == "r-1 r-2" ]] || { echo "cancel: ${COMPREPLY[*]}"; exit 1; }
if command -v zsh >/dev/null; then
  offered=$(source=$1 PATH=$stub:$PATH zsh_words hearth swap "" | tr '\n' ' ')
  [[ $offered == "default fast " ]] || { echo "zsh: swap: $offered"; exit 1; }
fi

if [[ ! -f $3/hearth.1 ]]; then  # sanitized builds make none, and their programs are slow to start
  echo "completion knows the verbs; options were not compared, for want of a manual made by this build"
  exit 0
fi
# The options in the help of a program with these words.
flags_of() { "$@" --help | grep -oE '^ +(-[a-zA-Z],)?--[a-zA-Z0-9-]+' | grep -oE -e '--.*'; }
# A manual page's text, with dashes as they are typed.
manual() { gzip -dc "$manuals/$1.gz" | sed 's/\\-/-/g'; }
source=$1 manuals=$3
page=$(manual hearth.1)
has_zsh=0
command -v zsh >/dev/null && has_zsh=1
mapfile -t verbs < <(hearth --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z-]*\).*/\1/p')
count=0
for verb in "${verbs[@]}" "cache ls" "cache rm" "cache pin" "cache verify"; do
  read -ra words <<<"$verb"
  complete_words hearth "${words[@]}" --
  offered=" ${COMPREPLY[*]} "
  if [[ $has_zsh == 1 ]]; then zsh_offered=" $(zsh_words hearth "${words[@]}" -- | tr '\n' ' ') "; fi
  for flag in $(flags_of hearth "${words[@]}"); do
    count=$((count + 1))
    [[ $offered == *" $flag "* ]] || { echo "bash does not complete hearth $verb $flag"; exit 1; }
    if [[ $has_zsh == 1 && $zsh_offered != *" $flag "* ]]; then
      echo "zsh does not complete hearth $verb $flag: $zsh_offered"
      exit 1
    fi
    if [[ $flag != --help && $page != *"$flag"* ]]; then
      echo "hearth.1 does not know hearth $verb $flag"
      exit 1
    fi
  done
done
[[ $count -gt 100 ]] || { echo "only $count options were looked at"; exit 1; }
for program in hearthd.8 hearth-monitor.1; do
  [[ -x $2/${program%.*} ]] || continue
  page=$(manual "$program")
  for flag in $(flags_of "${program%.*}"); do
    [[ $flag == --help || $page == *"$flag"* ]] || { echo "$program does not know $flag"; exit 1; }
  done
done
[[ $has_zsh == 1 ]] || echo "zsh is not installed: its completion was not tried"
echo "completion and manuals know $count options of ${#verbs[@]} verbs"
