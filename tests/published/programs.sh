#!/usr/bin/env bash
# Runs programs that others wrote, unchanged, against a daemon with SmolLM2 (programs.py), and aider's edit of a file.
#   programs.sh PROGRAMS      the folder of hearth, hearthd and hearth-worker-cpu
# They are installed into virtual environments in ${XDG_CACHE_HOME:-~/.cache}/hearth-tests (2.5 GB), so only HEARTH_TEST_FULL=1
# runs this.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [[ ${HEARTH_TEST_FULL:-} != 1 ]]; then
  echo "[hearth-skip] programs of others: run with HEARTH_TEST_FULL=1"
  exit 0
fi
programs=$(realpath "$1")
source tests/published/serve.sh
# Programs that agree on the versions of what they need share an environment: its name, the packages, the cases of programs.py.
environments=(
  "programs1|openai==3.57.0 langchain-openai==1.7.4 litellm==1.110.2 pydantic-ai-slim[openai]==2.68.0 llm==0.36|\
langchain-openai litellm pydantic-ai llm"
  "programs2|openai==3.57.0 langchain-anthropic==1.7.10 smolagents==1.26.0 outlines==1.3.3 openai-agents==0.24.0|\
langchain-anthropic smolagents outlines openai-agents"
  "programs3|instructor==1.17.0|instructor"
  "programs4|llama-index-core==0.14.25 llama-index-llms-openai-like==0.8.1 llama-index-embeddings-openai==0.7.0|llama-index"
  "programs5|openai==3.57.0 lm_eval[api]==0.4.13|lm-eval"
  "programs6|aider-chat==0.86.2|aider"
)
source tests/python_packages.sh
pythons=()
for environment in "${environments[@]}"; do
  IFS='|' read -r name packages cases <<<"$environment"
  python=$(python_with "$name" "$packages") || {
    echo "$python"
    exit 0
  }
  pythons+=("$python|$cases")
done
tree=$PWD
serve_smollm2 "$programs"
cd "$work"
failed=0
for each in "${pythons[@]}"; do
  IFS='|' read -r python cases <<<"$each"
  if [[ $cases == aider ]]; then continue; fi
  # shellcheck disable=SC2086
  "$python" "$tree/tests/published/programs.py" "http://127.0.0.1:$port" "$model" "$(dirname "$python")" $cases || failed=1
done

# aider edits a file. A model of this size does not keep to the form of an edit by itself, so a grammar holds it to it.
cat >hello.py <<'FILE'
def greet():
    print("Hallo")
FILE
cat >settings.yml <<FILE
- name: openai/$model
  edit_format: whole
  use_temperature: 0
  extra_params:
    max_tokens: 60
    extra_body:
      regex: 'hello\.py\n\`\`\`python\ndef greet\(name\):\n    print\("[A-Za-z ,.!]{1,20}", name\)\n\`\`\`\n'
FILE
export LITELLM_LOCAL_MODEL_COST_MAP=True OPENAI_API_BASE=http://127.0.0.1:$port/v1 OPENAI_API_KEY=x
"$(dirname "$python")/aider" --model "openai/$model" --no-git --yes-always \
  --no-check-update --no-show-model-warnings --no-stream --analytics-disable --map-tokens 0 --model-settings-file settings.yml \
  --message "Let it greet a person by name." hello.py >aider.log 2>&1 </dev/null || true
if grep -q 'def greet(name):' hello.py; then
  echo "ok      aider: an edit of a file"
else
  echo "FAILED  aider: an edit of a file"
  tail -n 20 aider.log
  cat hello.py
  failed=1
fi
exit $failed
