#include "models/answer/call_object.h"

namespace hearth::models {
namespace {

constexpr size_t kMostKeyBytes = 256;

}  // namespace

ValueScanner::Step ValueScanner::push(char c) {
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
      if (open_.empty()) return Step::kDone;
    }
    return Step::kMore;
  }
  if (scalar_)
    return c == ',' || c == '}' || c == ']' || is_json_blank(c) ? Step::kPast : Step::kMore;
  switch (c) {
    case '"': in_string_ = true; break;
    case '{': open_ += '}'; break;
    case '[': open_ += ']'; break;
    case '}':
    case ']':
      if (open_.empty() || open_.back() != c) return Step::kWrong;
      open_.pop_back();
      if (open_.empty()) return Step::kDone;
      break;
    default:
      if (!begun_ && !is_json_blank(c)) {
        if (c == ',' || c == ':') return Step::kWrong;
        scalar_ = true;
      }
  }
  begun_ = true;
  return Step::kMore;
}

CallObject::Step CallObject::push(char c) {
  switch (state_) {
    case State::kBegin:
      if (c != '{') return Step::kWrong;
      state_ = State::kKeyOrEnd;
      return Step::kMore;
    case State::kKeyOrEnd:
    case State::kKeyBegin:
      if (is_json_blank(c)) return Step::kMore;
      if (c == '}' && state_ == State::kKeyOrEnd) return Step::kDone;
      if (c != '"') return Step::kWrong;
      key_.clear();
      state_ = State::kKey;
      return Step::kMore;
    case State::kKey:
      if (c == '"' && !escaped_) {
        state_ = State::kColon;
        return Step::kMore;
      }
      escaped_ = c == '\\' && !escaped_;
      if (key_.size() >= kMostKeyBytes) return Step::kWrong;
      key_ += c;
      return Step::kMore;
    case State::kColon:
      if (is_json_blank(c)) return Step::kMore;
      if (c != ':') return Step::kWrong;
      state_ = State::kValueBegin;
      return Step::kMore;
    case State::kValueBegin: return is_json_blank(c) ? Step::kMore : begin_value(c);
    case State::kValue: return in_value(c);
    case State::kCommaOrEnd: return comma_or_end(c);
  }
  return Step::kWrong;
}

CallObject::Step CallObject::begin_value(char c) {
  meaning_ = Meaning::kOther;
  if (key_ == name_key_) {
    if (has_name_ || c != '"') return Step::kWrong;
    meaning_ = Meaning::kName;
  } else if (key_ == arguments_key_) {
    if (has_arguments_ || c != '{') return Step::kWrong;
    meaning_ = Meaning::kArguments;
    has_arguments_ = true;
  }
  value_ = ValueScanner();
  state_ = State::kValue;
  return in_value(c);
}

CallObject::Step CallObject::in_value(char c) {
  switch (value_.push(c)) {
    case ValueScanner::Step::kWrong: return Step::kWrong;
    case ValueScanner::Step::kPast: state_ = State::kCommaOrEnd; return comma_or_end(c);
    case ValueScanner::Step::kDone: state_ = State::kCommaOrEnd; break;
    case ValueScanner::Step::kMore: break;
  }
  if (meaning_ == Meaning::kArguments) arguments_ += c;
  if (meaning_ == Meaning::kName && c != '"') {
    // A function's name has no characters that JSON escapes.
    if (c == '\\' || name_.size() >= kMostKeyBytes) return Step::kWrong;
    name_ += c;
  }
  if (meaning_ == Meaning::kName && state_ == State::kCommaOrEnd) has_name_ = true;
  return Step::kMore;
}

CallObject::Step CallObject::comma_or_end(char c) {
  if (is_json_blank(c)) return Step::kMore;
  if (c == '}') return Step::kDone;
  if (c != ',') return Step::kWrong;
  state_ = State::kKeyBegin;
  return Step::kMore;
}

}  // namespace hearth::models
