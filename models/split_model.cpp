#include "models/split_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "models/device_index.h"
#include "models/divided_kv.h"
#include "models/gguf/gguf_file.h"

namespace hearth::models {
namespace {

using kernels::BatchIndex;
using kernels::DType;
using kernels::OpTable;
using kernels::TensorView;

size_t row_span(int64_t rows, const TensorView& view) {
  return rows == 0 ? 0 : sizeof(float) * ((rows - 1) * view.row_stride + view.cols);
}

/// Host memory through which shares exchange rows. What is gathered and what is joined takes turns
/// (Decoder), so each of the two is written again only when all have called for the other, and have
/// read it.
struct Exchange {
  explicit Exchange(size_t shares) : num_shares(shares) {}

  /// Returns when all shares have called it as often.
  void meet(uint64_t* calls) {
    ++*calls;
    const uint64_t all = *calls * num_shares;
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == all) return arrived.notify_all();
    kernels::wait_for_count(arrived, all);
  }

  const uint64_t num_shares;
  std::atomic<uint64_t> arrived{0};
  float* gathered = nullptr;    ///< (tokens, gathered_columns)
  float* joined = nullptr;      ///< (tokens, width)
  std::vector<int32_t> owners;  ///< of the step's rows: the share with the embedding
};

/// One share's end.
class Link final : public ShareLink {
 public:
  Link(Exchange& exchange, int32_t index, const OpTable& ops)
      : exchange_(exchange), index_(index), ops_(ops), own_memory_(has_own_memory(ops)) {}

  /// `values`: of a step's widest rows.
  Result<void> reserve(uint64_t values) {
    if (!own_memory_) return {};
    staged_ = kernels::HostBuffer(ops_, sizeof(float) * values);
    HEARTH_ASSIGN_OR_RETURN(
        gathered_, kernels::DeviceBuffer::allocate(ops_, sizeof(float) * values, "gathered rows"));
    return {};
  }

  TensorView gather(int64_t rows, const TensorView& own, int64_t first, int64_t cols) override {
    float* const to = exchange_.gathered;
    put(rows, own, to + first, cols);
    exchange_.meet(&calls_);
    if (!own_memory_) return {to, DType::kF32, rows, cols, cols};
    upload(gathered_.data(), to, rows * cols);
    return {gathered_.data(), DType::kF32, rows, cols, cols};
  }

  void join_columns(int64_t rows, const TensorView& x, const ShareRange& own) override {
    float* const to = exchange_.joined;
    put(rows, x.columns(own.first, own.count), to + own.first, x.cols);
    exchange_.meet(&calls_);
    if (own_memory_) return upload_rows(rows, x);
    const int64_t end = own.first + own.count;
    for (int64_t r = 0; r < rows; ++r) {
      const float* const from = to + r * x.cols;
      std::copy_n(from, own.first, x.row<float>(r));
      std::copy_n(from + end, x.cols - end, x.row<float>(r) + end);
    }
  }

  void join_embedding(int64_t rows, const TensorView& x) override {
    const TensorView from = on_host(rows, x);
    copy_rows(from, exchange_.joined, x.cols, [&](int64_t r) { return owns(r); });
    exchange_.meet(&calls_);
    if (own_memory_) return upload_rows(rows, x);
    const TensorView to{exchange_.joined, DType::kF32, rows, x.cols, x.cols};
    copy_rows(to, x.row<float>(0), x.row_stride, [&](int64_t r) { return !owns(r); });
  }

  /// Copies rows of the device's to host memory.
  void put(int64_t rows, const TensorView& from, float* to, int64_t stride) {
    copy_rows(on_host(rows, from), to, stride, [](int64_t) { return true; });
  }

 private:
  bool owns(int64_t row) const { return exchange_.owners[row] == index_; }

  /// The rows as the host reads them.
  TensorView on_host(int64_t rows, const TensorView& view) {
    TensorView out = view;
    out.rows = rows;
    if (!own_memory_) return out;
    const size_t bytes = row_span(rows, view);
    HEARTH_CHECK(bytes <= staged_.size(), "{} bytes of {}", bytes, staged_.size());
    ops_.copy_to_host(ops_.state.get(), staged_.as<float>(), view.data, bytes);
    out.data = staged_.as<float>();
    return out;
  }

