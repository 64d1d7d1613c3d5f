#pragma once
// A tokenizer that knows only the texts of its tokens.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/tokenizer/tokenizer.h"

namespace hearth::tests {

class ListedTokenizer final : public models::Tokenizer {
 public:
  explicit ListedTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {}

  std::vector<int32_t> encode(std::string_view, const models::EncodeOptions&) const override {
    return {};
  }
  std::string_view piece(int32_t id) const override { return pieces_.at(id); }
  std::string_view entry(int32_t id) const override { return pieces_.at(id); }
  int32_t vocab_size() const override { return static_cast<int32_t>(pieces_.size()); }
  bool is_end_of_generation(int32_t) const override { return false; }
  bool is_control(int32_t) const override { return false; }
  std::optional<int32_t> bos() const override { return std::nullopt; }
  std::optional<int32_t> eos() const override { return std::nullopt; }
  bool adds_space_prefix() const override { return false; }
  size_t max_piece_bytes() const override { return 8; }
  std::string_view kind() const override { return "listed"; }

 private:
  const std::vector<std::string> pieces_;
};

}  // namespace hearth::tests
