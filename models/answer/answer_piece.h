#pragma once
// What an answer is made of, once its marks have been read.

#include <string>
#include <string_view>
#include <vector>

namespace hearth::models {

struct AnswerPiece {
  enum class Type {
    kText,
    kReasoning,
    kCall,       ///< a call of the function `text` begins
    kArguments,  ///< more of that call's arguments
  };
  Type type = Type::kText;
  std::string text{};
  bool operator==(const AnswerPiece&) const = default;
};
using AnswerPieces = std::vector<AnswerPiece>;

/// What follows the same is one piece with it; nothing is none.
inline void append_piece(AnswerPieces* pieces, AnswerPiece::Type type, std::string_view text) {
  if (type == AnswerPiece::Type::kCall) {
    pieces->push_back({type, std::string(text)});
  } else if (!text.empty()) {
    if (pieces->empty() || pieces->back().type != type) pieces->push_back({type, {}});
    pieces->back().text += text;
  }
}

}  // namespace hearth::models
