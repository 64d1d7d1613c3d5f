#include "models/decoder/adapter.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"
#include "models/decoder/decoder.h"
#include "models/weights/tensor_set.h"

namespace hearth::models {

using kernels::Rows;
using kernels::TensorView;
using kernels::WeightRole;

namespace {

constexpr std::string_view kAlpha = "adapter.lora.alpha";
constexpr std::string_view kSuffixA = ".lora_a", kSuffixB = ".lora_b";

/// The keys about adapters that this build knows; the last ones only describe.
constexpr std::string_view kKnownKeys[] = {"adapter.type", kAlpha, "adapter.lora.task_name",
                                           "adapter.lora.prompt_prefix"};

Result<void> want_text(const GgufFile& file, std::string_view key, std::string_view want) {
  HEARTH_ASSIGN_OR_RETURN(const auto met, file.get<std::string_view>(key));
  if (met == want) return {};
  const std::string message =
      fmt::format("{}: \"{}\", want \"{}\"", key, printable(met), printable(want));
  return key == "adapter.type" ? Error::unsupported(message) : Error::corrupt(message);
}

/// The adapter's alpha.
Result<float> check_keys(const GgufFile& file, const ModelInfo& model) {
  HEARTH_TRY(want_text(file, "general.type", "adapter"));
  HEARTH_TRY(want_text(file, "adapter.type", "lora"));
  HEARTH_TRY(want_text(file, "general.architecture", model.architecture));
  for (const GgufEntry& entry : file.metadata()) {
    if (!entry.key.starts_with("adapter.")) continue;
    if (std::ranges::find(kKnownKeys, entry.key) != std::end(kKnownKeys)) continue;
    return Error::unsupported(
        fmt::format("{}: a kind of adapter that this build does not know", printable(entry.key)));
  }
  HEARTH_ASSIGN_OR_RETURN(const float alpha, file.get<float>(kAlpha));
  if (std::isfinite(alpha) && alpha >= 0) return alpha;
  return Error::corrupt(fmt::format("{}: {}, want a number of at least 0", kAlpha, alpha));
}

/// The two matrices for one tensor of the model.
struct Pair {
  const GgufTensor* a = nullptr;
  const GgufTensor* b = nullptr;
  const MatrixPart* part = nullptr;

