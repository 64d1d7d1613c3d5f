#include "models/tokenizer/text/charsmap.h"

#include <fmt/core.h>

#include <algorithm>

#include "kernels/base/chars.h"
#include "models/gguf/gguf_file.h"

namespace hearth::models {
namespace {

constexpr std::string_view kCharsmapKey = "tokenizer.ggml.precompiled_charsmap";
constexpr size_t kUnitBytes = sizeof(uint32_t);
// Far above real maps (about 20 and 40 bytes); bounds the cost of normalizing.
constexpr size_t kMaxMatchBytes = 256;
constexpr size_t kMaxReplacementBytes = 256;

uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & (1U << 9)) >> 6); }
uint32_t label_of(uint32_t unit) { return unit & (1U << 31 | 0xFF); }
bool has_value(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & ~(1U << 31); }

}  // namespace

Result<Charsmap> Charsmap::load(const GgufFile& file) {
  Charsmap map;
  if (!file.has(kCharsmapKey)) return map;
  HEARTH_ASSIGN_OR_RETURN(const auto bytes, file.get<GgufNumbers<int32_t>>(kCharsmapKey));
  if (bytes.size() == 0) return map;
  const auto refused = [&](std::string_view why) {
    return Error::corrupt(fmt::format("{}: {} bytes, {}", kCharsmapKey, bytes.size(), why));
  };
  const auto unit_at = [&](size_t at) {
    uint32_t unit = 0;
    for (size_t i = kUnitBytes; i-- > 0;) unit = unit << 8 | static_cast<uint8_t>(bytes[at + i]);
    return unit;
  };
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] < -128 || bytes[i] > 255) return refused(fmt::format("but {} at {}", bytes[i], i));
  }
  if (bytes.size() < kUnitBytes) return refused("want the length of the index first");
  const size_t index_bytes = unit_at(0);
  if (index_bytes == 0 || index_bytes % kUnitBytes != 0 ||
      index_bytes >= bytes.size() - kUnitBytes) {
    return refused(fmt::format("want an index of {} bytes and texts after it", index_bytes));
  }
  for (size_t at = kUnitBytes; at < kUnitBytes + index_bytes; at += kUnitBytes)
    map.units_.push_back(unit_at(at));
  for (size_t at = kUnitBytes + index_bytes; at < bytes.size(); ++at)
    map.texts_.push_back(static_cast<char>(bytes[at]));
  if (map.texts_.back() != '\0') return refused("and the last text has no end");
  for (size_t at = 0; at < map.texts_.size();) {
    const size_t length = std::string_view(map.texts_.data() + at).size();
    if (length > kMaxReplacementBytes) {
      return refused(
          fmt::format("with a text of {} bytes, want at most {}", length, kMaxReplacementBytes));
    }
    at += length + 1;
  }
  return map;
}

Charsmap::Match Charsmap::match_front(std::string_view text) const {
  Match longest;
  if (units_.empty()) return longest;
  uint32_t at = offset_of(units_[0]);
  for (size_t i = 0; i < std::min(text.size(), kMaxMatchBytes); ++i) {
    const auto byte = byte_of(text[i]);
    at ^= byte;
    // A NUL leads to a value and is not part of any key.
    if (byte == 0 || at >= units_.size() || label_of(units_[at]) != byte) break;
    const bool ends_here = has_value(units_[at]);
    at ^= offset_of(units_[at]);
    if (!ends_here) continue;
    if (at >= units_.size()) break;
    const uint32_t begin = value_of(units_[at]);
    if (begin < texts_.size()) longest = {i + 1, std::string_view(texts_.data() + begin)};
  }
  return longest;
}

}  // namespace hearth::models
