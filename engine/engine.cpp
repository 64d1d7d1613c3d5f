#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <thread>
#include <tuple>
#include <utility>

#include "engine/disk_tier.h"
#include "engine/grammar/constraint.h"
#include "engine/kv_cache.h"
#include "engine/memory_plan.h"
#include "engine/model_runner.h"
#include "engine/recent_rate.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "engine/speculation/speculator.h"
#include "engine/step_record.h"
#include "kernels/base/check.h"
#include "kernels/base/log.h"

namespace hearth::engine {
namespace {

constexpr int64_t kProgressEveryUs = 100'000;
/// Beyond the queue: cancels and the like, which come in bursts.
constexpr size_t kInboxSlack = 1024;
constexpr size_t kOutboxMessages = 1 << 16;
// The warm-up's prompt is long enough for one pass over the weights to show its cost, and four
// outputs are three plain decode steps: the first one pays for pages that were never touched.
constexpr RequestId kWarmUpId = ~RequestId{0};
constexpr int32_t kWarmUpPrompt = 32;
constexpr int32_t kWarmUpOutputs = 4;
constexpr int32_t kFewOutputs =
    2;  ///< where the first token waits for it: one from each kind of step
constexpr int32_t kIdlePrompt = 4;  ///< of an idle moment: somebody may come meanwhile
/// Without a command for so long, it is an idle moment. Who loads a model asks it at once.
constexpr std::chrono::milliseconds kIdle{250};
/// Guesses per step of the rehearsal's second part, two steps each: what 2, 4 and 8 rows cost.
constexpr int32_t kWarmUpWidths[] = {1, 3, 7};
constexpr int32_t kWarmUpDrafts = 4;
constexpr int32_t kWarmUpMoreOutputs = 40;
/// Pool memory that is there before the first restore: a prompt of some thousand tokens restored
/// into fresh pages would wait longer for the pages than for the disk.
constexpr uint64_t kTouchedBytes = 64 << 20;
constexpr uint64_t kTouchedAtOnce = 1 << 20;  ///< who comes meanwhile waits for it
/// Bytes copied out for the store in one step: a millisecond or two.
constexpr uint64_t kOfferBytesPerStep = 8 << 20;
/// Before the thread sleeps while something is being restored: a few hundred microseconds, which no
/// other thread that has work is kept waiting for.
constexpr int kLooks = 500;
/// And at the end, of what was offered last.
constexpr uint64_t kOfferBytesAtEnd = 64 << 20;

std::vector<KvGroup> kv_groups(const MemoryPlan& plan, const models::ModelInfo& info) {
  std::vector<KvGroup> groups;
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const bool sliding = info.groups[i].kind == models::LayerGroup::Kind::kSliding;
    groups.push_back({plan.groups[i].num_blocks, sliding ? info.groups[i].window : 0});
  }
  return groups;
}

/// All that changes the KV of given tokens, the salt apart.
std::string prefix_scope(const EngineConfig& config, const MemoryPlan& plan,
                         const models::ModelInfo& info, const kernels::OpTable& ops) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n", info.fingerprint, plan.context_length,
                     kernels::info(config.kv_type).name, ops.numerics_id, plan.block_size);
}

KvLayout layout_of(std::string identity, const MemoryPlan& plan, const models::ModelInfo& info) {
  KvLayout layout;
  layout.model = info.name;
  layout.identity = std::move(identity);
  layout.block_size = plan.block_size;
  for (const GroupPlan& group : plan.groups) layout.block_bytes.push_back(group.block_bytes);
  return layout;
}

}  // namespace

struct Engine::Impl {
  Impl(const EngineConfig& engine_config, std::string scope,
       std::unique_ptr<ModelRunner> model_runner, const Clock& engine_clock,
       std::unique_ptr<Proposer> proposer, Mailbox<StoreCommand>* store)
      : config(engine_config),
        clock(engine_clock),
        scope_prefix(std::move(scope)),
        runner(std::move(model_runner)),
        kv(runner->memory_plan().block_size, kv_groups(runner->memory_plan(), runner->info())),
        scheduler(config.scheduler,
                  {runner->memory_plan().context_length, runner->memory_plan().max_step_tokens,
                   runner->memory_plan().max_outputs},
                  kv),
        sampler(runner->info().vocab_size),
        speculator(config.speculation, std::move(proposer)),
        recorder(engine_clock),
        inbox(static_cast<size_t>(config.scheduler.max_queue) + kInboxSlack),
        outbox(kOutboxMessages, true) {
    if (store == nullptr || !config.prefix_cache) return;
    disk = std::make_unique<DiskTier>(
        layout_of(scope_prefix, runner->memory_plan(), runner->info()), kv, *runner, *store,
        config.always_restore,
        config.scheduler.chunked_prefill ? config.restore_overlap : RestoreOverlap::kNever);
    // What it has computed is kept as a finished one's is: it may be evicted before it goes on.
    scheduler.on_preempt([this](const Sequence& seq) { disk->offer(seq); });
    scheduler.on_admit([this](Sequence& seq) { disk->admitted(seq, scheduler.cost()); });
  }

