#include "fake_model.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <string>

#include "engine/sampling/canvas.h"
#include "engine/sampling/canvas_draw.h"
#include "engine/sampling/sampler.h"
#include "kernels/base/check.h"
#include "kernels/base/sizes.h"
#include "kernels/host/host_memory.h"
#include "kernels/ops/elastic_memory.h"
#include "kernels/ops/recurrent_ops.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::tests {
namespace {

/// What one layer stores per token: as many bytes as K and V of one head of two f32.
struct Entry {
  int32_t position;
  int32_t token;
  int32_t layer;
  int32_t written;
};
constexpr int32_t kWritten = 0x5eed;
constexpr int32_t kStateLayer = 77;  // in a state's hash

uint64_t mix(uint64_t h, uint64_t value) {
  h = (h ^ value) * 0x9e3779b97f4a7c15u;
  h ^= h >> 29;
  h *= 0xbf58476d1ce4e5b9u;
  return h ^ (h >> 32);
}

uint64_t mix_entry(uint64_t h, int32_t position, int32_t token, int32_t layer) {
  return mix(h, (static_cast<uint64_t>(static_cast<uint32_t>(position)) << 32) ^
                    (static_cast<uint64_t>(static_cast<uint32_t>(token)) << 8) ^
                    static_cast<uint32_t>(layer));
}

void logits_of(uint64_t h, std::span<float> out) {
  for (size_t token = 0; token < out.size(); ++token) {
    out[token] = static_cast<float>(mix(h, token) >> 40) * (8.0f / (1 << 24)) - 4.0f;
  }
}

int32_t first_visible(int32_t window, int32_t position) {
  return window == 0 ? 0 : std::max(0, position - window + 1);
}

Entry* entry(const models::KvPool& pool, int32_t slot, int32_t layer) {
  const int64_t layer_bytes = static_cast<int64_t>(pool.block_size) * int64_t{sizeof(Entry)};
  std::byte* block = pool.base + (slot / pool.block_size) * pool.block_bytes;
  return reinterpret_cast<Entry*>(block + layer * layer_bytes) + slot % pool.block_size;
}

void* allocate(void* state, size_t bytes) {
  auto& device = *static_cast<FakeDevice*>(state);
  if (device.bytes + bytes > device.limit) return nullptr;
  device.bytes += bytes;
  device.bytes_max = std::max(device.bytes_max, device.bytes);
  return std::calloc(1, bytes);
}
void release(void* state, void* memory, size_t bytes) {
  static_cast<FakeDevice*>(state)->bytes -= bytes;
  std::free(memory);
}

std::byte* reserve(void* state, size_t bytes) {
  auto& device = *static_cast<FakeDevice*>(state);
  if (device.bytes + bytes > device.limit) return nullptr;
  device.bytes += bytes;
  device.bytes_max = std::max(device.bytes_max, device.bytes);
  return kernels::reserve_host(bytes);
}
void release_reserved(void* state, std::byte* memory, size_t bytes) {
  static_cast<FakeDevice*>(state)->bytes -= bytes;
  kernels::release_reserved_host(memory, bytes);
}
bool back(void* state, std::byte* begin, size_t bytes) {
  auto& device = *static_cast<FakeDevice*>(state);
  if (device.backed + bytes > device.backed_limit) return false;
  device.backed += bytes;
  ++device.times_backed;
  return kernels::back_host(begin, bytes);
}
void give_back(void* state, std::byte* begin, size_t bytes) {
  auto& device = *static_cast<FakeDevice*>(state);
  device.backed -= bytes;
  ++device.times_given_back;
  kernels::give_back_host(begin, bytes);
}
// A page holds a few blocks.
const kernels::ElasticMemory kElastic = {.granule = static_cast<size_t>(sysconf(_SC_PAGESIZE)),
                                         .reserve = reserve,
                                         .release = release_reserved,
                                         .back = back,
                                         .give_back = give_back};

void copy(void*, void* dst, const void* src, size_t bytes) {
  if (bytes > 0) std::memcpy(dst, src, bytes);
}
void copy_blocks(void*, const kernels::CopyBlocksArgs& args) {
  // Reads all sources before it writes any destination, as a device may.
  const auto bytes = static_cast<size_t>(args.block_bytes);
  std::vector<std::byte> read(args.src.size() * bytes);
  for (size_t i = 0; i < args.src.size(); ++i) {
    std::memcpy(read.data() + i * bytes, args.base + args.src[i] * args.block_bytes, bytes);
  }
  for (size_t i = 0; i < args.dst.size(); ++i) {
    std::memcpy(args.base + args.dst[i] * args.block_bytes, read.data() + i * bytes, bytes);
  }
}

}  // namespace

