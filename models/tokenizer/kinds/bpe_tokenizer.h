#pragma once
// tokenizer.ggml.model = "gpt2": byte-level BPE as GPT-2, Llama 3, Qwen, DeepSeek, Falcon,
// StarCoder and many others ship it. Text is split into pieces by the rule that tokenizer.ggml.pre
// names (pretokenizer/); inside a piece, bytes merge by the rank of their pair in
// tokenizer.ggml.merges. Source: Sennrich et al. 2016 (BPE); Radford et al. 2019 (GPT-2).

#include <memory>
#include <string_view>

#include "kernels/base/result.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::models {

/// Whether a piece that equals a token becomes that token, regardless of merges. A key of hearth's
/// converter, for rules whose names imply the other.
inline constexpr std::string_view kWholePiecesKey = "tokenizer.ggml.whole_pieces_first";

/// Reads tokenizer.ggml.{tokens, token_type, merges, pre, add_bos_token, add_space_prefix} and the
/// special ids. kUnsupported names an unknown tokenizer.ggml.pre; kCorrupt names the key. A file
/// without tokenizer.ggml.pre has the rule "default". kWholePiecesKey overrides what the rule's
/// name implies.
Result<std::unique_ptr<Tokenizer>> load_bpe_tokenizer(const GgufFile& file);

}  // namespace hearth::models