  template <typename Chosen>
  static void copy_rows(const TensorView& from, float* to, int64_t stride, const Chosen& chosen) {
    for (int64_t r = 0; r < from.rows; ++r) {
      if (chosen(r)) std::copy_n(from.row<float>(r), from.cols, to + r * stride);
    }
  }

  void upload(void* to, const float* from, int64_t values) {
    ops_.copy_to_device(ops_.state.get(), to, from, sizeof(float) * values);
  }
  void upload_rows(int64_t rows, const TensorView& x) {
    HEARTH_CHECK(x.row_stride == x.cols, "rows of {} columns, {} apart", x.cols, x.row_stride);
    upload(x.data, exchange_.joined, rows * x.cols);
  }

  Exchange& exchange_;
  const int32_t index_;
  const OpTable ops_;
  const bool own_memory_;
  uint64_t calls_ = 0;
  kernels::HostBuffer staged_;
  kernels::DeviceBuffer gathered_;
};

/// Of a step: what is gathered, the residual stream, or logits.
uint64_t most_values(const ModelInfo& info, int32_t max_tokens, int32_t max_outputs) {
  const int64_t columns = std::max<int64_t>(info.width, info.stages.front().gathered_columns);
  return std::max(max_tokens * columns, int64_t{max_outputs} * info.vocab_size);
}

class SplitModel final : public Model {
 public:
  struct Part {
    StageTable table;
    std::unique_ptr<Link> link;
    std::unique_ptr<Model> model{};
    ShareRange vocab{};  ///< tokens whose rows of embedding and head it has
    // Of the step:
    std::vector<int32_t> token_ids{};  ///< within `vocab`
    BatchIndex batch{};
    StepArgs args{};
    std::vector<KvPool> pools{};
    // Of a device with its own memory:
    std::optional<DeviceIndex> index{};
    kernels::DeviceBuffer logits{};

    bool own_memory() const { return has_own_memory(table.ops); }
  };
  SplitModel(std::unique_ptr<Exchange> exchange, std::vector<Part> parts, ModelInfo info)
      : exchange_(std::move(exchange)), parts_(std::move(parts)), info_(std::move(info)) {}

  const ModelInfo& info() const override { return info_; }
  void set_context_length(int32_t context_length) override {
    for (Part& part : parts_) part.model->set_context_length(context_length);
  }
  uint64_t activation_bytes(int32_t max_tokens, int32_t max_outputs) const override;
  Result<void> reserve(int32_t max_tokens, int32_t max_outputs) override;
  Result<DividedKv*> divide_kv(std::span<const PoolSize> sizes) override;
  void forward(const StepArgs& args) override;
  TensorView final_rows(const BatchIndex& batch) override;
  Result<void> add_heads(const GgufFile& file) override { return refuse(file, "heads"); }
  Result<int32_t> add_adapter(const GgufFile& file) override { return refuse(file, "adapters"); }

 private:
  static Error refuse(const GgufFile& file, std::string_view what) {
    return Error::unsupported(
        fmt::format("{}: a model in shares takes no {}", printable(file.name()), what), "split");
  }
  uint64_t exchange_bytes(int32_t max_tokens) const {
    return sizeof(float) * max_tokens * (info_.width + columns());
  }
  int64_t columns() const { return info_.stages.front().gathered_columns; }
  bool any_own_memory() const {
    return std::ranges::any_of(parts_, [](const Part& part) { return part.own_memory(); });
  }
  Result<float*> reserve_exchange(uint64_t bytes);
  void set_pools(std::span<const KvPool> whole, size_t number);
  void set_step(const StepArgs& args, size_t number);
  void compute(const StepArgs& args, size_t number);

