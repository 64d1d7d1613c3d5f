#pragma once
// Translates vocabularies that are published in files of their own, in place of tokenizer.json:
//
//   rwkv_vocab_v20230424.txt   RWKV's World vocabulary: ID LITERAL BYTES on each line, the literal
//                              being Python's of a string or of bytes
//   tokenizer.jsonl            PLaMo 2's: [TEXT, SCORE, KIND, ..] on each line, in the order of the
//                              ids
//   tiktoken.model             Kimi's: BYTES RANK on each line, the bytes in base64; the rank is
//                              the token's id, and that of the merge that makes it. Tokens after
//                              them are in tokenizer_config.json

#include <cstdint>
#include <filesystem>
#include <optional>

#include "kernels/base/result.h"
#include "models/convert/json_file.h"
#include "models/gguf/gguf_writer.h"

namespace hearth::models {

enum class VocabularyFile { kWorld, kPlamo, kKimi };

/// Adds tokenizer.ggml.* of such a file in `folder`, padded with unused tokens to `rows`; nothing
/// if there is none. `settings`: tokenizer_config.json. kCorrupt names file and line.
Result<std::optional<VocabularyFile>> add_vocabulary_file(const std::filesystem::path& folder,
                                                          const Json& settings, uint64_t rows,
                                                          GgufWriter& writer);

}  // namespace hearth::models
