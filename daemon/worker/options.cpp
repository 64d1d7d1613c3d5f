#include "daemon/worker/options.h"

#include <fmt/format.h>

namespace hearth::worker {

Result<kernels::DType> parse_kv_type(const std::string& name) {
  if (name == "f16") return kernels::DType::kF16;
  if (name == "f32") return kernels::DType::kF32;
  if (name == "bf16") return kernels::DType::kBF16;
  if (name == "q8_0") return kernels::DType::kQ8_0;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--kv-type {}: want f16, bf16, q8_0 or f32", name), "kv_type"};
}

Result<engine::SchedulerPolicy> parse_policy(const std::string& name) {
  if (name == "continuous") return engine::SchedulerPolicy::kContinuous;
  if (name == "static") return engine::SchedulerPolicy::kStatic;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--policy {}: want continuous or static", name), "policy"};
}

Result<engine::SpeculationConfig> parse_speculation(const std::string& name) {
  engine::SpeculationConfig config;
  config.enabled = name != "off";
  if (name == "lookup" || name == "off") return config;
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("--speculation {}: want lookup or off", name), "speculation"};
}

}  // namespace hearth::worker
