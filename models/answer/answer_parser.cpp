#include "models/answer/answer_parser.h"

namespace hearth::models {

AnswerParser::AnswerParser(const AnswerShape& shape)
    : one_call_(shape.one_call), must_call_(shape.must_call) {
  if (shape.channels) {
    std::vector<std::string> names;
    if (shape.tools != nullptr) {
      for (const OfferedFunction& function : shape.functions) names.push_back(function.name);
    }
    channels_.emplace(std::move(names));
    return;
  }
  splitter_.emplace(shape.reasoning, shape.reasoning_open);
  if (shape.tools != nullptr) calls_.emplace(*shape.tools, shape.functions);
}

void AnswerParser::push(std::string_view text, AnswerPieces* pieces) {
  for (const char c : text) {
    if (ended()) return;
    if (channels_) {
      channels_->push(c, pieces);
      continue;
    }
    const std::string rest = splitter_->push(std::string_view(&c, 1), pieces);
    if (!calls_) append_piece(pieces, AnswerPiece::Type::kText, rest);
    for (size_t i = 0; calls_ && i < rest.size() && !ended(); ++i) calls_->push(rest[i], pieces);
  }
}

void AnswerParser::finish(AnswerPieces* pieces, bool cut_short) {
  if (ended()) return;
  if (channels_) return channels_->finish(pieces, cut_short);
  const std::string rest = splitter_->finish(pieces);
  if (!calls_) return append_piece(pieces, AnswerPiece::Type::kText, rest);
  for (const char c : rest) calls_->push(c, pieces);
  calls_->finish(pieces, !cut_short   ? CallParser::Held::kText
                         : must_call_ ? CallParser::Held::kCall
                                      : CallParser::Held::kLikelyCall);
}

int32_t AnswerParser::num_calls_ended() const {
  if (channels_) return channels_->num_ended();
  return calls_ ? calls_->num_ended() : 0;
}

bool AnswerParser::reasoning() const {
  return channels_ ? channels_->reasoning() : splitter_->inside();
}

}  // namespace hearth::models
