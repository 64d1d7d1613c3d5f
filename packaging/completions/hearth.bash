# bash completion of hearth: the verbs and options are those that --help lists.

# Of the lines on stdin those that begin with the word, whose backslashes and quote the shell has not taken off yet; it
# puts them before blanks by itself (complete -o filenames).
_hearth_lines() {
  local line word=${1//\\/}
  word=${word#[\"\']}
  COMPREPLY=()
  while IFS= read -r line; do
    if [[ -n $line && $line == "$word"* ]]; then COMPREPLY+=("$line"); fi
  done
}

_hearth_models() {
  hearth models --json 2>/dev/null | grep -o '"name":"[^"\\]*"' | sed 's/^"name":"//; s/"$//'
}

_hearth() {
  local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]}
  if [[ $COMP_CWORD -eq 1 || $COMP_CWORD -eq 2 && $verb == help ]]; then
    mapfile -t COMPREPLY < <(compgen -W "--help --version help $(hearth --help 2>/dev/null |
      sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z-]*\).*/\1/p')" -- "$word")
  elif [[ $verb == chat && ${COMP_WORDS[COMP_CWORD-1]} == --resume && $word != -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(hearth chat --list 2>/dev/null | cut -d' ' -f1)" -- "$word")
  elif [[ $word == -* ]]; then
    local words=("$verb")
    if [[ $verb =~ ^(cache|models)$ && ${COMP_WORDS[2]} != -* ]]; then words+=("${COMP_WORDS[2]}"); fi
    mapfile -t COMPREPLY < <(compgen -W "$(hearth "${words[@]}" --help 2>/dev/null |
      sed -n 's/^  \(-.,\)\{0,1\}\(--[a-z0-9-]*\).*/\2/p')" -- "$word")
  elif [[ $COMP_CWORD -eq 2 && $verb == cache ]]; then
    mapfile -t COMPREPLY < <(compgen -W "ls stats rm pin unpin warm why verify compact" -- "$word")
  elif [[ $COMP_CWORD -eq 2 && $verb == models ]]; then
    mapfile -t COMPREPLY < <(compgen -W "rm" -- "$word")
  elif [[ $COMP_CWORD -eq 3 && $verb == models ]]; then
    _hearth_lines "$word" < <(_hearth_models)
  elif [[ $COMP_CWORD -eq 2 && $verb =~ ^(cancel|attach|fork)$ ]]; then
    _hearth_lines "$word" < <(hearth ps --json 2>/dev/null | grep -o '{"id":"[^"\\]*"' | sed 's/^{"id":"//; s/"$//')
  elif [[ $COMP_CWORD -eq 2 && $verb == swap ]]; then
    _hearth_lines "$word" < <(hearth models --json 2>/dev/null |
      grep -o '"roles":\[[^]]*\]' | sed 's/^"roles"://' | grep -o '"[^"\\]*"' | tr -d '"')
  elif [[ $COMP_CWORD -eq 2 && $verb =~ ^(run|chat|embed|tokenize|inspect|bench|plan|quantize|imatrix|perplexity|render|load|unload)$ ||
    $COMP_CWORD -eq 3 && $verb == swap ]]; then
    _hearth_lines "$word" < <(_hearth_models
      compgen -f -X '!*.[gG][gG][uU][fF]' -- "$word"
      compgen -d -S / -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -o filenames -F _hearth hearth
