#!/usr/bin/env bash
# bash completion knows every verb and a verb's options.
#   completion_test.sh SOURCE_DIRECTORY PROGRAM_DIRECTORY
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
for verb in run models load unload swap inspect bench plan pull quantize convert perplexity render tokenize config doctor; do want "$verb"; done
complete_words hearth ins
[[ ${COMPREPLY[*]} == inspect ]] || { echo "ins: ${COMPREPLY[*]}"; exit 1; }
complete_words hearth run --temp
want --temperature
complete_words hearth bench --
want --shape
want --write-shape
complete_words hearth load --
want --keep-alive
complete_words hearth run --f
want --file
echo "completion knows the verbs"
