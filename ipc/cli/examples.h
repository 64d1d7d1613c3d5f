#pragma once
// The end of `hearth --help`.

namespace hearth::cli {

inline constexpr const char* kFooter = R"(
Examples:
  hearth run MODEL "Why is the sky blue?"   answer; starts a daemon if needed
  git diff | hearth run MODEL "Explain it"  piped input follows the words
  hearth run tales "Once upon a time"       no chat template: continue the text
  cat a.txt | hearth run tales > out        piped: only the text on stdout
  hearth run tales --temperature 0 -f a.txt greedy, from a file
  hearth run tales --json "Once" | jq .     one JSON line per event
  hearth run ./file.gguf "Hello"            a file, with a daemon of your own
  hearth chat MODEL                         converse; --resume continues
  hearth models                             list the models
  hearth ps; hearth cancel ID               list live requests; end one of yours
  hearth run tales --detach "Once"          run in the background; prints its id
  hearth attach ID; hearth fork ID          show its text; write another ending
  hearth embed MODEL "a text"               embedding vector
  hearth swap default MODEL                 change the model; no request is lost
  hearth top                                activity, every second
  hearth inspect FILE.gguf                  contents of a model file
  hearth tokenize tales "Once upon"         tokens of a text
  hearth render MODEL -f messages.json      prompt made by the chat template
  hearth bench --quick FILE.gguf            speed, and share of the ceiling
  hearth config                             every setting and its source
  hearth doctor                             what hearth uses here, and why

Exit status: 0 done; 1 the request failed; 2 invalid command line; 3 no daemon
answers, or it was lost; 130 interrupted by Ctrl-C.

Sockets are in $HEARTH_RUNTIME_DIR, else $XDG_RUNTIME_DIR/hearth, else
~/.cache/hearth/run; a running service (/run/hearth) is found automatically.
HEARTH_MODEL_DIRS lists folders of models.)";

}  // namespace hearth::cli
