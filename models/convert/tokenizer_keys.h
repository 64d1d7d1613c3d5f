#pragma once
// Translates tokenizer.json and the files next to it (tokenizer_config.json,
// generation_config.json, a chat template) to GGUF metadata.

#include <cstdint>
#include <filesystem>

#include "kernels/base/result.h"
#include "models/convert/json_file.h"
#include "models/gguf/gguf_writer.h"

namespace hearth::models {

/// Adds tokenizer.ggml.* and the chat template of the files in `folder` to `writer`, without
/// tokenizer.json from a vocabulary file (vocabulary_files.h); the vocabulary is padded with unused
/// tokens to `rows`, those of the embedding. kUnsupported names a tokenizer that no family here
/// uses, or a way of splitting text that this build does not know; kCorrupt names a contradiction;
/// kNotFound: the folder has neither.
Result<void> add_tokenizer(const std::filesystem::path& folder, const Json& config, uint64_t rows,
                           GgufWriter& writer);

}  // namespace hearth::models
