#!/usr/bin/env bash
# Runs the examples of the documentation on SmolLM2 and the bundled model: every line of a fenced block that begins with
# "hearth " or "curl ", and the Python client. A line must end with status 0.
#   examples.sh PROGRAMS      the folder of hearth, hearthd and hearth-worker-cpu
# Words in capitals stand for what a reader puts there; `filled` knows them, and `left_out` the lines that cannot run here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
programs=$(realpath "$1")
model=${XDG_CACHE_HOME:-$HOME/.cache}/hearth-tests/models/SmolLM2-135M-Instruct.Q4_1.gguf
if [[ ! -f $model ]]; then
  echo "[hearth-skip] SmolLM2 is not downloaded (tests/published/fetch.sh)"
  exit 0
fi
tree=$PWD
work=$(mktemp -d "${TMPDIR:-/tmp}/hearth-examples.XXXXXX")
export PATH=$programs:$PATH HEARTH_ALLOW_ROOT=1 HOME=$work XDG_RUNTIME_DIR=$work/run
export XDG_DATA_HOME=$work/data XDG_STATE_HOME=$work/state XDG_CONFIG_HOME=$work/config
unset HEARTH_RUNTIME_DIR HEARTH_STATE_DIR HEARTH_CONFIG HEARTH_MODEL_DIRS
mkdir -m 700 "$XDG_RUNTIME_DIR"
mkdir -p "$XDG_DATA_HOME/hearth/models"
trap 'hearth stop >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
for file in "$model" models/demo/tales.gguf models/demo/tales-draft.gguf; do
  ln -s "$(realpath "$file")" "$XDG_DATA_HOME/hearth/models/"
done
cp models/demo/tales-draft.gguf "$XDG_DATA_HOME/hearth/models/unwanted.gguf"
cd "$work"
cp "$model" FILE.gguf
ln FILE.gguf file.gguf
cp "$tree/models/demo/tales.gguf" IN.gguf
head -n 5 "$tree/tests/published/text.txt" >letter.txt
echo '{"messages": [{"role": "user", "content": "What is the capital of Italy?"}]}' >messages.json
printf '[worker]\nkv_type = "q8_0"\n' >new.toml
name=$(basename "$model" .gguf)

# Why a line cannot run here; nothing where it can.
left_out() {
  case $1 in
    "hearth pull "*) echo "needs the internet" ;;
    "hearth run llada "*) echo "needs a model that denoises; tests/e2e has one" ;;
    "hearth run MODEL:NAME "* | *" --adapter "*) echo "needs an adapter of the model; tests/e2e has one" ;;
    "hearth convert "* | "hearth run ./FOLDER/"*) echo "needs a checkpoint; tests/golden and tests/e2e have some" ;;
    "curl "*) command -v curl >/dev/null || echo "curl is not installed" ;;
    "hearth embed MODEL --query "*) echo "needs a model that ranks; tests/e2e has one" ;;
    "hearth bench "*) [[ ${HEARTH_TEST_FULL:-} == 1 ]] || echo "takes long; run with HEARTH_TEST_FULL=1" ;;
    */hearth_client.py*) /usr/bin/python3 -c 'import zmq' 2>/dev/null || echo "python3-zmq is not installed" ;;
    *jq*) command -v jq >/dev/null || echo "jq is not installed" ;;
  esac
}
# The line with every placeholder filled in.
filled() {
  local line=$1 id
  if [[ $line =~ \ ID($|\ ) ]]; then
    # Cancelled or forked requests must have tokens left; attach also shows ended ones.
    local of=(tales --max-tokens 200)
    if [[ $line == *cancel* ]]; then of=("$name" --max-tokens 7000); fi
    if [[ $line == *fork* ]]; then of=("$name" --max-tokens 400); fi
    id=$(hearth run "${of[@]}" --detach --ignore-eos true "Once" 2>&1 </dev/null | grep -oE '[A-Za-z0-9._-]+' | tail -n 1)
    line=${line/ ID/ $id}
  fi
  line=${line//hearth chat MODEL/echo Hello | hearth chat $name}
  line=${line//hearth chat --resume/echo Go on | hearth chat --resume}
  line=${line/hearth models rm MODEL/hearth models rm unwanted --yes}
  line=${line//--against OTHER/}
  line=${line//-f TEXT/--tokens 300 -f letter.txt}
  line=${line//--shape S /--shape tiny }
  line=${line//--speculate FILE.gguf/--speculate IN.gguf}  # five rounds of a model that is small
  line=${line//--write-shape tiny FILE.gguf/--write-shape tiny tiny.gguf}
  line=${line//\[NAME\]/}
  line=${line/day.jsonl --for 8h/short.jsonl --for 2s}
  if [[ $line == "hearth record day.jsonl --text"* ]]; then
    line="hearth record day.jsonl --text --for 6s & sleep 2; hearth run tales --max-tokens 5 Once; wait"
  fi
  line=${line//other-model/tales}
  line=${line/hearth embed MODEL/hearth embed $name --pooling mean}
  line=${line//MODEL/$name}
  line=${line//--record FILE/--record recording}
  line=${line// .../ --max-tokens 5 Once}
  line=${line/#curl /curl --silent --show-error --fail-with-body }
  echo "$line"
}

failed=0 ran=0
run() {
  local line=$1 status=0 reason
  reason=$(left_out "$line")
  if [[ -n $reason ]]; then
    echo "left out  $line ($reason)"
    return
  fi
  line=$(filled "$line")
  # Commands that run until stopped are stopped: `hearth top`, `hearth stats --record`.
  local limit=120 began=$SECONDS
  if [[ $line == "hearth top"* || $line == *--record* ]]; then limit=3; fi
  timeout --signal=INT --kill-after=10 $limit bash -c "$line" >output 2>&1 </dev/null || status=$?
  if [[ $limit == 3 && ($status == 124 || $status == 130) ]]; then status=0; fi
  ran=$((ran + 1))
  if [[ $status == 0 ]]; then
    echo "ran       $line ($((SECONDS - began)) s)"
  else
    echo "FAILED    $line (status $status)"
    tail -n 5 output
    failed=$((failed + 1))
  fi
}

stops=()
while IFS= read -r line; do
  case $line in
    "hearth stop"*) stops+=("$line") ;;  # at the end
    *) run "$line" ;;
  esac
done < <(
  for page in "$tree"/README.md "$tree"/docs/*.md; do
    if [[ ! -f $page ]]; then continue; fi
    # Lines of fenced blocks, continued ones joined, without their comments.
    awk '/^ *```/ { inside = !inside; next } inside { if (sub(/\\$/, "")) { held = held $0; next } print held $0; held = "" }' \
      "$page" | sed -E 's/ +#.*//; s/ +$//' | grep -E '^(hearth|curl) ' || true
  done | awk '!seen[$0]++'
)
run "/usr/bin/python3 $tree/packaging/examples/hearth_client.py tales Once upon a time"
for line in "${stops[@]}"; do run "$line"; done
echo "$ran examples ran, $failed failed"
[[ $failed == 0 && $ran -gt 25 ]]
