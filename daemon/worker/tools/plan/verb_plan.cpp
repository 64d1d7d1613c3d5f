// hearth plan: predicts the memory and speed of serving a model, without loading it.

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/worker/load/device.h"
#include "daemon/worker/load/stages.h"
#include "daemon/worker/tools/bench/bench_model.h"
#include "daemon/worker/tools/command_line.h"
#include "daemon/worker/tools/plan/disk_rate.h"
#include "daemon/worker/tools/plan/quantity.h"
#include "daemon/worker/tools/plan/serving_plan.h"
#include "daemon/worker/tools/verbs.h"
#include "ipc/files/model_file.h"
#include "ipc/text/shown_text.h"

namespace hearth::worker {
namespace {

struct PlanVerb {
  std::string file;
  std::string shape;
  std::string type = "Q8_0";
  std::string draft;
  std::string kv_type = "f16";
  std::string memory, bandwidth, flops, kv_bytes;
  std::string prefix_ram = "4GiB";
  std::vector<std::string> stages, replicas;
  bool split = false;
  int32_t context = 0;
  int32_t read_mib = 256;
  bool json = false;
  DeviceOptions device;
  PlanQuestion question;
};

Result<uint64_t> parse_bytes(std::string_view field, std::string_view text) {
  HEARTH_ASSIGN_OR_RETURN(const double bytes, parse_quantity(field, text));
  return static_cast<uint64_t>(bytes);
}

/// The given rates, or if none was given, this machine's.
Result<std::string> find_rates(const PlanVerb& options, PlanQuestion* question) {
  kernels::Ceilings& ceilings = question->ceilings;
  if (!options.bandwidth.empty()) {
    HEARTH_ASSIGN_OR_RETURN(ceilings.read_bytes_per_s,
                            parse_quantity("bandwidth", options.bandwidth));
  }
  if (!options.flops.empty()) {
    HEARTH_ASSIGN_OR_RETURN(ceilings.f32_ops_per_s, parse_quantity("flops", options.flops));
    ceilings.int8_ops_per_s = ceilings.f32_ops_per_s;
  }
  if (!options.memory.empty()) {
    HEARTH_ASSIGN_OR_RETURN(question->memory_bytes, parse_bytes("memory", options.memory));
  }
  const bool given = !options.bandwidth.empty() || !options.flops.empty();
  if (given && !options.memory.empty()) return std::string("a device as given");
  HEARTH_ASSIGN_OR_RETURN(const kernels::OpTable ops, open_device(options.device));
  if (options.memory.empty()) question->memory_bytes = ops.device.memory_free_bytes;
  if (given) return std::string("rates as given; memory that is free here");
  HEARTH_ASSIGN_OR_RETURN(ceilings, measure_device(ops, int64_t{options.read_mib} << 20));
  return fmt::format("{} {}, {} threads, ceilings measured now", ops.device.name,
                     ops.device.variant, ops.device.num_threads);
}

/// "THREADS", "THREADS:BYTES", or "cuda:N:BYTES". `option`: stage or replica.
Result<StageRoom> parse_room(const std::string& text, const std::string& option, size_t number) {
  StageRoom room{.device = fmt::format("{} {}", option, number)};
  const size_t colon = text.rfind(':');
  if (text.starts_with("cuda:") && parse_cuda_device(text.substr(0, colon)).ok()) {
    room.device = text.substr(0, colon);
    room.own_memory = true;
    HEARTH_ASSIGN_OR_RETURN(room.memory_bytes, parse_bytes(option, text.substr(colon + 1)));
    return room;
  }
  const char* const end = text.data() + text.size();
  const auto [at, problem] = std::from_chars(text.data(), end, room.threads);
  if (problem != std::errc() || room.threads < 1 || (at != end && *at != ':')) {
    return Error::invalid(
        fmt::format("--{} {}: want THREADS, THREADS:BYTES or cuda:N:BYTES", option, text), option);
  }
  if (at == end) return room;
  HEARTH_ASSIGN_OR_RETURN(room.memory_bytes, parse_bytes(option, std::string(at + 1, end)));
  return room;
}

/// The same model once on each device, with less KV where its memory does not permit more.
Result<void> plan_replicas(const PlanVerb& options, int32_t num_layers, ServingPlan* plan) {
  for (const std::string& replica : options.replicas) {
    HEARTH_ASSIGN_OR_RETURN(const StageRoom room,
                            parse_room(replica, "replica", plan->replicas.size() + 1));
    ipc::StageUse use{.device = room.device,
                      .end_layer = num_layers,
                      .weight_bytes = plan->weight_bytes + plan->draft_weight_bytes,
                      .kv_bytes = plan->memory.kv_bytes,
                      .other_bytes = plan->memory.total_bytes() - plan->memory.kv_bytes,
                      .budget_bytes = room.memory_bytes};
    const uint64_t fixed_bytes = use.weight_bytes + use.other_bytes;
    const bool bounded = use.budget_bytes > 0 && options.kv_bytes.empty();
    if (bounded && fixed_bytes < use.budget_bytes) {
      use.kv_bytes = std::min(use.kv_bytes, use.budget_bytes - fixed_bytes);
    }
    plan->replicas.push_back(use);
  }
  return {};
}

/// The same model in stages, or split. Insufficient memory is reported in the plan.
Result<void> plan_in_stages(const PlanVerb& options, const PlanQuestion& question,
                            ServingPlan* plan) {
  if (options.split && options.stages.size() < 2) {
    return Error::invalid("--split: want --stage for each of two devices or more", "split");
  }
  if (options.stages.empty()) return {};
  std::vector<StageRoom> rooms;
  for (const std::string& stage : options.stages) {
    HEARTH_ASSIGN_OR_RETURN(rooms.emplace_back(), parse_room(stage, "stage", rooms.size() + 1));
  }
  if (options.file.empty() || options.device.mapping == "file") {
    return Error::invalid("--stage: want a model file, and no --mapping file", "stage");
  }
  HEARTH_ASSIGN_OR_RETURN(const auto path, ipc::find_model_file(options.file));
  HEARTH_ASSIGN_OR_RETURN(models::GgufFile file, models::GgufFile::open(path));
  file.set_fingerprint("-");  // not needed here, and computing it reads the whole file
  uint64_t free_bytes = question.memory_bytes;
  for (const StageRoom& room : rooms) free_bytes += room.own_memory ? room.memory_bytes : 0;
  const auto make_plan = options.split ? plan_split : plan_stages;
  const Result<StagedPlan> staged = make_plan(file, rooms, question.engine, 0, free_bytes);
  if (!staged.ok() && staged.error().code != ErrorCode::kOutOfMemory) return staged.error();
  plan->fits = staged.ok();
  if (!staged.ok()) {
    plan->refusal = staged.error().message;
    return {};
  }
  plan->memory = staged->memory;
  plan->weight_bytes = staged->info.weight_bytes;
  plan->stages = staged->uses;
  plan->prefix_ram_bytes = plan->reserved_bytes = 0;
  // Each GPU has been compared with its own memory.
  uint64_t all_bytes = staged->host_bytes, here_bytes = staged->host_bytes;
  for (size_t i = 0; i < rooms.size(); ++i) {
    const ipc::StageUse& use = staged->uses[i];
    const uint64_t bytes = use.weight_bytes + use.kv_bytes + use.other_bytes;
    all_bytes += bytes;
    if (!rooms[i].own_memory) here_bytes += bytes;
  }
  plan->reserved_bytes = all_bytes - plan->weight_bytes - plan->memory.total_bytes();
  plan->fits = here_bytes + plan->draft_weight_bytes <= plan->memory_bytes;
  return {};
}

Result<std::string> run_plan(const PlanVerb& options) {
  PlanQuestion question = options.question;
  HEARTH_ASSIGN_OR_RETURN(question.engine.kv_type, parse_kv_type(options.kv_type));
  HEARTH_TRY(parse_mapping(options.device.mapping));
  if (!options.kv_bytes.empty()) {
    HEARTH_ASSIGN_OR_RETURN(question.engine.kv_bytes, parse_bytes("kv-bytes", options.kv_bytes));
  }
  HEARTH_ASSIGN_OR_RETURN(const BenchModel target,
                          BenchModel::find(options.file, options.shape, options.type, 1,
                                           {.draft_layer = options.shape.empty()}));
  std::optional<BenchModel> draft;
  if (!options.draft.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const auto path, ipc::find_model_file(options.draft));
    HEARTH_ASSIGN_OR_RETURN(BenchModel opened, BenchModel::open(path));
    draft = std::move(opened);
  }
  const int32_t longest = target.measured().info().context_length;
  question.context = options.context > 0 ? options.context : std::min(1024, longest);
  if (question.context > longest) {
    return Error::invalid(
        fmt::format("--context {}: want at most {}, the model's", question.context, longest),
        "context");
  }
  PlanTitle title;
  HEARTH_ASSIGN_OR_RETURN(title.device, find_rates(options, &question));
  question.most_weight_bytes = options.device.most_weight_bytes();
  if (options.device.mapping == "file" && !options.file.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const auto path, ipc::find_model_file(options.file));
    HEARTH_ASSIGN_OR_RETURN(question.disk_bytes_per_s, measure_disk(path));
  }
  title.model = options.shape.empty() ? target.name() : "shape " + options.shape;
  question.reserved_bytes = reserved_bytes().value_or(0);
  if (reserved_bytes() && options.prefix_ram != "0") {
    HEARTH_ASSIGN_OR_RETURN(question.prefix_ram_bytes,
                            parse_bytes("prefix-ram-bytes", options.prefix_ram));
  }
  const PlanModel planned{&target.measured(), &target.work()};
  PlanModel draft_model;
  if (draft) draft_model = {&draft->measured(), &draft->work()};
  HEARTH_ASSIGN_OR_RETURN(ServingPlan plan,
                          make_plan(planned, draft ? &draft_model : nullptr, question));
  HEARTH_TRY(plan_in_stages(options, question, &plan));
  HEARTH_TRY(plan_replicas(options, target.measured().info().num_layers, &plan));
  return options.json ? as_json(plan, title, planned, question)
                      : as_text(plan, title, planned, question);
}

