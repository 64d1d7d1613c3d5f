#pragma once
// Decides what runs next. Pure logic: no device, no clock of its own (times are passed in), no
// randomness.
//
// Each plan() takes every running decode row, then prefill chunks within the time budget: a
// step with decode rows lasts at most `decode_step_stretch` plain ones, one without at most
// `prefill_step_us` or as many plain ones if that is longer, judged by StepCost. After the end of a
// prompt, a step without decode rows takes no more prefill than one with decode rows would: a first
// token does not wait for other prompts. Order among prefills: rank, then owner (fewest tokens
// served), then the longest cached prefix among the owner's oldest, then arrival. The rank is the
// class, raised by one for each `aging_us` of steps in which a higher class had prefill rows and a
// class that wanted some had none; a sequence keeps the rank it was admitted with. So no class
// starves, and age does not undo fairness between the owners of one class.
//
// Room. A waiting sequence is admitted when slots are free and blocks for all its tokens are free
// or evictable beyond what running prefills still need. Otherwise:
//  * a running sequence that needs a block preempts the youngest of the lowest class below it;
//  * a waiting one preempts running ones of a lower class, and of an owner of its own class that
//    would still run at least as many as the waiting one's owner. So classes and owners get their
//    share of slots, and no two sequences can take turns preempting each other.
//
// Drafts. A decoding sequence may bring `drafted` tokens: rows after its own, all of them output
// rows. They get only the rows, outputs and blocks that are left over: no block beyond those
// already held while any sequence waits or prefills, and none in a step that is to be a plain one.
// Its `branches` get what is left then, in a step without prefill: each has rows and a block table
// of its own, and all its blocks until the tokens of the step are drawn.
//
// A preempted sequence gives back its blocks (they stay cached) and waits with its tokens.
//
// Progress. Running sequences are ordered by (rank, arrival, sample); the first can preempt all
// others and fits the pools alone (add() refuses what does not), so it finishes. While a bound of
// the pools' memory leaves it too few blocks, it waits.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/config.h"
#include "engine/cost/step_cost.h"
#include "engine/kv/kv_cache.h"
#include "engine/scheduling/sequence.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {

/// Rows of one sequence in a step: tokens [first, first + count).
struct PlannedRows {
  Sequence* seq = nullptr;
  int32_t first = 0;
  int32_t count = 0;
  /// Logits are needed for positions [first_output, first + count).
  int32_t first_output = 0;
  bool starts_request = false;  ///< the request's very first rows
  int32_t num_drafted = 0;      ///< the last rows are of Sequence::drafted
  /// Of the request; none for rows of a draft model or a draft layer.
  std::span<const AppliedAdapter> adapters = {};
  /// Of a canvas: further positions whose logits are needed, ascending, before first_output.
  std::span<const int32_t> outputs = {};

  int32_t num_outputs() const { return first + count - first_output + size32(outputs); }
};

struct StepPlan {
  std::vector<PlannedRows> rows;  ///< num_decode_rows sequences that decode, then prefills
  std::vector<BlockCopy> copies;  ///< before the rows, in this order
  int32_t num_tokens = 0;
  int32_t num_outputs = 0;
  int32_t num_decode_rows = 0;
  int32_t num_drafted = 0;  ///< draft rows, not counted in num_decode_rows
  /// Of them, those of Sequence::branches: after the rows of all sequences that decode.
  int32_t num_branch_rows = 0;
  bool by_draft_layer = false;  ///< rows of the draft layer or of heads: no state changes
  bool empty() const { return rows.empty(); }
  /// Rows of branches directly before those of rows[i].
  int32_t branch_rows_before(size_t i) const {
    return std::cmp_equal(i, num_decode_rows) ? num_branch_rows : 0;
  }
};

/// A waiting request as ProgressEvent shows it.
struct WaitingInfo {
  LiveRequest* request = nullptr;
  int32_t position = 0;     ///< from 1
  const char* reason = "";  ///< "slots", "blocks", "fairness", "restoring"
};

