#pragma once
// Properties of any vocabulary and any text.

#include <string>
#include <string_view>

#include "kernels/base/check.h"
#include "models/tokenizer/text/utf8.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::fuzz {

inline bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const models::Utf8Char c = models::front_char(text);
    if (c.kind != models::Utf8Char::Kind::kWhole) return false;
    text.remove_prefix(c.bytes);
  }
  return true;
}

/// Every id is in the vocabulary, decoded text is UTF-8, and control tokens appear only where they
/// may.
inline void check_text(const models::Tokenizer& tokenizer, std::string_view text,
                       bool parse_special) {
  const auto ids = tokenizer.encode(text, {.add_bos = true, .parse_special = parse_special});
  models::StreamingDetokenizer detokenizer(tokenizer, true);
  std::string decoded;
  for (const int32_t id : ids) {
    HEARTH_CHECK(id >= 0 && id < tokenizer.vocab_size(), "id {}", id);
    HEARTH_CHECK(tokenizer.piece(id).size() <= tokenizer.max_piece_bytes(), "id {}", id);
    if (!parse_special && tokenizer.is_control(id)) HEARTH_CHECK(id == tokenizer.bos());
    decoded += detokenizer.push(id);
  }
  decoded += detokenizer.finish();
  HEARTH_CHECK(is_utf8(decoded));
}

}  // namespace hearth::fuzz
