#include "models/convert/json_file.h"

#include <fmt/core.h>

#include "models/gguf/byte_cursor.h"
#include "models/gguf/file_mapping.h"
#include "models/gguf/gguf_file.h"

namespace hearth::models {
namespace {

constexpr size_t kMaxBytes = size_t{256} << 20;  // the largest tokenizers have tens of MiB
constexpr int kMaxDepth = 64;

Error wrong(std::string_view key, std::string_view want) {
  return Error::corrupt(fmt::format("{}: want {}", printable(key), want));
}

template <class T>
Result<T> wanted(Result<std::optional<T>> found, std::string_view key) {
  if (!found.ok()) return found.take_error();
  if (!found->has_value()) {
    return Error::corrupt(fmt::format("{}: missing", printable(key)));
  }
  return **found;
}

}  // namespace

Result<Json> read_json_file(const std::filesystem::path& path) {
  HEARTH_ASSIGN_OR_RETURN(const FileMapping file, FileMapping::open(path));
  const auto corrupt = [&](std::string_view what) {
    return Error::corrupt(fmt::format("{}: {}", printable(path.filename().string()), what));
  };
  if (file.bytes().size() > kMaxBytes) return corrupt("larger than 256 MiB");
  bool too_deep = false;
  Json out = Json::parse(
      as_text(file.bytes()),
      [&](int depth, Json::parse_event_t, Json&) {
        too_deep = too_deep || depth > kMaxDepth;
        return !too_deep;
      },
      false);
  if (too_deep || out.is_discarded() || !out.is_object()) return corrupt("no JSON object");
  return out;
}

Result<Json> read_json_file_if_there(const std::filesystem::path& path) {
  Result<Json> out = read_json_file(path);
  if (!out.ok() && out.error().code == ErrorCode::kNotFound) return Json();
  return out;
}

const Json* find(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Result<std::optional<double>> number_at(const Json& object, std::string_view key) {
  const Json* value = find(object, key);
  if (value == nullptr) return std::optional<double>();
  if (!value->is_number()) return wrong(key, "a number");
  return std::optional<double>(value->get<double>());
}

Result<std::optional<uint64_t>> count_at(const Json& object, std::string_view key) {
  const Json* value = find(object, key);
  if (value == nullptr) return std::optional<uint64_t>();
  if (!value->is_number_unsigned()) return wrong(key, "a whole number");
  const auto count = value->get<uint64_t>();
  if (count > UINT32_MAX) return wrong(key, "a number below 2^32");
  return std::optional<uint64_t>(count);
}

Result<std::optional<bool>> flag_at(const Json& object, std::string_view key) {
  const Json* value = find(object, key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) return wrong(key, "true or false");
  return std::optional<bool>(value->get<bool>());
}

Result<std::optional<std::string>> text_at(const Json& object, std::string_view key) {
  const Json* value = find(object, key);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return wrong(key, "a string");
  return std::optional<std::string>(value->get<std::string>());
}

Result<uint64_t> want_count(const Json& object, std::string_view key) {
  return wanted(count_at(object, key), key);
}

Result<double> want_number(const Json& object, std::string_view key) {
  return wanted(number_at(object, key), key);
}

}  // namespace hearth::models
