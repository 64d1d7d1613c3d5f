#include <fmt/core.h>

#include "daemon/worker/load/inspection.h"
#include "daemon/worker/tools/json_rows.h"
#include "daemon/worker/tools/plan/serving_plan.h"
#include "ipc/text/shown_text.h"
#include "ipc/wire/json.h"

namespace hearth::worker {
namespace {

using ipc::Json;
using kernels::KvType;

std::string exactly(uint64_t bytes) {
  return fmt::format("{} ({} bytes)", ipc::human_bytes(bytes), bytes);
}

std::string rate_of(const StepTime& step) {
  return step.seconds > 0 ? fmt::format("{:.1f}", step.rate()) : "?";
}

std::string ms_of(const StepTime& step) {
  return step.seconds > 0 ? fmt::format("{:.2f}", step.seconds * 1e3) : "?";
}

std::string kv_lines(const models::ModelInfo& info) {
  std::string out;
  if (info.drafts) {
    out += fmt::format("  draft layer       {} of the weights; its KV and state are counted here\n",
                       exactly(info.draft_weight_bytes));
  }
  for (const models::LayerGroup& group : info.groups) {
    if (group.recurrent()) {
      out += fmt::format("  state             {}: {} bytes per sequence, and per snapshot\n",
                         layers_of(group), state_bytes(group));
      continue;
    }
    out += fmt::format(
        "  KV {:<14} {}, {}: {} bytes per token as f16, {} as q8_0, {} as q4_0, {} as f32\n",
        describe(group), layers_of(group), describe(group.kv),
        kv_bytes_per_token(group, KvType::kF16), kv_bytes_per_token(group, KvType::kQ8_0),
        kv_bytes_per_token(group, KvType::kQ4_0), kv_bytes_per_token(group, KvType::kF32));
  }
  return out;
}

std::string memory_lines(const ServingPlan& plan) {
  std::string out = fmt::format("  weights           {}\n", exactly(plan.weight_bytes));
  if (const auto& file = plan.file) {
    out += fmt::format("  in the file       {}; a step reads {:.2f} GB of it", exactly(file->bytes),
                       file->step_bytes / 1e9);
    out += file->least_step_seconds > 0
               ? fmt::format(", at {:.2f} GB/s of the disk at most {:.2f} steps/s\n",
                             file->disk_bytes_per_s / 1e9, 1 / file->least_step_seconds)
               : std::string("; how fast the disk is, is unknown\n");
  }
  if (plan.draft_weight_bytes > 0) {
    out += fmt::format("  draft's weights   {}\n", exactly(plan.draft_weight_bytes));
  }
  if (!plan.refusal.empty()) return out + fmt::format("  does not start    {}\n", plan.refusal);
  for (const ipc::StageUse& stage : plan.stages) {
    out += fmt::format("  {:<17} {}\n", stage.device, ipc::stage_text(stage));
  }
  for (const ipc::StageUse& replica : plan.replicas) {
    const uint64_t bytes = replica.weight_bytes + replica.kv_bytes + replica.other_bytes;
    const bool fits = replica.budget_bytes == 0 || bytes <= replica.budget_bytes;
    out += fmt::format("  {:<17} {}: {}\n", replica.device, ipc::stage_text(replica),
                       fits ? "fits" : fmt::format("does NOT fit, takes {}", exactly(bytes)));
  }
  const engine::MemoryPlan& memory = plan.memory;
  out += fmt::format("  KV blocks         {}\n", exactly(memory.kv_bytes));
  out += fmt::format("  activations       {}\n", exactly(memory.activation_bytes));
  out += fmt::format("  logits, index     {}\n", exactly(memory.logits_bytes + memory.index_bytes));
  if (plan.reserved_bytes > 0) {
    out += plan.stages.empty()
               ? fmt::format("  driver, graphs    {} reserved; hearth stats shows what is taken\n",
                             exactly(plan.reserved_bytes))
               : fmt::format("  on GPUs, more     {} for the driver, scratch and copies\n",
                             exactly(plan.reserved_bytes));
  }
  out += fmt::format("  in all            {} of {}: {}\n",
                     exactly(plan.weight_bytes + plan.draft_weight_bytes + plan.reserved_bytes +
                             memory.total_bytes()),
                     ipc::human_bytes(plan.memory_bytes), plan.fits ? "fits" : "does NOT fit");
  if (plan.prefix_ram_bytes > 0) {
    out += fmt::format("  host memory       {} for prefixes, at most\n",
                       exactly(plan.prefix_ram_bytes));
  }
  return out;
}

Json as_json(const StepTime& step) {
  Json out = Json::object();
  out["bytes"] = step.bytes;
  out["ops"] = step.ops;
  out["ops_per_byte"] = step.intensity();
  if (step.seconds > 0) {
    out["seconds"] = step.seconds;
    out["tokens_per_s"] = step.rate();
    out["bound"] = step.bound;
  }
  return out;
}

/// What a model that writes from left to right takes.
std::string step_lines(const ServingPlan& plan, const PlanQuestion& question) {
  std::string out = fmt::format(
      "\nDecode at {} tokens of context\n  {:>9} {:>10} {:>10} {:>10} {:>9}  {:<6} {:>13}\n",
      question.context, "sequences", "GB read", "ms", "tokens/s", "op/byte", "bound", "KV as q8_0");
  for (const DecodeForecast& each : plan.decode) {
    out += fmt::format("  {:>9} {:>10.1f} {:>10} {:>10} {:>9.1f}  {:<6} {:>13}{}\n", each.sequences,
                       each.step.bytes / 1e9, ms_of(each.step), rate_of(each.step),
                       each.step.intensity(), each.step.bound.empty() ? "?" : each.step.bound,
                       rate_of(each.with_q8_kv), each.fits ? "" : "  over memory");
  }
  if (plan.ridge > 0) {
    out += fmt::format("  ridge: {:.1f} op/byte; below it reading bounds a step\n", plan.ridge);
  }
  out +=
      fmt::format("\nPrefill of {} tokens: {} ms, {} tokens/s, {:.1f} op/byte\n", question.context,
                  ms_of(plan.prefill), rate_of(plan.prefill), plan.prefill.intensity());
  const DraftForecast& drafts = plan.drafts;
  out += fmt::format(
      "Drafting {} tokens, {:.0f} % accepted: {:.2f} tokens per step, {} tokens/s by "
      "lookup",
      question.draft_width, question.acceptance * 100, drafts.tokens_per_step,
      rate_of(drafts.lookup));
  if (drafts.draft) out += fmt::format(", {} by the draft model", rate_of(*drafts.draft));
  return out;
}

/// What a model that fills canvases takes.
std::string pass_lines(const ServingPlan& plan, const PlanQuestion& question) {
  return fmt::format("\nA pass over {} tokens of prompt and canvas: {} ms, {:.1f} op/byte",
                     question.context, ms_of(plan.prefill), plan.prefill.intensity());
}

}  // namespace

std::string as_text(const ServingPlan& plan, const PlanTitle& title, const PlanModel& target,
                    const PlanQuestion& question) {
  const models::ModelInfo& info = target.model->info();
  const engine::EngineConfig& engine = question.engine;
  const kernels::Ceilings& rates = question.ceilings;
  std::string out = fmt::format("{}, {}, {} parameters, context {}\n{}\n\nMemory\n",
                                ipc::one_line(title.model, 100), info.file_type,
                                ipc::human_count(info.num_parameters), info.context_length,
                                ipc::one_line(title.device, 200));
  out += kv_lines(info) + memory_lines(plan);
  out += fmt::format(
      "\nContexts that fit in addition to the weights, KV as {}\n  {:>8} {:>20} {:>10} {:>14}\n",
      kernels::kv_type_name(engine.kv_type), "tokens", "bytes of one", "sequences", "KV as q8_0");
  for (const ContextFit& each : plan.contexts) {
    out += fmt::format("  {:>8} {:>20} {:>10} {:>14}\n", each.context, each.sequence_bytes,
                       each.sequences, each.sequences_q8);
  }
  out += info.denoises() ? pass_lines(plan, question) : step_lines(plan, question);
  out += fmt::format(
      "\n\nLeast times: every weight read once a step, the KV of each sequence, and the "
      "arithmetic, "
      "at\nread {} GB/s, f32 {} Gop/s, int8 {} Gop/s. hearth bench measures what is reached.\n",
      rates.read_bytes_per_s > 0 ? fmt::format("{:.1f}", rates.read_bytes_per_s / 1e9) : "?",
      rates.f32_ops_per_s > 0 ? fmt::format("{:.0f}", rates.f32_ops_per_s / 1e9) : "?",
      rates.int8_ops_per_s > 0 ? fmt::format("{:.0f}", rates.int8_ops_per_s / 1e9) : "?");
  return out;
}

std::string as_json(const ServingPlan& plan, const PlanTitle& title, const PlanModel& target,
                    const PlanQuestion& question) {
  const models::ModelInfo& info = target.model->info();
  Json out = Json::object();
  out["model"] = title.model;
  out["type"] = info.file_type;
  out["parameters"] = info.num_parameters;
  Json memory = Json::object();
  memory["device_bytes"] = plan.memory_bytes;
  memory["weight_bytes"] = plan.weight_bytes;
  memory["draft_weight_bytes"] = plan.draft_weight_bytes;
  if (const auto& file = plan.file) {
    Json in_file = Json::object();
    in_file["bytes"] = file->bytes;
    in_file["step_bytes"] = file->step_bytes;
    if (file->least_step_seconds > 0) {
      in_file["disk_bytes_per_s"] = file->disk_bytes_per_s;
      in_file["steps_per_s"] = 1 / file->least_step_seconds;
    }
    memory["in_file"] = std::move(in_file);
  }
  memory["kv_bytes"] = plan.memory.kv_bytes;
  memory["activation_bytes"] = plan.memory.activation_bytes;
  memory["logits_bytes"] = plan.memory.logits_bytes;
  memory["index_bytes"] = plan.memory.index_bytes;
  if (plan.reserved_bytes > 0) memory["reserved_bytes"] = plan.reserved_bytes;
  if (plan.prefix_ram_bytes > 0) memory["prefix_ram_bytes"] = plan.prefix_ram_bytes;
  const auto as_rows = [](const std::vector<ipc::StageUse>& uses) {
    return json_rows(uses, [](const ipc::StageUse& stage) {
      return Json{{"device", stage.device},
                  {"first_layer", stage.first_layer},
                  {"end_layer", stage.end_layer},
                  {"weight_bytes", stage.weight_bytes},
                  {"kv_bytes", stage.kv_bytes},
                  {"other_bytes", stage.other_bytes},
                  {"budget_bytes", stage.budget_bytes},
                  {"experts", stage.experts},
                  {"share", stage.share}};
    });
  };
  if (!plan.stages.empty()) memory["stages"] = as_rows(plan.stages);
  if (!plan.replicas.empty()) memory["replicas"] = as_rows(plan.replicas);
  memory["fits"] = plan.fits;
  if (!plan.refusal.empty()) memory["refusal"] = plan.refusal;
  out["memory"] = std::move(memory);
  const kernels::Ceilings& rates = question.ceilings;
  Json ceilings = Json::object();
  if (rates.read_bytes_per_s > 0) ceilings["read_bytes_per_s"] = rates.read_bytes_per_s;
  if (rates.f32_ops_per_s > 0) ceilings["f32_ops_per_s"] = rates.f32_ops_per_s;
  if (rates.int8_ops_per_s > 0) ceilings["int8_ops_per_s"] = rates.int8_ops_per_s;
  out["ceilings"] = std::move(ceilings);
  Json groups = Json::array();
  for (const models::LayerGroup& group : info.groups) {
    Json each = Json::object();
    each["kind"] = describe(group);
    each["layers"] = group.num_layers;
    if (group.num_sharing > 0) each["sharing_layers"] = group.num_sharing;
    if (group.recurrent()) each["state_bytes"] = state_bytes(group);
    each["kv_bytes_per_token_f16"] = kv_bytes_per_token(group, KvType::kF16);
    each["kv_bytes_per_token_q8_0"] = kv_bytes_per_token(group, KvType::kQ8_0);
    each["kv_bytes_per_token_q4_0"] = kv_bytes_per_token(group, KvType::kQ4_0);
    groups.push_back(std::move(each));
  }
  out["groups"] = std::move(groups);
  out["contexts"] = json_rows(plan.contexts, [](const ContextFit& fit) {
    return Json{{"context", fit.context},
                {"sequence_bytes", fit.sequence_bytes},
                {"sequences", fit.sequences},
                {"sequences_q8_0", fit.sequences_q8}};
  });
  out["context"] = question.context;
  if (info.denoises()) {
    out["pass"] = as_json(plan.prefill);
    return ipc::dump_json(out) + "\n";
  }
  out["decode"] = json_rows(plan.decode, [](const DecodeForecast& forecast) {
    Json each = as_json(forecast.step);
    each["sequences"] = forecast.sequences;
    each["fits"] = forecast.fits;
    each["with_kv_q8_0"] = as_json(forecast.with_q8_kv);
    return each;
  });
  out["prefill"] = as_json(plan.prefill);
  if (plan.ridge > 0) out["ridge_ops_per_byte"] = plan.ridge;
  Json drafts = Json::object();
  drafts["width"] = question.draft_width;
  drafts["acceptance"] = question.acceptance;
  drafts["tokens_per_step"] = plan.drafts.tokens_per_step;
  drafts["lookup"] = as_json(plan.drafts.lookup);
  if (plan.drafts.draft) drafts["draft"] = as_json(*plan.drafts.draft);
  out["drafts"] = std::move(drafts);
  return ipc::dump_json(out) + "\n";
}

}  // namespace hearth::worker
