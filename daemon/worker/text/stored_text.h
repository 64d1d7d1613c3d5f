#pragma once
// Shows the first words of stored prefixes: detokenizes them with their model's tokenizer, if its
// file is found.

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
  /// `model_dirs`: searched for MODEL.gguf; empty: the directories that this user's daemon would
  /// search.
  explicit StoredText(const std::vector<std::string>& model_dirs);

  /// One line without control characters; "?" if the model or a token is unknown.
  std::string of(const std::string& model, std::span<const int32_t> tokens);

 private:
  std::vector<std::filesystem::path> dirs_;
  std::map<std::string, std::unique_ptr<models::Tokenizer>> tokenizers_;  ///< null: not found
};

}  // namespace hearth::worker
