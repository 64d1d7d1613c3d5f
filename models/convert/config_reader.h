#pragma once
// Reads config.json: the keys that families share, and the accessors that their own files use.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"
#include "models/convert/converted_family.h"
#include "models/convert/family_keys.h"
#include "models/convert/json_file.h"

namespace hearth::models {

/// The value of expert_gating_func for a choice by sigmoids.
inline constexpr uint64_t kSigmoid = 2;

/// config.json has a value that this build does not compute.
Error unsupported_key(std::string_view key, std::string_view met);
Error corrupt_key(std::string_view key, std::string_view want);

class ConfigReader {
 public:
  ConfigReader(const Json& config, const ConvertedFamily& family);

  Result<FamilyKeys> read();

  // ---- For the families' own files

  const Json& config() const { return c_; }
  const ConvertedFamily& family() const { return family_; }
  FamilyKeys& keys() { return out_; }
  const FamilyKeys& keys() const { return out_; }
  uint64_t head_dim() const { return out_.head_dim; }
  uint64_t num_layers() const { return out_.num_layers; }
  const std::vector<std::string>& kinds() const { return out_.kinds; }
  /// For a family whose keys decide between two architectures.
  void set_architecture(std::string_view architecture);

  /// Sets a key of the architecture, or replaces it.
  void set(std::string_view key, FamilyKeys::Value value);
  void set_count(std::string_view key, uint64_t value);
  void set_factor(std::string_view key, double value);
  void set_factors(std::string_view key, std::span<const double> values);
  /// A tensor of the new file that config.json describes.
  void add_vector(std::string name, std::span<const double> values);
  void drop(std::string_view key);

  Result<uint64_t> count(std::string_view key) const { return want_count(c_, key); }
  Result<uint64_t> count_or(std::string_view key, uint64_t fallback) const;
  Result<double> number_or(std::string_view key, double fallback) const;
  Result<bool> flag_or(std::string_view key, bool fallback) const;
  /// Sets `to` to the count at `from`.
  Result<void> copy_count(std::string_view from, std::string_view to);
  /// kUnsupported unless the flag is absent or has this value.
  Result<void> want_flag(std::string_view key, bool value) const;
  /// kUnsupported unless the number is absent or has this value.
  Result<void> want_value(std::string_view key, double value) const;

  /// The names in a list of one per layer; of layer_types and the like.
  Result<std::vector<std::string>> names(std::string_view key) const;
  /// Reads layer_types into keys().kinds; empty where there are none.
  Result<void> read_kinds();
  /// attention.head_count_kv for each layer, 0 where it has no attention.
  void set_kv_heads(std::string_view attention_kind);
  /// Sets the experts' number, choice, width and factor from keys of these names.
  struct RoutingKeys {
    std::string_view count = "n_routed_experts";
    std::string_view used = "num_experts_per_tok";
    std::string_view width = "moe_intermediate_size";
    std::string_view shared = "n_shared_experts";
  };
  Result<void> read_routing(const RoutingKeys& names);
  /// The object with rope_type and its numbers. Newer files have rope_parameters, one object per
  /// kind of layer if these differ; older files have rope_theta next to rope_scaling.
  const Json* rope_object(std::string_view kind) const;
  Result<double> base_of(const Json* object, std::string_view fallback_key, double fallback);

 private:
  Result<void> refuse_what_is_not_computed();
  Result<void> read_shape();
  Result<void> read_heads();
  Result<void> read_rotation();
  Result<void> read_linear(const Json& rope);
  Result<void> read_yarn(const Json& rope);
  Result<void> read_llama3(const Json& rope, double base);
  Result<std::vector<float>> divisors_at(const Json& rope, std::string_view key);
  Result<void> read_longrope(const Json& rope);
  Result<void> check_layer_types();
  Result<void> read_windows();
  Result<void> read_layers_without_rotation();
  Result<void> read_experts();
  Result<void> read_scales();

  const Json& c_;
  const ConvertedFamily& family_;
  FamilyKeys out_;
  std::string too_large_;  // a key whose value the new file cannot hold
  uint64_t context_ = 0;
  uint64_t rotated_ = 0;  // values of a head
};

}  // namespace hearth::models
