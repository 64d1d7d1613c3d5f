#pragma once
// Published models that fetch.sh downloaded, and llama.cpp's results for them (record.py).

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/paths.h"
#include "tests/skip.h"

namespace hearth::published {

struct Model {
  const char* name;  ///< the file's, without .gguf
  bool full_only;    ///< run with full counts alone
};
inline constexpr Model kSmolLm2{"SmolLM2-135M-Instruct.Q4_1", false};
inline constexpr Model kGemma3{"gemma-3-270m-q4_k_m", true};

inline std::filesystem::path cache_dir() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0') {
    return std::filesystem::path(cache) / "hearth-tests/models";
  }
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home != nullptr ? home : "/") / ".cache/hearth-tests/models";
}

/// The model's file; empty if it was not downloaded or is not run.
inline std::filesystem::path file_of(const Model& model) {
  if (model.full_only && !tests::full_counts()) return {};
  std::filesystem::path path = cache_dir() / (std::string(model.name) + ".gguf");
  return std::filesystem::exists(path) ? path : std::filesystem::path{};
}
inline std::string why_not(const Model& model) {
  return model.full_only && !tests::full_counts()
             ? std::string(model.name) + " is run with HEARTH_TEST_FULL=1"
             : std::string(model.name) + " is not downloaded (tests/published/fetch.sh)";
}

/// Ends the running test case as skipped if the model is missing.
#define HEARTH_NEEDS_MODEL(model) \
  if (file_of(model).empty()) HEARTH_SKIP(why_not(model).c_str())

/// NAME.json
inline nlohmann::json recorded(const Model& model) {
  std::ifstream in(hearth::tests::source_path("tests/published/") + model.name + ".json");
  return nlohmann::json::parse(in);
}

}  // namespace hearth::published
