#include "engine/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "engine/kv/memory_plan.h"
#include "engine/loop/engine_impl.h"
#include "kernels/base/match.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {
namespace {

/// Commands beyond the queue's requests: cancels and the like, which come in bursts.
constexpr size_t kInboxSlack = 1024;
constexpr size_t kOutboxMessages = 1 << 16;
/// After this long without a command the engine counts as idle. A client that loads a model usually
/// sends its first request at once.
constexpr std::chrono::milliseconds kIdle{250};
/// Bytes copied out for the store in one step: a millisecond or two.
constexpr uint64_t kOfferBytesPerStep = 8 << 20;
/// The same at the end, for what was offered last.
constexpr uint64_t kOfferBytesAtEnd = 64 << 20;
/// Late weights are packed after a step with tokens for this many times the step's duration.
constexpr int64_t kPackSteps = 3;
/// How often the thread polls the inbox before it sleeps during a restore: a few hundred
/// microseconds. It yields in between, so no thread with work waits for it.
constexpr int kLooks = 500;
/// Unused memory of the pools is kept for this long after the last request.
constexpr int64_t kUnusedUs = 2'000'000;
/// How often a shortage of blocks is reported at once.
constexpr int64_t kReportShortUs = 50'000;
/// Decode steps without a draft before run-ahead starts.
constexpr int32_t kAheadAfter = 16;

/// Everything that changes the KV of given tokens, except the salt.
std::string prefix_scope(const EngineConfig& config, const MemoryPlan& plan,
                         const models::ModelInfo& info, const kernels::OpTable& ops) {
  std::string scope =
      fmt::format("{}\n{}\n{}\n{}\n{}\n", info.fingerprint, plan.context_length,
                  kernels::kv_type_name(config.kv_type), ops.numerics_id, plan.block_size);
  const bool layer = info.drafts && info.draft_heads == 0;
  // Its KV and its state are in the blocks.
  if (layer) {
    scope += info.draft_fingerprint.empty()
                 ? "draft layer\n"
                 : fmt::format("draft file {}\n", info.draft_fingerprint);
  }
  return scope;
}

KvLayout layout_of(std::string identity, const MemoryPlan& plan, const models::ModelInfo& info) {
  KvLayout layout;
  layout.model = info.name;
  layout.identity = std::move(identity);
  layout.block_size = plan.block_size;
  for (const GroupPlan& group : plan.groups) layout.block_bytes.push_back(group.block_bytes);
  if (info.groups.back().recurrent()) layout.state_group = layout.num_groups() - 1;
  return layout;
}

}  // namespace

SlowTier::SlowTier(KvLayout layout, KvCache& kv, ModelRunner& runner, Mailbox<StoreCommand>& store,
                   const EngineConfig& config)
    : link(std::move(layout), runner, store),
      restorer(link, kv, runner, config.always_restore,
               // A state at the end is worth nothing to what is computed before it.
               config.scheduler.chunked_prefill && !kv.has_states() ? config.restore_overlap
                                                                    : RestoreOverlap::kNever),
      saver(link, kv, runner) {}

Engine::Impl::Impl(const EngineConfig& engine_config, std::string scope,
                   std::unique_ptr<ModelRunner> model_runner, const Clock& engine_clock,
                   std::unique_ptr<Proposer> proposer, Mailbox<StoreCommand>* store)
    : config(engine_config),
      clock(engine_clock),
      scope_prefix(std::move(scope)),
      runner(std::move(model_runner)),
      adapters(*runner, engine_config.adapter_bytes),
      kv(runner->memory_plan().block_size, runner->memory_plan().kv_groups(runner->info())),
      pools(kv, *runner, runner->memory_plan()),
      draft_pools(proposer != nullptr ? proposer->pools() : nullptr),
      scheduler(config.scheduler,
                {runner->memory_plan().context_length, runner->memory_plan().max_step_tokens,
                 runner->memory_plan().max_outputs, runner->info().canvas},
                kv),
      sampler(runner->info().vocab_size),
      speculator(config.speculation, std::move(proposer), make_draft_layer()),
      recorder(engine_clock),
      inbox(config.scheduler.max_queue + kInboxSlack),
      outbox(kOutboxMessages, true) {
  if (config.published != PublishedScopes::kNone) {
    kv.publish({config.published, scope_prefix.size()}, cache_events);
  }
  if (store == nullptr || !config.prefix_cache) return;
  disk = std::make_unique<SlowTier>(layout_of(scope_prefix, runner->memory_plan(), runner->info()),
                                    kv, *runner, *store, config);
  // A preempted sequence is saved like a finished one: its blocks may be evicted before it resumes.
  scheduler.on_preempt([this](const Sequence& seq) { disk->saver.offer(seq); });
  scheduler.on_admit([this](Sequence& seq) { disk->restorer.admitted(seq, scheduler.cost()); });
}