kernels::OpTable fake_ops(std::shared_ptr<FakeDevice> device) {
  kernels::OpTable ops;
  ops.device.kind = "fake";
  ops.device.memory_bytes = ops.device.memory_free_bytes = 1u << 30;
  ops.numerics_id = "fake";
  ops.state = std::move(device);
  ops.allocate = allocate;
  ops.release = release;
  ops.elastic = &kElastic;
  ops.copy_to_device = copy;
  ops.copy_to_host = copy;
  ops.synchronize = [](void*) {};
  ops.copy_blocks = copy_blocks;
  return ops;
}

FakeModel::FakeModel(const FakeModelConfig& config, std::shared_ptr<FakeDevice> device,
                     FakeClock& clock)
    : config_(config), ops_(fake_ops(std::move(device))), clock_(clock) {
  info_.name = "fake";
  info_.fingerprint = "fake";
  info_.context_length = config.context_length;
  info_.vocab_size = info_.draft_vocab = config.vocab_size;
  info_.drafts = config.drafts;
  info_.draft_heads = config.draft_heads;
  info_.canvas = config.canvas;
  for (const int32_t window : config.windows) {
    models::LayerGroup group;
    if (window == kRecurrent) {
      group.kind = models::LayerGroup::Kind::kRecurrent;
      group.num_layers = 1;
      group.state_bytes = sizeof(State);
      info_.groups.push_back(group);
      continue;
    }
    group.kind = window == 0 ? models::LayerGroup::Kind::kFull : models::LayerGroup::Kind::kSliding;
    group.window = window;
    group.num_layers = config.num_layers;
    group.kv = kernels::KvShape::even(1, 2);
    info_.groups.push_back(group);
  }
}

void FakeModel::advance(State& state, const Token& token) {
  HEARTH_CHECK(state.written == kWritten && state.tokens == token.position,
               "a state of {} tokens is given the one at {}", state.tokens, token.position);
  state.hash = mix_entry(state.hash, token.position, token.token, kStateLayer);
  ++state.tokens;
}

void FakeModel::compute_states(const kernels::BatchIndex& batch, const models::KvPool& pool) {
  constexpr size_t kKept = 2 * static_cast<size_t>(kernels::kKeptRows);
  kept_.resize(kKept);
  row_states_.resize(static_cast<size_t>(batch.num_tokens));
  const auto block = [&pool](int32_t index) {
    HEARTH_CHECK(index >= 0);
    return reinterpret_cast<State*>(pool.base + index * pool.block_bytes);
  };
  std::set<int32_t> written, read;
  std::vector<std::pair<size_t, Token>> keeps;
  for (int32_t s = 0; s < batch.num_seqs; ++s) {
    const kernels::StateStep& step = batch.states[s];
    State state = step.from < 0 ? State{0, 0, kWritten} : *block(step.from);
    int32_t done = 0;
    const auto after_row = [&] {
      if (++done == step.saved_after && step.saved >= 0) *block(step.saved) = state;
    };
    for (int32_t i = 0; i < step.replay; ++i) {
      advance(state, kept_[static_cast<size_t>(step.replay_first + i)]);
      after_row();
    }
    const int32_t first = batch.query_start[s];
    const auto row = [&](int32_t r) {
      advance(state, {batch.positions[r], batch.token_ids[r]});
      row_states_[static_cast<size_t>(r)] = state;
    };
    for (int32_t r = first; r < first + step.advance; ++r) {
      row(r);
      after_row();
    }
    *block(step.to) = state;
    for (int32_t r = first + step.advance; r < batch.query_start[s + 1]; ++r) {
      row(r);
      const auto kept = static_cast<size_t>(step.keep_first + r - first - step.advance);
      HEARTH_CHECK(kept < kKept);
      keeps.push_back({kept, {batch.positions[r], batch.token_ids[r]}});
    }
    // No other sequence of the step may read what this one writes, nor write it too.
    if (step.from >= 0 && step.from != step.to) read.insert(step.from);
    HEARTH_CHECK(written.insert(step.to).second, "block {} is written twice", step.to);
    HEARTH_CHECK(step.saved < 0 || written.insert(step.saved).second, "block {} is written twice",
                 step.saved);
  }
  for (const int32_t index : read) HEARTH_CHECK(!written.contains(index), "block {}", index);
  for (const auto& [index, token] : keeps) kept_[index] = token;
}

