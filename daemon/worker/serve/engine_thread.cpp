#include "daemon/worker/serve/engine_thread.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "daemon/worker/load/cost_file.h"
#include "daemon/worker/load/device.h"
#include "daemon/worker/load/expert_counts.h"
#include "daemon/worker/load/fingerprint_cache.h"
#include "daemon/worker/load/model_work.h"
#include "daemon/worker/load/sampling_defaults.h"
#include "daemon/worker/load/stages.h"
#include "engine/kv/memory_plan.h"
#include "engine/speculation/draft_model.h"
#include "engine/store/ram_store.h"
#include "engine/store/sqlite_store.h"
#include "ipc/files/paths.h"
#include "ipc/schema/worker_stats.h"
#include "kernels/base/log.h"
#include "kernels/base/split_name.h"
#include "models/gguf/gguf_file.h"
#include "models/tokenizer/text/text_end.h"

namespace hearth::worker {
namespace {

constexpr size_t kMailboxMessages = 1 << 16;
constexpr int64_t kProgressEveryUs = 50'000;
/// Bytes read to measure the device's ceilings: more than most machines' caches, and little next to
/// a model.
constexpr size_t kCeilingBytes = 64 << 20;
/// Acceptance rate at which a draft model found by its name must pay off.
constexpr double kGoodDraft = 0.8;

std::vector<models::StageTable> tables_of(std::vector<models::Stage> stages) {
  std::vector<models::StageTable> tables;
  for (models::Stage& stage : stages) tables.push_back(std::move(stage.table));
  return tables;
}

/// The file of heads that was chosen, checked to have finite weights; none if it is unusable.
std::optional<models::GgufFile> open_heads(DraftChoice* choice) {
  if (!choice->heads) return {};
  Result<models::GgufFile> file = models::GgufFile::open(choice->path);
  const Result<std::string> digest = file.ok() ? computed_fingerprint(*file) : file.error();
  if (digest.ok()) {
    file->set_fingerprint(*digest);
    return std::move(file).value();
  }
  warn_no_draft(choice->path, digest.error());
  *choice = {};
  return {};
}

/// How the model reads texts that are not prompts.
Result<void> read_forms(const models::GgufFile& file, const models::Tokenizer& tokenizer,
                        EngineLoaded* out) {
  HEARTH_ASSIGN_OR_RETURN(out->text_end, models::load_text_end(file, tokenizer));
  HEARTH_ASSIGN_OR_RETURN(out->fill_marks, models::load_fill_marks(file, tokenizer));
  HEARTH_ASSIGN_OR_RETURN(out->ranker, models::Ranker::load(file, tokenizer));
  return {};
}

/// What the engine keeps of sequences. The blocks are those of layers that keep a whole context; of
/// a model without such layers, those of the group with the most.
void note_kv(const engine::Engine& engine, uint64_t draft_kv_bytes, EngineLoaded* out) {
  out->context_length = engine.context_length();
  out->kv_bytes = engine.kv_bytes() + draft_kv_bytes;
  const engine::MemoryPlan& plan = engine.memory_plan();
  out->kv_block_size = plan.block_size;
  out->kv_groups = plan.kv_groups(out->info);
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    if (out->info.groups[i].recurrent()) continue;
    out->block_size = plan.block_size;
    out->num_blocks = std::max(out->num_blocks, plan.groups[i].num_blocks);
    if (out->info.groups[i].kind != models::LayerGroup::Kind::kFull) continue;
    out->num_blocks = plan.groups[i].num_blocks;
    return;
  }
}

}  // namespace

EngineThread::EngineThread(const ServeOptions& options, const Clock& clock)
    : options_(options),
      clock_(clock),
      messages_(kMailboxMessages, true),
      store_commands_(kMailboxMessages),
      thread_([this] {
        ::pthread_setname_np(::pthread_self(), "engine");
        run();
      }) {}

