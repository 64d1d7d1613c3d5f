#pragma once
// The tool formats by number, for inputs.

#include <array>
#include <string_view>

#include "kernels/base/check.h"
#include "models/answer/tool_format.h"

namespace hearth::fuzz {

/// Numbers that inputs may have; most are free, for formats to come.
inline constexpr int kToolFormatKinds = 60;

/// Null: the number is free. A new format takes the next number, so that inputs found before keep
/// their format.
inline const models::ToolFormat* tool_format_of_kind(int kind) {
  constexpr std::array<std::string_view, 17> kIds = {
      "hermes",     "command-r7b", "command-r",      "mistral-named", "mistral-ids",
      "mistral",    "deepseek",    "deepseek-named", "deepseek-tags", "minimax",
      "qwen-coder", "seed",        "kimi",           "glm",           "gemma",
      "harmony",    "llama"};
  HEARTH_CHECK(models::tool_formats().size() == kIds.size(), "a format has no number here");
  const auto at = static_cast<size_t>(kind);
  if (at >= kIds.size()) return nullptr;
  const models::ToolFormat* const format = models::find_tool_format(kIds[at]);
  HEARTH_CHECK(format != nullptr, "no format {}", kIds[at]);
  return format;
}

}  // namespace hearth::fuzz
