#pragma once
// Reads arguments in a notation like JSON, with bare names and a mark of its own around strings
// (CallStyle::kQuoted): {city:<|"|>Paris<|"|>,days:[1,2]}. JSON itself is read, too.

#include <optional>
#include <string>
#include <string_view>

#include "models/answer/argument_reader.h"

namespace hearth::models {

class QuotedArguments final : public ArgumentReader {
 public:
  /// `quote`: the mark before and after a string; outlives it. With `python` a backslash in such a
  /// string escapes what follows.
  explicit QuotedArguments(std::string_view quote, bool python = false)
      : quote_(quote), python_(python) {}

  Step push(char c, std::string* json) override;
  std::string held() const override { return held_; }

 private:
  enum class State {
    kBegin,       ///< the brace
    kKeyOrEnd,    ///< after an opening brace
    kKey,         ///< after a comma of an object
    kBareKey,     ///< in a name without marks
    kColon,       ///< after a name with marks
    kValue,       ///< a value must follow
    kValueOrEnd,  ///< after an opening bracket
    kScalar,      ///< in a number or a word
    kCommaOrEnd,  ///< after a value
    kString,      ///< in a string between marks
    kJsonString,
    kOpening,  ///< in the mark before a string
  };

  Step step(char c, std::string* json);
  Step key(char c, std::string* json);
  Step value(char c, std::string* json);
  Step comma_or_end(char c, std::string* json);
  Step close(char c, std::string* json);
  void opening(char c, std::string* json);
  void string(char c, std::string* json);
  bool put_scalar(std::string* json);
  State after_string() const { return in_key_ ? State::kColon : State::kCommaOrEnd; }

  const std::string_view quote_;
  const bool python_;
  State state_ = State::kBegin;
  std::string open_;     // brackets not closed yet
  bool in_key_ = false;  // the string is a name
  bool escaped_ = false;
  std::string held_;  // the part of a mark, a name or a word that was read
};

/// JSON's word for one of Python, or an empty text: True, False, None.
std::string_view json_word(std::string_view python);
/// The JSON of a list or a dictionary as Python prints it; nothing if it is not one.
std::optional<std::string> json_of_python(std::string_view literal);

}  // namespace hearth::models
