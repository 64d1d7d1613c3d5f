#pragma once
// A live request and its sequences, one per sample. Owned by the scheduler, on the engine thread.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/kv/kv_cache.h"
#include "engine/request.h"
#include "engine/sampling/canvas.h"
#include "engine/sampling/pooling.h"
#include "engine/sampling/reasoning_progress.h"
#include "engine/scheduling/applied_adapter.h"
#include "engine/scheduling/owner_shares.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {

struct LiveRequest;

/// Draft tokens that compete with those of Sequence::drafted from one place on. They are verified
/// with a block table of their own, which becomes the sequence's if they are right.
struct DraftBranch {
  int32_t after = 0;            ///< its first token is another one than drafted[after]
  std::vector<int32_t> tokens;  ///< not empty
  // Set when it is planned.
  SequenceBlocks blocks;
  int32_t first_row = 0;  ///< of the step's rows and outputs
};

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
  /// Draft tokens after the last one, to be verified by the coming step.
  std::vector<int32_t> drafted;
  std::vector<DraftBranch> branches;  ///< only in addition to `drafted`
  DraftedBy drafted_by = DraftedBy::kLookup;
  /// The final row that its last token was drawn from: of that step (ModelRunner::num_steps), by
  /// token row.
  uint64_t hidden_step = 0;
  int32_t hidden_row = 0;
  FinishReason reason = FinishReason::kStop;

  /// After the first `constraint_tokens` of its output, Request::constraint_prefix included.
  int32_t constraint_state = 0;
  int32_t constraint_tokens = 0;  ///< see Constraint; 0 without one
  ReasoningProgress reasoning;
  std::optional<Canvas> canvas;  ///< of a request with one; its tokens are in `tokens`

  uint64_t last_step = 0;     ///< number of the last step it had rows in
  uint64_t last_turn = 0;     ///< place of its last rows among all rows ever planned
  uint64_t skipped_step = 0;  ///< number of the last step that had no block for it
  int32_t admitted_rank = 0;  ///< its rank when it was (last) admitted; see Scheduler
  int32_t uncharged = 0;      ///< tokens computed that its owner was not charged for yet
  int32_t passed_over = 0;  ///< times a later one of its owner was preferred for its cached prefix

  /// At a position of its tokens, or of the draft tokens after them.
  int32_t token(int32_t position) const {
    const size_t at = position;
    return at < tokens.size() ? tokens[at] : drafted[at - tokens.size()];
  }
  DraftSize draft_size() const {
    DraftSize size{size32(drafted), size32(drafted)};
    for (const DraftBranch& branch : branches) {
      size.tokens += size32(branch.tokens);
      size.places = std::max(size.places, branch.after + size32(branch.tokens));
    }
    return size;
  }
  /// The branch that begins with this token after so many draft tokens; null: none does.
  DraftBranch* branch_with(int32_t after, int32_t token) {
    const auto found = std::ranges::find_if(branches, [&](const DraftBranch& branch) {
      return branch.after == after && branch.tokens.front() == token;
    });
    return found == branches.end() ? nullptr : &*found;
  }
  /// Output tokens so far: of a canvas, those of whole blocks.
  int32_t num_output(int32_t prompt_size) const {
    return canvas ? canvas->num_whole() : size32(tokens) - prompt_size;
  }
  int32_t num_pending() const { return size32(tokens) - blocks.num_tokens; }
};

/// The state of the slow tier for one request. Written by PrefixRestorer.
struct RestoreState {
  uint64_t id = 0;          ///< of the lookup or load in progress; 0: none
  bool overlaps = false;    ///< the end of the prompt is loaded while its front is computed
  bool store_slow = false;  ///< stored blocks were not waited for
  /// The prompt tokens loaded while the request waited: [first_token, end_token).
  int32_t first_token = 0;
  int32_t end_token = 0;
  /// While `overlaps`: the position up to which the coming step shall compute; 0: no limit.
  int32_t compute_until = 0;
  int64_t waited_us = 0;
  int32_t asked_preemptions = 0;  ///< preemptions of the request at the last lookup after one

  /// The request waits for the store, and the scheduler passes over it.
  bool waits() const { return id != 0 && !overlaps; }
};

/// Measurements of one request for its RequestDoneEvent. Written by the step loop, except as noted;
/// times are on the engine's clock.
struct RequestStats {
  std::optional<int64_t> started_us;
  std::optional<int64_t> first_token_us;  ///< of any sample
  int64_t sample0_first_us = 0;           ///< first and last token of sample 0
  int64_t sample0_last_us = 0;
  int32_t sample0_tokens = 0;  ///< drawn by this engine
  int32_t output_tokens = 0;
  /// Of the prompt; set by the scheduler at admission, and PrefixRestorer adds what it restores.
  int32_t cached_tokens = 0;
  int32_t disk_tokens = 0;  ///< of cached_tokens, restored from the store
  MissReason miss = MissReason::kNone;
  int32_t missed_from = 0;
  int64_t saved_us = 0;           ///< computing the cached tokens would have taken, less the wait
  SpeculationCounts speculation;  ///< of all samples

  void count_token(int32_t sample, int64_t now_us) {
    ++output_tokens;
    if (!first_token_us.has_value()) first_token_us = now_us;
    if (sample != 0) return;
    if (sample0_tokens++ == 0) sample0_first_us = now_us;
    sample0_last_us = now_us;
  }
};

struct LiveRequest {
  Request request;
  uint64_t arrival = 0;  ///< order of admission to the queue
  Owner* owner = nullptr;
  std::string scope;  ///< of its prefixes; see KvCache
  std::vector<AppliedAdapter> adapters;
  /// sample 0 alone until the prompt is computed; then one per sample
  std::vector<std::unique_ptr<Sequence>> samples;
  bool forked = false;   ///< all samples exist
  bool started = false;  ///< it had rows in a step
  bool ended = false;    ///< its last event is made; removed at the end of the step

  int32_t preemptions = 0;
  RestoreState restore;
  RequestStats stats;
  int64_t next_progress_us = 0;  ///< when the next ProgressEvent is due, on the engine's clock
  std::vector<float> prompt_logprobs;
  std::vector<std::vector<TokenLogprob>> prompt_top;  ///< per prompt_logprobs, where requested
  PooledRows pooled;                                  ///< of a request with `pooling`

  bool finished() const {
    return forked && std::ranges::all_of(samples, [](const auto& seq) {
             return seq->state == Sequence::State::kFinished;
           });
  }
  bool embeds() const { return request.pooling != models::Pooling::kNone; }
  int32_t prompt_size() const { return size32(request.prompt); }
  /// Prompt tokens whose log probabilities the sequence has to compute or find.
  int32_t scores_left(const Sequence& seq) const {
    if (!request.sampling.prompt_logprobs || seq.sample != 0) return 0;
    return prompt_size() - 1 - size32(prompt_logprobs);
  }
  /// Slots it takes when running: a prompt keeps room for all its samples.
  int32_t slots(const Sequence&) const { return forked ? 1 : request.n; }
};

}  // namespace hearth::engine
