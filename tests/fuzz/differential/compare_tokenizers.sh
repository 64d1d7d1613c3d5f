#!/usr/bin/env bash
# Compares hearth's token ids with those of Hugging Face's tokenizers and of sentencepiece (compare_tokenizers.py), which are installed
# once into a virtual environment in ${XDG_CACHE_HOME:-~/.cache}/hearth-tests/tokenizers. Without pip or network it reports
# that it skips.
#   bash tests/fuzz/differential/compare_tokenizers.sh PROGRAM [TEXTS] [VOCABULARY ...]     PROGRAM: tokenizer_ids of the build
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../python_packages.sh"
python=$(python_with tokenizers "tokenizers==0.23.3 sentencepiece==0.2.3") || { echo "$python"; exit 0; }
texts=${2:-$([[ ${HEARTH_TEST_FULL:-} == 1 ]] && echo 20000 || echo 300)}
exec "$python" "$(dirname "${BASH_SOURCE[0]}")/compare_tokenizers.py" "$1" "$texts" "${@:3}"