uint64_t FakeModel::activation_bytes(int32_t max_tokens, int32_t max_outputs) const {
  return static_cast<uint64_t>(max_tokens) * 24 + static_cast<uint64_t>(max_outputs) * 8;
}

Result<void> FakeModel::reserve(int32_t max_tokens, int32_t max_outputs) {
  HEARTH_ASSIGN_OR_RETURN(
      activations_, kernels::DeviceBuffer::allocate(ops_, activation_bytes(max_tokens, max_outputs),
                                                    "activations"));
  return {};
}

void FakeModel::choose_draft_rows(std::span<const int32_t> rows, bool own) {
  const std::vector<int32_t>& from = own ? own_positions_ : step_positions_;
  continued_.clear();
  for (const int32_t row : rows) continued_.push_back(from.at(static_cast<size_t>(row)));
}

void FakeModel::draft(const models::StepArgs& args, int32_t place) {
  (void)place;
  const kernels::BatchIndex& batch = *args.batch;
  const models::KvPool& pool = args.pools.front();
  const kernels::GroupIndex& index = batch.groups.front();
  const int32_t layer = config_.num_layers - 1;
  HEARTH_CHECK(batch.num_tokens == batch.num_seqs && batch.num_outputs == batch.num_seqs);
  HEARTH_CHECK(continued_.size() == static_cast<size_t>(batch.num_tokens));
  own_positions_.clear();
  for (int32_t row = 0; row < batch.num_tokens; ++row) {
    const int32_t position = batch.positions[row];
    HEARTH_CHECK(continued_[static_cast<size_t>(row)] + 1 == position,
                 "the row at {} is continued at {}", continued_[static_cast<size_t>(row)],
                 position);
    own_positions_.push_back(position);
    if (info_.draft_heads > 0) {
      logits_of(mix_entry(0, position, batch.token_ids[row], layer),
                {args.logits.row<float>(row), static_cast<size_t>(info_.vocab_size)});
      continue;
    }
    *entry(pool, index.slot_mapping[row], layer) = {position, batch.token_ids[row], layer,
                                                    kWritten};
    const int32_t* table = index.block_table + batch.seq_idx[row] * index.max_blocks;
    std::vector<int32_t> history;
    for (int32_t p = 0; p <= position; ++p) {
      const Entry& e =
          *entry(pool, table[p / pool.block_size] * pool.block_size + p % pool.block_size, layer);
      HEARTH_CHECK(e.position == p && e.layer == layer && e.written == kWritten);
      history.push_back(e.token);
    }
    std::vector<float> logits = expected_logits(config_, history);
    if ((position + 1) % config_.wrong_every == 0) std::ranges::rotate(logits, logits.begin() + 1);
    std::ranges::copy(logits, args.logits.row<float>(row));
  }
  ++num_drafts_;
  clock_.advance_us(std::llround(config_.cost.base_us / 20));
  if (after_draft) after_draft(args);
}

void FakeModel::store_tokens(const models::StepArgs& args, size_t g) {
  const kernels::BatchIndex& batch = *args.batch;
  const models::KvPool& pool = args.pools[g];
  const kernels::GroupIndex& index = batch.groups[g];
  std::set<int32_t> slots;
  for (int32_t row = 0; row < batch.num_tokens; ++row) {
    const int32_t slot = index.slot_mapping[row];
    const int32_t position = batch.positions[row];
    const int32_t block =
        index.block_table[batch.seq_idx[row] * index.max_blocks + position / pool.block_size];
    HEARTH_CHECK(slot >= 0 && slot == block * pool.block_size + position % pool.block_size);
    HEARTH_CHECK(slots.insert(slot).second, "slot {} is written twice in one step", slot);
    for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
      *entry(pool, slot, layer) = {position, batch.token_ids[row], layer, kWritten};
    }
  }
  for (const kernels::BatchIndex& also : args.also_stored) {
    HEARTH_CHECK(also.counts[0] == also.num_tokens && also.num_tokens <= batch.num_tokens);
    for (int32_t row = 0; row < also.num_tokens; ++row) {
      const int32_t slot = also.groups[g].slot_mapping[row];
      if (slot < 0) continue;
      HEARTH_CHECK(slots.insert(slot).second, "slot {} is written twice in one step", slot);
      for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
        *entry(pool, slot, layer) = {batch.positions[row], batch.token_ids[row], layer, kWritten};
      }
    }
  }
}

