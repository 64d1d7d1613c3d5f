#pragma once
// The pieces of an answer after its marks were parsed.

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

/// Appends to the last piece if that is of the same kind; empty text adds nothing.
inline void append_piece(AnswerPieces* pieces, AnswerPiece::Type type, std::string_view text) {
  if (type == AnswerPiece::Type::kCall) {
    pieces->push_back({type, std::string(text)});
  } else if (!text.empty()) {
    if (pieces->empty() || pieces->back().type != type) pieces->push_back({type, {}});
    pieces->back().text += text;
  }
}

}  // namespace hearth::models
