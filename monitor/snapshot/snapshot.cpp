#include "monitor/snapshot/snapshot.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "ipc/text/shown_text.h"
#include "ipc/wire/codec.h"
#include "kernels/base/numbers.h"

namespace hearth::monitor {
namespace {

constexpr size_t kMaxTtfts = 512;
constexpr size_t kMaxListed = 256;  // models, problems and similar lists in one reply

std::string shown(const std::string& text) { return ipc::one_line(text, kNameChars); }
void make_shown(std::string& text) { text = shown(text); }

void make_shown(ipc::GpuSnapshot& gpu) {
  make_shown(gpu.name);
  make_shown(gpu.driver);
  make_shown(gpu.throttled);
}

int32_t not_negative(int32_t value) { return std::max(0, value); }

double share(double part, double whole) {
  return whole > 0 ? std::clamp(part / whole, 0.0, 1.0) : 0;
}

}  // namespace

void RecentGaps::count_in(const Batch& batch, bool in) {
  for (const ipc::WatchedGaps& gap : batch.gaps) {
    buckets_[gap.bucket] += in ? gap.count : -uint64_t{gap.count};
    count_ += in ? gap.count : -uint64_t{gap.count};
  }
}

void RecentGaps::add(int64_t now_us, const std::vector<ipc::WatchedGaps>& gaps) {
  constexpr size_t kMaxBatches = 1024;
  if (buckets_.empty()) buckets_.resize(ipc::WatchLimits::kGapBuckets);
  if (!gaps.empty()) {
    batches_.push_back({now_us, gaps});
    count_in(batches_.back(), true);
  }
  while (!batches_.empty() &&
         (batches_.size() > kMaxBatches || now_us - batches_.front().time_us > kGapWindowUs)) {
    count_in(batches_.front(), false);
    batches_.pop_front();
  }
}

double RecentGaps::ms(double share) const {
  if (count_ == 0) return 0;
  const auto wanted = static_cast<uint64_t>(share * as_double(count_ - 1));
  uint64_t below = 0;
  for (uint32_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    below += buckets_[bucket];
    if (below > wanted) return ipc::gap_us(bucket) / 1000;
  }
  return 0;
}

void Snapshot::apply(const ipc::StreamMessage& message) {
  now_us_ = std::max(now_us_, message.time_us);
  last_us_ = now_us_;
  if (!connected_) {
    connected_ = true;
    ++revision_;
    add_line(0, "the daemon answers");
  }
  if (message.kind == "stats" || message.kind == "models") {
    const Result<ipc::Event> event = ipc::decode_event(message.payload);
    if (event.ok() && std::holds_alternative<ipc::StatsReply>(*event)) {
      return on_stats(std::get<ipc::StatsReply>(*event));
    }
    if (event.ok() && std::holds_alternative<ipc::ModelsReply>(*event)) {
      return on_models(std::get<ipc::ModelsReply>(*event));
    }
  } else if (message.kind == "watch" || message.kind == "requests") {
    const Result<ipc::WatchUpdate> update = ipc::decode_watch(message.payload);
    if (update.ok()) {
      return message.kind == "watch" ? on_watch(message.model, *update) : on_requests(*update);
    }
  }
  if (refused_++ % 1000 == 0) {
    add_line(1, fmt::format("a message of kind {} cannot be read", shown(message.kind)));
  }
}

void Snapshot::set_now(int64_t now_us) {
  now_us_ = std::max(now_us_, now_us);
  if (connected_ && now_us_ - last_us_ > kLostUs) {
    connected_ = false;
    ++revision_;
    add_line(2, "the daemon is gone; waiting for it");
    end_all();
    for (auto& [name, view] : views_) {
      for (Pool& pool : view.pools) pool.known = false;
    }
  }
}

const ipc::WatchedRequest* Snapshot::find(uint64_t number) const {
  const auto found = requests_.find(number);
  return found == requests_.end() ? nullptr : &found->second.row;
}

void Snapshot::add_line(int level, std::string text) {
  log_.push_back({now_us_, level, std::move(text)});
  if (log_.size() > kMaxLog) log_.pop_front();
  ++revision_;
}

void Snapshot::mark(std::string text) {
  marks_.push_back({now_us_, std::move(text)});
  if (marks_.size() > kMaxMarks) marks_.pop_front();
}

ModelView* Snapshot::view_of(const std::string& model) {
  const std::string name = shown(model);
  if (views_.size() < kMaxModels) views_.try_emplace(name).first->second.name = name;
  for (auto& [key, view] : views_) {
    if (key == name) return &view;
  }
  return nullptr;
}

void Snapshot::on_stats(const ipc::StatsReply& reply) {
  if (!stats_.instance.empty() && stats_.instance != reply.instance) {
    add_line(1, "another daemon answers: it was started anew");
    requests_.clear();
    ended_.clear();
    views_.clear();
  }
  const ipc::StatsReply before = std::exchange(stats_, reply);
  if (stats_.workers.size() > kMaxListed) stats_.workers.resize(kMaxListed);
  make_shown(stats_.instance);
  make_shown(stats_.version);
  for (ipc::WorkerStats& worker : stats_.workers) {
    make_shown(worker.model);
    make_shown(worker.device);
    make_shown(worker.state);
    make_shown(worker.snapshot.store.last_error);
    make_shown(worker.snapshot.store.state);
    if (worker.snapshot.gpu) make_shown(*worker.snapshot.gpu);
    ModelView* view = view_of(worker.model);
    if (view == nullptr) continue;
    if (view->stats_us != 0 && view->stats.restarts < worker.restarts) {
      add_line(2, fmt::format("the worker of {} died and was started again ({} times so far)",
                              worker.model, worker.restarts));
      mark(worker.model + " restarted");
    }
    if (view->stats.state != worker.state) {
      add_line(0, fmt::format("{}: worker {}", worker.model, worker.state));
    }
    const ipc::WorkerSnapshot old = view->stats.snapshot;
    view->stats = worker;
    view->stats_us = now_us_;
    const ipc::WorkerSnapshot& s = worker.snapshot;
    view->prefill_rate.add(now_us_, s.prefill_tokens_per_s);
    view->decode_rate.add(now_us_, s.decode_tokens_per_s);
    view->running.add(now_us_, s.num_running);
    view->waiting.add(now_us_, s.num_waiting);
    view->preempted.add(now_us_, s.num_preempted);
    view->step_ms.add(now_us_, s.step_ms_recent);
    if (s.gpu && s.gpu->power_mw >= 0) {
      view->gpu_power.add(now_us_, as_double(s.gpu->power_mw) / 1e3);
    }
    view->hit_rate.add(now_us_,
                       share(as_double(s.prompt_tokens_cached), as_double(s.prompt_tokens_total)));
    const auto& g = s.speculation;
    if (g.drafted_tokens > old.speculation.drafted_tokens) {
      const double drafted = as_double(g.drafted_tokens - old.speculation.drafted_tokens);
      const double accepted =
          as_double(g.accepted_tokens) - as_double(old.speculation.accepted_tokens);
      const double verified = as_double(g.verifications) - as_double(old.speculation.verifications);
      view->acceptance.add(now_us_, share(accepted, drafted));
      if (verified > 0) view->width.add(now_us_, drafted / verified);
    }
    if (s.preemptions_total > old.preemptions_total && view->stats_us != 0 && old.num_steps != 0) {
      add_line(1, fmt::format("{}: {} preempted for want of blocks or slots", worker.model,
                              s.preemptions_total - old.preemptions_total));
    }
    if (!(old == s)) ++revision_;
  }
  if (before.requests_live != stats_.requests_live ||
      before.requests_done != stats_.requests_done) {
    ++revision_;
  }
}

void Snapshot::on_models(const ipc::ModelsReply& reply) {
  const ipc::ModelsReply before = std::exchange(models_, reply);
  models_us_ = now_us_;
  if (models_.models.size() > kMaxListed) models_.models.resize(kMaxListed);
  if (models_.folders.size() > kMaxListed) models_.folders.resize(kMaxListed);
  for (std::string& folder : models_.folders) make_shown(folder);
  for (ipc::ModelEntry& entry : models_.models) {
    make_shown(entry.name);
    make_shown(entry.state);
    make_shown(entry.architecture);
    make_shown(entry.file_type);
    make_shown(entry.device);
    if (entry.gpu) make_shown(*entry.gpu);
    entry.problem = ipc::one_line(entry.problem, 200);
    if (entry.roles.size() > 16) entry.roles.resize(16);
    for (std::string& role : entry.roles) make_shown(role);
    const auto old = std::ranges::find(before.models, entry.name, &ipc::ModelEntry::name);
    if (old != before.models.end() && old->state != entry.state) {
      add_line(entry.state == "failed" ? 2 : 0,
               fmt::format("{}: {} -> {}{}{}", entry.name, old->state, entry.state,
                           entry.problem.empty() ? "" : ": ", entry.problem));
      if (entry.state == "resident") mark(entry.name + " loaded");
      if (old->state == "resident" && entry.state != "draining") mark(entry.name + " left");
      if (entry.state == "draining") mark(entry.name + " drains");
    }
  }
  compare_roles(before);
  if (!(before == models_)) ++revision_;
}

/// Logs the effect of a swap.
void Snapshot::compare_roles(const ipc::ModelsReply& before) {
  std::map<std::string_view, std::string_view> holders;
  for (const ipc::ModelEntry& entry : before.models) {
    for (const std::string& role : entry.roles) holders.emplace(role, entry.name);
  }
  for (const ipc::ModelEntry& entry : models_.models) {
    for (const std::string& role : entry.roles) {
      const auto was = holders.find(role);
      if (was == holders.end() || was->second == entry.name) continue;
      add_line(0, fmt::format("{}: {} -> {}", role, was->second, entry.name));
      mark(fmt::format("{} is {} now", role, entry.name));
    }
  }
}

void Snapshot::on_watch(const std::string& model, const ipc::WatchUpdate& update) {
  ModelView* view = view_of(model);
  if (view == nullptr) return;
  if (view->last_sequence != 0 && update.sequence != view->last_sequence + 1) {
    if (update.sequence > view->last_sequence) {
      view->messages_lost += update.sequence - view->last_sequence - 1;
    }
    for (Pool& pool : view->pools) pool.known = false;  // until the next complete map
  }
  view->last_sequence = update.sequence;
  view->steps_lost += update.steps_dropped;
  view->block_size = not_negative(update.block_size);
  for (const ipc::WatchedStep& step : update.steps) add_step(*view, step);
  if (!update.steps.empty()) ++revision_;
  add_gaps(*view, update);
  for (const ipc::PoolUpdate& pool : update.pools) add_pool(*view, pool);
  if (update.has_prefixes) {
    if (view->prefixes != update.prefixes) ++revision_;
    view->prefixes = update.prefixes;
    view->prefixes_us = now_us_;
  }
  view->resident_bytes = update.resident_bytes;
  if (update.resident_bytes > 0) {
    view->memory.add(now_us_, as_double(update.resident_bytes) / (1 << 30));
  }
  view->power_mw = std::max<int64_t>(0, update.power_mw);
  if (view->power_mw > 0) view->power.add(now_us_, as_double(view->power_mw) / 1e3);
}

void Snapshot::add_gaps(ModelView& view, const ipc::WatchUpdate& update) {
  const uint64_t before = view.gaps.count();
  view.gaps.add(now_us_, update.gaps);
  if (view.gaps.count() != before) ++revision_;
  if (update.gaps.empty()) return;
  RecentGaps now;
  now.add(now_us_, update.gaps);
  view.gap_ms_p50.add(now_us_, now.ms(0.5));
  view.gap_ms_p99.add(now_us_, now.ms(0.99));
}

void Snapshot::add_step(ModelView& view, const ipc::WatchedStep& met) {
  ipc::WatchedStep step = met;
  step.duration_us = std::clamp<int64_t>(step.duration_us, 0, kHistoryUs);
  step.end_us = std::clamp<int64_t>(step.end_us, 0, now_us_);
  step.decode_rows = not_negative(step.decode_rows);
  step.draft_rows = not_negative(step.draft_rows);
  step.accepted = not_negative(step.accepted);
  step.prefills_unlisted = not_negative(step.prefills_unlisted);
  step.running = not_negative(step.running);
  step.waiting = not_negative(step.waiting);
  step.preempted = not_negative(step.preempted);
  if (!view.steps.empty() && step.end_us < view.steps.back().end_us) return;  // out of order
  int64_t prefill = step.prefills_unlisted;
  for (ipc::WatchedChunk& chunk : step.prefills) {
    chunk.tokens = not_negative(chunk.tokens);
    prefill += chunk.tokens;
  }
  if (step.prefills.size() > kMaxChunks) step.prefills.resize(kMaxChunks);
  const int64_t begin = step.end_us / kColumnUs * kColumnUs;
  if (view.columns.empty() || view.columns.back().begin_us != begin) {
    view.columns.push_back({.begin_us = begin});
    while (view.columns.front().begin_us + kHistoryUs < begin) view.columns.pop_front();
  }
  StepColumn& column = view.columns.back();
  ++column.steps;
  column.busy_us += step.duration_us;
  column.longest_us = std::max(column.longest_us, step.duration_us);
  column.decode_rows += step.decode_rows;
  column.draft_rows += step.draft_rows;
  column.prefill_tokens += prefill;
  view.steps.push_back(std::move(step));
  while (view.steps.size() > kMaxSteps || view.steps.front().end_us + kHistoryUs < begin) {
    view.steps.pop_front();
  }
}

void Snapshot::add_pool(ModelView& view, const ipc::PoolUpdate& update) {
  const size_t group = update.group;
  if (view.pools.size() <= group) view.pools.resize(group + 1);
  Pool& pool = view.pools[group];
  size_t cells = update.num_blocks;
  for (const auto& [name, other] : views_) {
    for (const Pool& each : other.pools) cells += &each == &pool ? 0 : each.cells.size();
  }
  if (cells > kMaxCells) return;
  if (std::cmp_not_equal(pool.cells.size(), update.num_blocks)) {
    pool.cells.assign(update.num_blocks, {});
    pool.cells.shrink_to_fit();
    pool.counts = {};
    pool.counts[0] = update.num_blocks;
    pool.known = false;
    ++pool.revision;
  }
  pool.time_us = now_us_;
  if (!update.full && !pool.known) return;  // no complete map to update yet
  if (update.full) {
    std::ranges::fill(pool.cells, BlockCell{});
    pool.counts = {};
    pool.counts[0] = update.num_blocks;
    pool.known = true;
  }
  for (const ipc::BlockRun& run : update.runs) {
    for (uint32_t i = 0; i < run.count; ++i) {
      BlockCell& cell = pool.cells[run.first + i];
      --pool.counts[to_underlying(cell.state)];
      ++pool.counts[to_underlying(run.state)];
      const bool held = run.request != 0;
      cell = {run.request, run.position + narrow<int32_t>(held ? i : 0), run.state, run.refs,
              run.on_disk};
    }
  }
  if (update.full || !update.runs.empty()) {
    ++pool.revision;
    ++revision_;
  }
  for (size_t state = 0; state < pool.counts.size(); ++state) {
    pool.history[state].add(now_us_, as_double(pool.counts[state]));
  }
}

void Snapshot::end_request(RequestView& request) {
  if (std::exchange(request.ended, true)) return;
  if (!request.life.empty()) request.life.back().end_us = now_us_;
  request.row.state = "ended";
  ended_.push_back(request.row.number);
  ++revision_;
  while (ended_.size() > kMaxEnded) {
    requests_.erase(ended_.front());
    ended_.pop_front();
  }
}

void Snapshot::end_all() {
  std::vector<uint64_t> numbers;
  for (const auto& [number, request] : requests_) numbers.push_back(number);
  for (const uint64_t number : numbers) {
    if (const auto found = requests_.find(number); found != requests_.end()) {
      end_request(found->second);
    }
  }
}

void Snapshot::on_requests(const ipc::WatchUpdate& update) {
  for (const ipc::WatchedRequest& met : update.requests) {
    if (met.number == 0) continue;
    RequestView& request = requests_[met.number];
    if (request.ended) continue;
    const bool had_token = request.row.ttft_us >= 0;
    const bool fresh = request.received_us == 0;
    if (!(request.row.output_tokens == met.output_tokens && request.row.state == met.state)) {
      ++revision_;
    }
    request.row = met;
    ipc::WatchedRequest& row = request.row;
    request.raw_id = met.id;
    make_shown(row.id);
    if (row.id != met.id)
      request.raw_id.clear();  // truncated or escaped: unusable as an id for commands
    make_shown(row.owner);
    make_shown(row.model);
    make_shown(row.priority);
    make_shown(row.state);
    make_shown(row.waiting_for);
    for (int32_t* count :
         {&row.queue_position, &row.prompt_tokens, &row.prompt_done, &row.cached_tokens,
          &row.output_tokens, &row.drafted_tokens, &row.accepted_tokens, &row.preemptions,
          &row.canvas_first, &row.pass, &row.passes}) {
      *count = not_negative(*count);
    }
    row.age_ms = std::clamp<int64_t>(row.age_ms, 0, now_us_ / 1000);
    row.queue_us = std::clamp<int64_t>(row.queue_us, 0, row.age_ms * 1000);
    row.estimate_ms = std::max<int64_t>(0, row.estimate_ms);
    row.ttft_us = std::clamp<int64_t>(row.ttft_us, -1, row.age_ms * 1000);
    if (fresh) request.received_us = std::max<int64_t>(1, now_us_ - row.age_ms * 1000);
    request.seen_us = now_us_;
    if (request.life.empty() || request.life.back().state != row.state) {
      if (!request.life.empty()) request.life.back().end_us = now_us_;
      if (request.life.size() < kMaxLife) {
        request.life.push_back({row.state, fresh ? request.received_us : now_us_, now_us_});
      }
    }
    if (!request.life.empty()) request.life.back().end_us = now_us_;
    if (row.ttft_us >= 0) {
      const double seconds = us_as_s(row.age_ms * 1000 - row.ttft_us);
      if (seconds > 0.02) request.tokens_per_s = std::max(0, row.output_tokens - 1) / seconds;
      if (!had_token || fresh) {
        ttfts_ms_.push_back(us_as_ms(row.ttft_us));
        if (ttfts_ms_.size() > kMaxTtfts) ttfts_ms_.pop_front();
        std::vector<double> values(ttfts_ms_.begin(), ttfts_ms_.end());
        ttft_p50_ = percentile(values, 0.5);
        ttft_p99_ = percentile(values, 0.99);
      }
    }
  }
  std::vector<uint64_t> gone;
  for (const auto& [number, request] : requests_) {
    if (!request.ended && request.seen_us != now_us_) gone.push_back(number);
  }
  for (const uint64_t number : gone) end_request(requests_.at(number));
}

std::string step_in_words(const ipc::WatchedStep& step) {
  std::string out;
  const auto add = [&out](std::string_view text) {
    if (!out.empty()) out += "; ";
    out += text;
  };
  if (step.decode_rows > 0) {
    std::string decode =
        fmt::format("decode {} sequence{}", step.decode_rows, step.decode_rows == 1 ? "" : "s");
    if (step.draft_rows > 0) {
      decode += fmt::format(", {} tokens drafted, {} accepted", step.draft_rows, step.accepted);
    }
    add(decode);
  }
  int64_t tokens = step.prefills_unlisted;
  for (const ipc::WatchedChunk& chunk : step.prefills) tokens += chunk.tokens;
  if (tokens > 0) {
    add(fmt::format("prefill {} tokens of {} prompt{}", tokens, step.prefills.size(),
                    step.prefills.size() == 1 ? "" : "s"));
  }
  if (step.preempted > 0) add(fmt::format("{} preempted to make room", step.preempted));
  if (step.waiting > 0) add(fmt::format("{} still wait", step.waiting));
  return out.empty() ? "nothing to compute" : out;
}

}  // namespace hearth::monitor