uint64_t FakeModel::hash_of_row(const models::StepArgs& args, int32_t row) const {
  const kernels::BatchIndex& batch = *args.batch;
  const int32_t seq = batch.seq_idx[row];
  const int32_t position = batch.positions[row];
  const int32_t last = info_.denoises() ? batch.context_len[seq] - 1 : position;
  uint64_t h = 0;
  for (size_t g = 0; g < info_.groups.size(); ++g) {
    const models::KvPool& pool = args.pools[g];
    if (info_.groups[g].recurrent()) {
      h = mix(h, row_states_[static_cast<size_t>(row)].hash);
      continue;
    }
    const kernels::GroupIndex& index = batch.groups[g];
    const int32_t* table = index.block_table + seq * index.max_blocks;
    for (int32_t p = first_visible(config_.windows[g], position); p <= last; ++p) {
      const int32_t block = table[p / pool.block_size];
      HEARTH_CHECK(block >= 0, "position {} of row {} has no block", p, row);
      for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
        const Entry& e = *entry(pool, block * pool.block_size + p % pool.block_size, layer);
        h = mix_entry(h, e.position, e.token, e.layer + (e.written == kWritten ? 0 : 1000));
      }
    }
  }
  return info_.denoises() ? mix(h, static_cast<uint64_t>(position)) : h;
}

void FakeModel::forward(const models::StepArgs& args) {
  if (before_step) before_step(args);
  const kernels::BatchIndex& batch = *args.batch;
  step_positions_.assign(batch.positions, batch.positions + batch.num_tokens);
  HEARTH_CHECK(batch.counts[0] == batch.num_tokens && batch.counts[1] == batch.num_seqs &&
               batch.counts[2] == batch.num_outputs);
  HEARTH_CHECK(batch.num_tokens > 0 && batch.num_seqs > 0 && batch.query_start[0] == 0 &&
               batch.query_start[batch.num_seqs] == batch.num_tokens);
  double cost = config_.cost.base_us + config_.cost.per_token_us * batch.num_tokens;
  for (int32_t s = 0; s < batch.num_seqs; ++s) {
    const int32_t begin = batch.query_start[s];
    const int32_t end = batch.query_start[s + 1];
    HEARTH_CHECK(begin < end && batch.positions[end - 1] + 1 == batch.context_len[s]);
    HEARTH_CHECK(!info_.denoises() || batch.positions[begin] == 0, "half of a canvas");
    for (int32_t row = begin; row < end; ++row) {
      HEARTH_CHECK(batch.seq_idx[row] == s);
      HEARTH_CHECK(row == begin || batch.positions[row] == batch.positions[row - 1] + 1);
      cost += config_.cost.per_context_us * (batch.positions[row] + 1);
    }
  }
  for (size_t g = 0; g < info_.groups.size(); ++g) {
    const models::KvPool& pool = args.pools[g];
    if (info_.groups[g].recurrent()) {
      compute_states(batch, pool);
      continue;
    }
    store_tokens(args, g);
  }
  for (int32_t i = 0; i < batch.num_outputs; ++i) {
    logits_of(hash_of_row(args, batch.output_rows[i]),
              {args.logits.row<float>(i), static_cast<size_t>(info_.vocab_size)});
  }
  clock_.advance_us(std::llround(cost));
  if (after_step) after_step(args);
}

namespace {
/// The hash of what the row at `position` sees of `tokens`, up to `last`.
uint64_t expected_hash(const FakeModelConfig& config, std::span<const int32_t> tokens,
                       int32_t position, int32_t last) {
  uint64_t h = 0;
  for (const int32_t window : config.windows) {
    if (window == kRecurrent) {
      uint64_t state = 0;
      for (int32_t p = 0; p <= last; ++p) {
        state = mix_entry(state, p, tokens[static_cast<size_t>(p)], kStateLayer);
      }
      h = mix(h, state);
      continue;
    }
    for (int32_t p = first_visible(window, position); p <= last; ++p) {
      for (int32_t layer = 0; layer < config.num_layers; ++layer) {
        h = mix_entry(h, p, tokens[static_cast<size_t>(p)], layer);
      }
    }
  }
  return h;
}

std::vector<float> logits_after(const FakeModelConfig& config, uint64_t hash) {
  std::vector<float> out(static_cast<size_t>(config.vocab_size));
  logits_of(hash, out);
  return out;
}
}  // namespace

std::vector<float> expected_logits(const FakeModelConfig& config,
                                   std::span<const int32_t> history) {
  const int32_t last = size32(history) - 1;
  return logits_after(config, expected_hash(config, history, last, last));
}

