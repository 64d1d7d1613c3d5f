#pragma once
// Reads a JSON text (RFC 8259) and reports its values in order. Strings are found whole in the text
// and copied once, at their own length: a reader that collects them byte by byte holds a long one
// several times. Pure; knows no library and no limits, which are the sink's.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hearth::ipc {

/// Receives the values. Each function returns false to end the parsing.
class JsonSink {
 public:
  virtual ~JsonSink() = default;
  virtual bool null() = 0;
  virtual bool boolean(bool value) = 0;
  /// An integer with a sign.
  virtual bool negative(int64_t value) = 0;
  virtual bool integer(uint64_t value) = 0;
  /// A number with a fraction or an exponent, or an integer beyond 64 bits. Finite.
  virtual bool number(double value) = 0;
  virtual bool string(std::string text) = 0;
  /// The name of the object's next member; its value follows.
  virtual bool key(std::string text) = 0;
  virtual bool open_object() = 0;
  virtual bool open_list() = 0;
  /// The end of the innermost object or list.
  virtual bool close() = 0;
};

struct JsonParsed {
  enum class End {
    kWhole,
    kStopped,   ///< a function of the sink returned false
    kNotJson,   ///< `at` is the first byte of what is none, or the length of the text
    kTooLarge,  ///< the number at `at` is beyond a double
  };
  End end = End::kWhole;
  size_t at = 0;  ///< bytes read
};

/// `text` is UTF-8. A byte order mark at its front is skipped.
JsonParsed parse_json(std::string_view text, JsonSink& sink);

}  // namespace hearth::ipc