  int64_t rank() const { return narrow<int64_t>(a->dims[1]); }
};

Result<void> check_matrix(const GgufTensor& tensor, int64_t inputs, int64_t outputs) {
  const bool right = std::cmp_equal(tensor.dims[0], inputs) &&
                     std::cmp_equal(tensor.dims[1], outputs) && tensor.dims[2] == 1 &&
                     tensor.dims[3] == 1;
  if (!right) {
    return Error::corrupt(fmt::format("{}: shape {}, want [{},{}]", printable(tensor.name),
                                      tensor.shape(), inputs, outputs));
  }
  if (tensor.dtype && kernels::info(*tensor.dtype).usable_as_weight) return {};
  return Error::unsupported(fmt::format("{}: {}, which this build cannot compute with",
                                        printable(tensor.name), tensor.type_name()));
}

Result<Pair> pair_of(const GgufFile& file, std::string_view name, const ModelInfo& model,
                     const MatrixParts& parts) {
  Pair pair;
  const auto found = parts.find(name);
  if (found == parts.end()) {
    return Error::corrupt(fmt::format("{}: an adapter for a tensor that model {} does not have",
                                      printable(name), printable(model.name)));
  }
  pair.part = &found->second;
  if (pair.part->weight == nullptr) {
    return Error::unsupported(fmt::format(
        "{}: want an adapter of a matrix other than the embedding and experts'", printable(name)));
  }
  for (const auto& [suffix, tensor] :
       {std::pair(kSuffixA, &pair.a), std::pair(kSuffixB, &pair.b)}) {
    const std::string full = std::string(name) + std::string(suffix);
    *tensor = file.find_tensor(full);
    if (*tensor == nullptr) return Error::corrupt(fmt::format("{}: missing", printable(full)));
  }
  const uint64_t rank = pair.a->dims[1];
  if (std::cmp_greater(rank, kMostRank)) {
    return Error::unsupported(
        fmt::format("{}: rank {}, want at most {}", printable(pair.a->name), rank, kMostRank));
  }
  HEARTH_TRY(check_matrix(*pair.a, pair.part->cols, pair.rank()));
  HEARTH_TRY(check_matrix(*pair.b, pair.rank(), pair.part->rows));
  return pair;
}

/// All pairs, those of one weight in the order of its rows.
using Pairs = std::unordered_map<const kernels::Weight*, std::vector<Pair>>;

Result<Pairs> find_pairs(const GgufFile& file, const ModelInfo& model, const MatrixParts& parts) {
  Pairs pairs;
  for (const GgufTensor& tensor : file.tensors()) {
    const bool is_a = tensor.name.ends_with(kSuffixA);
    if (!is_a && !tensor.name.ends_with(kSuffixB)) {
      return Error::unsupported(fmt::format("{}: want a tensor whose name ends in {} or {}",
                                            printable(tensor.name), kSuffixA, kSuffixB));
    }
    std::string_view name = tensor.name;
    name.remove_suffix(kSuffixA.size());
    HEARTH_ASSIGN_OR_RETURN(const Pair pair, pair_of(file, name, model, parts));
    if (is_a) pairs[pair.part->weight].push_back(pair);
  }
  if (pairs.empty()) return Error::corrupt("no tensors, want an adapter's");
  for (auto& [weight, of_weight] : pairs) {
    std::ranges::sort(of_weight, {}, [](const Pair& pair) { return pair.part->first_row; });
  }
  return pairs;
}

Result<WeightHandle> pack(std::span<const kernels::HostTensor> tensors,
                          const kernels::OpTable& ops) {
  return ops.pack_weights(ops.state.get(), tensors, WeightRole::kMatmul);
}

/// Rows [first, first + count).
TensorView some_rows(const TensorView& view, int64_t first, int64_t count) {
  TensorView out = view;
  out.data = view.row<float>(first);
  out.rows = count;
  return out;
}

Error in_file(const GgufFile& file, Error error) {
  error.message = fmt::format("adapter {}: {}", printable(file.name()), error.message);
  return error;
}

}  // namespace

Result<Adapter> Adapter::load(const GgufFile& file, const ModelInfo& model,
                              const MatrixParts& parts, const kernels::OpTable& ops) {
  HEARTH_ASSIGN_OR_RETURN(const float alpha, check_keys(file, model));
  HEARTH_ASSIGN_OR_RETURN(const Pairs pairs, find_pairs(file, model, parts));
  Adapter out;
  for (const auto& [weight, of_weight] : pairs) {
    Product& product = out.products[weight];
    std::vector<kernels::HostTensor> joined;
    int64_t ranks = 0;
    for (const Pair& pair : of_weight) {
      joined.push_back(host_tensor(*pair.a));
      const kernels::HostTensor b = host_tensor(*pair.b);
      Part part;
      part.first_column = pair.part->first_row;
      part.first_rank = ranks;
      if (alpha != 0) part.scale = alpha * inverse(narrow<int32_t>(pair.rank()));
      HEARTH_ASSIGN_OR_RETURN(part.b, pack({&b, 1}, ops));
      out.bytes += part.b->bytes;
      ranks += pair.rank();
      product.even =
          product.even && (product.parts.empty() || product.parts.front().scale == part.scale);
      product.parts.push_back(std::move(part));
    }
    HEARTH_ASSIGN_OR_RETURN(product.a, pack(joined, ops));
    out.bytes += product.a->bytes;
    out.widest = std::max(out.widest, ranks);
  }
  return out;
}

Result<int32_t> Adapters::add(Adapter adapter, int64_t max_rows, const kernels::OpTable& ops) {
  const auto wanted = narrow<size_t>(max_rows * adapter.widest) * sizeof(float);
  if (wanted > scratch_.size()) {
    HEARTH_ASSIGN_OR_RETURN(scratch_,
                            kernels::DeviceBuffer::allocate(ops, wanted, "rows of adapters"));
  }
  widest_ = std::max(widest_, adapter.widest);
  adapter.bytes += wanted;  // at most: adapters share it
  auto at = std::find(adapters_.begin(), adapters_.end(), nullptr);
  if (at == adapters_.end()) at = adapters_.insert(at, nullptr);
  *at = std::make_unique<Adapter>(std::move(adapter));
  return narrow<int32_t>(at - adapters_.begin());
}

void Adapters::remove(int32_t adapter) {
  HEARTH_CHECK(adapters_.at(adapter) != nullptr, "adapter {}", adapter);
  adapters_[adapter].reset();
}

uint64_t Adapters::bytes(int32_t adapter) const { return adapters_.at(adapter)->bytes; }

/// What one adapter adds to some rows of a product.
struct Adapters::Addition {
  const AdaptedRows& some;
  const Adapter::Product& adapter;
  Rows which;  ///< of the step
  int32_t first, count;
  TensorView low;  ///< x A

