#pragma once
// Parses a call as a JSON object, {"name": "f", "arguments": {...}}, byte by byte: its name and the
// text of its arguments as they arrive, in either order.

#include <string>
#include <string_view>

namespace hearth::models {

/// Finds the end of one JSON value without building it.
class ValueScanner {
 public:
  enum class Step { kMore, kDone, kPast, kWrong };
  /// kDone: `c` is the value's last byte. kPast: it ended before `c` (a number, a word).
  Step push(char c);

 private:
  std::string open_;  // brackets not closed yet
  bool begun_ = false;
  bool scalar_ = false;
  bool in_string_ = false;
  bool escaped_ = false;
};

class CallObject {
 public:
  CallObject(std::string_view name_key, std::string_view arguments_key)
      : name_key_(name_key), arguments_key_(arguments_key) {}

  enum class Step { kMore, kDone, kWrong };
  /// The first byte is the brace. Blanks are accepted where JSON allows them. kWrong: `c` makes it
  /// something other than such an object.
  Step push(char c);

  bool has_name() const { return has_name_; }
  const std::string& name() const { return name_; }
  bool has_arguments() const { return has_arguments_; }
  /// The new part of the arguments since the last call.
  std::string take_arguments() {
    std::string out;
    out.swap(arguments_);
    return out;
  }

 private:
  enum class State { kBegin, kKeyOrEnd, kKeyBegin, kKey, kColon, kValueBegin, kValue, kCommaOrEnd };
  enum class Meaning { kName, kArguments, kOther };

  Step begin_value(char c);
  Step in_value(char c);
  Step comma_or_end(char c);

  const std::string_view name_key_, arguments_key_;
  State state_ = State::kBegin;
  Meaning meaning_ = Meaning::kOther;
  std::string key_;
  bool escaped_ = false;
  ValueScanner value_;
  std::string name_;
  std::string arguments_;
  bool has_name_ = false;
  bool has_arguments_ = false;
};

inline bool is_json_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

}  // namespace hearth::models
