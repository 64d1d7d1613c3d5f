#pragma once
// Files of heads that draft for a model (layout: models/decoder/draft_heads.h, eagle3.h and
// dflash.h): how
// they differ from models, and the bounds of their counts.

#include <cstdint>
#include <string_view>

#include "models/gguf/gguf_file.h"

namespace hearth::models {

inline constexpr std::string_view kHeadsArchitecture = "medusa";
inline constexpr std::string_view kEagle3Architecture = "eagle3";
inline constexpr std::string_view kDFlashArchitecture = "dflash";
inline constexpr uint32_t kMostHeadsOfFile = 16, kMostHeadBlocks = 16;

inline bool has_architecture(const GgufFile& file, std::string_view name) {
  const auto architecture = file.get<std::string_view>("general.architecture");
  return architecture.ok() && *architecture == name;
}

inline bool is_eagle3(const GgufFile& file) { return has_architecture(file, kEagle3Architecture); }
inline bool is_dflash(const GgufFile& file) { return has_architecture(file, kDFlashArchitecture); }

inline bool is_heads(const GgufFile& file) {
  return has_architecture(file, kHeadsArchitecture) || is_eagle3(file) || is_dflash(file);
}

}  // namespace hearth::models
