#include "ipc/wire/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "ipc/text/utf8.h"
#include "ipc/wire/json_parser.h"
#include "ipc/wire/json_text.h"
#include "kernels/base/sizes.h"

namespace hearth::ipc {
namespace {

/// Builds the value within the limits. Two equal keys are an error.
class BoundedBuilder final : public JsonSink {
 public:
  explicit BoundedBuilder(const JsonLimits& limits) : limits_(limits) {}
  ~BoundedBuilder() override { discard(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool negative(int64_t value) override { return add(value); }
  bool integer(uint64_t value) override { return add(value); }
  bool number(double value) override { return add(value); }
  bool string(std::string text) override {
    return count(sizeof text + kBlockBytes) && add(std::move(text));
  }
  bool open_object() override { return open(Json::object()); }
  bool open_list() override { return open(Json::array()); }
  bool close() override {
    open_.pop_back();
    return true;
  }

  bool key(std::string key) override {
    auto& members = open_.back()->get_ref<Json::object_t&>();
    if (open_.size() == 1) field_ = printable(key);
    if (members.size() >= limits_.max_object_keys) {
      return fail(Error::too_large(
          fmt::format("an object has more than {} keys", limits_.max_object_keys)));
    }
    if (const auto found = members.find(key); found != members.end()) {
      slot_ = &found->second;
      return limits_.last_key_applies ||
             fail(Error::invalid(fmt::format("'{}' is given twice", printable(key))));
    }
    if (!grow(members)) return false;
    // As a vector of members: the map's own functions copy the key.
    Json::object_t::Container& list = members;
    slot_ = &list.emplace_back(std::move(key), Json()).second;
    return true;
  }

  Json take_root() { return std::move(root_); }
  size_t value_bytes() const { return value_bytes_; }
  Error take_error(const JsonParsed& parsed) {
    if (parsed.end == JsonParsed::End::kTooLarge) {
      fail(Error::invalid(fmt::format("met a number beyond 1.8e308 at byte {}", parsed.at + 1)));
    } else if (parsed.end == JsonParsed::End::kNotJson) {
      fail(Error::protocol(fmt::format("met what is not JSON at byte {}", parsed.at + 1)));
    }
    return std::move(*error_);
  }

 private:
  /// What an allocation takes in addition to its size.
  static constexpr size_t kBlockBytes = 16;

  bool fail(Error error) {
    if (!field_.empty()) error.message = fmt::format("{}: {}", field_, error.message);
    error.field = field_;
    error_ = std::move(error);
    return false;
  }

  /// Counts `bytes` before they are allocated.
  bool count(size_t bytes) {
    value_bytes_ += bytes;
    if (value_bytes_ <= limits_.max_value_bytes) return true;
    return fail(Error::too_large(
        fmt::format("so many values that they take more than {} bytes", limits_.max_value_bytes)));
  }
  /// Counts the memory of one more element, which doubles where it is full.
  template <class Vector>
  bool grow(const Vector& elements) {
    if (elements.size() < elements.capacity()) return true;
    const size_t more = std::max<size_t>(elements.capacity(), 1);
    return count(more * sizeof(typename Vector::value_type) + (elements.empty() ? kBlockBytes : 0));
  }
  /// Null: beyond a bound.
  Json* place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      auto& items = open_.back()->get_ref<Json::array_t&>();
      if (!grow(items)) return nullptr;
      items.push_back(std::move(value));
      return &items.back();
    }
    *slot_ = std::move(value);
    return slot_;
  }
  bool add(Json value) { return place(std::move(value)) != nullptr; }
  bool open(Json value) {
    if (size32(open_) >= limits_.max_depth) {
      return fail(Error::too_large(fmt::format("nested deeper than {}", limits_.max_depth)));
    }
    if (!count(sizeof(Json::array_t) + kBlockBytes)) return false;
    // A container is filled only while it is the innermost one, so no pointer in open_ moves.
    Json* const placed = place(std::move(value));
    if (placed != nullptr) open_.push_back(placed);
    return placed != nullptr;
  }

