#!/usr/bin/env bash
# Line coverage of each fuzz target's parser by its corpus; fails below the target's bound.
#   bash tests/fuzz/coverage.sh [TARGET ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

targets=("$@")
if [[ ${#targets[@]} == 0 ]]; then mapfile -t targets < <(bash tests/fuzz/targets.sh); fi
bash packaging/install_deps.sh --fuzz
build=build/coverage
CC=clang-14 CXX=clang++-14 cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DHEARTH_CUDA=OFF \
  -DHEARTH_FUZZ=ON \
  -DCMAKE_CXX_FLAGS="-fprofile-instr-generate -fcoverage-mapping -O1 -Wno-unknown-warning-option" >/dev/null

# The files of each target's parser; what only opens or maps files is tested elsewhere.
declare -A files=(
  [gguf]="models/gguf/gguf_file.cpp models/gguf/gguf_file.h models/gguf/gguf_value.cpp models/gguf/gguf_value.h models/gguf/byte_cursor.h"
  [imatrix]="models/quantize/importance.cpp"
  [vocabulary]="models/tokenizer/vocabulary/vocabulary.cpp models/tokenizer/vocabulary/vocabulary.h models/tokenizer/load_tokenizer.cpp
    models/tokenizer/vocabulary/special_tokens.cpp models/tokenizer/kinds/vocabulary_tokenizer.cpp models/tokenizer/kinds/bpe_tokenizer.cpp
    models/tokenizer/kinds/spm_tokenizer.cpp models/tokenizer/kinds/unigram_tokenizer.cpp models/tokenizer/kinds/wordpiece_tokenizer.cpp
    models/tokenizer/kinds/plamo2_tokenizer.cpp models/tokenizer/kinds/world_tokenizer.cpp models/tokenizer/text/charsmap.cpp models/tokenizer/kinds/bpe_merges.cpp models/tokenizer/kinds/load_merges.cpp models/tokenizer/vocabulary/token_index.cpp models/tokenizer/vocabulary/byte_trie.cpp"
  [tokenizer]="models/tokenizer/pretokenizer models/tokenizer/text/utf8.cpp models/tokenizer/text/utf8.h models/tokenizer/text/compose.cpp
    models/tokenizer/detokenizer.cpp models/tokenizer/text/char_classes.cpp models/tokenizer/text/byte_alphabet.cpp models/tokenizer/kinds/bpe_merges.cpp"
  [wire]="ipc/wire/frames.cpp ipc/wire/json.cpp ipc/wire/codec_request.cpp ipc/wire/codec_event.cpp ipc/wire/convert.h ipc/schema/field_table.cpp ipc/text/utf8.cpp
    ipc/wire/json_parser.cpp ipc/wire/json_text.cpp"
  [store]="engine/store/stored_row.cpp engine/store/store_contents.cpp engine/store/store_schema.cpp engine/store/chunk.cpp
    engine/store/sqlite_store.cpp engine/store/store_admin.cpp"
  [http]="daemon/http/request_reader.cpp daemon/http/routes.cpp daemon/http/guard.cpp daemon/http/requests/api_request.cpp
    daemon/http/requests/request_members.cpp daemon/http/requests/request_tools.cpp daemon/http/requests/cache_control.cpp daemon/http/requests/chat_request.cpp
    daemon/http/requests/completions_request.cpp daemon/http/requests/messages_request.cpp daemon/http/requests/responses_request.cpp
    daemon/http/requests/api_embeddings.cpp daemon/http/requests/ollama_request.cpp daemon/http/requests/upload.cpp
    daemon/http/requests/batch_request.cpp daemon/http/requests/api_rerank.cpp daemon/http/requests/token_request.cpp
    daemon/http/requests/reasoning.cpp daemon/http/requests/field_lists.cpp daemon/http/requests/volatile_lines.cpp
    daemon/http/answers/page.cpp"
  [remote]="daemon/broker/remote/remote_answer.cpp daemon/broker/remote/remote_request.cpp"
  [template]="models/template"
  [grammar]="engine/grammar"
  [answer]="models/answer"
  [zmtp]="daemon/broker/transport/zmtp.cpp daemon/broker/transport/zmtp.h"
)
# Per cent of the lines, at least: what was reached once. It only goes up.
declare -A least=([gguf]=91 [vocabulary]=97 [tokenizer]=97 [wire]=84 [store]=74 [http]=94 [template]=62 [grammar]=96
  [answer]=98 [zmtp]=92)
failed=0
for target in "${targets[@]}"; do
  cmake --build "$build" -j "${HEARTH_JOBS:-$(nproc)}" --target "${target}_fuzz" >"$build/build.log" || { tail -n 60 "$build/build.log"; exit 1; }
  program="$build/bin/${target}_fuzz"
  LLVM_PROFILE_FILE="$build/$target.profraw" "$program" -runs=0 "tests/fuzz/corpus/$target" \
    2>/dev/null
  llvm-profdata-14 merge -sparse "$build/$target.profraw" -o "$build/$target.profdata"
  llvm-cov-14 report "$program" -instr-profile="$build/$target.profdata" >"$build/$target.txt"
  # Columns: file, regions, missed, cover, functions, missed, executed, lines, missed, cover, ...
  awk -v target="$target" -v wanted="${files[$target]}" -v least="${least[$target]:-0}" '
    BEGIN { split(wanted, names); for (i in names) want[names[i]] = 1 }
    { folder = $1; sub("/[^/]*$", "", folder) }
    ($1 in want) || (folder in want) { lines += $8; missed += $9; print "  " $1, $8, $9, $10 >details }
    END {
      if (lines == 0) exit 1
      printf "%-11s %5d lines, %3d missed, %.1f %%\n", target, lines, missed, 100 * (lines - missed) / lines
      exit !(100 * (lines - missed) / lines >= least)
    }' details="$build/$target.files" "$build/$target.txt" || { failed=1; cat "$build/$target.files"; }
done
exit "$failed"
