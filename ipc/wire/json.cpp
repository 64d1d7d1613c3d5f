#include "ipc/wire/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "ipc/text/utf8.h"
#include "kernels/base/sizes.h"

namespace hearth::ipc {
namespace {

/// Builds the value from the parser's events. Written by hand because the library's own builder
/// has no bound on depth and keeps the last of two equal keys without a word.
class BoundedBuilder final : public nlohmann::json_sax<Json> {
 public:
  explicit BoundedBuilder(const JsonLimits& limits) : limits_(limits) {}
  ~BoundedBuilder() override { discard(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override {
    return count(sizeof value + kBlockBytes) && add(std::move(value));
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& key) override {
    Json& object = *open_.back();
    if (open_.size() == 1) field_ = printable(key);
    if (object.size() >= limits_.max_object_keys) {
      return fail(Error::too_large(
          fmt::format("an object has more than {} keys", limits_.max_object_keys)));
    }
    if (object.contains(key) && !limits_.last_key_applies) {
      return fail(Error::invalid(fmt::format("'{}' is given twice", printable(key))));
    }
    if (!grow(object.get_ref<Json::object_t&>())) return false;
    slot_ = &object[key];
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception& problem) override {
    // 406 is a number too big for a double; its text quotes the number alone, yet the rule here is
    // that nothing is quoted.
    if (problem.id == 406) {
      return fail(Error::invalid(fmt::format("met a number beyond 1.8e308 at byte {}", position)));
    }
    return fail(Error::protocol(fmt::format("met what is not JSON at byte {}", position)));
  }

  Json take_root() { return std::move(root_); }
  size_t value_bytes() const { return value_bytes_; }
  Error take_error() {
    if (!error_) error_ = Error::protocol("met what is not JSON", field_);
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
  bool close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  Json root_;
  std::vector<Json*> open_;
  Json* slot_ = nullptr;  ///< where the value of the last key goes
  size_t value_bytes_ = 0;
  std::string field_;  ///< the top-level key last read
  std::optional<Error> error_;
};

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
  // JSON has no raw NUL anywhere, but the library takes one for the end of the text.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    return Error::protocol(fmt::format("met what is not JSON at byte {}", nul + 1));
  }
  BoundedBuilder builder(limits);
  bool whole = false;
  try {
    whole = Json::sax_parse(text.begin(), text.end(), &builder);
  } catch (const std::exception&) {
    return Error::internal("the JSON parser failed");
  }
  if (!whole) return builder.take_error();
  Json root = builder.take_root();
  if (!root.is_object()) {
    return Error::protocol(fmt::format("met {}, want a JSON object", describe(root)));
  }
  if (value_bytes != nullptr) *value_bytes += builder.value_bytes();
  return root;
}

std::string dump_json(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
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