EngineThread::~EngineThread() {
  // run() does the two steps in the opposite order, so at least one thread sees the other's write.
  stop_ = true;
  if (engine::Engine* engine = running_) engine->inbox().post(engine::Stop{});
  thread_.join();
}

void EngineThread::run() {
  Result<EngineLoaded> loaded = load();
  if (!loaded) return messages_.post(loaded.take_error());
  messages_.post(std::move(loaded).value());
  running_ = engine_.get();
  if (stop_) return;
  engine_->run();
  save_costs(costs_, engine_->measured_costs());
  add_expert_counts(expert_count_file_, model_->expert_counts());
}

Result<EngineLoaded> EngineThread::load() {
  const int64_t begin_us = clock_.now_us();
  HEARTH_ASSIGN_OR_RETURN(kernels::OpTable ops, open_tables());
  HEARTH_ASSIGN_OR_RETURN(models::GgufFile file, models::GgufFile::open(options_.model));
  // Runs in parallel with the rest of loading: a large vocabulary takes one thread as long as
  // loading a small model. Joined before the file is closed on every return path.
  std::future<Result<std::unique_ptr<models::Tokenizer>>> tokenizer =
      std::async(std::launch::async, [&file] { return models::load_tokenizer(file); });
  // Plan before the slow steps. A model without a plan is not loaded, because the broker would
  // count its memory as zero.
  DraftChoice choice;
  if (options_.engine.speculation.enabled) choice = choose_draft(options_.draft, options_.model);
  file.set_fingerprint("-");  // not needed for a plan, and computing it reads the whole file
  std::optional<models::GgufFile> heads = open_heads(&choice);
  HEARTH_ASSIGN_OR_RETURN(
      const LoadPlan planned,
      plan_stages_or_device(file, heads ? &*heads : nullptr, &choice.path, ops));
  if (choice.path.empty()) heads.reset();
  in_stages_ = !stages_.empty();
  messages_.post(planned);
  const kernels::OpTable device = ops;  // a copy of the table, to query the memory taken
  if (!stages_.empty()) ops = joint_ops();
  if (expert_ops_) ops = models::with_experts_on(std::move(ops), *expert_ops_, hot_experts_);
  const std::string numerics_id = ops.numerics_id;
  HEARTH_ASSIGN_OR_RETURN(ModelSource source, ModelSource::open(file, digest_folder()));
  source_.emplace(std::move(source));
  file.set_fingerprint(source_->digest());
  templates_ = models::ChatTemplates::load(file);

  int64_t next_us = 0;
  const auto progress = [&](const models::LoadProgress& done) {
    if (clock_.now_us() < next_us) return;
    next_us = clock_.now_us() + kProgressEveryUs;
    messages_.post(done);
  };
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<models::Model> model,
                          load_weights(file, device, progress, heads ? &*heads : nullptr));
  HEARTH_ASSIGN_OR_RETURN(tokenizer_, tokenizer.get());
  model_ = model.get();
  EngineLoaded out;
  out.info = model->info();
  out.info.weight_bytes += out.info.expert_bytes;
  const ModelWork work = work_of(file, out.info);
  out.experts = {.unused_parameters = static_cast<uint64_t>(work.unused_parameters),
                 .bytes = static_cast<uint64_t>(work.expert_bytes),
                 .share = work.experts_used};
  out.sampling = sampling_defaults(file, options_.sampling, out.info.canvas);
  HEARTH_TRY(read_forms(file, *tokenizer_, &out));
  out.device = ops.device;
  out.can_sleep = ops.put_off != nullptr;
  if (out.info.drafts) {
    out.draft = heads ? model_stem(choice.path.stem().string()) : ipc::kDraftLayerName;
  }
  std::unique_ptr<engine::DraftModel> draft = load_chosen_draft(choice, device, &out);
  uint64_t draft_kv_bytes = draft == nullptr ? 0 : draft->memory_plan().kv_bytes;
  HEARTH_ASSIGN_OR_RETURN(
      engine_,
      engine::Engine::create(options_.engine, std::move(ops), std::move(model), clock_,
                             std::move(draft), wants_store() ? &store_commands_ : nullptr));
  restore_costs(device, numerics_id, &out);
  messages_.post(WarmingUp{});
  engine_->set_weights_check([this] { return source_->check(); });
  engine_->warm_up(false);
  HEARTH_TRY(source_->check());
  if (!out.draft.empty() && !out.info.drafts) {
    // A draft model that was not requested must promise a gain, because it takes memory.
    const double gain = engine_->draft_gain(kGoodDraft);
    const bool kept = !choice.found_by_name || gain > 1;
    log_info("draft", "model={} gain_at_{:.1f}={:.2f} kept={}", out.draft, kGoodDraft, gain, kept);
    if (!kept) {
      engine_->drop_draft_model();
      out.draft.clear();
      out.draft_weight_bytes = draft_kv_bytes = 0;
    }
  }
  HEARTH_ASSIGN_OR_RETURN(out.device_memory, settle(device, planned));
  if (wants_store() && options_.engine.prefix_cache && out.info.generates) {
    start_store();
  }
  out.tokenizer = tokenizer_.get();
  out.templates = &templates_;
  out.commands = &engine_->inbox();
  out.events = &engine_->outbox();
  out.watch = &engine_->watch_port();
  note_kv(*engine_, draft_kv_bytes, &out);
  out.read_gpu = gpu_reader(options_.device);
  out.load_ms = (clock_.now_us() - begin_us) / 1000;
  return out;
}

