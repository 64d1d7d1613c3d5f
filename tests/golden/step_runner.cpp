#include "tests/golden/step_runner.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace hearth::golden {
namespace {

constexpr int32_t kBlockSize = 16;

kernels::DeviceBuffer take(const kernels::OpTable& ops, size_t bytes, const char* what) {
  auto buffer = kernels::DeviceBuffer::allocate(ops, bytes, what);
  REQUIRE_MESSAGE(buffer.ok(), what);
  return std::move(buffer).value();
}

/// The rows of a step with adapters, and their counts.
struct Adapted {
  std::vector<models::AdaptedRows> rows;
  std::vector<int32_t> counts;  // three each

  void place(const int32_t* device_counts) {
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].batch.counts = device_counts + 3 * i;
      rows[i].batch.num_tokens = counts[3 * i];
      rows[i].batch.num_outputs = counts[3 * i + 2];
    }
  }
};

/// One after another, as many as chunks have adapters.
Adapted adapted_of(std::span<const Chunk> chunks) {
  Adapted out;
  int32_t first_row = 0, first_output = 0;
  for (const Chunk& chunk : chunks) {
    const auto rows = static_cast<int32_t>(chunk.tokens.size());
    const int32_t num_outputs = chunk.want_all ? rows : 1;
    for (const auto& [adapter, scale] : chunk.adapters) {
      out.rows.push_back({adapter, scale, first_row, first_output, {}});
      out.counts.insert(out.counts.end(), {rows, 1, num_outputs});
    }
    first_row += rows;
    first_output += num_outputs;
  }
  return out;
}

}  // namespace

StepRunner::StepRunner(const models::GgufFile& file, const kernels::OpTable& ops,
                       kernels::KvTypes kv_type, const Bounds& bounds)
    : ops_(ops), bounds_(bounds), lengths_(static_cast<size_t>(bounds.seqs), 0) {
  auto loaded = models::load_model(file, ops_, nullptr,
                                   {.draft_layer = bounds.draft_layer, .heads = bounds.heads});
  REQUIRE_MESSAGE(loaded.ok(), loaded.error().message);
  model_ = std::move(loaded).value();
  if (bounds.model_context > 0) model_->set_context_length(bounds.model_context);
  REQUIRE(model_->reserve(bounds.step_tokens, bounds.step_tokens).ok());
  const int32_t blocks = bounds.seqs * ((bounds.context + kBlockSize - 1) / kBlockSize);
  for (const models::LayerGroup& group : model_->info().groups) {
    const int64_t block_bytes = group.block_bytes(kv_type, kBlockSize);
    memory_.push_back(take(ops_, static_cast<size_t>(block_bytes * blocks), "kv"));
    pools_.push_back({memory_.back().data(), block_bytes, kBlockSize, kv_type});
  }
  logits_ = take(ops_,
                 static_cast<size_t>(bounds.step_tokens) * sizeof(float) *
                     static_cast<size_t>(model_->info().vocab_size),
                 "logits");
}

std::vector<std::vector<float>> StepRunner::step(std::span<const Chunk> chunks) {
  return run(chunks, {});
}

std::vector<std::vector<float>> StepRunner::draft(std::span<const Chunk> chunks,
                                                  std::span<const int32_t> rows, int32_t ahead) {
  const std::vector<int32_t> lengths = lengths_;
  for (const Chunk& chunk : chunks) lengths_[static_cast<size_t>(chunk.seq)] += ahead;
  model_->choose_draft_rows(rows, ahead > 0);
  auto logits = run(chunks, ahead);
  lengths_ = lengths;
  return logits;
}

std::vector<std::vector<float>> StepRunner::drafts_after(std::span<const int32_t> tokens,
                                                         int32_t chunk,
                                                         std::span<const int32_t> drafts) {
  // A draft needs a final row to continue, so at least one token is computed before.
  const auto computed = tokens.first(tokens.size() - 1);
  feed(0, computed, chunk);
  auto row = static_cast<int32_t>((computed.size() - 1) % static_cast<size_t>(chunk));
  std::vector<std::vector<float>> out;
  for (size_t i = 0; i < drafts.size(); ++i) {
    const int32_t token = i == 0 ? tokens.back() : drafts[i - 1];
    const Chunk next{0, {&token, 1}};
    out.push_back(draft({&next, 1}, {&row, 1}, static_cast<int32_t>(i)).front());
    row = 0;
  }
  return out;
}

std::vector<std::vector<float>> StepRunner::block_after(std::span<const int32_t> tokens,
                                                        int32_t chunk, int32_t count) {
  feed(0, tokens.first(tokens.size() - 1), chunk);
  return blocks(tokens.last(1), count);
}

std::vector<std::vector<float>> StepRunner::blocks(std::span<const int32_t> last, int32_t count) {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<Chunk> chunks;
  for (const int32_t token : last) {
    std::vector<int32_t>& block = tokens.emplace_back(1, token);
    block.resize(static_cast<size_t>(count) + 1, info().draft_mask);
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    chunks.push_back({static_cast<int32_t>(i), tokens[i], true});
  }
  const std::vector<std::vector<float>> rows = draft(chunks, {}, 0);
  std::vector<std::vector<float>> out;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i % (static_cast<size_t>(count) + 1) != 0) out.push_back(rows[i]);
  }
  return out;
}

