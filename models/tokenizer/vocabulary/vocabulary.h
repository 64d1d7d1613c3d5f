#pragma once
// The checked token list of a GGUF file and the metadata that every kind of tokenizer needs.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"
#include "kernels/base/sizes.h"
#include "models/tokenizer/vocabulary/string_pool.h"

namespace hearth::models {

class GgufFile;

/// Ids as in tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,      ///< stands for text that the vocabulary cannot represent
  kControl = 3,      ///< BOS, EOS, turn markers: has no text
  kUserDefined = 4,  ///< always one token, wherever its text appears
  kUnused = 5,
  kByte = 6,  ///< "<0x0A>": one byte
};

/// Owns its strings, so it may outlive the file. Immutable.
class Vocabulary {
 public:
  /// Reads tokenizer.ggml.{tokens, token_type, bos_token_id, eos_token_id, eot_token_id,
  /// eom_token_id, unknown_token_id}. kCorrupt names the key.
  static Result<Vocabulary> load(const GgufFile& file);

  int32_t size() const { return size32(types_); }
  bool holds(int32_t id) const { return id >= 0 && id < size(); }
  std::string_view entry(int32_t id) const { return entries_[id]; }
  TokenType type(int32_t id) const { return types_[id]; }
  bool is_end_of_generation(int32_t id) const { return ends_[id]; }

  std::optional<int32_t> bos() const { return bos_; }
  std::optional<int32_t> eos() const { return eos_; }
  std::optional<int32_t> unknown() const { return unknown_; }

 private:
  Result<void> load_types(const GgufFile& file);
  Result<void> load_special_ids(const GgufFile& file);
  Result<std::optional<int32_t>> special_id(const GgufFile& file, std::string_view key) const;

  StringPool entries_;
  std::vector<TokenType> types_;
  std::vector<bool> ends_;
  std::optional<int32_t> bos_;
  std::optional<int32_t> eos_;
  std::optional<int32_t> unknown_;
};

/// The byte that an entry like "<0x0A>" stands for.
std::optional<uint8_t> byte_of_entry(std::string_view entry);

}  // namespace hearth::models