std::unique_ptr<Proposer> Engine::Impl::make_draft_layer() {
  if (!runner->info().drafts || !config.speculation.enabled) return nullptr;
  auto layer = std::make_unique<DraftLayer>(*runner, kv, clock);
  draft_layer = layer.get();
  return layer;
}

// ---- The step loop --------------------------------------------------------------------------

bool Engine::Impl::step() {
  take_commands();
  const bool copied = !model_lost && pump_store();
  const bool computed = !stopping && !model_lost && advance();
  settle_pools();
  publish();
  return computed || copied;
}

// True if blocks are being copied out: there may be more.
bool Engine::Impl::pump_store() {
  if (disk == nullptr) return false;
  disk->restorer.pump(scheduler.cost(), now_us);
  const bool copying = disk->link.post_copied();
  const bool copied = disk->saver.pump(scheduler.cost(), kOfferBytesPerStep);
  counters.add_joined_tokens(disk->restorer.take_joined_tokens());
  return copying || copied;
}

// Between steps: memory that is over the bound, or that an idle engine does not use, is given back.
void Engine::Impl::settle_pools() {
  const bool idle = scheduler.live().empty();
  if (!idle) unused_until_us = now_us + kUnusedUs;
  const bool unused = idle && unused_until_us > 0 && now_us >= unused_until_us;
  if (unused) unused_until_us = 0;
  for (ElasticPools* each : {&pools, draft_pools}) {
    if (each == nullptr) continue;
    each->settle();
    if (unused) each->give_back_unused();
  }
  const bool now_short = !idle && kv.bounded() && scheduler.short_of_blocks();
  if (now_short && now_us >= report_short_us) {
    snapshot_wanted = true;
    pools.set_bound(pools.bound_bytes());  // the device may have memory again
    report_short_us = now_us + kReportShortUs;
  }
  kv_short = now_short;
}

void Engine::Impl::handle(KvBound& bound) {
  const uint64_t of_draft = draft_pools == nullptr ? 0 : draft_pools->reserved_bytes();
  const auto all = as_double(pools.reserved_bytes() + of_draft);
  const double share = std::min(1.0, as_double(bound.bytes) / all);
  pools.set_bound(static_cast<uint64_t>(share * as_double(pools.reserved_bytes())));
  if (draft_pools != nullptr) {
    draft_pools->set_bound(static_cast<uint64_t>(share * as_double(of_draft)));
  }
  snapshot_wanted = true;
}

void Engine::Impl::handle(DropAdapters& drop) {
  adapters.drop_unused(drop.name);
  snapshot_wanted = true;
}

void Engine::Impl::handle(Sleep&) {
  if (!scheduler.live().empty() || !runner->can_put_off()) return;
  adapters.drop_unused();
  const uint64_t bytes = runner->put_off();
  pack_more(0);
  for (ElasticPools* each : {&pools, draft_pools}) {
    if (each != nullptr) each->give_back_unused();
  }
  unused_until_us = 0;
  asleep = true;
  snapshot_wanted = true;
  events.emplace_back(AsleepEvent{bytes});
}

void Engine::Impl::publish() {
  if (std::exchange(snapshot_wanted, false)) {
    publish_watch();
    events.emplace_back(SnapshotEvent{snapshot()});
  }
  if (!cache_events.empty()) events.emplace_back(CacheEventsEvent{cache_events.take()});
  if (!events.empty()) outbox.post(std::exchange(events, {}));
}

void Engine::Impl::take_commands() {
  std::ranges::move(inbox.drain(), std::back_inserter(commands));
  now_us = clock.now_us();
  for (EngineCommand& command : std::exchange(commands, {})) {
    std::visit([this](auto& c) { handle(c); }, command);
  }
  for (LiveRequest* late : scheduler.expired(now_us)) {
    if (!late->ended) end_request(*late, FinishReason::kDeadline);
  }
  remove_ended();
}