class Scheduler {
 public:
  struct Limits {
    int32_t context_length = 0;
    int32_t max_step_tokens = 0;      ///< rows of a step, limited by the buffers
    int32_t max_outputs = 0;          ///< output rows of a step; more than max_seqs
    models::CanvasModel canvas = {};  ///< of a model that denoises
  };
  Scheduler(const SchedulerConfig& config, const Limits& limits, KvCache& kv);
  ~Scheduler();

  /// Queues a request. kBusy (queue full), kContextOverflow, kInvalidArgument (n over max_seqs),
  /// kOutOfMemory (can never fit the KV pools); each with its numbers. `scope`: see KvCache.
  Result<LiveRequest*> add(Request request, std::string scope,
                           std::vector<AppliedAdapter> adapters = {});
  /// Requests whose deadline has passed.
  std::vector<LiveRequest*> expired(int64_t now_us) const;

  /// Picks the next step. Valid until the next call; its sequences must not be removed before
  /// `stored`. Empty exactly if nothing is live, or if all live requests wait for the store or,
  /// while the pools' memory is bounded, for a higher bound.
  const StepPlan& plan();
  /// Reserves blocks for the step after the planned one, so that it can be launched before the
  /// tokens of this one are known: the same rows, each one position further. False if a different
  /// step may be due: one with other rows than decode rows, or because a sequence waits or ends.
  bool reserve_ahead();
  /// Whether the step that was reserved is launched.
  void settle_ahead(bool launched);
  /// In place of plan(): the step that was reserved, without the sequences that have ended. Newer
  /// sequences wait one step. Empty if all have ended; then call plan().
  const StepPlan& plan_ahead();
  /// The logits of the sequence's row are lost: it is preempted, and its row computed again.
  void recompute(Sequence& seq) { preempt(seq); }
  /// Running sequences that need one decode row each, in the order they were admitted.
  void decoding(std::vector<Sequence*>& out) const;
  /// True if a sequence of the last plan found too few blocks, even if it got them later.
  bool short_of_blocks() const { return short_of_blocks_; }
  /// True if a sequence waits or has prompt tokens to compute.
  bool prefill_wanted() const;
  /// While set, each step packs the weights that it needs (OpTable::pack_more). The cost of such
  /// steps does not predict that of later ones, and a prompt should take few of them.
  void set_weights_late(bool late) { weights_late_ = late; }
  /// The planned rows were computed: their KV is stored from now on, except that of drafts.
  void stored(const StepPlan& plan);
  /// The step has ended, sampling included: updates the cost model.
  void finish_step(const StepPlan& plan, int64_t step_us);

  /// The prompt is computed: makes the other samples, which share its blocks. Each sample has its
  /// resumed tokens after the prompt.
  void fork(LiveRequest& request);
  /// The sequence's canvas was drawn in this step: its next pass computes all rows again.
  void begin_pass(Sequence& seq);
  /// Adds a drawn token.
  void append(Sequence& seq, int32_t token);
  /// The last token was drafted, so its KV is stored already.
  void accept(Sequence& seq);
  /// The last token begins this branch of its drafts, which take the place of `drafted`.
  void take_branch(Sequence& seq, DraftBranch& branch);
  /// Drops the drafted tokens, and the blocks of those that were not accepted.
  void end_verification(Sequence& seq);
  /// Called with each sequence that is preempted, while it still has its blocks.
  void on_preempt(std::function<void(const Sequence&)> fn) { on_preempt_ = std::move(fn); }
  /// Called with each sequence that is admitted, before it gets rows.
  void on_admit(std::function<void(Sequence&)> fn) { on_admit_ = std::move(fn); }
  /// The first preempted request, if there is room for all its blocks: those that are not cached
  /// any more can then be fetched from the store. Null: none.
  LiveRequest* preempted_with_room();

  /// Ends a sample and releases its blocks.
  void finish(Sequence& seq, FinishReason reason);
  /// Removes the request; its unfinished samples release their blocks.
  void remove(LiveRequest& request);

