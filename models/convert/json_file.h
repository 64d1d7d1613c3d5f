#pragma once
// The JSON files of published weights: untrusted, so bounded in size and depth, and read by
// accessors that check types instead of throwing.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/base/result.h"

namespace hearth::models {

using Json = nlohmann::json;

/// kNotFound, kForbidden, kIo: the system's reason. kCorrupt: not a JSON object, nested too deeply,
/// or larger than such a file may be.
Result<Json> read_json_file(const std::filesystem::path& path);
/// The same; null if the file does not exist.
Result<Json> read_json_file_if_there(const std::filesystem::path& path);

/// Null if `key` is absent or null, or `object` is not an object.
const Json* find(const Json& object, std::string_view key);
/// kCorrupt names a key of another type. If absent or null, the result is empty.
Result<std::optional<double>> number_at(const Json& object, std::string_view key);
Result<std::optional<uint64_t>> count_at(const Json& object, std::string_view key);
Result<std::optional<bool>> flag_at(const Json& object, std::string_view key);
Result<std::optional<std::string>> text_at(const Json& object, std::string_view key);
/// kCorrupt also if it is absent.
Result<uint64_t> want_count(const Json& object, std::string_view key);
Result<double> want_number(const Json& object, std::string_view key);

/// Files of models hold F32 numbers and 32-bit counts.
inline float as_float(double x) { return static_cast<float>(x); }
/// The whole number at or below one that is not negative.
inline uint64_t whole(double x) { return static_cast<uint64_t>(x); }

}  // namespace hearth::models
