#pragma once
// The first words of stored prefixes: tokens put back into text by the tokenizer of the model that
// they belong to, where its file is found.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/tokenizer/tokenizer.h"

namespace hearth::worker {

class StoredText {
 public:
  /// `model_dirs`: searched for MODEL.gguf; empty: those that a daemon of this user would search.
  explicit StoredText(const std::vector<std::string>& model_dirs);

  /// One line without control characters; "?" where there is no such model, or no such token.
  std::string of(const std::string& model, std::span<const int32_t> tokens);

 private:
  std::vector<std::filesystem::path> dirs_;
  std::map<std::string, std::unique_ptr<models::Tokenizer>> tokenizers_;  ///< null: not found
};

}  // namespace hearth::worker
