#include "daemon/worker/tools/bench/bench_rig.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "daemon/worker/tools/stop_flag.h"
#include "ipc/text/shown_text.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::worker {

engine::EngineConfig bench_config(const std::vector<BenchCase>& cases,
                                  const models::ModelInfo& info, kernels::KvTypes kv_type) {
  engine::EngineConfig config;
  config.kv_type = kv_type;
  config.prefix_cache = false;  // caching would falsify the measurement
  config.speculation.enabled = false;
  config.scheduler.max_seqs = 1;
  int64_t blocks = 0;  // blocks for the largest case
  for (const BenchCase& each : cases) {
    config.context_length = std::max(config.context_length, each.context());
    config.scheduler.max_seqs = std::max(config.scheduler.max_seqs, each.sequences);
    const int64_t of_one = (each.context() + config.block_size - 1) / config.block_size + 1;
    blocks = std::max(blocks, each.sequences * of_one);
  }
  config.kv_bytes = engine::kv_bytes_for(info, config, blocks);
  return config;
}

Result<void> check_memory(uint64_t weight_bytes, uint64_t engine_bytes, uint64_t scratch_bytes,
                          uint64_t free_bytes) {
  const uint64_t wanted = weight_bytes + engine_bytes + scratch_bytes;
  if (wanted <= free_bytes) return {};
  return Error::out_of_memory(fmt::format(
      "{} of memory wanted (weights {}, KV and steps {}, loading {}), {} free",
      ipc::human_bytes(wanted), ipc::human_bytes(weight_bytes), ipc::human_bytes(engine_bytes),
      ipc::human_bytes(scratch_bytes), ipc::human_bytes(free_bytes)));
}

Result<std::unique_ptr<BenchRig>> BenchRig::create(const engine::EngineConfig& config,
                                                   const kernels::OpTable& ops,
                                                   std::unique_ptr<models::Model> model) {
  std::unique_ptr<BenchRig> rig(new BenchRig);
  rig->vocab_size_ = model->info().vocab_size;
  HEARTH_ASSIGN_OR_RETURN(rig->engine_,
                          engine::Engine::create(config, ops, std::move(model), rig->clock_));
  rig->engine_->time_gaps();
  return rig;
}

void BenchRig::post(int32_t prompt_tokens, int32_t max_tokens) {
  engine::Request request;
  request.id = next_id_++;
  request.owner = "bench";
  request.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.use_prefix_cache = false;
  request.speculate = false;  // decode is one token per step and sequence
  for (int32_t i = 0; i < prompt_tokens; ++i) {
    request.prompt.push_back(
        narrow<int32_t>((request.id * 7919 + narrow<uint64_t>(i) * 104729) % vocab_size_));
  }
  seen_[request.id].posted_us = clock_.now_us();
  engine_->inbox().post(std::move(request));
}

Result<bool> BenchRig::step() {
  const bool computed = engine_->step();
  const int64_t now_us = clock_.now_us();
  for (const auto& events : engine_->outbox().drain()) {
    for (const engine::EngineEvent& event : events) {
      if (const auto* token = std::get_if<engine::TokenEvent>(&event)) {
        seen_[token->id].token_us.push_back(now_us);
      } else if (const auto* failed = std::get_if<engine::RequestFailedEvent>(&event)) {
        return failed->error;
      }
    }
  }
  if (stop_wanted()) return Error::cancelled("interrupted");
  return computed;
}

void BenchRig::cancel_all() {
  for (const auto& [id, seen] : seen_) engine_->inbox().post(engine::CancelRequest{.id = id});
}

Result<double> BenchRig::measure(const BenchCase& what) {
  seen_.clear();
  for (int32_t i = 0; i < what.sequences; ++i) post(what.prompt, what.tokens + what.lead());
  bool cancelled = false;
  gaps_us_.clear();
  while (true) {
    HEARTH_ASSIGN_OR_RETURN(const bool computed, step());
    if (!computed) break;
    const std::vector<double> gaps = engine_->take_gaps();
    // With more than two tokens per sequence, the previous step also decoded all sequences.
    const bool all_decode = !cancelled && std::ranges::all_of(seen_, [&](const auto& each) {
      const auto tokens = size32(each.second.token_us);
      return tokens > 2 && tokens < what.tokens + what.lead();
    });
    if (all_decode) gaps_us_.insert(gaps_us_.end(), gaps.begin(), gaps.end());
    const bool done = std::ranges::all_of(
        seen_, [&](const auto& each) { return size32(each.second.token_us) >= what.tokens; });
    if (done && !cancelled && what.lead() > 0) cancel_all();
    cancelled = cancelled || done;
  }
  int64_t begin_us = 0, end_us = std::numeric_limits<int64_t>::max();
  for (const auto& [id, seen] : seen_) {
    if (seen.token_us.empty()) return Error::internal("a request had no token");
    if (what.kind == BenchCase::Kind::kPrefill) {
      return us_as_s(seen.token_us.front() - seen.posted_us);
    }
    begin_us = std::max(begin_us, seen.token_us.front());
    end_us = std::min(end_us, seen.token_us.back());
  }
  // Count only steps in which all sequences decode: not those with another sequence's prompt, nor
  // those after the first sequence has ended.
  double tokens = 0;
  for (const auto& [id, seen] : seen_) {
    tokens += as_double(std::ranges::count_if(
        seen.token_us, [&](int64_t at_us) { return at_us > begin_us && at_us <= end_us; }));
  }
  if (tokens == 0) return Error::internal("no step was measured");
  return us_as_s(end_us - begin_us) * what.sequences / tokens;
}

}  // namespace hearth::worker
