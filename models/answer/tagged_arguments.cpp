#include "models/answer/tagged_arguments.h"

#include <algorithm>
#include <utility>

#include "models/answer/call_object.h"
#include "models/answer/quoted_arguments.h"
#include "models/template/json.h"

namespace hearth::models {
namespace {

constexpr size_t kMostKeyBytes = 256;

bool is_json(std::string_view text) {
  jinja::Arena arena;
  return jinja::parse_json(arena, text).ok();
}

std::string_view without_outer_blanks(std::string_view text) {
  while (!text.empty() && is_json_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_json_blank(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

ArgumentReader::Step TaggedArguments::push(char c, std::string* json) {
  switch (state_) {
    case State::kBetween: return between(c, json);
    case State::kKey: return key(c, json);
    case State::kValueBegin: return value_begin(c, json);
    case State::kFirstByte:
      state_ = State::kValue;
      if (tags_.lines && c == '\n') return Step::kMore;
      break;
    case State::kValue: break;
  }
  value(c, json);
  return Step::kMore;
}

// Before a parameter or the end of all.
ArgumentReader::Step TaggedArguments::between(char c, std::string* json) {
  if (held_.empty() && is_json_blank(c)) return Step::kMore;
  held_ += c;
  if (held_ == tags_.end) {
    *json += begun_ ? "}" : "{}";
    return Step::kDone;
  }
  if (held_ == tags_.key_begin) {
    state_ = State::kKey;
    mark_begin_ = held_.size();
    return Step::kMore;
  }
  if (tags_.end.starts_with(held_) || tags_.key_begin.starts_with(held_)) return Step::kMore;
  return wrong(json);
}

ArgumentReader::Step TaggedArguments::key(char c, std::string* json) {
  held_ += c;
  for (const std::string_view mark : {tags_.key_end, tags_.json_key_end}) {
    if (mark.empty() || !std::string_view(held_).substr(mark_begin_).ends_with(mark)) continue;
    if (!tags_.value_begin.empty()) {
      state_ = State::kValueBegin;
      mark_begin_ = held_.size();
    } else {
      begin_value(mark, json);
    }
    return Step::kMore;
  }
  return held_.size() > mark_begin_ + kMostKeyBytes ? wrong(json) : Step::kMore;
}

ArgumentReader::Step TaggedArguments::value_begin(char c, std::string* json) {
  held_ += c;
  const std::string_view mark = std::string_view(held_).substr(mark_begin_);
  if (mark.size() == 1 && is_json_blank(c)) {
    ++mark_begin_;
    return Step::kMore;
  }
  if (mark == tags_.value_begin) {
    begin_value(tags_.key_end, json);
    return Step::kMore;
  }
  return tags_.value_begin.starts_with(mark) ? Step::kMore : wrong(json);
}

/// `mark`: the end of the key that was read.
void TaggedArguments::begin_value(std::string_view mark, std::string* json) {
  std::string_view name(held_);
  name.remove_prefix(tags_.key_begin.size());
  name = name.substr(0, name.find(mark));
  *json += begun_ ? (pairs_ ? "," : "") : "{";
  begun_ = pairs_ = true;
  *json += '"';
  for (const char c : name) append_json_byte(json, c);
  *json += "\":";
  string_ = tags_.json_key_end.empty() ? std::ranges::find(function_.string_parameters, name) !=
                                             function_.string_parameters.end()
                                       : mark == tags_.key_end;
  if (string_) *json += '"';
  held_.clear();
  value_.clear();
  state_ = State::kFirstByte;
}

void TaggedArguments::value(char c, std::string* json) {
  held_ += c;
  while (!held_.empty()) {
    std::string_view rest(held_);
    if (tags_.lines && rest.front() == '\n') rest.remove_prefix(1);
    if (rest == tags_.value_end) return end_value(json);
    if (tags_.value_end.starts_with(rest)) return;
    if (string_) {
      append_json_byte(json, held_.front());
    } else {
      value_ += held_.front();
    }
    held_.erase(0, 1);
  }
}

void TaggedArguments::end_value(std::string* json) {
  held_.clear();
  state_ = State::kBetween;
  if (string_) {
    *json += '"';
    return;
  }
  const std::string text = std::exchange(value_, {});
  const std::string_view plain = without_outer_blanks(text);
  // Templates that write values as Python prints them teach models to do the same.
  if (const std::string_view word = json_word(plain); !word.empty()) {
    *json += word;
    return;
  }
  if (is_json(plain)) {
    *json += plain;
    return;
  }
  if (plain.starts_with('[') || plain.starts_with('{')) {
    if (const auto translated = json_of_python(plain)) {
      *json += *translated;
      return;
    }
  }
  *json += '"';
  for (const char c : text) append_json_byte(json, c);
  *json += '"';
}

ArgumentReader::Step TaggedArguments::wrong(std::string* json) {
  if (begun_) *json += '}';
  return Step::kWrong;
}

void TaggedArguments::finish(std::string* json) {
  if (begun_ && state_ != State::kFirstByte && state_ != State::kValue) *json += '}';
}

}  // namespace hearth::models