std::vector<std::vector<float>> StepRunner::run(std::span<const Chunk> chunks,
                                                std::optional<int32_t> place) {
  const int32_t max_blocks = (bounds_.context + kBlockSize - 1) / kBlockSize;
  // Logical block i of sequence s: interleaved and in reverse, so that a missing block table lookup
  // shows.
  const auto physical = [&](int32_t s, int32_t i) {
    return bounds_.seqs * max_blocks - 1 - (i * bounds_.seqs + s);
  };
  std::vector<int32_t> tokens, positions, seq_idx, query_start = {0}, context_len, outputs, slots,
                                                   table, states;
  for (const Chunk& chunk : chunks) {
    const auto row = static_cast<int32_t>(context_len.size());
    int32_t& length = lengths_[static_cast<size_t>(chunk.seq)];
    // Each sequence's state is in one block, changed in place.
    const kernels::StateStep state{.from = length == 0 ? -1 : chunk.seq,
                                   .to = chunk.seq,
                                   .advance = static_cast<int32_t>(chunk.tokens.size())};
    const auto ints = std::bit_cast<std::array<int32_t, sizeof state / sizeof(int32_t)>>(state);
    states.insert(states.end(), ints.begin(), ints.end());
    for (size_t i = 0; i < chunk.tokens.size(); ++i, ++length) {
      if (chunk.want_all || i + 1 == chunk.tokens.size()) {
        outputs.push_back(static_cast<int32_t>(tokens.size()));
      }
      tokens.push_back(chunk.tokens[i]);
      positions.push_back(length);
      seq_idx.push_back(row);
      slots.push_back(physical(chunk.seq, length / kBlockSize) * kBlockSize + length % kBlockSize);
    }
    query_start.push_back(static_cast<int32_t>(tokens.size()));
    context_len.push_back(length);
    for (int32_t i = 0; i < max_blocks; ++i) table.push_back(physical(chunk.seq, i));
  }

  Adapted adapters = adapted_of(chunks);
  std::vector<int32_t> counts = {static_cast<int32_t>(tokens.size()),
                                 static_cast<int32_t>(chunks.size()),
                                 static_cast<int32_t>(outputs.size())};
  std::vector<int32_t> all;
  std::vector<size_t> starts;
  for (const auto* part : {&counts, &tokens, &positions, &seq_idx, &query_start, &context_len,
                           &outputs, &slots, &table, &states, &adapters.counts}) {
    starts.push_back(all.size());
    all.insert(all.end(), part->begin(), part->end());
  }
  index_ = take(ops_, all.size() * sizeof(int32_t), "index");
  ops_.copy_to_device(ops_.state.get(), index_.data(), all.data(), all.size() * sizeof(int32_t));
  const auto at = [&](size_t part) { return index_.as<int32_t>() + starts[part]; };

  kernels::GroupIndex group;
  group.slot_mapping = at(7);
  group.block_table = at(8);
  group.max_blocks = max_blocks;
  const std::vector<kernels::GroupIndex> groups(pools_.size(), group);
  kernels::BatchIndex batch;
  batch.num_tokens = counts[0];
  batch.num_seqs = counts[1];
  batch.num_outputs = counts[2];
  batch.counts = at(0);
  batch.token_ids = at(1);
  batch.positions = at(2);
  batch.seq_idx = at(3);
  batch.query_start = at(4);
  batch.context_len = at(5);
  batch.output_rows = at(6);
  batch.groups = groups;
  batch.states = reinterpret_cast<const kernels::StateStep*>(at(9));

  adapters.place(at(10));

  const int32_t vocab = model_->info().vocab_size;
  kernels::TensorView logits;
  logits.data = logits_.data();
  logits.rows = counts[2];
  logits.cols = logits.row_stride = vocab;
  if (place.has_value()) {
    model_->draft({&batch, pools_, logits}, *place);
  } else {
    model_->forward({.batch = &batch, .pools = pools_, .logits = logits, .adapted = adapters.rows});
  }
  ops_.synchronize(ops_.state.get());

  std::vector<std::vector<float>> out(outputs.size(),
                                      std::vector<float>(static_cast<size_t>(vocab)));
  for (size_t i = 0; i < out.size(); ++i) {
    ops_.copy_to_host(ops_.state.get(), out[i].data(), logits.row<float>(static_cast<int64_t>(i)),
                      out[i].size() * sizeof(float));
  }
  return out;
}

std::vector<std::vector<float>> StepRunner::feed(int32_t seq, std::span<const int32_t> tokens,
                                                 int32_t chunk, bool want_all) {
  std::vector<std::vector<float>> out;
  for (size_t begin = 0; begin < tokens.size(); begin += static_cast<size_t>(chunk)) {
    const size_t count = std::min(tokens.size() - begin, static_cast<size_t>(chunk));
    const Chunk part{seq, tokens.subspan(begin, count), want_all};
    auto logits = step({&part, 1});
    if (!want_all) out.clear();
    out.insert(out.end(), logits.begin(), logits.end());
  }
  return out;
}

int32_t argmax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double logprob(std::span<const float> logits, int32_t id) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return logits[static_cast<size_t>(id)] - most - std::log(sum);
}

}  // namespace hearth::golden
