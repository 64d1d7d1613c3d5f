// hearth perplexity MODEL -f TEXT: how well a model predicts a text, and how far its predictions
// are from a reference model's.

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "daemon/worker/load/device.h"
#include "daemon/worker/load/fingerprint_cache.h"
#include "daemon/worker/tools/command_line.h"
#include "daemon/worker/tools/perplexity/text_score.h"
#include "daemon/worker/tools/progress_line.h"
#include "daemon/worker/tools/stop_flag.h"
#include "daemon/worker/tools/text_file.h"
#include "daemon/worker/tools/verbs.h"
#include "ipc/files/model_file.h"
#include "ipc/wire/json.h"
#include "kernels/base/numbers.h"
#include "models/gguf/gguf_file.h"

namespace hearth::worker {
namespace {

struct PerplexityVerb {
  std::string model;
  std::string text;
  std::string against;
  std::string kv_type = "f16";
  std::string against_kv_type;  ///< empty: as kv_type
  bool json = false;
  ScoreOptions score{.context = 0, .stride = 0, .max_tokens = 0};
  DeviceOptions device;
};

struct Loaded {
  std::unique_ptr<models::GgufFile> file;
  std::unique_ptr<LogitsRunner> runner;
};

Result<Loaded> load(const std::string& name, const std::string& kv_type_name,
                    const ScoreOptions& score, const kernels::OpTable& ops) {
  Loaded out;
  HEARTH_ASSIGN_OR_RETURN(const auto path, ipc::find_model_file(name));
  HEARTH_ASSIGN_OR_RETURN(models::GgufFile file, models::GgufFile::open(path));
  // Computing the digest reads the whole file and refuses weights that are not finite.
  HEARTH_ASSIGN_OR_RETURN(std::string digest, computed_fingerprint(file));
  file.set_fingerprint(std::move(digest));
  out.file = std::make_unique<models::GgufFile>(std::move(file));
  HEARTH_ASSIGN_OR_RETURN(auto model, models::load_model(*out.file, ops, nullptr));
  HEARTH_ASSIGN_OR_RETURN(const kernels::KvTypes kv_type, parse_kv_type(kv_type_name));
  if (score.context > model->info().context_length) {
    return Error::invalid(fmt::format("--context {}: {} has {}", score.context, out.file->name(),
                                      model->info().context_length),
                          "context");
  }
  HEARTH_ASSIGN_OR_RETURN(out.runner,
                          LogitsRunner::create(std::move(model), ops, kv_type, score.context));
  return out;
}

std::string as_text(const TextScore& score) {
  std::string out = fmt::format(
      "perplexity     {:.4f} +- {:.4f}\nnll            {:.6f} nats per token\n"
      "bits per byte  {:.6f}\ntokens         {} ({} bytes)\n",
      score.perplexity(), score.perplexity_error(), score.mean_nll(), score.bits_per_byte(),
      score.num_tokens, score.num_bytes);
  if (score.num_compared == 0) return out;
  const auto n = as_double(score.num_compared);
  return out + fmt::format(
                   "kl             {:.6f} nats per token, {:.4f} at most\n"
                   "same best      {:.2f} %\n",
                   score.kl / n, score.kl_max, 100.0 * as_double(score.same_best) / n);
}

std::string as_json(const TextScore& score) {
  ipc::Json out = ipc::Json::object();
  out["perplexity"] = score.perplexity();
  out["perplexity_error"] = score.perplexity_error();
  out["nll"] = score.mean_nll();
  out["bits_per_byte"] = score.bits_per_byte();
  out["tokens"] = score.num_tokens;
  out["bytes"] = score.num_bytes;
  if (score.num_compared > 0) {
    const auto n = as_double(score.num_compared);
    out["kl"] = score.kl / n;
    out["kl_max"] = score.kl_max;
    out["same_best"] = as_double(score.same_best) / n;
  }
  return ipc::dump_json(out) + "\n";
}

Result<TextScore> run_perplexity(const PerplexityVerb& options) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, read_text(options.text));
  HEARTH_ASSIGN_OR_RETURN(const kernels::OpTable ops, open_device(options.device));
  ScoreOptions score = options.score;
  if (score.context == 0) score.context = 512;
  if (score.stride == 0) score.stride = std::max(1, score.context / 2);
  ProgressLine progress;
  progress.stage("loading");
  HEARTH_ASSIGN_OR_RETURN(const Loaded model, load(options.model, options.kv_type, score, ops));
  HEARTH_ASSIGN_OR_RETURN(const auto tokenizer, models::load_tokenizer(*model.file));
  Loaded reference;
  if (!options.against.empty()) {
    const std::string& kv_type =
        options.against_kv_type.empty() ? options.kv_type : options.against_kv_type;
    HEARTH_ASSIGN_OR_RETURN(reference, load(options.against, kv_type, score, ops));
    if (reference.runner->info().vocab_size != model.runner->info().vocab_size) {
      return Error::invalid(
          fmt::format("--against has {} tokens, the model {}", reference.runner->info().vocab_size,
                      model.runner->info().vocab_size),
          "against");
    }
  }
  progress.stage("scoring");
  return score_text(*model.runner, reference.runner.get(), *tokenizer, text, score,
                    [&](const TextScore& at, int64_t count) {
                      progress.detail(fmt::format("{} of {} tokens, perplexity {:.3f}",
                                                  at.num_tokens, count, at.perplexity()));
                      return !stop_wanted();
                    });
}

int perplexity(const PerplexityVerb& options) {
  catch_stop_signals();
  const Result<TextScore> score = run_perplexity(options);
  if (!score.ok()) return report_failure(score.error());
  return write_stdout(options.json ? as_json(*score) : as_text(*score)) ? 0 : kFailed;
}

}  // namespace

void add_perplexity(Verb program) {
  const auto options = std::make_shared<PerplexityVerb>();
  Verb verb = program.verb("perplexity", "Measure how well a model predicts a text");
  verb.option("MODEL", options->model, "a .gguf file, or a model's name").required();
  verb.option("-f,--file", options->text, "the text; - is stdin").type_name("FILE").required();
  verb.option("--against", options->against, "another model, to measure the divergence from")
      .type_name("MODEL");
  verb.option("--context", options->score.context, "tokens per window; default 512")
      .range(2, 1 << 24);
  verb.option("--stride", options->score.stride,
              "tokens that each window after the first scores; default: half a window")
      .range(1, 1 << 24);
  verb.flag("--halves", options->score.halves,
            "windows as in llama-perplexity: adjacent, each starting with BOS in place of its "
            "first token, with the second half scored");
  verb.option("--tokens", options->score.max_tokens,
              "use at most this many tokens of the text; default all")
      .range(int64_t{1}, int64_t{1} << 40);
  verb.option("--kv-type", options->kv_type, "f16, bf16, q8_0, fp8, q4_0 or f32; two as K/V");
  verb.option("--against-kv-type", options->against_kv_type,
              "KV type of --against; default: as --kv-type");
  add_compute_options(verb, options->device);
  verb.flag("--json", options->json, "one JSON object");
  verb.run([options] { return perplexity(*options); });
}

}  // namespace hearth::worker