  bool step();
  void take_commands();
  bool advance();
  void run();
  void warm_up(bool widths);
  bool measure_widths();
  bool touch_memory();
  struct Rehearsal {
    int32_t prompt = 0;
    int32_t outputs = 0;
    bool widths = false;    ///< steps of several rows too
    bool yielding = false;  ///< ends where a command waits
  };
  bool rehearse(const Rehearsal& part);

  // Commands.
  void handle(Request& request);
  void handle(CancelRequest& cancel);
  void handle(FinishSample& finish);
  void handle(Drain&) { draining = true; }
  void handle(Stop&) { stopping = true; }
  void handle(SetThreads& threads) { runner->set_num_threads(threads.num_threads); }
  void handle(WantSnapshot&) { snapshot_wanted = true; }
  void handle(StoreReply& reply) {
    if (disk != nullptr) disk->handle(reply, scheduler.cost(), now_us);
  }

  // One step.
  void fetch_preempted();
  void compute(const StepPlan& plan);
  void price_guesses(const StepPlan& plan, int64_t step_us);
  void say_started(const StepPlan& plan);
  MissReason miss_of(const LiveRequest& live) const;
  void take_outputs(const StepPlan& plan);
  void take_final_rows(const PlannedRows& rows, int32_t first_row);
  bool take_prompt_logprobs(const PlannedRows& rows, int32_t first_row);
  bool draw(Sequence& seq, std::span<float> logits, std::optional<int32_t> guess = {},
            int32_t place = 0);
  void verify(const PlannedRows& rows, int32_t first_row);
  Result<void> constrain(Sequence& seq, int32_t index, SampleArgs& args);
  void end_sample(Sequence& seq, FinishReason reason);
  void end_request(LiveRequest& live, FinishReason reason);
  void say_done(LiveRequest& live);
  void fail(LiveRequest& live, Error error);
  void remove_ended();
  void say_progress();
  void tell_watchers();
  EngineSnapshot snapshot() const;

  const EngineConfig config;
  const Clock& clock;
  const std::string scope_prefix;
  std::unique_ptr<ModelRunner> runner;
  KvCache kv;
  Scheduler scheduler;
  Sampler sampler;
  Speculator speculator;
  std::unique_ptr<DiskTier> disk;  ///< null without a store
  StepRecorder recorder;
  Mailbox<EngineCommand> inbox;
  Mailbox<std::vector<EngineEvent>> outbox;

  std::vector<EngineCommand> commands;  ///< drained, not yet handled
  std::vector<EngineEvent> events;      ///< of this step
  std::vector<LiveRequest*> ended;      ///< to be forgotten when the step is over
  std::vector<Sequence*> decoding;      ///< scratch
  struct {
    bool in_step = false;
    double plain_us = 0;   ///< what this step would have taken without
    double spent_us = 0;   ///< on it and on guessing
    double unpaid_us = 0;  ///< guessing that no step was charged for yet
  } guesses;
  int64_t now_us = 0;  ///< this step's idea of time
  bool draining = false;
  bool stopping = false;
  bool snapshot_wanted = false;
  bool rehearsing = false;     ///< these steps are nobody's
  int32_t touched_blocks = 0;  ///< of each group
  bool memory_touched = true;
  bool widths_wanted = false;  ///< what steps of several rows cost shall be measured when idle
  EngineSnapshot totals;       ///< the counters that only grow
  RecentRate prefill_rate, decode_rate, step_rate;
  WatchPort watch_port;
};

// ---- The step loop --------------------------------------------------------------------------

