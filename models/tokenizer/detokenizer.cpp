#include "kernels/base/check.h"
#include "models/tokenizer/text/utf8.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::models {

StreamingDetokenizer::StreamingDetokenizer(const Tokenizer& tokenizer, bool strip_first_space)
    : tokenizer_(&tokenizer),
      strip_first_space_(strip_first_space && tokenizer.adds_space_prefix()) {}

std::string StreamingDetokenizer::push(int32_t id) {
  HEARTH_CHECK(id >= 0 && id < tokenizer_->vocab_size(), "token {} of {}", id,
               tokenizer_->vocab_size());
  std::string_view piece = tokenizer_->piece(id);
  if (strip_first_space_ && !piece.empty()) {
    strip_first_space_ = false;
    if (piece.front() == ' ') piece.remove_prefix(1);
  }
  held_ += piece;

  std::string text;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Utf8Char next = front_char(rest);
    if (next.kind == Utf8Char::Kind::kIncomplete) break;
    text += next.kind == Utf8Char::Kind::kWhole ? rest.substr(0, next.bytes) : kReplacementChar;
    rest.remove_prefix(next.bytes);
  }
  held_.erase(0, held_.size() - rest.size());
  return text;
}

std::string StreamingDetokenizer::finish() {
  // Only the beginning of one character is held: push() has released everything else.
  const std::string text(held_.empty() ? std::string_view{} : kReplacementChar);
  held_.clear();
  return text;
}

}  // namespace hearth::models