  std::unique_ptr<Exchange> exchange_;
  // One of the two. Host memory.
  kernels::DeviceBuffer exchange_memory_;
  kernels::HostBuffer locked_exchange_;
  std::vector<Part> parts_;
  ModelInfo info_;
  std::optional<DividedKv> kv_;  ///< if a device has its own memory
  std::vector<PoolSize> pool_sizes_;
};

uint64_t SplitModel::activation_bytes(int32_t max_tokens, int32_t max_outputs) const {
  uint64_t bytes = exchange_bytes(max_tokens);
  for (const Part& part : parts_) {
    bytes += part.model->activation_bytes(max_tokens, max_outputs);
  }
  return bytes;
}

Result<void> SplitModel::reserve(int32_t max_tokens, int32_t max_outputs) {
  HEARTH_ASSIGN_OR_RETURN(exchange_->joined, reserve_exchange(exchange_bytes(max_tokens)));
  exchange_->gathered = exchange_->joined + int64_t{max_tokens} * info_.width;
  exchange_->owners.resize(max_tokens);
  for (Part& part : parts_) {
    Result<void> reserved;
    run_on(part.table, [&] {
      reserved = part.model->reserve(max_tokens, max_outputs);
      if (reserved.ok()) reserved = part.link->reserve(most_values(info_, max_tokens, max_outputs));
    });
    HEARTH_TRY(reserved);
    part.token_ids.resize(max_tokens);
    if (!part.own_memory()) continue;
    HEARTH_ASSIGN_OR_RETURN(
        part.index,
        DeviceIndex::reserve(part.table.ops, DeviceIndex::bytes_for(max_tokens, pool_sizes_)));
    HEARTH_ASSIGN_OR_RETURN(
        part.logits,
        kernels::DeviceBuffer::allocate(
            part.table.ops, sizeof(float) * max_outputs * part.vocab.count, "logits of a share"));
  }
  return {};
}

// Page-locked if a device with its own memory can: its copies are faster.
Result<float*> SplitModel::reserve_exchange(uint64_t bytes) {
  for (const Part& part : parts_) {
    if (!part.own_memory()) continue;
    locked_exchange_ = kernels::HostBuffer(part.table.ops, bytes);
    return locked_exchange_.as<float>();
  }
  HEARTH_ASSIGN_OR_RETURN(exchange_memory_,
                          kernels::DeviceBuffer::allocate(parts_.front().table.ops, bytes,
                                                          "rows that shares exchange"));
  return exchange_memory_.as<float>();
}

Result<DividedKv*> SplitModel::divide_kv(std::span<const PoolSize> sizes) {
  if (!any_own_memory()) return nullptr;
  std::vector<const OpTable*> tables;
  for (const Part& part : parts_) tables.push_back(&part.table.ops);
  HEARTH_ASSIGN_OR_RETURN(kv_, DividedKv::reserve(tables, info_.stages, info_, sizes));
  pool_sizes_.assign(sizes.begin(), sizes.end());
  return &*kv_;
}

// A share counts layers in its own part of a block.
void SplitModel::set_pools(std::span<const KvPool> whole, size_t number) {
  Part& part = parts_[number];
  const std::span<const KvPool> from = kv_ ? kv_->pools(number) : whole;
  part.pools.assign(from.begin(), from.end());
  for (size_t group = 0; group < part.pools.size(); ++group) {
    KvPool& pool = part.pools[group];
    pool.first_byte = 0;
    if (kv_) continue;
    for (size_t before = 0; before < number; ++before) {
      pool.base +=
          info_.stages[before].block_bytes(info_.groups[group], group, whole[group].block_bytes);
    }
  }
}

void SplitModel::set_step(const StepArgs& args, size_t number) {
  Part& part = parts_[number];
  const int32_t rows = args.batch->num_tokens;
  for (int32_t r = 0; r < rows; ++r) {
    const int64_t id = args.batch->token_ids[r] - part.vocab.first;
    const bool own = id >= 0 && id < part.vocab.count;
    part.token_ids[r] = own ? narrow<int32_t>(id) : 0;
    if (own) exchange_->owners[r] = narrow<int32_t>(number);
  }
  part.batch = *args.batch;
  part.batch.token_ids = part.token_ids.data();
  set_pools(args.pools, number);
  part.args = {.batch = &part.batch,
               .pools = part.pools,
               .logits = args.logits.columns(part.vocab.first, part.vocab.count),
               .also_stored = args.also_stored};
}

void SplitModel::compute(const StepArgs& args, size_t number) {
  Part& part = parts_[number];
  if (!part.own_memory()) return part.model->forward(part.args);
  part.index->upload(&part.args);
  const TensorView to = part.args.logits;
  TensorView& logits = part.args.logits;
  logits.data = part.logits.data();
  logits.row_stride = logits.cols;
  part.model->forward(part.args);
  const int32_t outputs = args.batch->num_outputs;
  if (outputs > 0) return part.link->put(outputs, logits, to.row<float>(0), to.row_stride);
  // Memory that the host has written is read until here.
  part.table.ops.synchronize(part.table.ops.state.get());
}

void SplitModel::forward(const StepArgs& args) {
  HEARTH_CHECK(args.adapted.empty() && args.batch->num_tokens <= std::ssize(exchange_->owners),
               "{} rows", args.batch->num_tokens);
  for (size_t i = 0; i < parts_.size(); ++i) set_step(args, i);
  for (size_t i = 1; i < parts_.size(); ++i) {
    HEARTH_CHECK(parts_[i].table.thread != nullptr);  // shares wait for each other
    parts_[i].table.thread->post([this, &args, i] { compute(args, i); });
  }
  compute(args, 0);
  for (size_t i = 1; i < parts_.size(); ++i) run_on(parts_[i].table, [] {});
}

// Each share has all of them; the first is called on the engine's thread.
TensorView SplitModel::final_rows(const BatchIndex& batch) {
  Part& first = parts_.front();
  TensorView rows = first.model->final_rows(*first.args.batch);
  if (!first.own_memory()) return rows;
  first.link->put(batch.num_tokens, rows, exchange_->joined, rows.cols);
  rows.data = exchange_->joined;
  rows.row_stride = rows.cols;
  return rows;
}

/// What the shares are together.
ModelInfo join(const std::vector<SplitModel::Part>& parts) {
  ModelInfo info = parts.front().model->info();
  info.stages.clear();
  info.weight_bytes = 0;
  info.num_heads = 0;
  for (LayerGroup& group : info.groups) group.kv.num_kv_heads = 0;
  for (const SplitModel::Part& part : parts) {
    const ModelInfo& its = part.model->info();
    info.weight_bytes += its.weight_bytes;
    info.num_heads += its.num_heads;
    for (size_t i = 0; i < info.groups.size(); ++i) {
      info.groups[i].kv.num_kv_heads += its.groups[i].kv.num_kv_heads;
    }
    info.stages.push_back(its.stages.front());
    info.stages.back().device = part.table.device;
  }
  return info;
}

}  // namespace