Result<kernels::OpTable> EngineThread::open_tables() {
  if (options_.stages.empty()) return open_device(options_.device, kernels::Packing::kLate);
  HEARTH_ASSIGN_OR_RETURN(std::vector<models::StageTable> tables, open_stages(options_));
  if (options_.experts_apart) {
    expert_ops_ = std::move(tables.back().ops);
    return std::move(tables.front().ops);
  }
  for (models::StageTable& table : tables) {
    if (options_.split && table.ops.numerics_id != tables.front().ops.numerics_id) {
      log_warn("split_numerics", "device={} computes={} device={} computes={}",
               tables.front().device, tables.front().ops.numerics_id, table.device,
               table.ops.numerics_id);
    }
  }
  for (models::StageTable& table : tables) stages_.push_back({std::move(table), {}});
  return stages_.front().table.ops;
}

kernels::OpTable EngineThread::joint_ops() const {
  return options_.split ? models::split_engine_table(tables_of(stages_))
                        : models::engine_table(stages_);
}

Result<std::unique_ptr<models::Model>> EngineThread::load_weights(
    const models::GgufFile& file, const kernels::OpTable& ops,
    const models::LoadProgressFn& progress, const models::GgufFile* heads) {
  if (in_stages_ && options_.split) {
    return models::load_split_model(file, tables_of(std::exchange(stages_, {})), progress);
  }
  if (in_stages_) return models::load_staged_model(file, std::exchange(stages_, {}), progress);
  models::LoadOptions options = load_options();
  options.heads = heads;
  return models::load_model(file, ops, progress, options);
}

std::unique_ptr<engine::DraftModel> EngineThread::load_chosen_draft(const DraftChoice& choice,
                                                                    const kernels::OpTable& ops,
                                                                    EngineLoaded* out) {
  if (choice.path.empty() || choice.heads) return nullptr;
  auto loaded = load_draft(choice.path, out->info, ops);
  if (!loaded.ok()) {
    warn_no_draft(choice.path, loaded.error());
    return nullptr;
  }
  out->draft = model_stem(choice.path.stem().string());
  out->draft_weight_bytes = (*loaded)->info().weight_bytes;
  return std::move(loaded).value();
}

