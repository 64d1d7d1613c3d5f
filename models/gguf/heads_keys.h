#pragma once
// Files of heads that draft for a model (layout: models/decoder/draft_heads.h and eagle3.h): how
// they differ from models, and the bounds of their counts.

#include <cstdint>
#include <string_view>

#include "models/gguf/gguf_file.h"

namespace hearth::models {

inline constexpr std::string_view kHeadsArchitecture = "medusa";
inline constexpr std::string_view kEagle3Architecture = "eagle3";
inline constexpr uint32_t kMostHeadsOfFile = 16, kMostHeadBlocks = 16;

inline bool is_eagle3(const GgufFile& file) {
  const auto architecture = file.get<std::string_view>("general.architecture");
  return architecture.ok() && *architecture == kEagle3Architecture;
}

inline bool is_heads(const GgufFile& file) {
  const auto architecture = file.get<std::string_view>("general.architecture");
  return architecture.ok() &&
         (*architecture == kHeadsArchitecture || *architecture == kEagle3Architecture);
}

}  // namespace hearth::models
