#include "engine/steps/model_runner.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "kernels/ops/recurrent_ops.h"
#include "models/divided_kv.h"

namespace hearth::engine {

static_assert(kKeptRows == kernels::kKeptRows);

using kernels::DeviceBuffer;
using kernels::ElasticBuffer;
using kernels::HostBuffer;

namespace {

MemoryPlan with_extents(MemoryPlan plan, const kernels::OpTable& ops) {
  plan.set_extents(ops.elastic == nullptr ? 0 : ops.elastic->granule);
  return plan;
}

}  // namespace

Result<std::unique_ptr<ModelRunner>> ModelRunner::create(const MemoryPlan& plan,
                                                         kernels::KvTypes kv_type,
                                                         kernels::OpTable ops,
                                                         std::unique_ptr<models::Model> model) {
  auto runner =
      std::unique_ptr<ModelRunner>(new ModelRunner(plan, std::move(ops), std::move(model)));
  const kernels::OpTable& table = runner->ops_;
  HEARTH_TRY(kernels::check_kv_types(table, kv_type));
  HEARTH_TRY(runner->reserve_pools(kv_type));
  HEARTH_ASSIGN_OR_RETURN(runner->index_,
                          DeviceBuffer::allocate(table, plan.index_bytes, "index buffers"));
  HEARTH_ASSIGN_OR_RETURN(runner->logits_,
                          DeviceBuffer::allocate(table, plan.logits_bytes, "logits"));
  runner->model_->set_context_length(plan.context_length);
  HEARTH_TRY(runner->model_->reserve(plan.max_step_tokens, plan.max_outputs));

  for (size_t i = 0; i < plan.groups.size(); ++i) {
    if (plan.groups[i].max_blocks == 0) {
      runner->group_index_.push_back({});  // recurrent
      runner->batch_.states = runner->device<kernels::StateStep>(plan.index.states);
      continue;
    }
    runner->group_index_.push_back({runner->device(plan.index.block_table[i]),
                                    plan.groups[i].max_blocks,
                                    runner->device(plan.index.slot_mapping[i])});
  }
  kernels::BatchIndex& batch = runner->batch_;
  batch.counts = runner->device(plan.index.counts);
  batch.token_ids = runner->device(plan.index.token_ids);
  batch.positions = runner->device(plan.index.positions);
  batch.seq_idx = runner->device(plan.index.seq_idx);
  batch.query_start = runner->device(plan.index.query_start);
  batch.context_len = runner->device(plan.index.context_len);
  batch.output_rows = runner->device(plan.index.output_rows);
  batch.groups = runner->group_index_;
  runner->place_branch_stores();
  runner->traffic_ = BlockTraffic(table, plan.groups);
  if (runner->info().generates && !runner->info().denoises()) {
    runner->captured_ = CapturedSteps(
        table, batch, std::min(plan.max_outputs, plan.max_step_tokens),
        [r = runner.get()](const kernels::BatchIndex& bounds) { r->forward(bounds); });
  }
  const bool captures = runner->info().drafts && runner->info().draft_block == 0;
  const int32_t places = captures ? std::max(1, runner->info().draft_heads) : 0;
  for (int32_t place = 0; place < places; ++place) {
    runner->captured_drafts_.emplace_back(
        table, batch, std::min(plan.max_seqs, plan.max_step_tokens),
        [r = runner.get(), place](const kernels::BatchIndex& bounds) {
          r->model_->draft(r->step_args(bounds), place);
        });
  }
  return runner;
}

Result<void> ModelRunner::reserve_pools(kernels::KvTypes kv_type) {
  std::vector<models::PoolSize> sizes;
  for (const GroupPlan& group : plan_.groups) {
    pools_.push_back({nullptr, group.block_bytes, plan_.block_size, kv_type});
    sizes.push_back({pools_.back(), group.num_blocks, group.max_blocks});
  }
  HEARTH_ASSIGN_OR_RETURN(divided_kv_, model_->divide_kv(sizes));
  if (divided_kv_ != nullptr) return {};
  for (size_t i = 0; i < sizes.size(); ++i) {
    HEARTH_ASSIGN_OR_RETURN(
        ElasticBuffer memory,
        ElasticBuffer::reserve(ops_, sizes[i].num_blocks * sizes[i].pool.block_bytes,
                               fmt::format("KV blocks of layer group {}", i)));
    pools_[i].base = memory.data();
    pool_memory_.push_back(std::move(memory));
  }
  return {};
}

void ModelRunner::place_branch_stores() {
  const IndexLayout& at = plan_.index;
  if (at.branch_slots.empty()) return;
  branch_groups_.assign(kMaxBranchesOfSequence, group_index_);
  for (size_t store = 0; store < branch_groups_.size(); ++store) {
    for (size_t group = 0; group < group_index_.size(); ++group) {
      branch_groups_[store][group].slot_mapping =
          device(at.branch_slots[group]) + store * plan_.max_outputs;
    }
    kernels::BatchIndex& batch = branch_stores_.emplace_back(batch_);
    batch.counts = device(at.branch_counts);
    batch.groups = branch_groups_[store];
  }
}

ModelRunner::ModelRunner(const MemoryPlan& plan, kernels::OpTable ops,
                         std::unique_ptr<models::Model> model)
    : plan_(with_extents(plan, ops)),
      ops_(std::move(ops)),
      model_(std::move(model)),
      tables_((plan.index_bytes - plan.index.block_table.front()) / sizeof(int32_t)),
      host_logits_(ops_, ops_.device.kind == "cuda" ? plan.logits_bytes : 0) {
  const bool draws = ops_.draw != nullptr && ops_.allocate_host != nullptr &&
                     model_->info().generates && host_logits_.page_locked();
  buffers_[0] = StepBuffers(ops_, plan, draws);
  if (!draws) return;
  fetched_.resize(plan.max_outputs);
  // The device can reach no other memory of the host.
  picks_tokens_ = buffers_[0].page_locked();
  if (picks_tokens_ && ops_.mark != nullptr) buffers_[1] = StepBuffers(ops_, plan, draws);
}

uint64_t ModelRunner::pack_more(uint64_t bytes) {
  return ops_.pack_more != nullptr ? ops_.pack_more(ops_.state.get(), bytes) : 0;
}

Result<int32_t> ModelRunner::add_adapter(const models::GgufFile& file) {
  ops_.synchronize(ops_.state.get());
  return model_->add_adapter(file);
}

void ModelRunner::remove_adapter(int32_t adapter) {
  // A step that was launched ahead and dropped may still use it.
  ops_.synchronize(ops_.state.get());
  model_->remove_adapter(adapter);
}

std::byte* ModelRunner::block_memory(int32_t group, int32_t block) const {
  const GroupPlan& plan = plan_.groups[group];
  HEARTH_CHECK(block >= 0 && block < plan.num_blocks, "block {} of {}", block, plan.num_blocks);
  return pools_[group].base + int64_t{block} * plan.block_bytes;
}

void ModelRunner::read_block(int32_t group, int32_t block, std::span<std::byte> out) {
  const size_t bytes = plan_.groups[group].block_bytes;
  HEARTH_CHECK(out.size() >= bytes, "{} bytes, want {}", out.size(), bytes);
  if (traffic_.owns(out)) {
    return traffic_.read(group, block, block_memory(group, block), out.first(bytes));
  }
  traffic_.before_steps();
  traffic_.steps_went_on();
  model_->settle();
  if (divided_kv_ != nullptr) return divided_kv_->read(group, block, out.data());
  ops_.copy_to_host(ops_.state.get(), out.data(), block_memory(group, block), bytes);
}

void ModelRunner::write_block(int32_t group, int32_t block, std::span<const std::byte> from) {
  const size_t bytes = plan_.groups[group].block_bytes;
  HEARTH_CHECK(from.size() >= bytes, "{} bytes, want {}", from.size(), bytes);
  if (traffic_.owns(from)) {
    return traffic_.write(group, block, block_memory(group, block), from.first(bytes));
  }
  traffic_.before_steps();
  traffic_.steps_went_on();
  model_->settle();
  if (divided_kv_ != nullptr) return divided_kv_->write(group, block, from.data());
  ops_.copy_to_device(ops_.state.get(), block_memory(group, block), from.data(), bytes);
}

bool ModelRunner::back(int32_t group, int32_t first, int32_t end) {
  const size_t block_bytes = plan_.groups[group].block_bytes;
  return pool_memory_[group].back(first * block_bytes, end * block_bytes);
}

void ModelRunner::give_back(int32_t group, int32_t first, int32_t end) {
  // A step that was launched ahead and dropped may still write to the blocks.
  model_->settle();
  ops_.synchronize(ops_.state.get());
  if (traffic_.busy()) traffic_.wait();
  const size_t block_bytes = plan_.groups[group].block_bytes;
  pool_memory_[group].give_back(first * block_bytes, end * block_bytes);
}

uint64_t ModelRunner::backed_bytes() const {
  uint64_t bytes = divided_kv_ == nullptr ? 0 : plan_.kv_bytes;
  for (const ElasticBuffer& memory : pool_memory_) bytes += memory.backed_bytes();
  return bytes;
}

void ModelRunner::run(const StepPlan& plan, std::span<const RowWish> wishes) {
  start(plan, wishes);
  finish(plan);
}

void ModelRunner::draft(const StepPlan& plan, std::span<const int32_t> rows, int32_t place,
                        std::span<const RowWish> wishes) {
  HEARTH_CHECK(plan.by_draft_layer && ahead_ == nullptr);
  num_outputs_ = plan.num_outputs;
  rows_of_ahead_.clear();
  current_ = &buffers_for_step();
  filled_ = current_;
  draft_place_ = place;
  model_->choose_draft_rows(rows, place > 0);
  launch(plan, 0);
  ask_outputs(wishes);
  if (gaps_timed_) filled_->end_stamp = ops_.clock->stamp(ops_.state.get());
  finish(plan);
}

void ModelRunner::make_copies(std::span<const BlockCopy> copies) {
  if (copies.empty()) return;
  traffic_.before_steps();
  traffic_.steps_went_on();
  copy_blocks(copies);
}

void ModelRunner::start(const StepPlan& plan, std::span<const RowWish> wishes) {
  ++num_steps_;
  num_outputs_ = plan.num_outputs;
  if (take_ahead(plan)) return;
  rows_of_ahead_.clear();
  current_ = &buffers_for_step();
  filled_ = current_;
  launch(plan, 0);
  ask_outputs(wishes);
  if (gaps_timed_) filled_->end_stamp = ops_.clock->stamp(ops_.state.get());
}

void ModelRunner::start_next(const StepPlan& plan) {
  if (ahead_ != nullptr || !buffers_[1].page_locked()) return;
  if (current_->wishes.empty()) return;
  const StepBuffers& from = *current_;
  filled_ = &buffers_for_step();
  filled_->rows.clear();
  std::vector<RowWish> wishes;
  for (int32_t i = 0; i < plan.num_outputs; ++i) {
    RowWish wish = from.wishes[output_row(i)];
    HEARTH_CHECK(wish.kind == RowWish::Kind::kToken, "row {}", i);
    ++wish.draw.position;
    wishes.push_back(wish);
    const PlannedRows& rows = plan.rows[i];
    filled_->rows.push_back({rows.seq->request->arrival, rows.seq->sample, rows.first + 1});
    filled_->fed_rows.as<int32_t>()[i] = output_row(i);
  }
  launch(plan, 1);
  ask_outputs(wishes);
  if (gaps_timed_) filled_->end_stamp = ops_.clock->stamp(ops_.state.get());
  ahead_ = filled_;
}

// Whether the plan's rows are among those of the step that was launched ahead.
bool ModelRunner::take_ahead(const StepPlan& plan) {
  const StepBuffers* ahead = std::exchange(ahead_, nullptr);
  if (ahead == nullptr) return false;
  std::vector<int32_t> taken;
  for (const PlannedRows& rows : plan.rows) {
    const StepBuffers::RowOf row{rows.seq->request->arrival, rows.seq->sample, rows.first};
    const auto found = std::ranges::find(ahead->rows, row);
    if (found == ahead->rows.end() || rows.count != 1) return false;
    taken.push_back(narrow<int32_t>(found - ahead->rows.begin()));
  }
  rows_of_ahead_ = std::move(taken);
  current_ = ahead == &buffers_[0] ? &buffers_[0] : &buffers_[1];
  return true;
}

int32_t ModelRunner::output_row(int32_t i) const {
  return rows_of_ahead_.empty() ? i : rows_of_ahead_[i];
}

// The buffers that the last started step does not use, if there are two.
StepBuffers& ModelRunner::buffers_for_step() {
  const bool two = buffers_[1].index.size() > 0;
  StepBuffers& buffers = two && current_ == &buffers_[0] ? buffers_[1] : buffers_[0];
  if (buffers.mark != 0) ops_.wait(ops_.state.get(), std::exchange(buffers.mark, 0));
  return buffers;
}

// Lays out the plan's rows in filled_ and launches them, each `shift` positions further; the device
// has the tokens of those positions.
void ModelRunner::launch(const StepPlan& plan, int32_t shift) {
  if (gaps_timed_) filled_->begin_stamp = ops_.clock->stamp(ops_.state.get());
  order_traffic(plan, shift);
  traffic_.steps_went_on();
  if (shift == 0) copy_blocks(plan.copies);
  lay_out(plan, shift);
  filled_->of_draft = plan.by_draft_layer;
  if (shift != 0) feed_drawn(*current_);
  if (plan.by_draft_layer) {
    launch_draft();
  } else if (num_branch_stores_ > 0 || !adapted_.empty() || !captured_.run(filled_->batch)) {
    forward(filled_->batch);
  }
}

void ModelRunner::launch_draft() {
  if (!captured_drafts_.empty()) {
    const int32_t last = size32(captured_drafts_) - 1;
    if (captured_drafts_[std::min(draft_place_, last)].run(filled_->batch)) return;
  }
  model_->draft(step_args(filled_->batch), draft_place_);
}

void ModelRunner::feed_drawn(const StepBuffers& from) {
  auto* token_ids = reinterpret_cast<int32_t*>(index_.data() + plan_.index.token_ids);
  ops_.draw->feed(ops_.state.get(), {&filled_->batch, from.drawn.as<int32_t>(),
                                     filled_->fed_rows.as<int32_t>(), token_ids});
}

// A step waits for copies into blocks that it reads, and for copies into or out of blocks that it
// writes; all other copies run alongside it.
void ModelRunner::order_traffic(const StepPlan& plan, int32_t shift) {
  if (!traffic_.busy() || stores_nothing(plan)) return;
  bool meets = false;
  for (const BlockCopy& copy : plan.copies) {
    meets =
        meets || traffic_.arriving(copy.group, copy.src) || traffic_.moving(copy.group, copy.dst);
  }
  for (const PlannedRows& rows : plan.rows) {
    const int32_t first = rows.first + shift;
    meets = meets || meets_traffic(rows.seq->blocks, first, first + rows.count);
    for (const DraftBranch& branch : rows.seq->branches) {
      const int32_t begin = size32(rows.seq->tokens) + branch.after;
      const int32_t end = begin + size32(branch.tokens);
      meets = meets || meets_traffic(branch.blocks, begin, end);
    }
  }
  if (meets) traffic_.before_steps();
}

// Whether rows [first, end) write blocks that are being copied, or read blocks that arrive.
bool ModelRunner::meets_traffic(const SequenceBlocks& blocks, int32_t first, int32_t end) const {
  for (int32_t group = 0; group < size32(blocks.tables); ++group) {
    if (plan_.groups[group].max_blocks == 0) {
      const StateBlocks& state = blocks.state;
      if ((state.current != kNoBlock && traffic_.arriving(group, state.current)) ||
          traffic_.moving(group, state.next) ||
          (state.saved != kNoBlock && traffic_.moving(group, state.saved))) {
        return true;
      }
      continue;
    }
    const int32_t end_block = (end + plan_.block_size - 1) / plan_.block_size;
    for (int32_t i = 0; i < end_block; ++i) {
      const int32_t block = blocks.tables[group][i];
      if (block == kNoBlock) continue;
      const bool written = i >= first / plan_.block_size;
      if (written ? traffic_.moving(group, block) : traffic_.arriving(group, block)) return true;
    }
  }
  return false;
}

void ModelRunner::forward(const kernels::BatchIndex& batch) { model_->forward(step_args(batch)); }

models::StepArgs ModelRunner::step_args(const kernels::BatchIndex& batch) {
  const int64_t vocab = info().vocab_size;
  return {&batch,
          pools_,
          {logits_.data(), kernels::DType::kF32, batch.num_outputs, vocab, vocab},
          std::span(branch_stores_).first(num_branch_stores_),
          adapted_};
}

void ModelRunner::copy_blocks(std::span<const BlockCopy> copies) {
  // One call may run its copies in any order. A block given back and taken again within one plan
  // can be read by one copy and written by a later one, so such a pair goes into two calls.
  size_t begin = 0;
  for (size_t end = 0; end <= copies.size(); ++end) {
    const auto pending = copies.subspan(begin, end - begin);
    const bool flush =
        end == copies.size() || std::ranges::any_of(pending, [&](const BlockCopy& copy) {
          const BlockCopy& next = copies[end];
          return copy.group != next.group || copy.src == next.dst || copy.dst == next.dst ||
                 copy.dst == next.src;
        });
    if (!flush) continue;
    if (!pending.empty()) copy_blocks_of(pending.front().group, pending);
    begin = end;
  }
}

void ModelRunner::copy_blocks_of(int32_t group, std::span<const BlockCopy> copies) {
  copy_src_.clear();
  copy_dst_.clear();
  for (const BlockCopy& copy : copies) {
    copy_src_.push_back(copy.src);
    copy_dst_.push_back(copy.dst);
  }
  const models::KvPool& pool = pools_[group];
  model_->settle();
  if (divided_kv_ != nullptr) return divided_kv_->copy(group, copy_src_, copy_dst_);
  ops_.copy_blocks(ops_.state.get(), {pool.base, pool.block_bytes, copy_src_, copy_dst_});
}

void ModelRunner::upload(size_t offset, size_t count) {
  ops_.copy_to_device(ops_.state.get(), index_.data() + offset, host(offset),
                      count * sizeof(int32_t));
}

/// Rows of consecutive positions that see the same blocks.
struct ModelRunner::RowSet {
  const std::vector<std::vector<int32_t>>& tables;  ///< per group; empty: nothing is stored
  int32_t first = 0;
  int32_t first_output = 0;
  std::span<const int32_t> tokens;
  std::span<const AppliedAdapter> adapters;
  std::span<const int32_t> outputs = {};  ///< as PlannedRows::outputs
};

struct ModelRunner::LaidOut {
  int32_t sets = 0, rows = 0, outputs = 0;
};

void ModelRunner::lay_out(const StepPlan& plan, int32_t shift) {
  const IndexLayout& at = plan_.index;
  HEARTH_CHECK(plan.num_tokens <= plan_.max_step_tokens && plan.num_outputs <= plan_.max_outputs &&
                   size32(plan.rows) <= plan_.max_seqs,
               "tokens={} outputs={} seqs={}", plan.num_tokens, plan.num_outputs, plan.rows.size());
  kernels::BatchIndex& batch = filled_->batch;
  batch = batch_;
  num_branch_stores_ = 0;
  adapted_.clear();
  last_adapters_ = {};
  const std::vector<std::vector<int32_t>> none(stores_nothing(plan) ? 0 : plan_.groups.size());
  LaidOut to;
  for (int32_t i = 0; i < size32(plan.rows); ++i) {
    if (i == plan.num_decode_rows) lay_out_branches(plan, to);
    const PlannedRows& rows = plan.rows[i];
    const Sequence& seq = *rows.seq;
    row_tokens_.clear();
    for (int32_t position = rows.first; position < rows.first + rows.count; ++position) {
      row_tokens_.push_back(shift == 0 ? seq.token(position) : 0);
    }
    const bool states = plan_.groups.back().max_blocks == 0 && !plan.by_draft_layer;
    if (states) lay_out_state(to.sets, rows, shift);
    lay_out_set({stores_nothing(plan) ? none : seq.blocks.tables, rows.first + shift,
                 rows.first_output + shift, row_tokens_, rows.adapters, rows.outputs},
                to);
  }
  if (plan.num_decode_rows == size32(plan.rows)) lay_out_branches(plan, to);
  host(at.query_start)[to.sets] = to.rows;
  HEARTH_CHECK(to.rows == plan.num_tokens && to.outputs == plan.num_outputs, "rows={} outputs={}",
               to.rows, to.outputs);
  batch.num_tokens = host(at.counts)[0] = to.rows;
  batch.num_seqs = host(at.counts)[1] = to.sets;
  batch.num_outputs = host(at.counts)[2] = to.outputs;
  // Everything before the block tables at once.
  upload(0, at.block_table.front() / sizeof(int32_t));
}

void ModelRunner::lay_out_set(const RowSet& set, LaidOut& to) {
  const IndexLayout& at = plan_.index;
  const LaidOut before = to;
  const int32_t index = to.sets++;
  host(at.query_start)[index] = to.rows;
  host(at.context_len)[index] = set.first + size32(set.tokens);
  for (const int32_t position : set.outputs) {
    host(at.output_rows)[to.outputs++] = to.rows + position - set.first;
  }
  for (int32_t i = 0; i < size32(set.tokens); ++i, ++to.rows) {
    const int32_t position = set.first + i;
    host(at.token_ids)[to.rows] = set.tokens[i];
    host(at.positions)[to.rows] = position;
    host(at.seq_idx)[to.rows] = index;
    if (position >= set.first_output) host(at.output_rows)[to.outputs++] = to.rows;
    for (size_t group = 0; group < set.tables.size(); ++group) {
      if (plan_.groups[group].max_blocks == 0) continue;
      host(at.slot_mapping[group])[to.rows] = slot(set.tables[group], position);
    }
  }
  lay_out_adapters(set, before, to);
  for (size_t group = 0; group < set.tables.size(); ++group) {
    if (plan_.groups[group].max_blocks > 0) lay_out_table(group, index, set.tables[group]);
  }
}

// Sets with the same adapters, one after another, are one product.
void ModelRunner::lay_out_adapters(const RowSet& set, const LaidOut& from, const LaidOut& to) {
  const bool same = std::ranges::equal(last_adapters_, set.adapters);
  last_adapters_ = set.adapters;
  if (set.adapters.empty()) return;
  if (!same) {
    for (const AppliedAdapter& each : set.adapters) {
      adapted_.push_back({each.adapter->number, each.scale, from.rows, from.outputs, {}});
      const size_t counts =
          plan_.index.adapted_counts + (adapted_.size() - 1) * 3 * sizeof(int32_t);
      adapted_.back().batch.counts = device(counts);
    }
  }
  for (size_t i = adapted_.size() - set.adapters.size(); i < adapted_.size(); ++i) {
    models::AdaptedRows& rows = adapted_[i];
    int32_t* const counts = host(plan_.index.adapted_counts) + 3 * i;
    rows.batch.num_tokens = counts[0] = to.rows - rows.first_row;
    rows.batch.num_seqs = counts[1] = 1;
    rows.batch.num_outputs = counts[2] = to.outputs - rows.first_output;
  }
}

int32_t ModelRunner::slot(std::span<const int32_t> table, int32_t position) const {
  return table[position / plan_.block_size] * plan_.block_size + position % plan_.block_size;
}

// The rows of the sequences that decode are laid out.
void ModelRunner::lay_out_branches(const StepPlan& plan, LaidOut& to) {
  if (plan.num_branch_rows == 0) return;
  const IndexLayout& at = plan_.index;
  const int32_t num_rows = to.rows;
  for (const size_t slots : at.branch_slots) {
    std::fill_n(host(slots), kMaxBranchesOfSequence * plan_.max_outputs, -1);
  }
  int32_t first_row = 0;
  for (const PlannedRows& rows : std::span(plan.rows).first(plan.num_decode_rows)) {
    size_t store = 0;
    for (const DraftBranch& branch : rows.seq->branches) {
      HEARTH_CHECK(branch.first_row == to.rows, "row {}, planned as {}", to.rows, branch.first_row);
      const int32_t first = size32(rows.seq->tokens) + branch.after;
      lay_out_set({branch.blocks.tables, first, first, branch.tokens, rows.adapters}, to);
      // The rows before it are rows of the sequence. Those in its own blocks are stored there, too.
      const int32_t first_shared =
          std::max(first / plan_.block_size * plan_.block_size, rows.first);
      if (first_shared == first) continue;
      for (size_t group = 0; group < at.branch_slots.size(); ++group) {
        int32_t* const slots = host(at.branch_slots[group]) + store * plan_.max_outputs + first_row;
        for (int32_t position = first_shared; position < first; ++position) {
          slots[position - rows.first] = slot(branch.blocks.tables[group], position);
        }
      }
      num_branch_stores_ = std::max(num_branch_stores_, ++store);
    }
    first_row += rows.count;
  }
  host(at.branch_counts)[0] = num_rows;
  host(at.branch_counts)[1] = host(at.branch_counts)[2] = 0;
  for (kernels::BatchIndex& batch : branch_stores_) batch.num_tokens = num_rows;
}

/// `shift`: see launch(). A row launched ahead is a draft, to be replayed once its token is known.
void ModelRunner::lay_out_state(int32_t row, const PlannedRows& rows, int32_t shift) {
  const StateBlocks& state = rows.seq->blocks.state;
  kernels::StateStep step;
  if (rows.num_drafted == rows.count) {  // the state stays as it is
    HEARTH_CHECK(state.current != kNoBlock && state.tokens == rows.first, "a state of {} for {}",
                 state.tokens, rows.first);
    step.from = step.to = state.current;
    step.keep_first = state.keep_first;
    std::memcpy(host(plan_.index.states) + row * (sizeof step / sizeof(int32_t)), &step,
                sizeof step);
    return;
  }
  const int32_t first = rows.first + shift;
  const int32_t num_drafted = shift == 0 ? rows.num_drafted : rows.count;
  HEARTH_CHECK(state.next != kNoBlock && state.next_tokens == first + rows.count - num_drafted,
               "a state of {} tokens for rows {}+{}", state.next_tokens, first, rows.count);
  step.from = state.current;
  step.to = state.next;
  step.advance = rows.count - num_drafted;
  step.replay = first - state.tokens;
  step.replay_first = state.kept_first;
  step.keep_first = state.keep_first;
  step.saved = state.saved;
  step.saved_after = state.saved == kNoBlock ? 0 : state.saved_tokens - state.tokens;
  std::memcpy(host(plan_.index.states) + row * (sizeof step / sizeof(int32_t)), &step, sizeof step);
}

/// Sends only what has changed: in most steps a row's table is that of the step before.
void ModelRunner::lay_out_table(size_t group, int32_t row, std::span<const int32_t> table) {
  const size_t stride = plan_.groups[group].max_blocks * sizeof(int32_t);
  const size_t offset = plan_.index.block_table[group] + row * stride;
  int32_t* known = tables_.data() + (offset - plan_.index.block_table.front()) / sizeof(int32_t);
  const auto differs = std::ranges::mismatch(table, std::span(known, table.size())).in1;
  const size_t same = differs - table.begin();
  if (same == table.size()) return;
  const std::span<const int32_t> fresh = table.subspan(same);
  std::ranges::copy(fresh, known + same);
  std::ranges::copy(fresh, host(offset) + same);
  upload(offset + same * sizeof(int32_t), fresh.size());
}

}  // namespace hearth::engine