  const JsonLimits& limits_;
  Json root_;
  std::vector<Json*> open_;
  Json* slot_ = nullptr;  ///< where the value of the last key goes
  size_t value_bytes_ = 0;
  std::string field_;  ///< the top-level key last read
  std::optional<Error> error_;
};

class Nowhere final : public JsonSink {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool negative(int64_t) override { return true; }
  bool integer(uint64_t) override { return true; }
  bool number(double) override { return true; }
  bool string(std::string) override { return true; }
  bool key(std::string) override { return true; }
  bool open_object() override { return true; }
  bool open_list() override { return true; }
  bool close() override { return true; }
};

/// About the length of its text: that of its strings, and some for everything else.
size_t bytes_of(const Json& json) {
  constexpr size_t kOther = 8;
  if (json.is_string()) return kOther + json.get_ref<const std::string&>().size();
  size_t bytes = kOther;
  if (json.is_array()) {
    for (const Json& item : json) bytes += bytes_of(item);
  } else if (json.is_object()) {
    for (const auto& [key, value] : json.get_ref<const Json::object_t&>()) {
      bytes += kOther + key.size() + bytes_of(value);
    }
  }
  return bytes;
}

}  // namespace

void discard(Json& json) {
  // As deep as the parser's bound permits.
  const auto discard_all = [](auto& values, const auto& value_of) {
    for (auto& each : values) {
      if (Json& value = value_of(each); value.is_structured()) discard(value);
    }
    values.clear();
  };
  if (json.is_array()) {
    discard_all(json.get_ref<Json::array_t&>(), [](Json& item) -> Json& { return item; });
  } else if (json.is_object()) {
    discard_all(json.get_ref<Json::object_t&>(),
                [](auto& member) -> Json& { return member.second; });
  }
}

Result<Json> parse_json_object(std::string_view text, const JsonLimits& limits,
                               size_t* value_bytes) {
  if (text.size() > limits.max_bytes) {
    return Error::too_large(
        fmt::format("JSON of {} bytes, want at most {}", text.size(), limits.max_bytes));
  }
  const size_t valid = valid_utf8_prefix(text);
  if (valid != text.size()) {
    return Error::protocol(fmt::format("byte {} is not UTF-8", valid + 1));
  }
  BoundedBuilder builder(limits);
  const JsonParsed parsed = parse_json(text, builder);
  if (parsed.end != JsonParsed::End::kWhole) return builder.take_error(parsed);
  Json root = builder.take_root();
  if (!root.is_object()) {
    return Error::protocol(fmt::format("met {}, want a JSON object", describe(root)));
  }
  if (value_bytes != nullptr) *value_bytes += builder.value_bytes();
  return root;
}

std::string dump_json(const Json& json) {
  std::string out;
  out.reserve(bytes_of(json));  // growing would hold a long text twice
  append_json(json, &out);
  return out;
}

void append_json(const Json& json, std::string* out) {
  const auto append_all = [out](char open, char close, const auto& values, auto append) {
    *out += open;
    for (const auto& each : values) {
      if (out->back() != open) *out += ',';
      append(each);
    }
    *out += close;
  };
  switch (json.type()) {
    case Json::value_t::object:
      return append_all('{', '}', json.get_ref<const Json::object_t&>(), [out](const auto& member) {
        append_text(member.first, out);
        *out += ':';
        append_json(member.second, out);
      });
    case Json::value_t::array:
      return append_all('[', ']', json.get_ref<const Json::array_t&>(),
                        [out](const Json& item) { append_json(item, out); });
    case Json::value_t::string: return append_text(json.get_ref<const std::string&>(), out);
    default: *out += json.dump();
  }
}

void append_text(std::string_view text, std::string* out) {
  is_valid_utf8(text) ? append_quoted(text, out) : append_quoted(to_valid_utf8(text), out);
}

bool is_json(std::string_view text) {
  Nowhere nowhere;
  return is_valid_utf8(text) && parse_json(text, nowhere).end == JsonParsed::End::kWhole;
}

std::string describe(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::boolean: return value.get<bool>() ? "true" : "false";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
    case Json::value_t::number_float: return value.dump();
    case Json::value_t::string:
      return fmt::format("a string of {} bytes", value.get_ref<const std::string&>().size());
    case Json::value_t::array: return fmt::format("a list of {}", value.size());
    case Json::value_t::object: return "an object";
    default: return "something else";
  }
}

std::string printable(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, 40)) out += c > 0x20 && c < 0x7F ? c : '?';
  if (name.size() > 40) out += "...";
  return out;
}

}  // namespace hearth::ipc