// Drafts, plans, computes. False: there was nothing to compute.
bool Engine::Impl::advance() {
  fetch_preempted();
  if (speculator.enabled()) {
    scheduler.decoding(decoding);
    const int64_t begin_us = clock.now_us();
    speculator.propose(decoding, scheduler.cost(), scheduler.prefill_wanted());
    now_us = clock.now_us();  // a draft model's time is not the step's
    counters.add_draft_us(as_double(now_us - begin_us));
  }
  const StepPlan& plan = next_plan();
  const bool computed = !plan.empty();
  kv_stalled = !computed && kv.bounded() && scheduler.short_of_blocks();
  if (computed) compute(plan);
  remove_ended();
  report_progress();
  return computed;
}

const StepPlan& Engine::Impl::next_plan() {
  launched_ahead = runner->ahead();
  if (launched_ahead && speculator.enabled()) {
    // This step was launched without drafts; later ones will wait for them.
    const auto has_draft = [](const Sequence* seq) { return !seq->drafted.empty(); };
    if (std::ranges::any_of(decoding, has_draft)) steps_without_drafts = 0;
  }
  if (launched_ahead) {
    const StepPlan& plan = scheduler.plan_ahead();
    if (!plan.empty()) return plan;
    runner->drop_ahead();
    launched_ahead = false;
  }
  const StepPlan& plan = scheduler.plan();
  if (plan.num_drafted > 0) steps_without_drafts = 0;
  return plan;
}

// Once per preemption. A request of several samples is left out: each has only a short text of its
// own after the shared prompt.
void Engine::Impl::fetch_preempted() {
  if (disk == nullptr || scheduler.num_preempted() == 0) return;
  LiveRequest* live = scheduler.preempted_with_room();
  if (live == nullptr || live->request.n > 1) return;
  if (live->restore.asked_preemptions == live->preemptions) return;
  live->restore.asked_preemptions = live->preemptions;
  disk->restorer.look_up(*live, scheduler.cost(), now_us);
}

void Engine::Impl::run() {
  while (true) {
    const bool worked = step();
    if (stopping || (draining && scheduler.live().empty())) break;
    const bool idle = scheduler.live().empty();
    const bool rests = model_lost || (asleep && idle);
    if (weights_late && !rests && (worked || idle)) {
      pack_weights(idle ? 0 : packing_us);
      continue;
    }
    if (worked) continue;
    if (idle && !memory_touched && !rests) {
      memory_touched = !disk->link.warm_up();
      continue;
    }
    if (idle && costs_wanted && !rests) {
      commands = inbox.wait_and_drain(kIdle);
      if (commands.empty()) measure_costs();
      continue;
    }
    // There was nothing to compute: nothing is live, or all that is waits for the store. Only a
    // command changes that, or the deadline of a restore.
    std::chrono::microseconds wait = std::chrono::hours(1);
    if (const auto deadline = disk == nullptr ? std::nullopt : disk->restorer.next_deadline_us()) {
      wait = std::chrono::microseconds(std::max<int64_t>(0, *deadline - clock.now_us()));
    }
    if (idle && unused_until_us > 0) {
      const int64_t left_us = std::max<int64_t>(0, unused_until_us - clock.now_us());
      wait = std::min(wait, std::chrono::microseconds(left_us));
    }
    // The next chunk of a restore arrives soon; waking up for it would take as long.
    for (int look = 0; disk != nullptr && disk->restorer.loading() && look < kLooks; ++look) {
      if (inbox.size() > 0) break;
      std::this_thread::yield();
    }
    commands = inbox.wait_and_drain(wait);
  }
  if (disk != nullptr && !model_lost) disk->saver.flush(scheduler.cost(), kOfferBytesAtEnd);
  outbox.post({StoppedEvent{}});
}

