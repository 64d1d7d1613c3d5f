#include "models/answer/call_parser.h"

#include <algorithm>
#include <utility>

namespace hearth::models {
namespace {

using Type = AnswerPiece::Type;

}  // namespace

CallParser::CallParser(const ToolFormat& format, std::vector<OfferedFunction> functions)
    : format_(format),
      functions_(std::move(functions)),
      state_(format.bare ? State::kBare : State::kText),
      first_text_(false) {
  if (!format.open.empty()) marks_.push_back(format.open);
  if (format.bare && !format.optional_open.empty()) marks_.push_back(format.optional_open);
  marks_.insert(marks_.end(), format.around.begin(), format.around.end());
}

bool CallParser::offered(std::string_view name) const {
  if (functions_.empty()) return is_function_name(name);
  return std::ranges::find(functions_, name, &OfferedFunction::name) != functions_.end();
}

void CallParser::push(char c, AnswerPieces* pieces) {
  switch (state_) {
    case State::kText: return text(c, pieces);
    case State::kBare: return bare(c, pieces);
    case State::kPlain: return append_piece(pieces, Type::kText, std::string_view(&c, 1));
    case State::kBegin: return begin(c, pieces);
    case State::kObject: return object(c, pieces);
    case State::kBetween: return between(c, pieces);
    case State::kName:
    case State::kCallId:
    case State::kNameEnd: return function_name(c, pieces);
    case State::kArguments: return arguments(c, pieces);
    case State::kClose: return close(c, pieces);
  }
}

// ---- Text.

// Blanks are held until it is known whether text or a call follows, because blanks before and after
// a call are dropped.
void CallParser::text(char c, AnswerPieces* pieces) {
  if (partial_.empty() && is_json_blank(c)) {
    blanks_ += c;
    return;
  }
  partial_ += c;
  while (!partial_.empty()) {
    bool begins = false;
    for (const std::string_view mark : marks_) {
      if (mark == partial_) {
        const bool call = mark == format_.open;
        kept_ = std::exchange(blanks_, {}) + std::exchange(partial_, {});
        if (call) {
          opened();
        } else {
          kept_.clear();
        }
        return;
      }
      begins = begins || mark.starts_with(partial_);
    }
    if (begins) return;
    const char first = partial_.front();
    partial_.erase(0, 1);
    if (is_json_blank(first)) {
      blanks_ += first;
      continue;
    }
    if (!first_text_) append_piece(pieces, Type::kText, blanks_);
    blanks_.clear();
    first_text_ = false;
    append_piece(pieces, Type::kText, std::string_view(&first, 1));
  }
}

// Either the answer begins with the object or its optional mark, or all of it is text.
void CallParser::bare(char c, AnswerPieces* pieces) {
  kept_ += c;
  if (partial_.empty() && (is_json_blank(c) || (num_ended_ > 0 && c == ';'))) return;
  if (partial_.empty() && c == '{') {
    kept_.pop_back();
    start_object();
    return object(c, pieces);
  }
  partial_ += c;
  if (partial_ == format_.optional_open) {
    partial_.clear();
    state_ = State::kBegin;
    want_ = {};
  } else if (format_.optional_open.empty() || !format_.optional_open.starts_with(partial_)) {
    partial_.clear();
    state_ = State::kPlain;
    const std::string kept = std::exchange(kept_, {});
    // Blanks between a call and text are dropped.
    const size_t from = num_ended_ > 0 ? kept.find_first_not_of(" \t\r\n") : 0;
    append_piece(pieces, Type::kText, std::string_view(kept).substr(std::min(from, kept.size())));
  }
}

// ---- Beginning of a call.

void CallParser::opened() {
  state_ = State::kBegin;
  announced_ = false;
  want_ = format_.list_begin.empty() ? format_.lead : format_.list_begin;
  name_.clear();
}

void CallParser::start_object() {
  object_.emplace(format_.name_key, format_.arguments_key);
  announced_ = false;
  state_ = State::kObject;
}

void CallParser::begin(char c, AnswerPieces* pieces) {
  if (!want_.empty()) {
    if (c == want_.front()) {
      want_.remove_prefix(1);
      kept_ += c;
    } else if (is_json_blank(c)) {
      kept_ += c;
    } else {
      give_up(c, pieces);
    }
    return;
  }
  if (is_json_blank(c)) {
    kept_ += c;
    return;
  }
  switch (format_.style) {
    case CallStyle::kObject:
      if (c != '{') return give_up(c, pieces);
      start_object();
      return object(c, pieces);
    case CallStyle::kList:
      if (c != '[') return give_up(c, pieces);
      kept_ += c;
      state_ = State::kBetween;
      return;
    case CallStyle::kNamed:
    case CallStyle::kTagged:
    case CallStyle::kQuoted: state_ = State::kName; return function_name(c, pieces);
    case CallStyle::kChannels: return give_up(c, pieces);
  }
}

void CallParser::announce(const std::string& name, AnswerPieces* pieces) {
  announced_ = true;
  kept_.clear();
  blanks_.clear();
  append_piece(pieces, Type::kCall, name);
}

void CallParser::object(char c, AnswerPieces* pieces) {
  const CallObject::Step step = object_->push(c);
  if (step == CallObject::Step::kWrong || (object_->has_name() && !offered(object_->name()))) {
    return give_up(c, pieces);
  }
  if (!announced_) kept_ += c;
  const bool done = step == CallObject::Step::kDone;
  if (done && !object_->has_name()) {
    kept_.pop_back();
    return give_up(c, pieces);
  }
  const bool ready = object_->has_name() && (object_->has_arguments() || done);
  if (!announced_ && ready) announce(object_->name(), pieces);
  if (announced_) append_piece(pieces, Type::kArguments, object_->take_arguments());
  if (!done) return;
  if (!object_->has_arguments()) append_piece(pieces, Type::kArguments, "{}");
  if (format_.bare) return ended(State::kBare);
  if (format_.style == CallStyle::kList) return ended(State::kBetween);
  want_ = format_.close;
  ended(State::kClose);
}

// In a list, before or after an object.
void CallParser::between(char c, AnswerPieces* pieces) {
  if (c == '{') {
    start_object();
    return object(c, pieces);
  }
  kept_ += c;
  if (is_json_blank(c) || (c == ',' && announced_)) return;
  if (c == ']' && announced_) {
    want_ = format_.close;
    state_ = State::kClose;
    kept_.clear();
    if (want_.empty()) ended(State::kText);
    return;
  }
  kept_.pop_back();
  give_up(c, pieces);
}

// ---- A call that is not an object.

void CallParser::function_name(char c, AnswerPieces* pieces) {
  if (state_ == State::kName) {
    if (is_name_char(c)) {
      if (name_.size() > 64) return give_up(c, pieces);
      name_ += c;
      kept_ += c;
      return;
    }
    if (!offered(name_)) return give_up(c, pieces);
    state_ = format_.id_begin.empty() ? State::kNameEnd : State::kCallId;
    want_ = format_.id_begin.empty() ? format_.name_end : format_.id_begin;
  }
  if (state_ == State::kCallId && want_.empty()) {
    if (is_name_char(c)) {
      kept_ += c;
      return;
    }
    state_ = State::kNameEnd;
    want_ = format_.name_end;
  }
  if (!want_.empty() && c == want_.front()) {
    want_.remove_prefix(1);
    kept_ += c;
    return;
  }
  if (is_json_blank(c)) {
    kept_ += c;
    return;
  }
  if (!want_.empty()) return give_up(c, pieces);
  const auto found = std::ranges::find(functions_, name_, &OfferedFunction::name);
  called_ = found == functions_.end() ? OfferedFunction{name_} : *found;
  arguments_ = make_argument_reader(format_, called_);
  state_ = State::kArguments;
  arguments(c, pieces);
}

void CallParser::arguments(char c, AnswerPieces* pieces) {
  std::string json;
  const ArgumentReader::Step step = arguments_->push(c, &json);
  if (!announced_ && !json.empty()) announce(name_, pieces);
  append_piece(pieces, Type::kArguments, json);
  switch (step) {
    case ArgumentReader::Step::kMore:
      if (!announced_) kept_ += c;
      return;
    case ArgumentReader::Step::kWrong: {
      // What follows the part that was reported is text.
      const std::string held = announced_ ? arguments_->held() : std::string(1, c);
      give_up(held.front(), pieces);
      for (const char each : std::string_view(held).substr(1)) push(each, pieces);
      return;
    }
    case ArgumentReader::Step::kDone:
      want_ = format_.close;
      ended(want_.empty() ? State::kText : State::kClose);
  }
}

// ---- End of a call.

void CallParser::close(char c, AnswerPieces* pieces) {
  if (c == want_.front()) {
    want_.remove_prefix(1);
    kept_ += c;
    if (want_.empty()) {
      kept_.clear();
      state_ = State::kText;
    }
    return;
  }
  if (is_json_blank(c)) {
    kept_ += c;
    return;
  }
  // The call ended without its closing mark; a partial mark is text.
  state_ = State::kText;
  const std::string kept = std::exchange(kept_, {});
  for (const char each : kept) push(each, pieces);
  push(c, pieces);
}

void CallParser::ended(State next) {
  ++num_ended_;
  state_ = next;
  first_text_ = true;
  kept_.clear();
  object_.reset();
}

void CallParser::give_up(char c, AnswerPieces* pieces) {
  // A call that was already reported ends here.
  if (announced_ && (object_ || state_ == State::kArguments)) ended(State::kText);
  const std::string kept = std::exchange(kept_, {});
  if (!kept.empty()) {
    append_piece(pieces, Type::kText, kept);
    first_text_ = false;
  }
  blanks_.clear();
  object_.reset();
  state_ = format_.bare ? State::kPlain : State::kText;
  push(c, pieces);
}

// A single character that begins a mark, and an object in a format without marks, are more likely
// text.
bool CallParser::is_dropped(Held held) const {
  switch (held) {
    case Held::kText: return false;
    case Held::kCall: return state_ != State::kPlain;
    case Held::kLikelyCall: break;
  }
  if (state_ == State::kText) return partial_.size() > 1;
  return !format_.bare && state_ != State::kPlain;
}

void CallParser::finish(AnswerPieces* pieces, Held held) {
  if (state_ == State::kBare && num_ended_ > 0) return;
  const bool certain =
      state_ == State::kClose ||
      (announced_ && (object_ || state_ == State::kArguments || state_ == State::kBetween));
  if (certain) {
    if (state_ == State::kArguments) {
      std::string json;
      arguments_->finish(&json);
      append_piece(pieces, Type::kArguments, json);
    }
    if (object_ || state_ == State::kArguments) ++num_ended_;
    return;
  }
  if (is_dropped(held)) return;
  // Blanks after a call are dropped; after text they are text.
  const bool trailing = first_text_ && partial_.empty();
  append_piece(pieces, Type::kText, kept_);
  if (state_ == State::kText) {
    if (!trailing) {
      if (!first_text_) append_piece(pieces, Type::kText, blanks_);
      append_piece(pieces, Type::kText, partial_);
    }
  }
}

}  // namespace hearth::models
