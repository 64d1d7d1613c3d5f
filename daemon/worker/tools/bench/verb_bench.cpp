// hearth bench: the speed of a model file, or of a shape with random weights, on this device, and
// its share of what the device could achieve.

#include "daemon/worker/tools/bench/verb_bench.h"

#include <fmt/core.h>

#include <memory>
#include <optional>

#include "daemon/worker/load/device.h"
#include "daemon/worker/tools/bench/bench_case.h"
#include "daemon/worker/tools/bench/bench_model.h"
#include "daemon/worker/tools/bench/bench_rig.h"
#include "daemon/worker/tools/command_line.h"
#include "daemon/worker/tools/progress_line.h"
#include "daemon/worker/tools/stop_flag.h"
#include "daemon/worker/tools/verbs.h"
#include "ipc/text/shown_text.h"
#include "kernels/host/ceilings.h"
#include "models/random_model.h"

namespace hearth::worker {

namespace {

Result<void> write_shape(const BenchOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(const models::ModelShape shape, models::find_shape(options.write_shape));
  HEARTH_ASSIGN_OR_RETURN(const models::RandomModel model,
                          models::RandomModel::create(shape, options.type, options.seed));
  HEARTH_ASSIGN_OR_RETURN(const kernels::OpTable ops, open_device(options.device));
  ProgressLine progress;
  progress.stage(fmt::format("writing {}, {}", options.file, ipc::human_bytes(model.file_bytes())));
  return models::write_random_model(model, options.file, ops.device.num_threads,
                                    [&](uint64_t done, uint64_t total) {
                                      progress.percent(done, total);
                                      return !stop_wanted();
                                    });
}

void take_best(kernels::Ceilings* best, const kernels::Ceilings& now) {
  best->read_bytes_per_s = std::max(best->read_bytes_per_s, now.read_bytes_per_s);
  best->f32_ops_per_s = std::max(best->f32_ops_per_s, now.f32_ops_per_s);
  best->int8_ops_per_s = std::max(best->int8_ops_per_s, now.int8_ops_per_s);
  best->half_ops_per_s = std::max(best->half_ops_per_s, now.half_ops_per_s);
}

/// Prompt tokens per step, enough to keep a GPU's tensor cores busy.
constexpr int32_t kGpuChunk = 2048;

Result<kernels::Ceilings> ceilings_of(const kernels::OpTable& ops, const BenchOptions& options) {
  return measure_device(ops, int64_t{options.read_mib} << 20);
}

Result<void> check_mapping(const BenchOptions& options) {
  if (options.device.mapping != "file" || options.shape.empty()) return {};
  return Error::invalid(
      "--mapping file: random weights of a shape are in no file; write them first with "
      "--write-shape",
      "mapping");
}

Result<void> check_decodes(const models::ModelInfo& info, const std::string& name) {
  if (!info.generates) {
    return Error::unsupported(
        fmt::format("{} makes vectors of texts and no text: bench measures decoding", name));
  }
  if (!info.denoises()) return {};
  return Error::unsupported(
      fmt::format("{} fills canvases: bench measures decoding from left to right", name));
}

Result<BenchReport> run(const BenchOptions& options) {
  ProgressLine progress;
  HEARTH_ASSIGN_OR_RETURN(const kernels::KvTypes kv_type, parse_kv_type(options.kv_type));
  HEARTH_TRY(check_mapping(options));
  HEARTH_ASSIGN_OR_RETURN(const BenchModel source, BenchModel::find(options.file, options.shape,
                                                                    options.type, options.seed));
  const models::ModelInfo& info = source.measured().info();
  HEARTH_TRY(check_decodes(info, source.name()));
  BenchReport report;
  report.kv_type = kv_type;
  HEARTH_ASSIGN_OR_RETURN(const kernels::OpTable ops, open_device(options.device));
  const bool gpu = ops.device.kind == "cuda";
  std::vector<BenchCase> cases =
      bench_cases(options.quick, gpu, info.context_length, options.context);
  if (cases.empty()) {
    return Error::unsupported(fmt::format("a context of {} tokens is too short to measure anything",
                                          info.context_length));
  }
  engine::EngineConfig config = bench_config(cases, info, kv_type);
  if (gpu) config.scheduler.max_step_tokens = kGpuChunk;
  HEARTH_ASSIGN_OR_RETURN(
      const engine::MemoryPlan plan,
      engine::plan_memory(config, source.measured(), ops.device.memory_free_bytes));
  HEARTH_TRY(check_memory(source.weight_bytes(), plan.total_bytes(), source.scratch_bytes(),
                          ops.device.memory_free_bytes));

  progress.stage("measuring the ceilings");
  HEARTH_ASSIGN_OR_RETURN(report.ceilings, ceilings_of(ops, options));
  progress.stage(fmt::format("loading {}", ipc::human_bytes(source.weight_bytes())));
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<models::Model> model,
                          source.load(ops, [&](const models::LoadProgress& at) {
                            progress.percent(at.bytes_done, at.bytes_total);
                          }));
  if (stop_wanted()) return Error::cancelled("interrupted");
  report.model = options.shape.empty() ? source.name() : "random " + options.shape;
  report.type = info.file_type;
  report.parameters = info.num_parameters;
  report.weight_bytes = source.weight_bytes();
  report.work = source.work();
  report.device = fmt::format("{} {}", ops.device.name, ops.device.variant);
  report.threads = ops.device.num_threads;
  report.numerics = ops.numerics_id;
  report.rounds = options.rounds > 0 ? options.rounds : options.quick ? 3 : 5;
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<BenchRig> rig,
                          BenchRig::create(config, ops, std::move(model)));

