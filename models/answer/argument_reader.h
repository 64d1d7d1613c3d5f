#pragma once
// Translates the arguments of a call, in a format's own notation, to one JSON object, byte by byte.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/answer/tool_format.h"

namespace hearth::models {

/// A function that an answer may call.
struct OfferedFunction {
  std::string name;
  /// Parameters whose values are always strings. In notations that do not mark strings, the values
  /// of other parameters are JSON, or strings if they are not valid JSON.
  std::vector<std::string> string_parameters{};
  bool operator==(const OfferedFunction&) const = default;
};

class ArgumentReader {
 public:
  enum class Step {
    kMore,
    kDone,   ///< `c` is the arguments' last byte
    kWrong,  ///< with `c` they are not arguments; what `json` received remains
  };
  virtual ~ArgumentReader() = default;

  /// Appends to `json` what is certain with `c`: nothing until it is certain that this is a call.
  virtual Step push(char c, std::string* json) = 0;
  /// After kWrong: the bytes read, `c` included, that `json` holds nothing of.
  virtual std::string held() const = 0;
  /// The answer ends here: completes an object of which only closing marks are missing.
  virtual void finish(std::string* /*json*/) {}
};

/// For formats with the name outside of the arguments (kNamed, kTagged, kQuoted), which outlive it.
std::unique_ptr<ArgumentReader> make_argument_reader(const ToolFormat& format,
                                                     const OfferedFunction& function);

/// Below a blank: JSON wants it escaped.
inline bool is_control_byte(char c) { return (c & 0xE0) == 0; }
/// Appends a byte of a string's text to its JSON.
void append_json_byte(std::string* json, char c);

}  // namespace hearth::models
