#pragma once
// Plain structs from JSON and to its text by way of bind(). Reading checks the kind and range of
// every member; an absent or null member keeps its default. Included by the codec's .cpp files
// only.

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "ipc/schema/bind.h"
#include "ipc/wire/json.h"
#include "ipc/wire/json_text.h"

namespace hearth::ipc {

/// Moves texts out of the JSON, so that a long one is not held twice.
class JsonReader {
 public:
  explicit JsonReader(Json& object) : object_(object) {}

  template <class T>
  void operator()(std::string_view name, T& out) {
    if (error_) return;
    const auto found = object_.find(name);
    if (found == object_.end() || found->is_null()) return;
    path_ = name;
    read(*found, out);
  }

  /// The first member that did not fit, if any.
  Result<void> result() && {
    if (error_) return std::move(*error_);
    return {};
  }

 private:
  void wrong(const Json& value, std::string_view want) {
    if (error_) return;
    error_ = Error::invalid(fmt::format("{}: met {}, want {}", path_, describe(value), want),
                            std::string(path_));
  }

  void read(const Json& value, bool& out) {
    if (!value.is_boolean()) return wrong(value, "true or false");
    out = value.get<bool>();
  }
  void read(Json& value, std::string& out) {
    if (!value.is_string()) return wrong(value, "a string");
    out = std::move(value.get_ref<std::string&>());
  }
  void read(const Json& value, ErrorCode& out) {
    if (!value.is_string()) return wrong(value, "a string");
    // A code of a newer daemon is still an error.
    out = error_code_from_name(value.get_ref<const std::string&>()).value_or(ErrorCode::kInternal);
  }
  void read(Json& value, JsonText& out) {
    if (!value.is_structured()) return wrong(value, "a list or an object");
    out.text = value.empty() ? std::string() : dump_json(value);
  }
  template <class T>
  requires std::is_integral_v<T>
  void read(const Json& value, T& out) {
    using Limits = std::numeric_limits<T>;
    bool fits = false;
    if (value.is_number_unsigned()) {
      fits = std::in_range<T>(value.get<uint64_t>());
    } else if (value.is_number_integer()) {
      fits = std::in_range<T>(value.get<int64_t>());
    }
    if (!fits) {
      return wrong(value, fmt::format("an integer {} to {}", Limits::min(), Limits::max()));
    }
    out = value.get<T>();
  }
  template <class T>
  requires std::is_floating_point_v<T>
  void read(const Json& value, T& out) {
    if (!value.is_number()) return wrong(value, "a number");
    const double number = value.get<double>();
    if (!(std::abs(number) <= double{std::numeric_limits<T>::max()})) {
      return wrong(value, "a finite number");
    }
    out = static_cast<T>(number);
  }
  template <class T>
  void read(Json& value, std::optional<T>& out) {
    read(value, out.emplace());
  }
  template <class A, class B>
  void read(Json& value, std::pair<A, B>& out) {
    if (!value.is_array() || value.size() != 2) return wrong(value, "a list of 2");
    read(value[0], out.first);
    read(value[1], out.second);
  }
  template <class T>
  void read(Json& value, std::vector<T>& out) {
    if (!value.is_array()) return wrong(value, "a list");
    out.clear();
    out.reserve(value.size());
    for (Json& item : value) {
      read(item, out.emplace_back());
      if (error_) return;
    }
  }
  template <class T>
  requires requires(JsonReader& r, T& t) { bind(r, t); }
  void read(Json& value, T& out) {
    if (!value.is_object()) return wrong(value, "an object");
    JsonReader inner(value);
    bind(inner, out);
    if (inner.error_ && !error_) error_ = std::move(inner.error_);
  }

  Json& object_;
  std::string_view path_;
  std::optional<Error> error_;
};

/// Writes a JSON object straight into a string: a tree of values would hold long texts once more.
class JsonWriter {
 public:
  /// `skip_empty`: an empty list or string is not written (requests, where it is the default).
  JsonWriter(std::string& out, bool skip_empty) : out_(out), skip_empty_(skip_empty) {
    out_ += '{';
  }
  /// After the last member.
  void end() { out_ += '}'; }

