# bash completion of hearth: the verbs and options are those that --help lists.

_hearth() {
  local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]}
  if [[ $COMP_CWORD -eq 1 ]]; then
    mapfile -t COMPREPLY < <(compgen -W "--help --version $(hearth --help 2>/dev/null |
      sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z-]*\).*/\1/p')" -- "$word")
  elif [[ $verb == chat && ${COMP_WORDS[COMP_CWORD-1]} == --resume && $word != -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(hearth chat --list 2>/dev/null | cut -d' ' -f1)" -- "$word")
  elif [[ $word == -* ]]; then
    local words=("$verb")
    if [[ $verb == cache && ${COMP_WORDS[2]} != -* ]]; then words+=("${COMP_WORDS[2]}"); fi
    mapfile -t COMPREPLY < <(compgen -W "$(hearth "${words[@]}" --help 2>/dev/null |
      sed -n 's/^  \(-.,\)\{0,1\}\(--[a-z0-9-]*\).*/\2/p')" -- "$word")
  elif [[ $COMP_CWORD -eq 2 && $verb == cache ]]; then
    mapfile -t COMPREPLY < <(compgen -W "ls stats rm pin unpin warm why verify compact" -- "$word")
  elif [[ $COMP_CWORD -eq 2 && $verb == swap ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(hearth models --json 2>/dev/null |
      grep -o '"roles":\[[^]]*\]' | sed 's/^"roles"://' | grep -o '"[^"\\]*"' | tr -d '"')" -- "$word")
  elif [[ $COMP_CWORD -eq 2 && $verb =~ ^(run|chat|embed|tokenize|inspect|bench|plan|quantize|perplexity|render|load|unload)$ ||
    $COMP_CWORD -eq 3 && $verb == swap ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(hearth models --json 2>/dev/null |
      grep -o '"name":"[^"\\]*"' | sed 's/^"name":"//; s/"$//')" -- "$word"
      compgen -f -X '!*.gguf' -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -o filenames -F _hearth hearth
