#include "monitor/snapshot/plan_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "ipc/text/shown_text.h"
#include "ipc/wire/json.h"

namespace hearth::monitor {
namespace {

using ipc::Json;

constexpr size_t kTextChars = 100;
constexpr size_t kMaxRows = 16;

const Json* member(const Json& from, const char* key) {
  if (!from.is_object()) return nullptr;
  const auto found = from.find(key);
  return found == from.end() ? nullptr : &*found;
}

double number(const Json& from, const char* key) {
  const Json* value = member(from, key);
  if (value == nullptr || !value->is_number()) return 0;
  const double met = value->get<double>();
  return std::isfinite(met) ? met : 0;
}

std::string text(const Json& from, const char* key) {
  const Json* value = member(from, key);
  if (value == nullptr || !value->is_string()) return "";
  return ipc::one_line(value->get_ref<const std::string&>(), kTextChars);
}

std::string bytes(const Json& from, const char* key) {
  return ipc::human_bytes(static_cast<uint64_t>(std::clamp(number(from, key), 0.0, 1e18)));
}

}  // namespace

Result<PlanReport> parse_plan(std::string_view plan) {
  HEARTH_ASSIGN_OR_RETURN(const Json json, ipc::parse_json_object(plan, {.max_bytes = 1u << 20}));
  const Json* memory = member(json, "memory");
  if (memory == nullptr || !memory->is_object()) {
    return Error::protocol("plan: no memory in it");
  }
  PlanReport out;
  out.model = text(json, "model");
  const Json* fits = member(*memory, "fits");
  out.fits = fits != nullptr && fits->is_boolean() && fits->get<bool>();
  const auto add = [&out](std::string label, std::string value) {
    out.lines.emplace_back(std::move(label), std::move(value));
  };
  add("Weights", bytes(*memory, "weight_bytes"));
  if (const std::string refusal = text(*memory, "refusal"); !refusal.empty()) {
    add("Does not start", refusal);
  } else {
    add("KV blocks", bytes(*memory, "kv_bytes"));
    add("Activations", bytes(*memory, "activation_bytes"));
    add("Memory of the device",
        fmt::format("{}: {}", bytes(*memory, "device_bytes"), out.fits ? "it fits" : "too little"));
  }
  if (const Json* contexts = member(json, "contexts");
      contexts != nullptr && contexts->is_array()) {
    size_t rows = 0;
    for (const Json& each : *contexts) {
      if (++rows > kMaxRows) break;
      add(fmt::format("Context of {:.0f} tokens", number(each, "context")),
          fmt::format("{:.0f} sequences at once", number(each, "sequences")));
    }
  }
  if (const Json* decode = member(json, "decode"); decode != nullptr && decode->is_array()) {
    size_t rows = 0;
    for (const Json& each : *decode) {
      if (++rows > kMaxRows || number(each, "tokens_per_s") <= 0) break;
      add(fmt::format("Decode of {:.0f} at once", number(each, "sequences")),
          fmt::format("at most {:.1f} tokens/s", number(each, "tokens_per_s")));
    }
  }
  if (const Json* prefill = member(json, "prefill");
      prefill != nullptr && number(*prefill, "tokens_per_s") > 0) {
    add("Prefill", fmt::format("at most {:.1f} tokens/s", number(*prefill, "tokens_per_s")));
  }
  if (const Json* ceilings = member(json, "ceilings"); ceilings != nullptr) {
    out.read_bytes_per_s = std::max(0.0, number(*ceilings, "read_bytes_per_s"));
    out.ops_per_s =
        std::max({0.0, number(*ceilings, "f32_ops_per_s"), number(*ceilings, "int8_ops_per_s")});
  }
  return out;
}

}  // namespace hearth::monitor
