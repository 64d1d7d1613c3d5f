#pragma once
// The state that the parts of the interpreter share during one rendering: the values' memory, the
// bounds, and Python's rules for values (str, repr, ==, <, in, +, indexing). Owned by one thread.

#include <fmt/core.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/result.h"
#include "models/template/value.h"

namespace hearth::models::jinja {

/// A rendering's bounds. A step is one node evaluated, one item visited, or 64 bytes of text
/// processed.
struct Limits {
  uint64_t max_steps = 20'000'000;
  size_t max_bytes = size_t{256} << 20;  ///< of all values
  size_t max_output_bytes = size_t{32} << 20;
  int max_depth = 500;  ///< nesting of expressions, statements and macro calls
};

struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

class Runtime {
 public:
  explicit Runtime(const Limits& limits) : limits_(limits) {}
  virtual ~Runtime() = default;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  virtual Result<Value> call(const Value& callee, const CallArguments& arguments) = 0;

  Arena& arena() { return arena_; }
  const Limits& limits() const { return limits_; }
  /// Sets the current line, which errors name.
  void set_line(int line) { line_ = line; }
  int line() const { return line_; }
  // Errors that name the current line.
  Error fail(const std::string& what) const;
  Error too_large(const std::string& what) const;
  Error unsupported(const std::string& what) const;

  /// Counts steps; kTooLarge if the bound of steps or of memory is exceeded.
  Result<void> charge(uint64_t steps = 1);
  Result<void> charge_bytes(size_t bytes) { return charge(1 + bytes / 64); }

  // ---- Making values. Growth is checked against the bounds first.
  Value text(TracedText value, bool markup = false) {
    return Value::of(arena_.keep(std::move(value)), markup);
  }
  /// `made` from `source`: all of it is data if any of `source` is.
  Value text_from(std::string_view source, std::string_view made, bool markup = false);
  /// Appends a text and its origin.
  void append(TracedText& to, std::string_view text) const { arena_.texts().append(to, text); }
  /// Appends `made`, which was made from `source`, as text_from() does.
  void append_from(TracedText& to, std::string_view source, std::string_view made) const;
  Result<Value> list(std::vector<Value> items, Kind kind = Kind::kList);
  Result<void> add(List& list, const Value& item);

  // ---- Python's rules.
  /// str(value), as an output shows it.
  Result<TracedText> str(const Value& value);
  Result<Value> str_value(const Value& value);  ///< without a copy if it is a string
  Result<void> append_repr(TracedText& out, const Value& value, int depth = 0);
  Result<bool> equal(const Value& a, const Value& b, int depth = 0);
  /// a < b; an error for kinds that have no order.
  Result<bool> less(const Value& a, const Value& b, int depth = 0);
  Result<bool> contains(const Value& container, const Value& item);
  Result<Value> binary(std::string_view op, const Value& a, const Value& b);
  /// The items of an iterable: the list itself, or a new list.
  Result<List*> iterate(const Value& value);
  Result<size_t> length(const Value& value);
  /// a.name and a[key], as Jinja looks them up: undefined if missing.
  Result<Value> attribute(const Value& value, std::string_view name);
  Result<Value> item(const Value& value, const Value& key);
  Result<Value> slice(const Value& value, const Value& start, const Value& stop, const Value& step);
  /// The value at a path such as "a.b.0", as in the filter argument attribute=.
  Result<Value> path(const Value& value, const Value& path);
  Result<void> check_key(const Value& key) const;
  /// An error that names the undefined value.
  Error undefined_error(const Value& value) const;

  /// Matches `arguments` to `names` by position and name; absent ones are null. `what` names the
  /// function in errors.
  Result<std::vector<const Value*>> bind(const CallArguments& arguments, std::string_view what,
                                         std::initializer_list<std::string_view> names) const;
  Result<int64_t> integer(const Value* value, std::string_view what, int64_t otherwise) const;
  static bool flag(const Value* value, bool otherwise) {
    return value == nullptr ? otherwise : truth(*value);
  }
  /// Checks that a text of `size` bytes may grow by `more`.
  Result<void> room(size_t size, size_t more) const;

 private:
  std::string about(const std::string& what) const;
  Result<Value> add_values(const Value& a, const Value& b);
  Result<Value> repeat(const Value& a, int64_t count);
  Result<Value> arithmetic(std::string_view op, const Value& a, const Value& b);

  const Limits limits_;
  Arena arena_;
  uint64_t steps_ = 0;
  int line_ = 1;
};

// Each of these has its own file.
bool has_method(const Value& self, std::string_view name);
Result<Value> call_method(Runtime& run, const Value& self, std::string_view name,
                          const CallArguments& arguments);
Result<Value> apply_filter(Runtime& run, std::string_view name, const Value& value,
                           const CallArguments& arguments);
Result<bool> apply_test(Runtime& run, std::string_view name, const Value& value,
                        const CallArguments& arguments);
/// text % arguments, and the filter format: %s %d %i %f %x %r %%.
Result<Value> format_percent(Runtime& run, std::string_view format, const std::vector<Value>& with);

}  // namespace hearth::models::jinja