  kernels::MatmulArgs times_a(const TensorView& x) const {
    return {.batch = &some.batch,
            .rows = which,
            .x = some_rows(x, first, count),
            .w = adapter.a.get(),
            .out = low};
  }
  void scale(const TensorView& x, float factor, const kernels::OpTable& ops) const {
    if (factor == 1) return;
    ops.soft_cap(ops.state.get(), {.batch = &some.batch, .rows = which, .scale = factor, .x = x});
  }
  void scale_all(const kernels::OpTable& ops) const {
    if (adapter.even) return scale(low, some.scale * adapter.parts.front().scale, ops);
    for (const Adapter::Part& part : adapter.parts) {
      scale(low.columns(part.first_rank, part.b->cols), some.scale * part.scale, ops);
    }
  }
};

void Adapters::add(const kernels::MatmulArgs& product, std::span<const AdaptedRows> rows,
                   const kernels::OpTable& ops) const {
  // The adapters of one set of rows follow one another, and each adds to what the ones before it
  // have added: the first ones of all sets together, then the second ones.
  for (int32_t turn = 0;; ++turn) {
    std::vector<Addition> additions;
    bool any = false;
    int32_t at = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      at = i > 0 && rows[i].first_row == rows[i - 1].first_row ? at + 1 : 0;
      if (at != turn) continue;
      any = true;
      add_to(additions, product, rows[i]);
    }
    if (!any) return;
    add(product, additions, ops);
  }
}

void Adapters::add_to(std::vector<Addition>& additions, const kernels::MatmulArgs& product,
                      const AdaptedRows& some) const {
  const bool outputs = product.rows == Rows::kOutputs;
  const Adapter& adapter = *adapters_.at(some.adapter);
  const auto found = adapter.products.find(product.w);
  const int32_t count = outputs ? some.batch.num_outputs : some.batch.num_tokens;
  if (found == adapter.products.end() || count == 0) return;
  const int32_t first = outputs ? some.first_output : some.first_row;
  const int64_t ranks = found->second.a->rows;
  const TensorView low{.data = scratch_.as<float>() + first * widest_,
                       .dtype = kernels::DType::kF32,
                       .rows = count,
                       .cols = ranks,
                       .row_stride = ranks};
  additions.push_back({some, found->second, product.rows, first, count, low});
}

void Adapters::add(const kernels::MatmulArgs& product, std::span<const Addition> additions,
                   const kernels::OpTable& ops) const {
  std::vector<kernels::MatmulArgs> products;
  for (const Addition& each : additions) products.push_back(each.times_a(product.x));
  kernels::multiply_all(ops, products);
  products.clear();
  std::deque<TensorView> outputs;  // the products point into it
  for (const Addition& each : additions) {
    each.scale_all(ops);
    const TensorView out = some_rows(product.out, each.first, each.count);
    for (const Adapter::Part& part : each.adapter.parts) {
      const TensorView& to = outputs.emplace_back(out.columns(part.first_column, part.b->rows));
      products.push_back({.batch = &each.some.batch,
                          .rows = each.which,
                          .x = each.low.columns(part.first_rank, part.b->cols),
                          .w = part.b.get(),
                          .residual = &to,
                          .out = to});
    }
  }
  kernels::multiply_all(ops, products);
}

Result<int32_t> Decoder::add_adapter(const GgufFile& file) {
  HEARTH_CHECK(act_.x.rows > 0, "an adapter before reserve()");
  if (ops_.soft_cap == nullptr) {
    return in_file(file, Error::unsupported(fmt::format("needs scales, which this build does not "
                                                        "compute on {}",
                                                        ops_.device.kind)));
  }
  Result<Adapter> adapter = Adapter::load(file, info_, weights_.parts, ops_);
  if (!adapter.ok()) return in_file(file, adapter.take_error());
  Result<int32_t> added =
      adapters_.add(std::move(adapter).value(), std::max(act_.x.rows, act_.out_x.rows), ops_);
  if (!added.ok()) return in_file(file, added.take_error());
  return added;
}

uint64_t Decoder::adapter_bytes(int32_t adapter) const { return adapters_.bytes(adapter); }
void Decoder::remove_adapter(int32_t adapter) { adapters_.remove(adapter); }

}  // namespace hearth::models
