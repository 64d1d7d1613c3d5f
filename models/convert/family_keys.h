#pragma once
// Translates a model's config.json to GGUF metadata.

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/base/result.h"
#include "models/convert/json_file.h"

namespace hearth::models {

struct ConvertedFamily;

struct FamilyKeys {
  using Value = std::variant<uint32_t, float, bool, std::string, std::vector<int32_t>,
                             std::vector<float>, std::vector<bool>>;

  const ConvertedFamily* family = nullptr;
  std::string architecture;                            ///< general.architecture
  std::vector<std::pair<std::string, Value>> entries;  ///< full keys

  // Needed to lay out the tensors.
  uint64_t width = 0;
  uint64_t num_layers = 0;
  uint64_t num_heads = 0;
  uint64_t num_kv_heads = 0;
  uint64_t num_experts = 0;
  uint64_t head_dim = 0;
  std::vector<std::string> kinds;  ///< of the layers, as layer_types names them; may be empty
  bool tied = false;               ///< the head is the embedding
  double embedding_factor = 1;     ///< the embedding is multiplied by it
  double head_factor = 1;
  /// Vectors that published weights keep in config.json: divisors of the rotary frequencies.
  std::vector<std::pair<std::string, std::vector<float>>> vectors;
};

/// kUnsupported names the model_type, or the key whose value this build does not compute. kCorrupt
/// names a key that is missing or of another type.
Result<FamilyKeys> family_keys(const Json& config);

}  // namespace hearth::models
