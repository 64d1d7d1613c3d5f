#pragma once
// The metadata of one architecture as a family reads it: each key by name and range. A key that was
// not read is an error, because a model that ignores a key may compute something other than
// intended.

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"
#include "models/gguf/gguf_file.h"

namespace hearth::models {

// Bounds far above real models; any product of two fits in 64 bits and any sum in 32.
inline constexpr int32_t kMaxWidth = 1 << 20;
inline constexpr int32_t kMaxLayers = 1 << 12;
inline constexpr int32_t kMaxContext = 1 << 28;

/// Keys are given without "ARCHITECTURE."; errors name them in full. kCorrupt: missing, of another
/// type, out of range. kUnsupported: see refuse_others. `file` outlives this.
class Metadata {
 public:
  Metadata(const GgufFile& file, std::string_view architecture)
      : file_(file), architecture_(architecture) {}

  const GgufFile& file() const { return file_; }
  const std::string& architecture() const { return architecture_; }
  /// "llama.block_count"
  std::string full(std::string_view key) const;
  /// Marks the key as known.
  bool has(std::string_view key);
  /// Marks several keys, for code that reads them from the file directly.
  void know(std::initializer_list<std::string_view> keys);

  /// 1 to `most`. A value for each layer is unsupported.
  Result<int32_t> number(std::string_view key, int32_t most);
  /// A number for each of the layers: the file has one for all, or an array of them, in which they
  /// may be as small as `least`.
  Result<std::vector<int32_t>> numbers(std::string_view key, int32_t most, int32_t num_layers,
                                       int32_t least = 1);
  Result<std::vector<int32_t>> numbers_or(std::string_view key, int32_t most,
                                          const std::vector<int32_t>& fallback, int32_t least = 1);
  /// An array of a bool for each of the layers; `fallback` if missing.
  Result<std::vector<bool>> flags_or(std::string_view key, int32_t num_layers,
                                     const std::vector<bool>& fallback);
  /// An array of an f32 for each of the layers, finite or infinite.
  Result<std::vector<float>> floats(std::string_view key, int32_t num_layers);
  Result<int32_t> number_or(std::string_view key, int32_t most, int32_t fallback);
  /// 0 to `most`, `fallback` if missing.
  Result<int32_t> small_or(std::string_view key, int32_t most, int32_t fallback);
  /// 0 to 2^32 - 1, `fallback` if missing.
  Result<uint32_t> count_or(std::string_view key, uint32_t fallback);
  Result<bool> flag_or(std::string_view key, bool fallback);
  /// Above 0 and at most `most`.
  Result<float> factor(std::string_view key, float most);
  /// The same; `fallback` if missing or 0, which converters write for "none".
  Result<float> factor_or(std::string_view key, float most, float fallback);

  /// kUnsupported, naming the first key of this architecture that was not read, unless its value
  /// means that the feature is absent, or it changes no logit.
  Result<void> refuse_others() const;

  Error corrupt(std::string_view key, std::string_view met_and_want) const;
  Error unsupported(std::string_view key, std::string_view met) const;

 private:
  const GgufFile& file_;
  std::string architecture_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace hearth::models
