#include "models/tokenizer/vocabulary/vocabulary.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "kernels/base/numbers.h"
#include "models/gguf/gguf_file.h"

namespace hearth::models {
namespace {

// Bounds far above real vocabularies (256 000 tokens of at most a few hundred bytes).
constexpr size_t kMaxTokens = 1 << 22;
constexpr size_t kMaxEntryBytes = 4096;

// Control tokens that end a turn in the chat formats in use. Files often name only EOS in their
// metadata, and a chat model that never emits EOS would otherwise run to its token limit.
constexpr std::array<std::string_view, 9> kEndsOfTurn = {
    "<|eot_id|>",    "<|eom_id|>", "<|im_end|>",      "<|end|>", "<|endoftext|>",
    "<end_of_turn>", "<turn|>",    "<|end_of_text|>", "[EOT]",
};

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

std::optional<uint8_t> byte_of_entry(std::string_view entry) {
  if (entry.size() != 6 || !entry.starts_with("<0x") || entry.back() != '>') return std::nullopt;
  const int high = hex_digit(entry[3]), low = hex_digit(entry[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<uint8_t>(high * 16 + low);
}

Result<Vocabulary> Vocabulary::load(const GgufFile& file) {
  Vocabulary vocabulary;
  HEARTH_ASSIGN_OR_RETURN(const auto tokens, file.get<GgufStrings>("tokenizer.ggml.tokens"));
  if (tokens.size() == 0 || tokens.size() > kMaxTokens) {
    return Error::corrupt(
        fmt::format("tokenizer.ggml.tokens: {} tokens, want 1 to {}", tokens.size(), kMaxTokens));
  }
  vocabulary.entries_.reserve(tokens.size());
  for (const std::string_view token : tokens) {
    if (token.size() > kMaxEntryBytes) {
      return Error::corrupt(
          fmt::format("tokenizer.ggml.tokens: token {} has {} bytes, want at most {}",
                      vocabulary.entries_.size(), token.size(), kMaxEntryBytes));
    }
    vocabulary.entries_.add(token);
  }
  vocabulary.types_.assign(tokens.size(), TokenType::kNormal);
  HEARTH_TRY(vocabulary.load_types(file));
  HEARTH_TRY(vocabulary.load_special_ids(file));
  return vocabulary;
}

Result<void> Vocabulary::load_types(const GgufFile& file) {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  if (!file.has(kKey)) {
    // Without types, byte tokens are recognized by their text.
    for (int32_t id = 0; id < size(); ++id) {
      if (byte_of_entry(entry(id))) types_[id] = TokenType::kByte;
    }
    return {};
  }
  HEARTH_ASSIGN_OR_RETURN(const auto types, file.get<GgufNumbers<int32_t>>(kKey));
  if (types.size() != types_.size()) {
    return Error::corrupt(fmt::format("{}: {} types, want one for each of {} tokens", kKey,
                                      types.size(), types_.size()));
  }
  for (size_t i = 0; i < types_.size(); ++i) {
    if (types[i] < 0 || types[i] > to_underlying(TokenType::kByte)) {
      return Error::corrupt(
          fmt::format("{}: token {} has type {}, want 0 to 6", kKey, i, types[i]));
    }
    types_[i] = static_cast<TokenType>(types[i]);
    const std::string_view text = entry(narrow<int32_t>(i));
    if (types_[i] == TokenType::kByte && !byte_of_entry(text)) {
      return Error::corrupt(
          fmt::format("tokenizer.ggml.tokens: token {} is a byte and reads \"{}\", want "
                      "<0x00> to <0xFF>",
                      i, printable(text)));
    }
  }
  return {};
}

Result<std::optional<int32_t>> Vocabulary::special_id(const GgufFile& file,
                                                      std::string_view key) const {
  if (!file.has(key)) return std::optional<int32_t>();
  HEARTH_ASSIGN_OR_RETURN(const uint32_t id, file.get<uint32_t>(key));
  if (id >= types_.size()) {
    return Error::corrupt(
        fmt::format("{}: token {}, want one of {} tokens", key, id, types_.size()));
  }
  return std::optional<int32_t>(id);
}

Result<void> Vocabulary::load_special_ids(const GgufFile& file) {
  HEARTH_ASSIGN_OR_RETURN(bos_, special_id(file, "tokenizer.ggml.bos_token_id"));
  HEARTH_ASSIGN_OR_RETURN(eos_, special_id(file, "tokenizer.ggml.eos_token_id"));
  HEARTH_ASSIGN_OR_RETURN(unknown_, special_id(file, "tokenizer.ggml.unknown_token_id"));
  HEARTH_ASSIGN_OR_RETURN(const auto eot, special_id(file, "tokenizer.ggml.eot_token_id"));
  HEARTH_ASSIGN_OR_RETURN(const auto eom, special_id(file, "tokenizer.ggml.eom_token_id"));
  ends_.assign(types_.size(), false);
  for (const std::optional<int32_t>& id : {eos_, eot, eom}) {
    if (id) ends_[*id] = true;
  }
  for (int32_t id = 0; id < size(); ++id) {
    if (std::find(kEndsOfTurn.begin(), kEndsOfTurn.end(), entry(id)) == kEndsOfTurn.end()) continue;
    ends_[id] = true;
    // Some converters mark it as user-defined or normal, which would let any user's text end the
    // turn.
    types_[id] = TokenType::kControl;
  }
  if (!file.has("tokenizer.ggml.token_type")) {
    // Without types, these are not text either.
    for (const std::optional<int32_t>& id : {bos_, eos_, eot, eom}) {
      if (id) types_[*id] = TokenType::kControl;
    }
    if (unknown_ && type(*unknown_) != TokenType::kControl) types_[*unknown_] = TokenType::kUnknown;
  }
  if (!unknown_) {
    const auto at = std::find(types_.begin(), types_.end(), TokenType::kUnknown);
    if (at != types_.end()) unknown_ = narrow<int32_t>(at - types_.begin());
  }
  if (unknown_ && type(*unknown_) == TokenType::kControl) {
    if (unknown_ == bos_ || is_end_of_generation(*unknown_)) {
      unknown_.reset();  // a token with another meaning cannot stand for text
    } else {
      types_[*unknown_] = TokenType::kUnknown;
    }
  }
  return {};
}

}  // namespace hearth::models
