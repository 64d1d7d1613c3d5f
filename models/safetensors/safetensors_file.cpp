// Layout (the format's published description):
//   u64 little endian   length of the header
//   header              JSON: {"NAME": {"dtype": "F32", "shape": [..], "data_offsets": [from, to]},
//                       "__metadata__": {..}}; spaces may follow it
//   data                offsets count from here
#include "models/safetensors/safetensors_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "models/gguf/byte_cursor.h"
#include "models/gguf/gguf_file.h"

namespace hearth::models {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // from the format's description
constexpr size_t kMaxShapeDims = 8;
constexpr int kMaxHeaderDepth = 8;

/// Bytes of one element; absent for a type that the format does not have.
std::optional<uint64_t> element_bytes(std::string_view type) {
  constexpr std::pair<std::string_view, uint64_t> kElementTypes[] = {
      {"F64", 8},     {"I64", 8},     {"U64", 8},  {"F32", 4}, {"I32", 4},
      {"U32", 4},     {"F16", 2},     {"BF16", 2}, {"I16", 2}, {"U16", 2},
      {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I8", 1},   {"U8", 1},  {"BOOL", 1}};
  for (const auto& [name, bytes] : kElementTypes) {
    if (name == type) return bytes;
  }
  return {};
}

/// The value if it is a non-negative integer.
std::optional<uint64_t> whole(const json& value) {
  if (!value.is_number_unsigned()) return {};
  return value.get<uint64_t>();
}

Result<SafeTensor> read_tensor(const std::string& name, const json& entry,
                               std::span<const std::byte> data) {
  const auto bad = [&](std::string_view what) {
    return Error::corrupt(fmt::format("{}: {}", printable(name), what));
  };
  if (!entry.is_object()) return bad("no object");
  const auto type = entry.find("dtype"), shape = entry.find("shape"),
             offsets = entry.find("data_offsets");
  if (type == entry.end() || !type->is_string()) return bad("no dtype");
  if (shape == entry.end() || !shape->is_array() || shape->size() > kMaxShapeDims) {
    return bad("no shape of up to 8 dimensions");
  }
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2) {
    return bad("no pair of data_offsets");
  }
  SafeTensor out;
  out.name = name;
  out.type = type->get<std::string>();
  const auto each = element_bytes(out.type);
  if (!each)
    return bad(fmt::format("dtype {}, which the format does not have", printable(out.type)));
  uint64_t bytes = *each;
  for (const json& dim : *shape) {
    const auto size = whole(dim);
    if (!size) return bad("a dimension that is not a whole number");
    out.shape.push_back(*size);
    if (*size != 0 && bytes > data.size() / *size) return bad("a shape beyond the file's end");
    bytes *= *size;
  }
  const auto from = whole((*offsets)[0]), to = whole((*offsets)[1]);
  if (!from || !to || *from > *to || *to > data.size()) {
    return bad(fmt::format("data_offsets outside the {} bytes of data", data.size()));
  }
  if (*to - *from != bytes) {
    return bad(fmt::format("{} bytes, want {} for its shape and dtype", *to - *from, bytes));
  }
  out.bytes = data.subspan(*from, bytes);
  return out;
}

/// Null if the text is not JSON, is nested too deeply, or has a name twice, which readers resolve
/// differently.
json parse_header(std::string_view text) {
  bool bad = false;
  std::set<std::string> names;
  json header = json::parse(
      text,
      [&](int depth, json::parse_event_t event, json& value) {
        bad = bad || depth > kMaxHeaderDepth;
        if (event == json::parse_event_t::key && depth == 1) {
          bad = bad || !names.insert(value.get<std::string>()).second;
        }
        return !bad;
      },
      false);
  return bad || header.is_discarded() ? json() : header;
}

}  // namespace

uint64_t SafeTensor::num_elements() const {
  uint64_t count = 1;
  for (const uint64_t dim : shape) count *= dim;
  return count;
}

std::string shape_text(const std::vector<uint64_t>& shape) {
  std::string out;
  for (const uint64_t size : shape) out += fmt::format("{}{}", out.empty() ? "" : " x ", size);
  return out;
}

Result<kernels::DType> SafeTensor::dtype() const {
  if (type == "F32") return kernels::DType::kF32;
  if (type == "F16") return kernels::DType::kF16;
  if (type == "BF16") return kernels::DType::kBF16;
  return Error::unsupported(
      fmt::format("{}: type {}, want F32, F16 or BF16", printable(name), type));
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  HEARTH_ASSIGN_OR_RETURN(FileMapping mapping, FileMapping::open(path));
  auto parsed = parse(mapping.bytes());
  if (!parsed.ok()) {
    Error error = parsed.take_error();
    error.message = fmt::format("{}: {}", printable(path.filename().string()), error.message);
    return error;
  }
  parsed->mapping_ = std::move(mapping);
  return parsed;
}

Result<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> content) {
  if (content.size() < sizeof(uint64_t)) {
    return Error::corrupt(fmt::format("{} bytes, want at least 8", content.size()));
  }
  const auto length = load_unaligned<uint64_t>(content.data());
  const auto rest = content.subspan(sizeof(uint64_t));
  if (length > rest.size() || length > kMaxHeaderBytes) {
    return Error::corrupt(
        fmt::format("a header of {} bytes in a file of {}", length, content.size()));
  }
  const json header = parse_header({reinterpret_cast<const char*>(rest.data()), length});
  if (!header.is_object())
    return Error::corrupt("the header is not a JSON object, or names a tensor twice");
  SafetensorsFile out;
  const auto data = rest.subspan(length);
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    HEARTH_ASSIGN_OR_RETURN(SafeTensor tensor, read_tensor(name, entry, data));
    out.tensors_.emplace(name, std::move(tensor));
  }
  // No two tensors share bytes.
  std::vector<std::pair<const std::byte*, const SafeTensor*>> ordered;
  for (const auto& [name, tensor] : out.tensors_) {
    if (!tensor.bytes.empty()) ordered.emplace_back(tensor.bytes.data(), &tensor);
  }
  std::ranges::sort(ordered);
  for (size_t i = 1; i < ordered.size(); ++i) {
    const SafeTensor& before = *ordered[i - 1].second;
    if (before.bytes.data() + before.bytes.size() > ordered[i].first) {
      return Error::corrupt(fmt::format("{} and {} share bytes", printable(before.name),
                                        printable(ordered[i].second->name)));
    }
  }
  return out;
}

}  // namespace hearth::models
