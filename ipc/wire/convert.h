#pragma once
// Plain structs from and to JSON by way of bind(). Reading checks the kind and range of every
// member; an absent or null member keeps its default. Included by the codec's .cpp files only.

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

namespace hearth::ipc {

class JsonReader {
 public:
  explicit JsonReader(const Json& object) : object_(object) {}

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
  void read(const Json& value, std::string& out) {
    if (!value.is_string()) return wrong(value, "a string");
    out = value.get_ref<const std::string&>();
  }
  void read(const Json& value, ErrorCode& out) {
    if (!value.is_string()) return wrong(value, "a string");
    // A code of a newer daemon is still an error.
    out = error_code_from_name(value.get_ref<const std::string&>()).value_or(ErrorCode::kInternal);
  }
  void read(const Json& value, JsonText& out) {
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
  void read(const Json& value, std::optional<T>& out) {
    read(value, out.emplace());
  }
  template <class A, class B>
  void read(const Json& value, std::pair<A, B>& out) {
    if (!value.is_array() || value.size() != 2) return wrong(value, "a list of 2");
    read(value[0], out.first);
    read(value[1], out.second);
  }
  template <class T>
  void read(const Json& value, std::vector<T>& out) {
    if (!value.is_array()) return wrong(value, "a list");
    out.clear();
    out.reserve(value.size());
    for (const Json& item : value) {
      read(item, out.emplace_back());
      if (error_) return;
    }
  }
  template <class T>
  requires requires(JsonReader& r, T& t) { bind(r, t); }
  void read(const Json& value, T& out) {
    if (!value.is_object()) return wrong(value, "an object");
    JsonReader inner(value);
    bind(inner, out);
    if (inner.error_ && !error_) error_ = std::move(inner.error_);
  }

  const Json& object_;
  std::string_view path_;
  std::optional<Error> error_;
};

class JsonWriter {
 public:
  /// `skip_empty`: an empty list or string is not written (requests, where it is the default).
  JsonWriter(Json& object, bool skip_empty) : object_(object), skip_empty_(skip_empty) {}

  template <class T>
  void operator()(std::string_view name, const T& value) {
    if constexpr (requires { value.empty(); }) {
      if (skip_empty_ && value.empty()) return;
    }
    if constexpr (requires { value.has_value(); }) {
      if (!value.has_value()) return;
      object_[std::string(name)] = write(*value);
    } else {
      object_[std::string(name)] = write(value);
    }
  }

 private:
  Json write(bool value) { return value; }
  Json write(const std::string& value) { return value; }
  Json write(const JsonText& value) {
    // What is no JSON becomes null, which the reader refuses by the field's name.
    Json json = Json::parse(value.text, nullptr, /*allow_exceptions=*/false);
    return json.is_discarded() ? Json() : json;
  }
  Json write(ErrorCode code) { return std::string(hearth::name(code)); }
  template <class T>
  requires std::is_integral_v<T> Json write(T value) { return value; }
  Json write(double value) { return value; }
  Json write(float value) {
    // The shortest decimal that reads back as this float: 0.8, not 0.800000011920929.
    char text[32];
    const auto end = std::to_chars(text, text + sizeof text, value).ptr;
    double exact = value;
    std::from_chars(text, end, exact);
    return exact;
  }
  template <class A, class B>
  Json write(const std::pair<A, B>& value) {
    return Json::array({write(value.first), write(value.second)});
  }
  template <class T>
  Json write(const std::vector<T>& values) {
    Json list = Json::array();
    list.get_ref<Json::array_t&>().reserve(values.size());
    for (const T& value : values) list.push_back(write(value));
    return list;
  }
  template <class T>
  requires requires(JsonWriter& w, const T& t) { bind(w, t); }
  Json write(const T& value) {
    Json object = Json::object();
    JsonWriter inner(object, skip_empty_);
    bind(inner, value);
    return object;
  }

  Json& object_;
  const bool skip_empty_;
};

template <class T>
void write_members(Json& object, const T& value, bool skip_empty = false) {
  JsonWriter writer(object, skip_empty);
  bind(writer, value);
}
template <class T>
Result<T> read_members(const Json& object) {
  T value;
  JsonReader reader(object);
  bind(reader, value);
  HEARTH_TRY(std::move(reader).result());
  return value;
}

/// A struct as the text of one JSON object, and back.
template <class T>
std::string encode_members(const T& value) {
  Json object = Json::object();
  write_members(object, value);
  return dump_json(object);
}
template <class T>
Result<T> decode_members(std::string_view json, const JsonLimits& limits) {
  HEARTH_ASSIGN_OR_RETURN(const Json object, parse_json_object(json, limits));
  return read_members<T>(object);
}

}  // namespace hearth::ipc