OpTable split_engine_table(const std::vector<StageTable>& tables) {
  std::vector<const StageTable*> all;
  std::string id;
  for (const StageTable& table : tables) {
    all.push_back(&table);
    id += (id.empty() ? "" : "|") + table.ops.numerics_id;
  }
  return joint_table(all, std::move(id));
}

uint64_t split_buffer_bytes(const ModelInfo& info, std::span<const PoolSize> sizes,
                            int32_t max_tokens, int32_t max_outputs) {
  return DeviceIndex::bytes_for(max_tokens, sizes) +
         3 * sizeof(float) * most_values(info, max_tokens, max_outputs);
}

Result<std::unique_ptr<Model>> load_split_model(const GgufFile& file,
                                                std::vector<StageTable> tables,
                                                const LoadProgressFn& progress) {
  HEARTH_CHECK(tables.size() > 1);
  const int32_t count = size32(tables);
  auto exchange = std::make_unique<Exchange>(tables.size());
  std::vector<SplitModel::Part> parts;
  std::vector<const StageTable*> all;
  std::vector<LoadOptions> options;
  for (StageTable& table : tables) {
    const int32_t index = size32(parts);
    auto link = std::make_unique<Link>(*exchange, index, table.ops);
    options.push_back({.share = {index, count, link.get()}});
    parts.push_back({.table = std::move(table), .link = std::move(link)});
  }
  for (const SplitModel::Part& part : parts) all.push_back(&part.table);
  HEARTH_ASSIGN_OR_RETURN(auto models, load_on_tables(file, all, options, "split", progress));
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].model = std::move(models[i]);
    HEARTH_CHECK(!parts[i].model->info().stages.front().group_heads.empty());
    parts[i].vocab = options[i].share.part(parts[i].model->info().vocab_size);
  }
  ModelInfo info = join(parts);
  return std::unique_ptr<Model>(
      std::make_unique<SplitModel>(std::move(exchange), std::move(parts), std::move(info)));
}

}  // namespace hearth::models