void EngineThread::restore_costs(const kernels::OpTable& device, const std::string& numerics_id,
                                 EngineLoaded* loaded) {
  if (options_.prefix_dir.empty()) return;
  const size_t stages = loaded->info.stages.size();
  std::string machine =
      fmt::format("{} {}, {}, {} threads{}", device.device.kind, device.device.variant,
                  device.device.name, device.device.num_threads,
                  stages > 1 ? fmt::format(", {} {}", stages, options_.split ? "shares" : "stages")
                             : std::string());
  if (expert_ops_) machine += ", experts apart";
  costs_ = cost_file(options_.prefix_dir.parent_path() / "prices", loaded->info.fingerprint,
                     numerics_id, machine);
  engine_->restore_costs(load_costs(costs_));
  if (reserved_bytes() || costs_.path.empty() || has_ceilings(costs_)) return;
  loaded->note_ceilings = [device, file = costs_] {
    const auto measured = measure_device(device, kCeilingBytes);
    if (measured.ok()) note_ceilings(file, *measured);
  };
}

models::LoadOptions EngineThread::load_options() const {
  return {.draft_layer = options_.engine.speculation.enabled &&
                         (options_.draft == "auto" || options_.draft == ipc::kDraftLayerName),
          .experts = expert_ops_ ? &*expert_ops_ : nullptr,
          .hot_experts = expert_ops_ ? &hot_experts_ : nullptr};
}

// Next to the prefixes, which are identified by these digests.
std::filesystem::path EngineThread::digest_folder() const {
  if (options_.prefix_dir.empty()) return {};
  const std::filesystem::path folder = options_.prefix_dir.parent_path() / "fingerprints";
  return ipc::ensure_private_dir(folder).ok() ? folder : std::filesystem::path();
}

Result<std::unique_ptr<engine::DraftModel>> EngineThread::load_draft(
    const std::filesystem::path& path, const models::ModelInfo& target,
    const kernels::OpTable& ops) {
  HEARTH_ASSIGN_OR_RETURN(models::GgufFile file, models::GgufFile::open(path));
  HEARTH_ASSIGN_OR_RETURN(std::string fingerprint, computed_fingerprint(file));
  file.set_fingerprint(std::move(fingerprint));
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<models::Tokenizer> tokenizer,
                          models::load_tokenizer(file));
  HEARTH_TRY(engine::check_same_tokens(*tokenizer_, *tokenizer));
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<models::Model> model,
                          models::load_model(file, ops, nullptr));
  HEARTH_ASSIGN_OR_RETURN(
      std::unique_ptr<engine::DraftModel> draft,
      engine::DraftModel::create(options_.engine, target, ops, std::move(model), clock_));
  log_info("draft_loaded", "file={} kv_bytes={}", path.string(), draft->memory_plan().kv_bytes);
  return draft;
}

uint64_t EngineThread::ram_bytes() const {
  return reserved_bytes().has_value() && !in_stages_ ? options_.prefix_ram_bytes : 0;
}

std::unique_ptr<engine::BlockStore> EngineThread::open_database() const {
  // Without the directory the store is degraded, reports why, and works once it can be created.
  if (const Result<void> made = ipc::ensure_private_dir(options_.prefix_dir); !made.ok()) {
    log_warn("prefix_dir", "error=\"{}\"", made.error().message);
  }
  engine::SqliteStoreConfig config;
  config.folder = options_.prefix_dir;
  config.budget_bytes = options_.prefix_store_bytes;
  config.owner_budget_bytes = options_.prefix_owner_bytes;
  config.owner_pinned_bytes = options_.prefix_pinned_bytes;
  config.now_ms = [] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  };
  return std::make_unique<engine::SqliteStore>(std::move(config), engine_->kv_layout());
}

void EngineThread::start_store() {
  std::unique_ptr<engine::BlockStore> store;
  if (!options_.prefix_dir.empty()) store = open_database();
  if (ram_bytes() > 0) {
    store = std::make_unique<engine::RamStore>(engine_->kv_layout(), ram_bytes(), std::move(store));
  }
  store_ = std::make_unique<engine::StoreThread>(
      std::move(store), store_commands_, [engine = engine_.get()](engine::StoreReply reply) {
        engine->inbox().post(std::move(reply));
      });
}

}  // namespace hearth::worker