  // The engine measures step costs before any round counts.
  progress.stage("warming up");
  for (const BenchCase& each : cases) {
    report.cases.push_back({each, {}});
    if (each.prompt <= 512) HEARTH_TRY(rig->measure(each));
  }
  for (int32_t round = 0; round < report.rounds; ++round) {
    progress.stage(fmt::format("round {} of {}", round + 1, report.rounds));
    if (round > 0) {
      HEARTH_ASSIGN_OR_RETURN(const kernels::Ceilings now, ceilings_of(ops, options));
      take_best(&report.ceilings, now);
    }
    for (CaseResult& result : report.cases) {
      progress.detail(result.what.name());
      HEARTH_ASSIGN_OR_RETURN(const double seconds, rig->measure(result.what));
      result.seconds.push_back(seconds);
      const std::vector<double>& gaps = rig->gaps_us();
      result.gaps_us.insert(result.gaps_us.end(), gaps.begin(), gaps.end());
    }
  }
  return report;
}

int bench(const BenchOptions& options) {
  const int sources = !options.write_shape.empty()
                          ? (options.file.empty() ? 0 : 1)
                          : (!options.file.empty()) + (!options.shape.empty());
  if (sources != 1 || (!options.shape.empty() && !options.write_shape.empty())) {
    std::fputs(
        "hearth: bench: want one of FILE, --shape NAME, or --write-shape NAME and the FILE to "
        "write\n",
        stderr);
    return kUsage;
  }
  catch_stop_signals();
  if (!options.write_shape.empty()) {
    const Result<void> written = write_shape(options);
    return written.ok() ? 0 : report_failure(written.error());
  }
  if (options.speculate || !options.replay.empty()) {
    const Result<kernels::OpTable> ops = open_device(options.device);
    if (!ops.ok()) return report_failure(ops.error());
    const Result<SpeculationReport> report = run_speculation(options, *ops);
    if (!report.ok()) return report_failure(report.error());
    return write_stdout(options.json ? as_json(*report) : as_text(*report)) ? 0 : kFailed;
  }
  const Result<BenchReport> report = run(options);
  if (!report.ok()) return report_failure(report.error());
  return write_stdout(options.json ? as_json(*report) : as_text(*report)) ? 0 : kFailed;
}

void add_speculation_options(Verb verb, BenchOptions& options) {
  verb.flag("--speculate", options.speculate,
            "decode with and without drafts, in turn, and compare speed and text");
  verb.option("--replay", options.replay,
              "draft the text of the plain run with errors: 0.8 (right with this probability), "
              "0.9,0.7,0.5 (by place in a step), 1101 (by position), optionally followed by "
              "/0.4,0.2 (chances of rivals where it is wrong) and :SEED")
      .type_name("PATTERN");
  verb.option(
          "--draft", options.draft,
          "draft model or heads in addition to lookup: auto (MODEL-dflash.gguf, MODEL-eagle3.gguf, "
          "MODEL-medusa.gguf or MODEL-draft.gguf next to MODEL.gguf), "
          "none, mtp (the model's own layer for drafting), a file, or a shape's name for random "
          "weights; with --replay it drafts the replayed tokens at its own cost")
      .type_name("NAME");
  verb.option("--draft-type", options.draft_type, "weight type of the draft's shape")
      .type_name("T");
  verb.option("--width", options.width, "drafted tokens per step; 0: as many as pay").range(0, 32);
  verb.option("--rivals", options.rivals,
              "with --speculate: branches next to each drafted token at most; default 2")
      .range(0, engine::kMaxRivals);
  verb.option("--sequences", options.sequences, "with --speculate: concurrent sequences; default 1")
      .range(1, 64);
  verb.option("--tokens", options.tokens, "with --speculate: tokens per sequence; default 128")
      .range(2, 1 << 20);
  verb.option("--temperature", options.temperature,
              "with --speculate: default 0 for a file, 0.8 for random weights")
      .range(0.0, 10.0);
  verb.option("--prompt", options.prompt,
              "with --speculate and a file: the prompt; default: beginnings of tales");
}

}  // namespace

void add_bench(Verb program) {
  const auto options = std::make_shared<BenchOptions>();
  Verb verb = program.verb("bench", "Measure a model's speed here, and its share of the ceiling");
  verb.option("FILE", options->file, "a .gguf file, or a model's name");
  verb.option("--shape", options->shape,
              "use random weights of this shape: " + models::shape_names())
      .type_name("NAME");
  verb.option("--write-shape", options->write_shape,
              "write random weights of this shape to FILE, a GGUF file that any engine loads")
      .type_name("NAME");
  verb.option("--type", options->type,
              "type of random weights, or a mix such as Q4_K_M; default Q8_0")
      .type_name("T");
  verb.option("--seed", options->seed, "seed of random weights; default 1");
  verb.flag("--quick", options->quick, "short prompts, three rounds");
  verb.option("--rounds", options->rounds, "number of measurements; default 3 or 5").range(1, 1000);
  verb.option("--kv-type", options->kv_type, "f16, bf16, q8_0, fp8, q4_0 or f32; two as K/V");
  verb.option("--context", options->context, "also measure decoding after a prompt of N tokens")
      .range(1, 1 << 20);
  verb.option("--read-mib", options->read_mib,
              "MiB to read for measuring the bandwidth; several times the cache, default 256")
      .range(1, 1 << 16);
  add_compute_options(verb, options->device);
  verb.option("--cpu-variant", options->device.cpu_variant, "code path; default: the best");
  verb.flag("--json", options->json, "one JSON object");
  add_speculation_options(verb, *options);
  verb.run([options] { return bench(*options); });
}

}  // namespace hearth::worker