bool Engine::Impl::step() {
  take_commands();
  bool copied = false;
  if (disk != nullptr) {
    copied = disk->pump(scheduler.cost(), now_us, kOfferBytesPerStep);
    const uint64_t joined = disk->take_joined_tokens();
    totals.prompt_tokens_restored += joined;
    totals.prompt_tokens_cached += joined;
  }
  const bool computed = !stopping && advance();
  if (std::exchange(snapshot_wanted, false)) {
    tell_watchers();
    events.emplace_back(SnapshotEvent{snapshot()});
  }
  if (!events.empty()) outbox.post(std::exchange(events, {}));
  return computed || copied;
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

// Guesses, plans, computes. False: there was nothing to compute.
bool Engine::Impl::advance() {
  fetch_preempted();
  if (speculator.enabled()) {
    scheduler.decoding(decoding);
    const int64_t begin_us = clock.now_us();
    speculator.propose(decoding, scheduler.cost(), scheduler.prefill_wanted());
    now_us = clock.now_us();  // a draft model's time is not the step's
    guesses.unpaid_us += static_cast<double>(now_us - begin_us);
  }
  const StepPlan& plan = scheduler.plan();
  const bool computed = !plan.empty();
  if (computed) compute(plan);
  remove_ended();
  say_progress();
  return computed;
}

void Engine::Impl::tell_watchers() {
  recorder.watch(watch_port.wanted.load(std::memory_order_relaxed));
  if (disk != nullptr) disk->note_moves(recorder.moved());
  if (!recorder.on()) return;
  auto watch = disk == nullptr ? recorder.take(scheduler, kv, 0, {})
                               : recorder.take(scheduler, kv, disk->chunk_blocks(), disk->pinned());
  if (disk != nullptr && watch->has_prefixes) disk->ask_pinned();
  if (!watch_port.out.try_post(watch)) recorder.lost(*watch);
}

// Once per preemption. Of several samples, each has but a little of its own behind the prompt.
void Engine::Impl::fetch_preempted() {
  if (disk == nullptr || scheduler.num_preempted() == 0) return;
  LiveRequest* live = scheduler.preempted_with_room();
  if (live == nullptr || live->request.n > 1) return;
  if (std::exchange(live->asked_preemptions, live->preemptions) == live->preemptions) return;
  disk->ask(*live, scheduler.cost(), now_us);
}

void Engine::Impl::run() {
  while (true) {
    const bool worked = step();
    if (stopping || (draining && scheduler.live().empty())) break;
    if (worked) continue;
    const bool idle = scheduler.live().empty();
    if (idle && !memory_touched) {
      memory_touched = !touch_memory();
      continue;
    }
    if (idle && widths_wanted) {
      commands = inbox.wait_and_drain(kIdle);
      if (commands.empty()) measure_widths();
      continue;
    }
    // Nothing to do means that nothing is live, or that it waits for the store: only a command can
    // change that, or the end of its patience.
    std::chrono::microseconds wait = std::chrono::hours(1);
    if (const auto deadline = disk == nullptr ? std::nullopt : disk->next_deadline_us()) {
      wait = std::chrono::microseconds(std::max<int64_t>(0, *deadline - clock.now_us()));
    }
    // Of a restore the next piece is there in a moment; to be woken for it would take as long.
    for (int look = 0; disk != nullptr && disk->loading() && look < kLooks; ++look) {
      if (inbox.size() > 0) break;
      std::this_thread::yield();
    }
    commands = inbox.wait_and_drain(wait);
  }
  if (disk != nullptr) disk->flush(scheduler.cost(), kOfferBytesAtEnd);
  outbox.post({StoppedEvent{}});
}

void Engine::Impl::warm_up(bool widths) {
  HEARTH_CHECK(scheduler.live().empty());
  memory_touched = disk == nullptr;
  while (widths && !memory_touched) memory_touched = !touch_memory();
  // A draft is judged by what it and steps of several rows cost, before anybody is served.
  const bool all = widths || speculator.has_paid_proposer();
  rehearse({.prompt = kWarmUpPrompt,
            .outputs = all ? kWarmUpOutputs : kFewOutputs,
            .widths = all,
            .yielding = false});
  widths_wanted = !all && speculator.enabled();
}

// A part of it; false: there was none left. A device's memory needs it as little as it is hurt by
// it.
bool Engine::Impl::touch_memory() {
  if (disk->warm_up()) return true;
  const std::vector<GroupPlan>& groups = runner->memory_plan().groups;
  const auto of_all_groups = std::accumulate(
      groups.begin(), groups.end(), uint64_t{1}, [](uint64_t sum, const GroupPlan& group) {
        return sum + static_cast<uint64_t>(group.block_bytes);
      });
  const auto wanted = static_cast<int32_t>(kTouchedBytes / of_all_groups);
  const auto end = std::min<int64_t>(
      wanted, touched_blocks + static_cast<int64_t>(kTouchedAtOnce / of_all_groups) + 1);
  for (; touched_blocks < end; ++touched_blocks) {
    for (int32_t group = 0; group < kv.num_groups(); ++group) {
      const BlockPool& pool = kv.pool(group);
      if (touched_blocks >= pool.num_blocks()) continue;
      const bool free = pool.ref_count(touched_blocks) == 0 && !pool.indexed(touched_blocks);
      if (free) runner->touch_block(group, touched_blocks);
    }
  }
  return touched_blocks < wanted;
}

bool Engine::Impl::measure_widths() {
  if (!widths_wanted) return true;
  // What others keep in the blocks that it would take is worth more than its prices.
  bool room = true;
  for (int32_t g = 0; g < kv.num_groups(); ++g) {
    room = room && kv.pool(g).num_free() * kv.block_size() > kIdlePrompt + kWarmUpMoreOutputs;
  }
  widths_wanted =
      room &&
      !rehearse({.prompt = kIdlePrompt, .outputs = kFewOutputs, .widths = true, .yielding = true});
  return !widths_wanted;
}

// Steps of a request of its own, of which only prices stay. False: ended by a command that waits.
bool Engine::Impl::rehearse(const Rehearsal& part) {
  const auto kept =
      std::tuple(totals, guesses, prefill_rate, decode_rate, step_rate, speculator.counts());
  const int32_t context = runner->memory_plan().context_length;
  Request request;
  request.id = kWarmUpId;
  request.max_tokens = part.outputs;
  request.prompt.assign(static_cast<size_t>(std::clamp(context - part.outputs, 1, part.prompt)), 0);
  request.use_prefix_cache = false;
  request.sampling.temperature = 0;
  if (!runner->info().generates) {
    request.pooling = models::Pooling::kMean;
    request.max_tokens = 0;
  }
  const auto prompt_tokens = static_cast<int32_t>(request.prompt.size());
  const bool widths = part.widths && speculator.enabled() &&
                      prompt_tokens + part.outputs + kWarmUpMoreOutputs <= context;
  if (widths) request.max_tokens += kWarmUpMoreOutputs;
  // A context or pool too small for it: requests will teach the scheduler.
  if (!scheduler.add(std::move(request), "").ok()) return true;
  rehearsing = true;
  bool whole = true;
  const auto next = [&] {
    whole = whole && !(part.yielding && inbox.size() > 0);
    return whole && advance();
  };
  if (widths) {
    for (int32_t outputs = 0; outputs < part.outputs; ++outputs) next();
    for (const int32_t width : kWarmUpWidths) {
      speculator.force(width);
      next();
      next();
    }
    // The draft's first call computes the prompt, and touches memory that the next find mapped.
    for (int32_t call = 0; speculator.has_paid_proposer() && call < kWarmUpDrafts; ++call) {
      scheduler.decoding(decoding);
      speculator.warm_up(decoding);
      speculator.force(kWarmUpWidths[0]);
      next();
    }
    speculator.force(0);
  } else {
    while (next()) {
    }
  }
  if (LiveRequest* live = scheduler.find(kWarmUpId)) end_request(*live, FinishReason::kCancelled);
  remove_ended();
  rehearsing = false;
  events.clear();
  SpeculationCounts counts;
  std::tie(totals, guesses, prefill_rate, decode_rate, step_rate, counts) = kept;
  speculator.restore_counts(counts);
  return whole;
}

void Engine::Impl::compute(const StepPlan& plan) {
  const int64_t begin_us = now_us;
  say_started(plan);
  runner->run(plan);
  now_us = clock.now_us();
  scheduler.stored(plan);
  const uint64_t accepted_before = speculator.counts().accepted_tokens;
  price_guesses(plan, now_us - begin_us);
  take_outputs(plan);
  const int64_t end_us = clock.now_us();
  scheduler.finish_step(plan, end_us - begin_us);

  const int32_t prefill_tokens = plan.num_tokens - plan.num_decode_rows - plan.num_drafted;
  ++totals.num_steps;
  totals.prefill_tokens_total += static_cast<uint64_t>(prefill_tokens);
  const uint64_t decoded = static_cast<uint64_t>(plan.num_decode_rows) +
                           (speculator.counts().accepted_tokens - accepted_before);
  totals.decode_tokens_total += decoded;
  if (guesses.in_step) {
    const double per_sequence = static_cast<double>(decoded) / plan.num_decode_rows;
    speculator.add_saved_us(per_sequence * guesses.plain_us - guesses.spent_us);
  }
  prefill_rate.add(prefill_tokens, end_us - begin_us);
  decode_rate.add(static_cast<double>(decoded), end_us - begin_us);
  step_rate.add(1, end_us - begin_us);
  if (recorder.on() && !rehearsing) {
    recorder.add(plan, scheduler, totals.num_steps, end_us, end_us - begin_us,
                 speculator.counts().accepted_tokens - accepted_before);
  }
}

// What the guesses of this step cost, and a plain one in its place. Guessing that led to none is
// charged to the next step that has some.
void Engine::Impl::price_guesses(const StepPlan& plan, int64_t step_us) {
  guesses.in_step = plan.num_drafted > 0;
  if (!guesses.in_step) return;
  const StepCost& cost = scheduler.cost();
  const int32_t rows = plan.num_decode_rows + plan.num_drafted;
  guesses.plain_us = cost.rows_us(plan.num_decode_rows);
  // Beside prefill, what the rows cost alone is known from other steps.
  guesses.spent_us = std::exchange(guesses.unpaid_us, 0) +
                     (plan.num_tokens > rows ? cost.rows_us(rows) : static_cast<double>(step_us));
}

// ---- Commands -------------------------------------------------------------------------------

void Engine::Impl::handle(Request& request) {
  const RequestId id = request.id;
  const auto refuse = [&](Error error) {
    events.emplace_back(RequestFailedEvent{id, std::move(error)});
  };
  if (draining || stopping) {
    return refuse({ErrorCode::kUnavailable, "the engine is stopping and takes no requests", ""});
  }
  if (Result<void> fine = check_request(request, runner->info().vocab_size); !fine.ok()) {
    return refuse(fine.take_error());
  }
  if (request.received_us == 0) request.received_us = now_us;
  if (!config.prefix_cache) request.use_prefix_cache = false;
  if (!runner->info().generates && request.pooling == models::Pooling::kNone) {
    return refuse({ErrorCode::kUnsupported, "the model makes vectors of texts and no text", ""});
  }
  std::string scope =
      scope_prefix + (request.cache_salt.empty() ? request.owner : request.cache_salt);
  Result<LiveRequest*> added = scheduler.add(std::move(request), std::move(scope));
  if (!added.ok()) return refuse(added.take_error());

  LiveRequest& live = **added;
  live.next_progress_us = now_us;
  if (disk != nullptr) disk->ask(live, scheduler.cost(), now_us);
  const std::vector<std::vector<int32_t>>& resume = live.request.resume;
  if (live.forked && !resume.empty() &&
      resume.front().size() == static_cast<size_t>(live.request.max_tokens)) {
    end_sample(*live.samples.front(), FinishReason::kLength);
  }
}

void Engine::Impl::handle(CancelRequest& cancel) {
  LiveRequest* live = scheduler.find(cancel.id);
  if (live != nullptr && !live->ended) end_request(*live, FinishReason::kCancelled);
}

void Engine::Impl::handle(FinishSample& finish) {
  LiveRequest* live = scheduler.find(finish.id);
  if (live == nullptr || live->ended) return;
  for (const auto& seq : live->samples) {
    if (seq->sample != finish.sample || !live->forked) continue;
    if (seq->state != Sequence::State::kFinished) end_sample(*seq, FinishReason::kStop);
  }
}

// ---- Outputs --------------------------------------------------------------------------------

void Engine::Impl::say_started(const StepPlan& plan) {
  for (const PlannedRows& rows : plan.rows) {
    if (!rows.starts_request) continue;
    LiveRequest& live = *rows.seq->request;
    live.started_us = now_us;
    live.cached_tokens = std::min(live.cached_tokens, live.prompt_size());
    live.disk_tokens += std::clamp(live.cached_tokens - live.restored_from, 0,
                                   std::max(0, live.restored_until - live.restored_from));
    live.saved_us = std::max<int64_t>(
        0, static_cast<int64_t>(scheduler.cost().prefill_us({0, live.cached_tokens})) -
               live.restore_us);
    live.miss = miss_of(live);
    live.missed_from = live.cached_tokens;
    totals.prompt_tokens_restored += static_cast<uint64_t>(live.disk_tokens);
    totals.prompt_tokens_total += static_cast<uint64_t>(live.prompt_size());
    totals.prompt_tokens_cached += static_cast<uint64_t>(live.cached_tokens);
    events.emplace_back(
        StartedEvent{live.request.id, live.cached_tokens, now_us - live.request.received_us});
  }
}

MissReason Engine::Impl::miss_of(const LiveRequest& live) const {
  if (!live.request.use_prefix_cache) return MissReason::kOff;
  const int32_t block_size = kv.block_size();
  const int32_t cached = live.cached_tokens / block_size;
  if (cached >= (live.prompt_size() - 1) / block_size) return MissReason::kNone;
  if (live.loads_beside) return MissReason::kBeside;
  if (live.store_slow) return MissReason::kSlow;
  if (cached == 0) return MissReason::kNew;
  const int32_t others = kv.continuations(live.scope, live.request.prompt, cached);
  return others > 0 ? MissReason::kOther : MissReason::kEnded;
}

void Engine::Impl::take_outputs(const StepPlan& plan) {
  if (std::ranges::any_of(plan.rows,
                          [](const auto& rows) { return rows.seq->request->embeds(); })) {
    runner->fetch_final_rows();
  }
  int32_t next_row = 0;
  int32_t next_token = 0;
  for (const PlannedRows& rows : plan.rows) {
    const int32_t end = rows.first + rows.count;
    const int32_t first_token = std::exchange(next_token, next_token + rows.count);
    const int32_t first_row = next_row;
    next_row += end - rows.first_output;
    Sequence& seq = *rows.seq;
    LiveRequest& live = *seq.request;
    // Another sample's row may have failed the whole request a moment ago.
    if (live.ended || seq.state == Sequence::State::kFinished) continue;
    if (live.embeds()) {
      take_final_rows(rows, first_token);
      continue;
    }
    if (!take_prompt_logprobs(rows, first_row)) continue;
    if (end < static_cast<int32_t>(seq.tokens.size())) continue;
    if (live.forked) {
      verify(rows, next_row - 1 - rows.num_drafted);
      continue;
    }
    const std::span<float> logits = runner->logits(next_row - 1);
    // The prompt of several samples: each draws its first token from the same logits, unless it
    // goes on behind tokens that it had before.
    scheduler.fork(live);
    for (size_t sample = 0; sample < live.samples.size() && !live.ended; ++sample) {
      Sequence& each = *live.samples[sample];
      const auto drawn = static_cast<int32_t>(each.tokens.size()) - live.prompt_size();
      if (drawn == 0) {
        draw(each, logits);
      } else if (drawn == live.request.max_tokens) {
        end_sample(each, FinishReason::kLength);
      }
    }
  }
}

void Engine::Impl::take_final_rows(const PlannedRows& rows, int32_t first_row) {
  LiveRequest& live = *rows.seq->request;
  const Request& request = live.request;
  const int32_t size = live.prompt_size();
  for (int32_t i = 0; i < rows.count; ++i) {
    live.pooled.add(request.pooling, rows.first + i, size, runner->final_row(first_row + i));
  }
  if (rows.first + rows.count < size) return;
  Result<std::vector<float>> values = live.pooled.take(request.pooling, size, request.normalize);
  if (!values.ok()) return fail(live, values.take_error());
  live.first_token_us = now_us;
  events.emplace_back(EmbeddingEvent{request.id, std::move(values).value()});
  end_sample(*rows.seq, FinishReason::kStop);
}

// Draws the token behind the sequence's last one, and goes on behind each guess that is the token
// drawn. Without guesses: one draw.
void Engine::Impl::verify(const PlannedRows& rows, int32_t first_row) {
  Sequence& seq = *rows.seq;
  const size_t first = seq.tokens.size();
  int32_t accepted = 0;
  // Counted before the last token that ends the request is drawn; draw() adds what was accepted.
  SpeculationCounts& counts = seq.request->speculation;
  if (rows.num_drafted > 0) counts.add(rows.num_drafted, 0);
  if (guesses.in_step) counts.saved_us -= guesses.spent_us;
  const auto drawn = [&] {
    if (guesses.in_step) counts.saved_us += guesses.plain_us;
  };
  while (accepted < rows.num_drafted) {
    const int32_t guess = seq.drafted[static_cast<size_t>(accepted)];
    drawn();
    if (!draw(seq, runner->logits(first_row + accepted), guess, accepted)) break;
    ++accepted;
    if (seq.state != Sequence::State::kRunning) break;
    scheduler.accept(seq);
  }
  const bool all_right = accepted == rows.num_drafted && seq.state == Sequence::State::kRunning;
  if (all_right) {
    drawn();
    draw(seq, runner->logits(first_row + accepted));
  }
  if (rows.num_drafted > 0) scheduler.end_verification(seq);
  speculator.learn(seq, first, rows.num_drafted, accepted);
}

bool Engine::Impl::take_prompt_logprobs(const PlannedRows& rows, int32_t first_row) {
  LiveRequest& live = *rows.seq->request;
  if (!live.request.sampling.prompt_logprobs || rows.seq->sample != 0) return true;
  std::vector<float>& known = live.prompt_logprobs;
  const int32_t end = std::min(rows.first + rows.count, live.prompt_size() - 1);
  for (int32_t position = rows.first_output; position < end; ++position) {
    if (position != static_cast<int32_t>(known.size())) continue;
    const int32_t row = first_row + position - rows.first_output;
    Result<float> logprob = sampler.logprob(runner->logits(row),
                                            live.request.prompt[static_cast<size_t>(position) + 1]);
    if (!logprob.ok()) {
      fail(live, logprob.take_error());
      return false;
    }
    known.push_back(*logprob);
    if (live.request.sampling.top_logprobs > 0) {
      live.prompt_top.push_back(
          sampler.best(runner->logits(row), live.request.sampling.top_logprobs));
    }
    if (position + 2 == live.prompt_size()) {
      events.emplace_back(PromptLogprobsEvent{live.request.id, known, live.prompt_top});
    }
  }
  return true;
}

// What the text so far allows. Guesses that were refused never got into the tokens, so there is
// nothing to take back: the state follows the tokens that stand.
Result<void> Engine::Impl::constrain(Sequence& seq, int32_t index, SampleArgs& args) {
  const Request& request = seq.request->request;
  Constraint& constraint = *request.constraint;
  // A fork's text begins inside its prompt.
  const size_t prompt = request.prompt.size() - static_cast<size_t>(request.constraint_prefix);
  const int32_t last = index + request.constraint_prefix;
  for (; seq.constraint_tokens < last && seq.constraint_state != Constraint::kDead;
       ++seq.constraint_tokens) {
    seq.constraint_state = constraint.advance(
        seq.constraint_state, seq.tokens[prompt + static_cast<size_t>(seq.constraint_tokens)]);
  }
  if (seq.constraint_state == Constraint::kDead) {
    return Error{ErrorCode::kInternal, "the text has left what its schema or grammar allows", ""};
  }
  const Constraint::Mask& mask = constraint.mask(seq.constraint_state);
  const bool may_end = constraint.accepts(seq.constraint_state);
  // min_tokens holds while there is something to go on with.
  const bool ends = may_end && (index >= request.min_tokens || mask.count == 0);
  if (mask.count == 0 && (!ends || request.stop_ids.empty())) {
    return Error{constraint.full() ? ErrorCode::kTooLarge : ErrorCode::kUnsupported,
                 constraint.full()
                     ? "json_schema or grammar: its texts have more states than are kept"
                     : "json_schema or grammar: no token of the model goes on from the text so far",
                 "json_schema"};
  }
  args.mask = mask.bits;
  args.banned = {};
  if (ends) {
    args.also = request.stop_ids;
  } else {
    args.banned = request.stop_ids;
  }
  return {};
}

// Whether the token drawn was the guess, and no stop. `place`: of the guess in its step.
bool Engine::Impl::draw(Sequence& seq, std::span<float> logits, std::optional<int32_t> guess,
                        int32_t place) {
  LiveRequest& live = *seq.request;
  const Request& request = live.request;
  const auto position = static_cast<int32_t>(seq.tokens.size());
  const int32_t index = position - live.prompt_size();
  SampleArgs args;
  args.params = &request.sampling;
  args.history = seq.tokens;
  if (index < request.min_tokens) args.banned = request.stop_ids;
  args.sample = seq.sample;
  args.position = position;
  if (request.constraint != nullptr) {
    if (Result<void> constrained = constrain(seq, index, args); !constrained.ok()) {
      fail(live, constrained.take_error());
      return false;
    }
  }
  Result<Sampled> sampled = sampler.sample(logits, args);
  if (!sampled.ok()) {
    fail(live, sampled.take_error());
    return false;
  }

  const int32_t token = sampled->token;
  if (args.banned.empty() && std::ranges::find(request.stop_ids, token) != request.stop_ids.end()) {
    end_sample(seq, FinishReason::kStop);
    return false;
  }
  scheduler.append(seq, token);
  ++live.output_tokens;
  if (token == guess) {
    ++live.speculation.accepted_tokens;
    ++live.speculation
          .accepted_at[std::min(static_cast<size_t>(place), SpeculationCounts::kPositions - 1)];
  }
  if (!live.first_token_us.has_value()) live.first_token_us = now_us;
  if (seq.sample == 0) {
    if (live.sample0_tokens++ == 0) live.first_token0_us = now_us;
    live.last_token0_us = now_us;
  }
  events.emplace_back(TokenEvent{request.id, seq.sample, index, token, sampled->logprob,
                                 std::move(sampled->top_logprobs)});
  if (index + 1 == request.max_tokens) end_sample(seq, FinishReason::kLength);
  return token == guess;
}

// ---- Ends -----------------------------------------------------------------------------------

void Engine::Impl::end_sample(Sequence& seq, FinishReason reason) {
  LiveRequest& live = *seq.request;
  if (disk != nullptr) disk->offer(seq);
  scheduler.finish(seq, reason);
  events.emplace_back(
      SampleDoneEvent{live.request.id, seq.sample, reason,
                      static_cast<int32_t>(seq.tokens.size()) - live.prompt_size()});
  if (live.finished()) say_done(live);
}

void Engine::Impl::end_request(LiveRequest& live, FinishReason reason) {
  const std::vector<std::vector<int32_t>>& resume = live.request.resume;
  for (size_t sample = 0; sample < static_cast<size_t>(live.request.n); ++sample) {
    // Samples that do not exist yet end too, each with its own event.
    size_t num_tokens = sample < resume.size() ? resume[sample].size() : 0;
    if (live.forked) {
      num_tokens = live.samples[sample]->tokens.size() - live.request.prompt.size();
    }
    if (sample < live.samples.size()) {
      Sequence& seq = *live.samples[sample];
      if (seq.state == Sequence::State::kFinished) continue;
      scheduler.finish(seq, reason);
    }
    events.emplace_back(SampleDoneEvent{live.request.id, static_cast<int32_t>(sample), reason,
                                        static_cast<int32_t>(num_tokens)});
  }
  say_done(live);
}

void Engine::Impl::say_done(LiveRequest& live) {
  live.ended = true;
  ended.push_back(&live);
  const int64_t received_us = live.request.received_us;
  RequestDoneEvent done;
  done.id = live.request.id;
  done.prompt_tokens = live.prompt_size();
  done.cached_tokens = live.cached_tokens;
  done.cached_disk_tokens = live.disk_tokens;
  done.miss = live.miss;
  // It was not as expected.
  if (live.miss == MissReason::kBeside && live.disk_tokens == 0) done.miss = MissReason::kEnded;
  done.missed_from = live.missed_from;
  done.restore_us = live.restore_us;
  done.saved_us = live.saved_us;
  done.output_tokens = live.output_tokens;
  done.preemptions = live.preemptions;
  done.speculation = live.speculation;
  done.queue_us = live.started_us.value_or(now_us) - received_us;
  if (live.first_token_us.has_value()) {
    done.prefill_us = *live.first_token_us - *live.started_us;
    done.ttft_us = *live.first_token_us - received_us;
  }
  if (live.sample0_tokens > 1) {
    done.tpot_us =
        static_cast<double>(live.last_token0_us - live.first_token0_us) / (live.sample0_tokens - 1);
  }
  events.emplace_back(done);
}

void Engine::Impl::fail(LiveRequest& live, Error error) {
  live.ended = true;
  ended.push_back(&live);
  for (const auto& seq : live.samples) {
    if (seq->state != Sequence::State::kFinished) scheduler.finish(*seq, FinishReason::kCancelled);
  }
  log_error("request_failed", "id={} code={} message=\"{}\"", live.request.id, name(error.code),
            error.message);
  events.emplace_back(RequestFailedEvent{live.request.id, std::move(error)});
}

void Engine::Impl::remove_ended() {
  for (LiveRequest* live : std::exchange(ended, {})) {
    speculator.forget(*live);
    if (disk != nullptr) disk->forget(*live);
    scheduler.remove(*live);
  }
}

// ---- Telling --------------------------------------------------------------------------------

void Engine::Impl::say_progress() {
  const auto due = [this](LiveRequest& live) {
    if (live.first_token_us.has_value() || now_us < live.next_progress_us) return false;
    live.next_progress_us = now_us + kProgressEveryUs;
    return true;
  };
  bool any_waits = false;
  for (const auto& live : scheduler.live()) {
    const Sequence& seq = *live->samples.front();
    if (seq.state == Sequence::State::kWaiting) {
      any_waits = any_waits || now_us >= live->next_progress_us;
    } else if (due(*live)) {
      events.emplace_back(ProgressEvent{live->request.id,
                                        std::min(seq.blocks.num_tokens, live->prompt_size()),
                                        live->prompt_size(), 0, ""});
    }
  }
  if (!any_waits) return;
  for (const WaitingInfo& info : scheduler.waiting()) {
    if (!due(*info.request)) continue;
    events.emplace_back(ProgressEvent{info.request->request.id, 0, info.request->prompt_size(),
                                      info.position, info.reason});
  }
}

EngineSnapshot Engine::Impl::snapshot() const {
  EngineSnapshot out = totals;
  out.time_us = now_us;
  out.num_running = scheduler.num_running();
  out.num_preempted = scheduler.num_preempted();
  out.num_waiting = scheduler.num_waiting() - out.num_preempted;
  for (int32_t group = 0; group < kv.num_groups(); ++group) {
    out.kv_blocks_total.push_back(kv.pool(group).num_blocks());
    out.kv_blocks_used.push_back(kv.pool(group).num_used());
    out.kv_blocks_cached.push_back(kv.pool(group).num_cached());
  }
  out.kv_bytes = runner->memory_plan().kv_bytes;
  out.preemptions_total = scheduler.preemptions_total();
  out.speculation = speculator.counts();
  out.prefill_tokens_per_s = prefill_rate.per_second();
  out.decode_tokens_per_s = decode_rate.per_second();
  const double steps_per_s = step_rate.per_second();
  out.step_ms_recent = steps_per_s > 0 ? 1000 / steps_per_s : 0;
  if (disk != nullptr) out.store = disk->stats();
  return out;
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
void Engine::warm_up(bool widths) { impl_->warm_up(widths); }
bool Engine::measure_widths() { return impl_->measure_widths(); }
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
double Engine::guess_gain(double chance) const {
  return impl_->speculator.expected_gain(chance, impl_->scheduler.cost());
}
double Engine::step_us(int32_t rows) const { return impl_->scheduler.cost().rows_us(rows); }
void Engine::drop_paid_proposer() { impl_->speculator.drop_paid_proposer(); }
void Engine::check_integrity() const {
  impl_->scheduler.check_integrity();
  impl_->speculator.check_integrity();
}

}  // namespace hearth::engine
