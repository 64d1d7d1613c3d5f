#include "daemon/worker/load/options.h"

#include <fmt/core.h>

#include <charconv>
#include <string_view>

#include "ipc/schema/worker_stats.h"
#include "kernels/base/split_name.h"
#include "models/gguf/gguf_file.h"
#include "models/gguf/heads_keys.h"

namespace hearth::worker {

Result<ServeOptions> serve_options(const std::filesystem::path& socket,
                                   const std::filesystem::path& model,
                                   const ipc::ServeSettings& settings) {
  // The configuration's ranges hold: nothing is lost.
  const auto i32 = [](int64_t value) { return static_cast<int32_t>(value); };
  const auto u64 = [](int64_t value) { return static_cast<uint64_t>(value); };
  const ipc::EngineSettings& from = settings.engine;
  ServeOptions out;
  out.socket = socket;
  out.model = model;
  out.device = {.device = from.device,
                .threads = i32(from.threads),
                .cpu_variant = from.cpu_variant,
                .numerics = from.numerics,
                .mapping = from.mapping,
                .weight_bytes = u64(from.weight_bytes)};

  engine::EngineConfig& engine = out.engine;
  HEARTH_ASSIGN_OR_RETURN(engine.kv_type, parse_kv_type(from.kv_type));
  HEARTH_ASSIGN_OR_RETURN(engine.speculation, parse_speculation(from.speculation));
  HEARTH_ASSIGN_OR_RETURN(engine.published, parse_published(settings.kv_events));
  engine.kv_bytes = u64(from.kv_bytes);
  engine.block_size = i32(from.block_size);
  engine.context_length = i32(from.context_length);
  engine.prefix_cache = from.prefix_cache;
  engine.adapter_bytes = u64(from.adapter_bytes);
  engine.scheduler.max_seqs = i32(from.max_seqs);
  engine.scheduler.max_step_tokens = i32(from.max_step_tokens);
  HEARTH_ASSIGN_OR_RETURN(engine.scheduler.policy, parse_policy(from.policy));
  engine.scheduler.chunked_prefill = from.chunked_prefill;
  engine.scheduler.waiting_served_ratio = from.waiting_served_ratio;

  out.draft = from.draft;
  out.prefix_ram_bytes = from.prefix_cache ? u64(from.prefix_ram_bytes) : 0;
  if (!settings.prefix_dir.empty()) {
    out.prefix_dir = settings.prefix_dir;
    out.prefix_store_bytes = u64(from.prefix_store_bytes);
    out.prefix_owner_bytes = u64(from.prefix_owner_bytes);
    out.prefix_pinned_bytes = u64(from.prefix_pinned_bytes);
    engine.always_restore = from.prefix_restore != "auto";
    if (from.prefix_restore == "both") engine.restore_overlap = engine::RestoreOverlap::kAlways;
  }
  out.memory_bytes = u64(settings.memory_bytes);
  out.split = settings.split;
  out.spare_stages = settings.spare_stages;
  out.experts_apart = settings.experts_apart;
  out.hot_expert_bytes = u64(settings.hot_expert_bytes);
  for (const ipc::StageSettings& stage : settings.stages) {
    out.stages.push_back(
        {stage.device, stage.kind, stage.cores, i32(stage.threads), u64(stage.memory_bytes)});
  }
  out.sampling = settings.sampling;
  out.tool_form = from.tool_form;
  if (!parse_log_level(settings.log_level, &out.log_level)) {
    return Error::invalid(
        fmt::format("log_level: met {}, want debug, info, warn or error", settings.log_level),
        "log_level");
  }
  return out;
}

Result<int32_t> parse_cuda_device(const std::string& name) {
  if (name == "auto") return 0;
  constexpr std::string_view kPrefix = "cuda:";
  int32_t ordinal = -1;
  if (name.starts_with(kPrefix)) {
    const char* end = name.data() + name.size();
    const auto [at, error] = std::from_chars(name.data() + kPrefix.size(), end, ordinal);
    if (error != std::errc() || at != end) ordinal = -1;
  }
  if (ordinal >= 0) return ordinal;
  return Error::invalid(
      fmt::format("--device {}: hearth-worker-cuda computes on GPUs, want auto or cuda:N", name),
      "device");
}

Result<kernels::Numerics> parse_numerics(const std::string& name) {
  if (name == "exact") return kernels::Numerics::kExact;
  if (name == "fast") return kernels::Numerics::kFast;
  return Error::invalid(fmt::format("--numerics {}: want exact or fast", name), "numerics");
}

Result<void> parse_mapping(const std::string& name) {
  if (name == "memory" || name == "file") return {};
  return Error::invalid(fmt::format("--mapping {}: want memory or file", name), "mapping");
}

Result<kernels::KvTypes> parse_kv_type(const std::string& name) {
  if (const auto types = kernels::kv_types_from(name)) return *types;
  return Error::invalid(
      fmt::format("--kv-type {}: want f16, bf16, q8_0, fp8, q4_0 or f32, or two as K/V", name),
      "kv_type");
}

Result<engine::SchedulerPolicy> parse_policy(const std::string& name) {
  if (name == "continuous") return engine::SchedulerPolicy::kContinuous;
  if (name == "static") return engine::SchedulerPolicy::kStatic;
  return Error::invalid(fmt::format("--policy {}: want continuous or static", name), "policy");
}

Result<engine::PublishedScopes> parse_published(const std::string& name) {
  if (name == "off") return engine::PublishedScopes::kNone;
  if (name == "shared") return engine::PublishedScopes::kShared;
  if (name == "all") return engine::PublishedScopes::kAll;
  return Error::invalid(fmt::format("kv_events {}: want off, shared or all", name), "kv_events");
}

Result<engine::SpeculationConfig> parse_speculation(const std::string& name) {
  engine::SpeculationConfig config;
  config.enabled = name != "off";
  if (name == "lookup" || name == "off") return config;
  return Error::invalid(fmt::format("--speculation {}: want lookup or off", name), "speculation");
}

namespace {

/// What is wrong with a file shows when it is loaded.
bool has_heads(const std::filesystem::path& path) {
  const Result<models::GgufFile> file = models::GgufFile::open(path);
  return file.ok() && models::is_heads(*file);
}

}  // namespace

DraftChoice choose_draft(const std::string& setting, const std::filesystem::path& model) {
  if (setting.empty() || setting == "none" || setting == ipc::kDraftLayerName) return {};
  DraftChoice choice{setting, setting == "auto"};
  std::error_code ignored;
  if (choice.found_by_name) {
    const std::string stem = model_stem(model.stem().string());
    for (const char* suffix : {"-dflash.gguf", "-eagle3.gguf", "-medusa.gguf", "-draft.gguf"}) {
      choice.path = find_split_model(model.parent_path() / (stem + suffix));
      if (std::filesystem::is_regular_file(choice.path, ignored)) break;
      choice.path.clear();
    }
    if (choice.path.empty()) return {};
  } else if (!choice.path.has_parent_path() && choice.path.extension() != ".gguf") {
    choice.path = find_split_model(model.parent_path() / (setting + ".gguf"));
  }
  if (std::filesystem::equivalent(choice.path, model, ignored)) return {};
  choice.heads = has_heads(choice.path);
  return choice;
}

}  // namespace hearth::worker
