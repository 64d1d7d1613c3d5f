#include "daemon/worker/tools/perplexity/logits_runner.h"

#include <cstring>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/sizes.h"

namespace hearth::worker {
namespace {

using kernels::DeviceBuffer;

constexpr int32_t kBlockSize = 16;
constexpr size_t kIndexParts = 10;

}  // namespace

int32_t LogitsRunner::num_blocks() const { return (context_ + kBlockSize - 1) / kBlockSize; }

Result<std::unique_ptr<LogitsRunner>> LogitsRunner::create(std::unique_ptr<models::Model> model,
                                                           kernels::OpTable ops,
                                                           kernels::KvTypes kv_type,
                                                           int32_t context) {
  if (!model->info().generates) {
    return Error::unsupported("the model is an encoder, which has no logits; want one of text");
  }
  if (model->info().denoises()) {
    return Error::unsupported(
        "the model fills canvases: it predicts no token from those before it alone");
  }
  std::unique_ptr<LogitsRunner> out(new LogitsRunner(std::move(model), std::move(ops), context));
  HEARTH_TRY(models::check_kv_types(out->info(), kv_type));
  HEARTH_TRY(kernels::check_kv_types(out->ops_, kv_type));
  out->model_->set_context_length(context);
  HEARTH_TRY(out->model_->reserve(kStepTokens, kStepTokens));
  for (const models::LayerGroup& group : out->info().groups) {
    const int64_t block_bytes = group.block_bytes(kv_type, kBlockSize);
    const int32_t blocks = group.recurrent() ? 1 : out->num_blocks();
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer memory,
                            DeviceBuffer::allocate(out->ops_, block_bytes * blocks, "KV blocks"));
    out->pools_.push_back({memory.data(), block_bytes, kBlockSize, kv_type});
    out->pool_memory_.push_back(std::move(memory));
  }
  const size_t vocab = out->info().vocab_size;
  HEARTH_ASSIGN_OR_RETURN(
      out->logits_,
      DeviceBuffer::allocate(out->ops_, kStepTokens * vocab * sizeof(float), "logits"));
  const auto index_ints = kIndexParts * kStepTokens + out->num_blocks();
  HEARTH_ASSIGN_OR_RETURN(out->index_,
                          DeviceBuffer::allocate(out->ops_, index_ints * sizeof(int32_t), "index"));
  out->host_logits_.resize(kStepTokens * vocab);
  return out;
}

std::span<const float> LogitsRunner::step(std::span<const int32_t> tokens) {
  const auto count = size32(tokens);
  HEARTH_CHECK(count >= 1 && count <= kStepTokens && length_ + count <= context_,
               "{} tokens after {} of {}", count, length_, context_);
  // Parts of kStepTokens each: counts, ids, positions, sequence, query start, context, outputs,
  // slots, the state's step; then the block table, which is the identity.
  std::vector<int32_t> index(kIndexParts * kStepTokens + num_blocks());
  const auto part = [&](size_t i) { return index.data() + i * kStepTokens; };
  part(0)[0] = count;
  part(0)[1] = 1;
  part(0)[2] = count;
  for (int32_t i = 0; i < count; ++i) {
    part(1)[i] = tokens[i];
    part(2)[i] = length_ + i;
    part(6)[i] = i;
    part(7)[i] = length_ + i;
  }
  part(4)[1] = count;
  part(5)[0] = length_ + count;
  const kernels::StateStep state{.from = length_ == 0 ? -1 : 0, .to = 0, .advance = count};
  static_assert(sizeof state <= kStepTokens * sizeof(int32_t));
  std::memcpy(part(8), &state, sizeof state);
  for (int32_t i = 0; i < num_blocks(); ++i) part(9)[i] = i;
  ops_.copy_to_device(ops_.state.get(), index_.data(), index.data(),
                      index.size() * sizeof(int32_t));
  const auto at = [&](size_t i) { return index_.as<int32_t>() + i * kStepTokens; };
  const std::vector<kernels::GroupIndex> groups(
      pools_.size(), {.block_table = at(9), .max_blocks = num_blocks(), .slot_mapping = at(7)});
  kernels::BatchIndex batch;
  batch.num_tokens = count;
  batch.num_seqs = 1;
  batch.num_outputs = count;
  batch.counts = at(0);
  batch.token_ids = at(1);
  batch.positions = at(2);
  batch.seq_idx = at(3);
  batch.query_start = at(4);
  batch.context_len = at(5);
  batch.output_rows = at(6);
  batch.groups = groups;
  batch.states = reinterpret_cast<const kernels::StateStep*>(at(8));
  kernels::TensorView logits;
  logits.data = logits_.data();
  logits.rows = count;
  logits.cols = logits.row_stride = info().vocab_size;
  model_->forward({&batch, pools_, logits});
  ops_.synchronize(ops_.state.get());
  length_ += count;
  const size_t values = tokens.size() * info().vocab_size;
  ops_.copy_to_host(ops_.state.get(), host_logits_.data(), logits_.data(), values * sizeof(float));
  return std::span(host_logits_).first(values);
}

}  // namespace hearth::worker