  LiveRequest* find(RequestId id) const;
  const std::vector<std::unique_ptr<LiveRequest>>& live() const { return live_; }
  /// Requests with a waiting sequence, in the order they would be taken now.
  std::vector<WaitingInfo> waiting() const;
  int32_t num_running() const { return size32(running_); }
  int32_t num_waiting() const { return size32(waiting_); }
  /// Of the waiting sequences, those that ran before.
  int32_t num_preempted() const;
  uint64_t preemptions_total() const { return preemptions_total_; }
  const StepCost& cost() const { return cost_; }
  void restore_costs(const MeasuredCosts& costs) { cost_.restore(costs); }

  /// Stops the process unless pools, index, block tables and the counts here agree.
  void check_integrity() const;

 private:
  /// Place in the order of seniority: lower goes first and may preempt higher.
  struct Seniority {
    int32_t rank;
    uint64_t arrival;
    int32_t sample;
    auto operator<=>(const Seniority&) const = default;
  };

  Result<void> check_fits(const Request& request) const;
  std::unique_ptr<Sequence> make_sequence(LiveRequest& live, int32_t sample) const;
  int32_t rank(const Sequence& seq) const;
  Seniority seniority(const Sequence& seq) const;
  bool goes_before(const Sequence& a, const Sequence& b) const;

  // The step: which sequences get rows.
  void begin_plan();
  void plan_decode();
  void plan_drafts();
  void plan_branches(int32_t left);
  void drop_drafts(Sequence& seq);
  void plan_prefill();
  bool prefill_turn();
  Sequence* next_prefill(bool admission_open);
  Sequence* longest_cached_of_owner(Sequence& first);
  void adopt(Sequence& seq);
  bool computed_beside(Sequence& seq);
  int32_t plan_chunk(Sequence& seq, int32_t max_tokens);
  void plan_rows(Sequence& seq, int32_t count);
  void charge(Sequence& seq);

  // Room: which sequences hold slots and blocks.
  bool may_enter(const Sequence& seq) const;
  void begin_blocks(Sequence& seq);
  void share_fork(Sequence& seq);
  int32_t hit_limit(const Sequence& seq) const;
  int32_t blocks_short(const Sequence& begun, int32_t group) const;
  int32_t slots_short(const Sequence& seq) const;
  bool admit(Sequence& seq);
  void want_snapshots(Sequence& seq);
  void make_room();
  std::vector<Sequence*> displaceable(const Sequence& waiting) const;
  bool reserve_or_preempt(Sequence& seq, int32_t num_tokens);
  Sequence* youngest_behind(const Sequence& seq) const;
  void preempt(Sequence& seq);
  void leave_running(Sequence& seq);
  bool planned(const Sequence& seq) const { return seq.last_step == step_; }

  const SchedulerConfig config_;
  const Limits limits_;
  KvCache& kv_;
  StepCost cost_;
  bool weights_late_ = false;
  OwnerShares owners_;
  std::vector<std::unique_ptr<LiveRequest>> live_;  ///< in order of arrival
  std::unordered_map<RequestId, LiveRequest*> by_id_;
  std::vector<Sequence*> running_;
  std::vector<Sequence*> waiting_;
  int32_t slots_used_ = 0;
  uint64_t next_arrival_ = 1;
  std::array<int64_t, 3> passed_over_us_{};  ///< per class: its age, see above
  uint64_t step_ = 0;
  uint64_t next_turn_ = 1;
  uint64_t preemptions_total_ = 0;
  std::function<void(const Sequence&)> on_preempt_;
  std::function<void(Sequence&)> on_admit_;
  bool batch_open_ = true;             ///< static policy: the batch still takes requests
  int32_t decode_steps_in_a_row_ = 0;  ///< unchunked: while something waited
  const char* reason_ = "";            ///< why the last admission failed
  bool short_of_blocks_ = false;
  bool settled_ = false;   ///< no waiting sequence could be admitted, and nothing has changed since
  int32_t num_ahead_ = 0;  ///< steps since plan()
  StepPlan plan_;
  int32_t kept_rows_first_ = 0;           ///< of the last step with drafts; see StateStep
  int32_t extra_outputs_left_ = 0;        ///< of this step, for prompt logprobs
  std::vector<Sequence*> order_;          ///< scratch
  std::vector<PrefillRun> prefill_runs_;  ///< scratch
};

}  // namespace hearth::engine