void Engine::Impl::compute(const StepPlan& plan) {
  // A step that was launched ahead began when the last one ended.
  const int64_t begin_us = launched_ahead ? computed_us : now_us;
  report_started(plan);
  plan_draws(plan);
  runner->start(plan, wishes);
  if (may_run_ahead()) {
    runner->start_next(plan);
    scheduler.settle_ahead(runner->ahead());
  }
  runner->finish(plan);
  now_us = clock.now_us();
  computed_us = now_us;
  if ((weights_late || runner->keeps_sources()) && !weights_intact()) return;
  scheduler.stored(plan);
  counters.step_computed(plan, scheduler.cost(), now_us - begin_us);
  take_outputs(plan);
  // Host work that overlaps the next step is not charged to this one.
  const int64_t end_us = runner->ahead() ? now_us : clock.now_us();
  scheduler.finish_step(plan, end_us - begin_us);
  counters.step_done(plan, launched_ahead, begin_us, end_us);
  if (plan.num_decode_rows > 0) ++steps_without_drafts;
  // Packing after a step with tokens may take longer: packed weights soon make up for a longer gap
  // between two tokens. A prompt's next step may be its last, and its first token would wait.
  packing_us = (plan.num_outputs > 0 ? kPackSteps : 1) * (end_us - begin_us);
  if (recorder.on() && !warming_up) {
    recorder.add(plan, scheduler, counters.num_steps(), end_us, end_us - begin_us,
                 counters.accepted_in_step());
  }
}

// Whether to launch the next step before this one's tokens are known: the device draws all of them,
// and nothing is pending that would call for another step.
bool Engine::Impl::may_run_ahead() {
  const bool drawn = !wishes.empty() && std::ranges::all_of(wishes, [](const RowWish& wish) {
    return wish.kind == RowWish::Kind::kToken;
  });
  const bool drafts_rest = !speculator.enabled() ||
                           (config.speculation.fixed_width == 0 &&
                            steps_without_drafts >= kAheadAfter && !speculator.has_paid_proposer());
  return drawn && config.run_ahead && !warming_up && drafts_rest && inbox.size() == 0 &&
         scheduler.reserve_ahead();
}

// ---- Commands -------------------------------------------------------------------------------

void Engine::Impl::handle(Request& request) {
  const RequestId id = request.id;
  const auto refuse = [&](Error error) {
    events.emplace_back(RequestFailedEvent{id, std::move(error)});
  };
  if (draining || stopping) {
    return refuse(Error::unavailable("the engine is stopping and takes no requests"));
  }
  if (model_lost) return refuse(*model_lost);
  if (Result<void> fine = check_request(request, runner->info().vocab_size); !fine.ok()) {
    return refuse(fine.take_error());
  }
  asleep = false;
  if (request.received_us == 0) request.received_us = now_us;
  if (!config.prefix_cache) request.use_prefix_cache = false;
  if (!runner->info().generates && request.pooling == models::Pooling::kNone) {
    return refuse(Error::unsupported("the model makes vectors of texts and no text"));
  }
  if (Result<void> fine = check_canvas(request, runner->info().canvas); !fine.ok()) {
    return refuse(fine.take_error());
  }
  Result<std::vector<AppliedAdapter>> applied = adapters.use(request.adapters);
  if (!applied.ok()) return refuse(applied.take_error());
  request.adapters.clear();  // their files are not read again
  std::string scope = scope_prefix + adapter_scope(*applied) +
                      (request.cache_salt.empty() ? request.owner : request.cache_salt);
  Result<LiveRequest*> added =
      scheduler.add(std::move(request), std::move(scope), std::move(applied).value());
  if (!added.ok()) return refuse(added.take_error());

  LiveRequest& live = **added;
  live.next_progress_us = now_us;
  if (disk != nullptr) disk->restorer.look_up(live, scheduler.cost(), now_us);
  const std::vector<std::vector<int32_t>>& resume = live.request.resume;
  for (size_t i = 0; live.forked && i < resume.size(); ++i) {
    if (size32(resume[i]) < live.request.max_tokens) continue;
    end_sample(*live.samples[i], FinishReason::kLength);
  }
}

void Engine::Impl::handle(CancelRequest& cancel) {
  LiveRequest* live = scheduler.find(cancel.id);
  if (live != nullptr && !live->ended) end_request(*live, FinishReason::kCancelled);
}

void Engine::Impl::handle(StoreReply& reply) {
  if (disk == nullptr) return;
  match(
      reply, [this](ChainFound& found) { disk->restorer.found(found, scheduler.cost(), now_us); },
      [this](ChunkLoaded& loaded) { disk->restorer.loaded(loaded, now_us); },
      [this](ChunkSaved& saved) { disk->saver.saved(saved); },
      [this](StoreReport& report) {
        if (disk->link.take_report(report)) kv.clear_stored();
      },
      [this](PinnedChunks& pinned) { disk->link.take_pinned(pinned); },
      [this](StoreEvents& happened) {
        events.emplace_back(CacheEventsEvent{std::move(happened.events)});
      });
}