  template <class T>
  void operator()(std::string_view name, const T& value) {
    if constexpr (requires { value.empty(); }) {
      if (skip_empty_ && value.empty()) return;
    }
    if constexpr (requires { value.has_value(); }) {
      if (value.has_value()) member(name, *value);
    } else {
      member(name, value);
    }
  }
  /// Writes it even if it is empty.
  template <class T>
  void member(std::string_view name, const T& value) {
    begin_member(name);
    write(value);
  }
  /// A member whose value is the object that `fill` writes with a writer of its own.
  template <class Fill>
  void object(std::string_view name, Fill fill) {
    begin_member(name);
    JsonWriter inner(out_, skip_empty_);
    fill(inner);
    inner.end();
  }

 private:
  void begin_member(std::string_view name) {
    if (out_.back() != '{') out_ += ',';
    append_quoted(name, &out_);
    out_ += ':';
  }
  void write(bool value) { out_ += value ? "true" : "false"; }
  void write(std::string_view value) { append_text(value, &out_); }
  void write(const std::string& value) { append_text(value, &out_); }
  // Invalid JSON becomes null, which the reader refuses by the field's name.
  void write(const JsonText& value) { out_ += is_json(value.text) ? value.text : "null"; }
  void write(DeltaChannel channel) { append_text(hearth::ipc::name(channel), &out_); }
  void write(ErrorCode code) { append_text(hearth::name(code), &out_); }
  template <class T>
  requires std::is_integral_v<T>
  void write(T value) { out_ += std::to_string(value); }
  void write(double value) { append_json(value, &out_); }
  void write(float value) {
    // The shortest decimal that reads back as this float: 0.8, not 0.800000011920929.
    char text[32];
    const auto end = std::to_chars(text, text + sizeof text, value).ptr;
    double exact = value;
    std::from_chars(text, end, exact);
    write(exact);
  }
  template <class A, class B>
  void write(const std::pair<A, B>& value) {
    out_ += '[';
    write(value.first);
    out_ += ',';
    write(value.second);
    out_ += ']';
  }
  template <class T>
  void write(const std::vector<T>& values) {
    out_ += '[';
    for (const T& value : values) {
      if (out_.back() != '[') out_ += ',';
      write(value);
    }
    out_ += ']';
  }
  template <class T>
  requires requires(JsonWriter& w, const T& t) { bind(w, t); }
  void write(const T& value) {
    JsonWriter inner(out_, skip_empty_);
    bind(inner, value);
    inner.end();
  }

  std::string& out_;
  const bool skip_empty_;
};

/// About the length of a struct's JSON: its long members, counted without their escapes.
class JsonMeasure {
 public:
  template <class T>
  void operator()(std::string_view, const T& value) {
    bytes_ += 32 + bytes_of(value);
  }
  size_t bytes() const { return bytes_; }

 private:
  static size_t bytes_of(const std::string& value) { return value.size(); }
  static size_t bytes_of(const JsonText& value) { return value.text.size(); }
  template <class T>
  static size_t bytes_of(const std::vector<T>& values) {
    constexpr size_t kAround = 8;  // of one item: comma, quotes, digits
    size_t bytes = 0;
    for (const T& value : values) bytes += kAround + bytes_of(value);
    return bytes;
  }
  template <class T>
  static size_t bytes_of(const T&) {
    return 0;
  }

  size_t bytes_ = 0;
};

/// A struct as the text of one JSON object, and back. `begin(writer)` writes the members before
/// those of `value`.
template <class T, class Begin>
std::string encode_members(const T& value, Begin begin) {
  std::string out;
  JsonWriter writer(out, /*skip_empty=*/false);
  begin(writer);
  bind(writer, value);
  writer.end();
  return out;
}
template <class T>
std::string encode_members(const T& value) {
  return encode_members(value, [](JsonWriter&) {});
}
template <class T>
Result<T> read_members(Json& object) {
  T value;
  JsonReader reader(object);
  bind(reader, value);
  HEARTH_TRY(std::move(reader).result());
  return value;
}

template <class T>
Result<T> decode_members(std::string_view json, const JsonLimits& limits) {
  HEARTH_ASSIGN_OR_RETURN(Json object, parse_json_object(json, limits));
  return read_members<T>(object);
}

}  // namespace hearth::ipc
