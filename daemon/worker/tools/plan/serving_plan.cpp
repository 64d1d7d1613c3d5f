#include "daemon/worker/tools/plan/serving_plan.h"

#include <algorithm>
#include <cmath>

#include "daemon/worker/load/inspection.h"
#include "kernels/base/numbers.h"

namespace hearth::worker {
namespace {

using kernels::KvType;
using kernels::KvTypes;

// Far below overflow in sums, and large enough that nothing is refused for its size.
constexpr uint64_t kUnbounded = uint64_t{1} << 62;

/// A step of `rows` tokens, `per_sequence` of them from each sequence.
StepTime time_step(const PlanModel& on, KvTypes kv_type, double sequences, double per_sequence,
                   double outputs, double context, const kernels::Ceilings& ceilings) {
  const ModelWork& work = *on.work;
  const double rows = sequences * per_sequence;
  const StepWork least = step_work(work, kv_type, rows, outputs, sequences, context);
  StepTime out;
  const double listed = step_work(work, kv_type, rows, outputs, 0, 0).bytes;
  const double unchosen = work.expert_bytes * (1 - chosen_share(work.experts_used, rows));
  const models::ModelInfo& info = on.model->info();
  out.bytes =
      as_double(info.weight_bytes - info.draft_weight_bytes) - unchosen + (least.bytes - listed);
  out.ops = least.matmul_ops + least.attention_ops;
  out.tokens = rows;
  const Peak products = product_peak(ceilings, work.quantized);
  const double attention = attention_peak(ceilings).ops_per_s;
  const double reading = ceilings.read_bytes_per_s > 0 ? out.bytes / ceilings.read_bytes_per_s : 0;
  double computing = 0;
  if (products.ops_per_s > 0) computing += least.matmul_ops / products.ops_per_s;
  if (attention > 0) computing += least.attention_ops / attention;
  out.seconds = std::max(reading, computing);
  if (out.seconds > 0) out.bound = reading >= computing ? "read" : products.unit;
  return out;
}

StepTime time_prefill(const PlanModel& on, const PlanQuestion& question, int32_t step_tokens) {
  StepTime all;
  for (int32_t done = 0; done < question.context; done += step_tokens) {
    const double rows = std::min(step_tokens, question.context - done);
    const bool last = done + step_tokens >= question.context;
    const StepTime step = time_step(on, question.engine.kv_type, 1, rows, last ? 1 : 0,
                                    done + (rows + 1) / 2, question.ceilings);
    all.bytes += step.bytes;
    all.ops += step.ops;
    all.seconds += step.seconds;
    all.bound = step.bound;
  }
  all.tokens = question.context;
  return all;
}

DraftForecast forecast_drafts(const PlanModel& target, const PlanModel* draft,
                              const PlanQuestion& question) {
  DraftForecast out;
  const double a = question.acceptance, width = question.draft_width;
  out.tokens_per_step = a < 1 ? (1 - std::pow(a, width + 1)) / (1 - a) : width + 1;
  const KvTypes kv_type = question.engine.kv_type;
  out.lookup =
      time_step(target, kv_type, 1, width + 1, width + 1, question.context, question.ceilings);
  out.lookup.tokens = out.tokens_per_step;
  if (draft == nullptr) return out;
  const StepTime one = time_step(*draft, kv_type, 1, 1, 1, question.context, question.ceilings);
  StepTime both = out.lookup;
  both.bytes += width * one.bytes;
  both.ops += width * one.ops;
  both.seconds += width * one.seconds;
  out.draft = both;
  return out;
}

int64_t how_many(uint64_t bytes, uint64_t each) {
  return each > 0 ? static_cast<int64_t>(bytes / each) : 0;
}

/// KV of one sequence with a full context, in whole blocks.
Result<uint64_t> sequence_bytes(const PlanModel& target, engine::EngineConfig config) {
  // With kv_bytes 0 and unlimited memory, the engine takes enough for half of max_seqs full
  // contexts.
  config.kv_bytes = 0;
  config.scheduler.max_seqs = 2;
  HEARTH_ASSIGN_OR_RETURN(const engine::MemoryPlan plan,
                          engine::plan_memory(config, *target.model, kUnbounded));
  const models::LayerGroup& last = target.model->info().groups.back();
  if (!last.recurrent()) return plan.kv_bytes;
  const engine::GroupPlan& states = plan.groups.back();
  return plan.kv_bytes - states.num_blocks * states.block_bytes +
         engine::bytes_for(last, config, 0) / (2 * config.scheduler.max_seqs);
}

/// The number of sequences of `context` tokens that fit next to `weights` and the engine's other
/// buffers as configured.
Result<ContextFit> fit(const PlanModel& target, const PlanQuestion& question, int32_t context,
                       uint64_t weights) {
  engine::EngineConfig config = question.engine;
  config.context_length = context;
  config.kv_bytes = 0;
  HEARTH_ASSIGN_OR_RETURN(const engine::MemoryPlan plan,
                          engine::plan_memory(config, *target.model, kUnbounded));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t each, sequence_bytes(target, config));
  config.kv_type = KvType::kQ8_0;
  HEARTH_ASSIGN_OR_RETURN(const uint64_t each_q8, sequence_bytes(target, config));
  const uint64_t used = weights + plan.total_bytes() - plan.kv_bytes;
  const uint64_t free = question.memory_bytes > used ? question.memory_bytes - used : 0;
  return ContextFit{context, each, how_many(free, each), how_many(free, each_q8)};
}

std::vector<int32_t> contexts_of(int32_t model_context, int32_t asked) {
  std::vector<int32_t> out = {asked, model_context};
  for (int64_t context = 1024; context < model_context; context *= 4) {
    out.push_back(narrow<int32_t>(context));
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// As WeightPacker chooses: experts stay in the file first.
FileForecast forecast_file(const ModelWork& work, uint64_t all_bytes,
                           const PlanQuestion& question) {
  const double held = as_double(question.most_weight_bytes);
  const double others = as_double(all_bytes) - work.expert_bytes;
  FileForecast out{.bytes = all_bytes - question.most_weight_bytes,
                   .disk_bytes_per_s = question.disk_bytes_per_s};
  const double of_others = std::max(0.0, others - held);
  out.step_bytes = of_others + (as_double(out.bytes) - of_others) * work.experts_used;
  if (out.disk_bytes_per_s > 0) out.least_step_seconds = out.step_bytes / out.disk_bytes_per_s;
  return out;
}

}  // namespace

Result<ServingPlan> make_plan(const PlanModel& target, const PlanModel* draft,
                              const PlanQuestion& question) {
  const models::ModelInfo& info = target.model->info();
  const kernels::Ceilings& ceilings = question.ceilings;
  ServingPlan plan;
  plan.weight_bytes = info.weight_bytes;
  if (question.most_weight_bytes < info.weight_bytes) {
    plan.weight_bytes = question.most_weight_bytes;
    plan.file = forecast_file(*target.work, info.weight_bytes, question);
  }
  if (draft != nullptr) plan.draft_weight_bytes = draft->model->info().weight_bytes;
  plan.memory_bytes = question.memory_bytes;
  plan.reserved_bytes = question.reserved_bytes;
  plan.prefix_ram_bytes = question.prefix_ram_bytes;
  const auto memory = engine::plan_memory(question.engine, *target.model, question.memory_bytes);
  if (!memory.ok() && memory.error().code != ErrorCode::kOutOfMemory) return memory.error();
  if (memory.ok()) {
    plan.memory = memory.value();
  } else {
    plan.refusal = memory.error().message;
  }
  const uint64_t weights = plan.weight_bytes + plan.draft_weight_bytes + plan.reserved_bytes;
  plan.fits = memory.ok() && weights + plan.memory.total_bytes() <= question.memory_bytes;

  for (const int32_t context : contexts_of(info.context_length, question.context)) {
    HEARTH_ASSIGN_OR_RETURN(const ContextFit found, fit(target, question, context, weights));
    plan.contexts.push_back(found);
  }
  const double peak = product_peak(ceilings, target.work->quantized).ops_per_s;
  if (peak > 0 && ceilings.read_bytes_per_s > 0) plan.ridge = peak / ceilings.read_bytes_per_s;

  HEARTH_ASSIGN_OR_RETURN(const ContextFit here, fit(target, question, question.context, weights));
  for (int32_t sequences = 1; sequences <= 256; sequences *= 2) {
    DecodeForecast each;
    each.sequences = sequences;
    each.step = time_step(target, question.engine.kv_type, sequences, 1, sequences,
                          question.context, ceilings);
    each.with_q8_kv =
        time_step(target, KvType::kQ8_0, sequences, 1, sequences, question.context, ceilings);
    each.fits = sequences <= here.sequences;
    plan.decode.push_back(each);
  }
  plan.prefill = time_prefill(target, question, question.engine.scheduler.max_step_tokens);
  plan.drafts = forecast_drafts(target, draft, question);
  return plan;
}

}  // namespace hearth::worker
