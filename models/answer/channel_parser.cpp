#include "models/answer/channel_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "models/answer/tool_format.h"

namespace hearth::models {
namespace {

using Type = AnswerPiece::Type;

constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kRecipient = "to=functions.";
constexpr std::array<std::string_view, 5> kBodyEnds = {"<|end|>", "<|call|>", "<|return|>", kStart,
                                                       kChannel};
// Longer text is not a header.
constexpr size_t kMostHeaderBytes = 512;

// How the header of an answer's first message may begin; the prompt ends in "<|start|>assistant".
bool may_begin_header(std::string_view text) {
  for (const std::string_view begin :
       {kChannel, std::string_view(" to="), std::string_view("to="), kMessage}) {
    if (begin.starts_with(text) || text.starts_with(begin)) return true;
  }
  return false;
}

std::string_view word_after(std::string_view header, std::string_view mark) {
  const size_t at = header.find(mark);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = header.substr(at + mark.size());
  return rest.substr(0, std::ranges::find_if_not(rest, is_name_char) - rest.begin());
}

}  // namespace

void ChannelParser::push(char c, AnswerPieces* pieces) {
  switch (state_) {
    case State::kHeader: return header(c, pieces);
    case State::kBody: return body(c, pieces);
    case State::kGap:
      partial_ += c;
      while (!partial_.empty() && !kStart.starts_with(partial_)) partial_.erase(0, 1);
      if (partial_ != kStart) return;
      partial_.clear();
      header_ = kStart;
      state_ = State::kHeader;
      return;
    case State::kPlain: return append_piece(pieces, Type::kText, std::string_view(&c, 1));
  }
}

void ChannelParser::header(char c, AnswerPieces* pieces) {
  header_ += c;
  if (header_.ends_with(kMessage)) return read_header(pieces);
  const bool later = header_.starts_with(kStart);
  if (header_.size() <= kMostHeaderBytes && (later || may_begin_header(header_))) return;
  state_ = State::kPlain;
  append_piece(pieces, Type::kText, std::exchange(header_, {}));
}

void ChannelParser::read_header(AnswerPieces* pieces) {
  const std::string header = std::exchange(header_, {});
  const std::string_view recipient = word_after(header, kRecipient);
  state_ = State::kBody;
  if (!recipient.empty() && std::ranges::find(functions_, recipient) != functions_.end()) {
    append_piece(pieces, Type::kCall, recipient);
    type_ = Type::kArguments;
  } else {
    type_ = word_after(header, kChannel) == "analysis" ? Type::kReasoning : Type::kText;
  }
}

void ChannelParser::body(char c, AnswerPieces* pieces) {
  partial_ += c;
  while (!partial_.empty()) {
    bool begins = false;
    for (const std::string_view mark : kBodyEnds) {
      if (mark == partial_) {
        end_body();
        if (mark == kStart || mark == kChannel) {
          header_ = std::exchange(partial_, {});
          state_ = State::kHeader;
          if (mark == kChannel) header_ = std::string(kStart) + header_;
        }
        partial_.clear();
        return;
      }
      begins = begins || mark.starts_with(partial_);
    }
    if (begins) return;
    append_piece(pieces, type_, std::string_view(partial_).substr(0, 1));
    partial_.erase(0, 1);
  }
}

void ChannelParser::end_body() {
  if (type_ == Type::kArguments) ++num_ended_;
  state_ = State::kGap;
}

void ChannelParser::finish(AnswerPieces* pieces, bool cut_short) {
  if (state_ == State::kHeader && !header_.starts_with(kStart) && !cut_short) {
    append_piece(pieces, Type::kText, std::exchange(header_, {}));
  }
  if (state_ != State::kBody) return;
  append_piece(pieces, type_, std::exchange(partial_, {}));
  end_body();
}

}  // namespace hearth::models