int plan(const PlanVerb& options) {
  if (options.file.empty() == options.shape.empty()) {
    std::fputs("hearth: plan: want one of a file or model's name, and --shape NAME\n", stderr);
    return kUsage;
  }
  const Result<std::string> report = run_plan(options);
  if (!report.ok()) return report_failure(report.error());
  return write_stdout(*report) ? 0 : kFailed;
}

}  // namespace

void add_plan(Verb program) {
  const auto options = std::make_shared<PlanVerb>();
  engine::EngineConfig& engine = options->question.engine;
  Verb verb = program.verb("plan", "Estimate memory and speed of a model without loading it");
  verb.option("FILE", options->file, "a .gguf file, or a model's name");
  verb.option("--shape", options->shape, "a model of this shape instead: " + models::shape_names())
      .type_name("NAME");
  verb.option("--type", options->type,
              "weight type of the shape, or a mix such as Q4_K_M; default Q8_0")
      .type_name("T");
  verb.option("--context", options->context, "tokens per sequence; default 1024 or the model's")
      .range(1, 1 << 24);
  verb.option("--memory", options->memory, "the device's memory; default: free memory here")
      .type_name("BYTES");
  verb.option("--bandwidth", options->bandwidth,
              "read bandwidth; default: measured here, unless --flops is given")
      .type_name("BYTES/S");
  verb.option("--flops", options->flops, "operations per second; default: as for --bandwidth")
      .type_name("OP/S");
  verb.option("--draft", options->draft, "a draft model: a file or name").type_name("MODEL");
  verb.option("--draft-tokens", options->question.draft_width, "tokens drafted per step; default 4")
      .range(1, 32);
  verb.option("--acceptance", options->question.acceptance,
              "probability that a drafted token is accepted; default 0.8")
      .range(0.0, 1.0);
  verb.option("--kv-type", options->kv_type, "f16, bf16, q8_0, fp8, q4_0 or f32; two as K/V");
  verb.option("--kv-bytes", options->kv_bytes,
              "memory for KV; default: chosen from the model and the free memory")
      .type_name("BYTES");
  verb.option("--prefix-ram-bytes", options->prefix_ram,
              "on a GPU: host memory for prefixes; default 4GiB")
      .type_name("BYTES");
  verb.option("--stage", options->stages,
              "a device that computes some of the layers; once for each, in order")
      .type_name("THREADS[:BYTES]|cuda:N:BYTES");
  verb.flag("--split", options->split,
            "each --stage has a share of every layer in place of some layers");
  verb.option("--replica", options->replicas, "a device with a worker of its own; once for each")
      .type_name("THREADS[:BYTES]|cuda:N:BYTES");
  verb.option("--max-seqs", engine.scheduler.max_seqs, "concurrent sequences; default 64");
  verb.option("--max-step-tokens", engine.scheduler.max_step_tokens,
              "rows of one step; default 512");
  verb.option("--context-length", engine.context_length, "context to serve; default: the model's");
  verb.option("--read-mib", options->read_mib, "MiB to read for measuring the bandwidth")
      .range(1, 1 << 16);
  add_compute_options(verb, options->device);
  verb.flag("--json", options->json, "one JSON object");
  verb.run([options] { return plan(*options); });
}

}  // namespace hearth::worker
