#include "models/answer/quoted_arguments.h"

#include <utility>

#include "models/answer/call_object.h"
#include "models/template/json.h"

namespace hearth::models {
namespace {

constexpr size_t kMostWordBytes = 256;

}  // namespace

ArgumentReader::Step QuotedArguments::push(char c, std::string* json) {
  const Step out = step(c, json);
  if (out == Step::kWrong) held_ += c;
  return out;
}

ArgumentReader::Step QuotedArguments::step(char c, std::string* json) {
  const bool in_text = state_ == State::kString || state_ == State::kJsonString ||
                       state_ == State::kOpening || state_ == State::kScalar ||
                       state_ == State::kBareKey;
  if (!in_text && is_json_blank(c)) return Step::kMore;
  switch (state_) {
    case State::kBegin:
      if (c != '{') return Step::kWrong;
      open_ += '}';
      *json += '{';
      state_ = State::kKeyOrEnd;
      return Step::kMore;
    case State::kKeyOrEnd:
      if (c == '}') return close(c, json);
      return key(c, json);
    case State::kKey: return key(c, json);
    case State::kBareKey:
      if (c != ':') {
        if (held_.size() >= kMostWordBytes || c == '{' || c == '}' || c == ',') return Step::kWrong;
        held_ += c;
        return Step::kMore;
      }
      while (!held_.empty() && is_json_blank(held_.back())) held_.pop_back();
      *json += '"';
      for (const char each : held_) append_json_byte(json, each);
      *json += "\":";
      held_.clear();
      state_ = State::kValue;
      return Step::kMore;
    case State::kColon:
      if (c != ':') return Step::kWrong;
      *json += ':';
      state_ = State::kValue;
      return Step::kMore;
    case State::kValueOrEnd:
      if (c == ']') return close(c, json);
      return value(c, json);
    case State::kValue: return value(c, json);
    case State::kScalar:
      if (c == ',' || c == '}' || c == ']' || is_json_blank(c)) {
        if (!put_scalar(json)) return Step::kWrong;
        state_ = State::kCommaOrEnd;
        return is_json_blank(c) ? Step::kMore : comma_or_end(c, json);
      }
      if (held_.size() >= kMostWordBytes) return Step::kWrong;
      held_ += c;
      return Step::kMore;
    case State::kCommaOrEnd: return comma_or_end(c, json);
    case State::kOpening:
      if (c != quote_[held_.size()]) return Step::kWrong;
      opening(c, json);
      return Step::kMore;
    case State::kString: string(c, json); return Step::kMore;
    case State::kJsonString:
      // A line break is not escaped by every model.
      if (is_control_byte(c)) {
        append_json_byte(json, c);
      } else {
        *json += c;
      }
      if (c == '"' && !escaped_) state_ = after_string();
      escaped_ = c == '\\' && !escaped_;
      return Step::kMore;
  }
  return Step::kWrong;
}

ArgumentReader::Step QuotedArguments::key(char c, std::string* json) {
  in_key_ = true;
  if (c == quote_.front()) {
    opening(c, json);
  } else if (c == '"') {
    *json += c;
    state_ = State::kJsonString;
  } else if (c == '{' || c == '}' || c == '[' || c == ']' || c == ',' || c == ':') {
    return Step::kWrong;
  } else {
    held_ = c;
    state_ = State::kBareKey;
  }
  return Step::kMore;
}

/// The next byte of the mark before a string.
void QuotedArguments::opening(char c, std::string* json) {
  held_ += c;
  state_ = State::kOpening;
  if (held_ != quote_) return;
  held_.clear();
  *json += '"';
  state_ = State::kString;
}

ArgumentReader::Step QuotedArguments::value(char c, std::string* json) {
  in_key_ = false;
  if (c == quote_.front()) {
    opening(c, json);
    return Step::kMore;
  }
  switch (c) {
    case '"':
      *json += c;
      state_ = State::kJsonString;
      return Step::kMore;
    case '{':
    case '[':
      if (open_.size() >= jinja::kMaxJsonDepth) return Step::kWrong;
      *json += c;
      open_ += c == '{' ? '}' : ']';
      state_ = c == '{' ? State::kKeyOrEnd : State::kValueOrEnd;
      return Step::kMore;
    case '}':
    case ']':
    case ',':
    case ':': return Step::kWrong;
    default: break;
  }
  held_ = c;
  state_ = State::kScalar;
  return Step::kMore;
}

/// A number or a word of JSON or Python. False: it is neither.
bool QuotedArguments::put_scalar(std::string* json) {
  jinja::Arena arena;
  if (const std::string_view word = json_word(held_); !word.empty()) held_ = word;
  if (!jinja::parse_json(arena, held_).ok()) return false;
  *json += std::exchange(held_, {});
  return true;
}

ArgumentReader::Step QuotedArguments::comma_or_end(char c, std::string* json) {
  if (c != ',') return close(c, json);
  *json += ',';
  state_ = open_.back() == '}' ? State::kKey : State::kValue;
  return Step::kMore;
}

ArgumentReader::Step QuotedArguments::close(char c, std::string* json) {
  if (c != open_.back()) return Step::kWrong;
  *json += c;
  open_.pop_back();
  state_ = State::kCommaOrEnd;
  return open_.empty() ? Step::kDone : Step::kMore;
}

void QuotedArguments::string(char c, std::string* json) {
  if (python_ && escaped_) {
    escaped_ = false;
    if (std::string_view("nrt\\\"").find(c) != std::string_view::npos) *json += '\\';
    *json += c;
    return;
  }
  if (python_ && c == '\\') {
    escaped_ = true;
    return;
  }
  held_ += c;
  while (!held_.empty()) {
    if (held_ == quote_) {
      held_.clear();
      *json += '"';
      state_ = after_string();
      return;
    }
    if (quote_.starts_with(held_)) return;
    append_json_byte(json, held_.front());
    held_.erase(0, 1);
  }
}

std::string_view json_word(std::string_view python) {
  if (python == "True") return "true";
  if (python == "False") return "false";
  return python == "None" ? "null" : "";
}

std::optional<std::string> json_of_python(std::string_view literal) {
  constexpr std::string_view kFront = R"({"":)";
  QuotedArguments reader("'", true);
  std::string json;
  for (const char c : kFront) reader.push(c, &json);
  for (const char c : literal) {
    if (reader.push(c, &json) != ArgumentReader::Step::kMore) return std::nullopt;
  }
  if (reader.push('}', &json) != ArgumentReader::Step::kDone) return std::nullopt;
  return json.substr(kFront.size(), json.size() - kFront.size() - 1);
}

}  // namespace hearth::models