void Engine::Impl::handle(FinishSample& finish) {
  LiveRequest* live = scheduler.find(finish.id);
  if (live == nullptr || live->ended) return;
  for (const auto& seq : live->samples) {
    if (seq->sample != finish.sample || !live->forked) continue;
    if (seq->state != Sequence::State::kFinished) end_sample(*seq, FinishReason::kStop);
  }
}

void Engine::Impl::handle(EndReasoning& end) {
  LiveRequest* live = scheduler.find(end.id);
  if (live != nullptr) live->request.end_reasoning = true;
}

// ---- The public face ------------------------------------------------------------------------

Result<std::unique_ptr<Engine>> Engine::create(const EngineConfig& given, kernels::OpTable ops,
                                               std::unique_ptr<models::Model> model,
                                               const Clock& clock,
                                               std::unique_ptr<Proposer> proposer,
                                               Mailbox<StoreCommand>* store) {
  const EngineConfig config = config_for(given, model->info());
  HEARTH_ASSIGN_OR_RETURN(const MemoryPlan plan,
                          plan_memory(config, *model, ops.device.memory_free_bytes));
  std::string scope = prefix_scope(config, plan, model->info(), ops);
  HEARTH_ASSIGN_OR_RETURN(
      std::unique_ptr<ModelRunner> runner,
      ModelRunner::create(plan, config.kv_type, std::move(ops), std::move(model)));
  return std::unique_ptr<Engine>(new Engine(std::make_unique<Impl>(
      config, std::move(scope), std::move(runner), clock, std::move(proposer), store)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Mailbox<EngineCommand>& Engine::inbox() { return impl_->inbox; }
Mailbox<std::vector<EngineEvent>>& Engine::outbox() { return impl_->outbox; }
void Engine::set_weights_check(std::function<Result<void>()> check) {
  impl_->weights_check = std::move(check);
}

void Engine::warm_up(bool at_once) { impl_->warm_up(at_once); }
bool Engine::measure_costs() { return impl_->measure_costs(); }
bool Engine::step() { return impl_->step(); }
void Engine::run() { impl_->run(); }
const models::ModelInfo& Engine::model_info() const { return impl_->runner->info(); }
const MemoryPlan& Engine::memory_plan() const { return impl_->runner->memory_plan(); }
int32_t Engine::context_length() const { return memory_plan().context_length; }
KvLayout Engine::kv_layout() const {
  return layout_of(impl_->scope_prefix, memory_plan(), model_info());
}
uint64_t Engine::kv_bytes() const { return memory_plan().kv_bytes; }
EngineSnapshot Engine::snapshot() const { return impl_->snapshot(); }
WatchPort& Engine::watch_port() { return impl_->watch_port; }
uint64_t Engine::watch_calls() const { return impl_->recorder.calls(); }
double Engine::draft_gain(double chance) const {
  return impl_->speculator.expected_gain(chance, impl_->scheduler.cost());
}
void Engine::time_gaps() { impl_->runner->time_gaps(); }
std::vector<double> Engine::take_gaps() { return impl_->runner->take_gaps(); }
MeasuredCosts Engine::measured_costs() const { return impl_->scheduler.cost().measured_costs(); }

void Engine::restore_costs(const MeasuredCosts& costs) { impl_->scheduler.restore_costs(costs); }

double Engine::step_us(int32_t rows) const { return impl_->scheduler.cost().rows_us(rows); }
double Engine::draft_us() const {
  const DraftLayer* layer = impl_->draft_layer;
  return layer == nullptr ? 0 : layer->propose_us(1, 1).value_or(0);
}
void Engine::replay_drafts(const ReplayScript& script) {
  if (impl_->draft_layer != nullptr) impl_->draft_layer->replay(&script);
}
void Engine::drop_draft_model() {
  impl_->draft_pools = nullptr;
  impl_->speculator.drop_draft_model();
}
void Engine::check_integrity() const {
  impl_->scheduler.check_integrity();
  impl_->speculator.check_integrity();
}

}  // namespace hearth::engine