namespace {
/// The token that must follow by the request's bound on reasoning, found in the whole text so far.
std::optional<int32_t> expected_closing(const engine::ReasoningBound& bound,
                                        const std::vector<int32_t>& output) {
  std::string text;
  bool begun = bound.open;
  int32_t inside = 0;
  for (size_t i = 0; i <= output.size(); ++i) {
    if (begun && inside == bound.max_tokens) {
      const size_t closed = output.size() - i;
      return closed < bound.closing.size() ? std::optional(bound.closing[closed]) : std::nullopt;
    }
    if (i == output.size()) break;
    text += bound.tokenizer->piece(output[i]);
    if (begun) ++inside;
    const size_t from = bound.open ? 0 : bound.begin.size();
    if (!begun && text.size() >= from) begun = text.starts_with(bound.begin);
    if (!begun && text.size() >= from) return std::nullopt;
    if (begun && text.find(bound.end, from) != std::string::npos) return std::nullopt;
  }
  return std::nullopt;
}

/// The tokens that a pass draws for the canvas's places.
std::vector<engine::CanvasDraw> expected_draws(const FakeModelConfig& config,
                                               const engine::Request& request, int32_t sample,
                                               const engine::Canvas& canvas,
                                               std::span<const int32_t> tokens) {
  engine::Sampler sampler(config.vocab_size);
  engine::SamplingParams params = request.sampling;
  params.seed = canvas.pass_seed();
  std::vector<engine::CanvasDraw> draws;
  for (int32_t i = 0; i < size32(canvas.places()); ++i) {
    const int32_t row = canvas.rows()[static_cast<size_t>(i)];
    std::vector<float> logits = logits_after(
        config,
        mix(expected_hash(config, tokens, row, size32(tokens) - 1), static_cast<uint64_t>(row)));
    engine::SampleArgs args;
    args.params = &params;
    args.sample = sample;
    args.position = canvas.places()[static_cast<size_t>(i)];
    std::vector<int32_t> banned = {config.canvas.mask_token};
    if (args.position - size32(request.prompt) < request.min_tokens) {
      banned.insert(banned.end(), request.stop_ids.begin(), request.stop_ids.end());
    }
    args.banned = banned;
    draws.push_back(
        engine::draw_place(sampler, logits, args, config.canvas, request.canvas->remasking)
            .value());
  }
  return draws;
}

Expected expected_canvas(const FakeModelConfig& config, const engine::Request& request,
                         int32_t sample) {
  engine::Canvas canvas(config.canvas, *request.canvas,
                        {.prompt = size32(request.prompt),
                         .length = request.max_tokens,
                         .sample = sample,
                         .seed = request.sampling.seed});
  std::vector<int32_t> tokens = request.prompt;
  tokens.resize(request.prompt.size() + static_cast<size_t>(request.max_tokens),
                config.canvas.mask_token);
  while (!canvas.places().empty()) {
    canvas.take(expected_draws(config, request, sample, canvas, tokens), tokens);
  }
  Expected out;
  for (size_t i = request.prompt.size(); i < tokens.size(); ++i) {
    if (size32(out.tokens) >= request.min_tokens &&
        std::ranges::count(request.stop_ids, tokens[i]) > 0) {
      out.reason = engine::FinishReason::kStop;
      break;
    }
    out.tokens.push_back(tokens[i]);
  }
  return out;
}
}  // namespace

Expected expected_tokens(const FakeModelConfig& config, const engine::Request& request,
                         int32_t sample) {
  if (request.canvas) return expected_canvas(config, request, sample);
  engine::Sampler sampler(config.vocab_size);
  std::vector<int32_t> history = request.prompt;
  Expected out;
  while (static_cast<int32_t>(out.tokens.size()) < request.max_tokens) {
    std::vector<float> logits = expected_logits(config, history);
    engine::SampleArgs args;
    args.params = &request.sampling;
    args.history = history;
    const bool stops_count = static_cast<int32_t>(out.tokens.size()) >= request.min_tokens;
    if (!stops_count) args.banned = request.stop_ids;
    args.sample = sample;
    args.position = static_cast<int32_t>(history.size());
    std::optional<int32_t> closing;
    if (request.reasoning) closing = expected_closing(*request.reasoning, out.tokens);
    const int32_t token = closing ? *closing : sampler.sample(logits, args).value().token;
    if (stops_count && std::ranges::count(request.stop_ids, token) > 0) {
      out.reason = engine::FinishReason::kStop;
      break;
    }
    out.tokens.push_back(token);
    history.push_back(token);
  }
  return out;
}

}  // namespace hearth::tests
