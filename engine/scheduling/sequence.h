#pragma once
// A live request and the sequences grown for it: one per sample. Owned by the scheduler, on the
// engine thread; the step loop writes the statistics.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/kv/kv_cache.h"
#include "engine/request.h"
#include "engine/sampling/pooling.h"
#include "engine/scheduling/owner_shares.h"

namespace hearth::engine {

struct LiveRequest;

struct Sequence {
  enum class State {
    kWaiting,  ///< holds no block: new, or preempted
    kRunning,  ///< holds blocks, takes part in steps
    kFinished,
  };

  LiveRequest* request = nullptr;
  int32_t sample = 0;
  State state = State::kWaiting;
  /// Prompt, then output. Those from blocks.num_tokens on have no KV yet.
  std::vector<int32_t> tokens;
  SequenceBlocks blocks;
  /// Its last token is the only one without KV and was drawn since it was (re)admitted.
  bool decoding = false;
  /// Guesses of the tokens behind the last one, to be verified by the coming step.
  std::vector<int32_t> drafted;
  FinishReason reason = FinishReason::kStop;

  /// Behind the first `constraint_tokens` of its output, Request::constraint_prefix included.
  int32_t constraint_state = 0;
  int32_t constraint_tokens = 0;  ///< see Constraint; 0 without one

  uint64_t last_step = 0;     ///< number of the last step it had rows in
  uint64_t last_turn = 0;     ///< place of its last rows among all rows ever planned
  uint64_t skipped_step = 0;  ///< number of the last step that had no block for it
  int32_t admitted_rank = 0;  ///< its rank when it was (last) admitted; see Scheduler
  int32_t uncharged = 0;      ///< tokens computed that its owner was not charged for yet
  int32_t passed_over = 0;  ///< times a later one of its owner was preferred for its cached prefix

  /// At a position of its tokens, or of the guesses behind them.
  int32_t token(int32_t position) const {
    const auto at = static_cast<size_t>(position);
    return at < tokens.size() ? tokens[at] : drafted[at - tokens.size()];
  }
  int32_t num_pending() const { return static_cast<int32_t>(tokens.size()) - blocks.num_tokens; }
};

struct LiveRequest {
  Request request;
  uint64_t arrival = 0;  ///< order of admission to the queue
  Owner* owner = nullptr;
  std::string scope;  ///< of its prefixes; see KvCache
  /// sample 0 alone until the prompt is computed; then one per sample
  std::vector<std::unique_ptr<Sequence>> samples;
  bool forked = false;   ///< all samples exist
  bool started = false;  ///< it had rows in a step
  bool ended = false;    ///< its last event is said; removed at the end of the step

  // Statistics of the step loop. Times on the engine's clock.
  std::optional<int64_t> started_us;
  std::optional<int64_t> first_token_us;
  int64_t first_token0_us = 0;  ///< of sample 0
  int64_t last_token0_us = 0;
  int64_t next_progress_us = 0;
  int32_t sample0_tokens = 0;  ///< drawn by this engine
  int32_t cached_tokens = 0;
  int32_t output_tokens = 0;
  int32_t preemptions = 0;
  SpeculationCounts speculation;  ///< of all samples
  std::vector<float> prompt_logprobs;
  std::vector<std::vector<TokenLogprob>> prompt_top;  ///< beside them, where asked for
  PooledRows pooled;                                  ///< of a request with `pooling`

  // Written by DiskTier.
  int32_t asked_preemptions = 0;  ///< its preemptions when it was last asked for
  uint64_t restore_id = 0;        ///< not 0: the store works for it; see restoring()
  int64_t restore_us = 0;         ///< waited for it
  int32_t restored_from = 0;      ///< prompt tokens [restored_from, restored_until) came from it
  int32_t restored_until = 0;
  int32_t disk_tokens = 0;    ///< of cached_tokens
  bool store_slow = false;    ///< what it has was not waited for
  bool loads_beside = false;  ///< the store loads its end while its front is computed
  int32_t compute_until = 0;  ///< then: how far the coming step shall get; 0: no matter
  MissReason miss = MissReason::kNone;
  int32_t missed_from = 0;
  int64_t saved_us = 0;  ///< what the cached tokens would have cost, less the wait
  /// It waits for the store, and is passed over.
  bool restoring() const { return restore_id != 0 && !loads_beside; }

  bool finished() const {
    return forked && std::ranges::all_of(samples, [](const auto& seq) {
             return seq->state == Sequence::State::kFinished;
           });
  }
  bool embeds() const { return request.pooling != models::Pooling::kNone; }
  int32_t prompt_size() const { return static_cast<int32_t>(request.prompt.size()); }
  /// Slots it takes when running: a prompt keeps room for all its samples.
  int32_t slots(const Sequence&) const { return forked ? 1 : request.n; }
};

}  // namespace hearth::engine
