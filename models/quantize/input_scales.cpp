#include "models/quantize/input_scales.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>

#include "kernels/base/numbers.h"
#include "kernels/quant/quant_types.h"
#include "models/quantize/quantize_rows.h"

namespace hearth::models {
namespace {

using kernels::DType;

/// Those in which only the matrices above read what a norm gives, and nothing stands between attn_v
/// and attn_output, or ffn_up and the product with the gate.
constexpr std::string_view kArchitectures[] = {
    "llama",   "qwen2",   "qwen3",    "phi3",     "gemma",         "gemma2",    "gemma3",
    "granite", "smollm3", "ernie4_5", "seed_oss", "hunyuan-dense", "internlm2", "mistral3"};

constexpr int kExponents = 20;        // a is 0, 1/20, .. 1
constexpr int64_t kSampledRows = 64;  // of a matrix
constexpr float kMostScale = 1000;
constexpr double kLeastShare = 1e-6;  // of the mean: what a mean square counts as, at least

/// Matrices that read the same inputs, and what computes these.
struct Place {
  std::vector<const GgufTensor*> readers;
  std::vector<const GgufTensor*> norms = {};  // vectors over the inputs
  const GgufTensor* rows = nullptr;           // or a matrix whose rows compute them
  const GgufTensor* row_bias = nullptr;
  int64_t num_heads = 0;     // of readers' inputs, where several share rows
  int64_t num_kv_heads = 0;  // of rows
};

class Search {
 public:
  Search(const GgufFile& model, const Mix& mix, const ImportanceMatrix& importance,
         kernels::ThreadPool& pool)
      : model_(model),
        mix_(mix),
        importance_(importance),
        pool_(pool),
        about_(MixModel::of(model)) {}

  Result<InputScales> run(const std::function<bool(int32_t, int32_t)>& progress) {
    const auto architecture = model_.get<std::string_view>("general.architecture");
    if (!architecture.ok()) return architecture.error();
    if (std::ranges::find(kArchitectures, *architecture) == std::end(kArchitectures)) {
      return Error::unsupported(
          fmt::format("general.architecture is {}: inputs are scaled for {}",
                      printable(*architecture), fmt::join(kArchitectures, ", ")),
          "awq");
    }
    if (*architecture == "seed_oss") ffn_norm_ = "post_attention_norm";
    const std::string prefix = std::string(*architecture) + ".attention.";
    const auto heads = model_.get<int32_t>(prefix + "head_count");
    const auto kv_heads = model_.get<int32_t>(prefix + "head_count_kv");
    num_heads_ = heads.ok() ? *heads : 0;
    num_kv_heads_ = kv_heads.ok() ? *kv_heads : num_heads_;
    const int32_t layers = about_.num_layers - about_.num_draft_layers;
    for (int32_t layer = 0; layer < layers; ++layer) {
      if (progress && !progress(layer, layers)) return Error::cancelled("interrupted");
      for (const Place& place : places(layer)) HEARTH_TRY(scale(place));
    }
    return std::move(out_);
  }

 private:
  const GgufTensor* find(int32_t layer, std::string_view rest) const {
    return model_.find_tensor(fmt::format("blk.{}.{}", layer, rest));
  }

  /// The places of a layer, as far as its tensors are there and fit.
  std::vector<Place> places(int32_t layer) const {
    const auto at = [&](std::string_view rest) { return find(layer, rest); };
    std::vector<Place> out;
    const GgufTensor *v = at("attn_v.weight"), *output = at("attn_output.weight");
    const GgufTensor *gate = at("ffn_gate.weight"), *up = at("ffn_up.weight");
    const GgufTensor* down = at("ffn_down.weight");
    const auto with_norm = [&](std::string_view norm, std::vector<const GgufTensor*> readers) {
      const GgufTensor* weight = at(fmt::format("{}.weight", norm));
      std::erase(readers, nullptr);
      if (weight == nullptr || readers.empty()) return;
      Place place{.readers = std::move(readers), .norms = {weight}};
      if (const GgufTensor* bias = at(fmt::format("{}.bias", norm))) place.norms.push_back(bias);
      out.push_back(std::move(place));
    };
    with_norm("attn_norm", {at("attn_q.weight"), at("attn_k.weight"), v, at("attn_qkv.weight")});
    with_norm(ffn_norm_, {gate, up});
    const int64_t inputs = output != nullptr ? narrow<int64_t>(output->dims[0]) : 0;
    if (v != nullptr && num_heads_ > 0 && num_kv_heads_ > 0 && num_heads_ % num_kv_heads_ == 0 &&
        inputs % num_heads_ == 0 &&
        std::cmp_equal(v->dims[1], inputs / num_heads_ * num_kv_heads_)) {
      out.push_back({.readers = {output},
                     .rows = v,
                     .row_bias = at("attn_v.bias"),
                     .num_heads = num_heads_,
                     .num_kv_heads = num_kv_heads_});
    }
    if (gate != nullptr && up != nullptr && down != nullptr && up->dims[1] == down->dims[0]) {
      out.push_back({.readers = {down},
                     .rows = up,
                     .row_bias = at("ffn_up.bias"),
                     .num_heads = 1,
                     .num_kv_heads = 1});
    }
    std::erase_if(out, [&](const Place& place) { return !fits(place); });
    return out;
  }

  /// Whether the shapes are those of a plain layer, and the inputs are known.
  bool fits(const Place& place) const {
    const uint64_t inputs = place.readers.front()->dims[0];
    for (const GgufTensor* reader : place.readers) {
      const bool plain = reader->num_dims == 2 && reader->dims[0] == inputs && reader->dtype &&
                         importance_.has(reader->name);
      if (!plain) return false;
    }
    const auto is_vector = [](const GgufTensor* tensor, uint64_t size) {
      return tensor->num_elements() == size && tensor->dims[0] == size &&
             tensor->dtype == DType::kF32;
    };
    const GgufTensor* rows = place.rows;
    if (rows != nullptr && (rows->num_dims != 2 || !rows->dtype)) return false;
    if (place.row_bias != nullptr && !is_vector(place.row_bias, rows->dims[1])) return false;
    return std::ranges::all_of(place.norms,
                               [&](const GgufTensor* norm) { return is_vector(norm, inputs); });
  }

  /// The input of the readers that is computed by the same row or norm as input i.
  static int64_t source_of(const Place& place, int64_t i, int64_t inputs) {
    if (place.rows == nullptr) return i;
    const int64_t dim = inputs / place.num_heads;
    const int64_t sharing = place.num_heads / place.num_kv_heads;
    return i / dim / sharing * dim + i % dim;
  }

  /// The mean square of each input, those of a shared source together.
  std::vector<double> squares_of(const Place& place) const {
    const auto inputs = narrow<int64_t>(place.readers.front()->dims[0]);
    const std::vector<float> each =
        importance_.mean_squares(place.readers.front()->name, 0, inputs);
    std::vector<double> sums(inputs);
    double mean = 0;
    for (int64_t i = 0; i < inputs; ++i) {
      sums[source_of(place, i, inputs)] += each[i];
      mean += each[i] / as_double(inputs);
    }
    std::vector<double> out;
    for (int64_t i = 0; i < inputs; ++i) {
      out.push_back(std::max(sums[source_of(place, i, inputs)], kLeastShare * mean));
    }
    return mean > 0 ? out : std::vector<double>(inputs, 1.0);
  }

  static std::vector<float> scales_for(std::span<const double> squares, double exponent) {
    double log_mean = 0;
    for (const double x : squares) log_mean += std::log(x) / as_double(squares.size());
    std::vector<float> scales;
    for (const double x : squares) {
      const auto scale = static_cast<float>(std::exp(exponent / 2 * (std::log(x) - log_mean)));
      scales.push_back(std::clamp(scale, 1 / kMostScale, kMostScale));
    }
    return scales;
  }

  /// The weighted error of a sample of the reader's rows, quantized with these scales.
  Result<double> error_of(const GgufTensor& reader, std::span<const float> scales) const {
    const auto cols = narrow<int64_t>(reader.dims[0]), rows = narrow<int64_t>(reader.dims[1]);
    const size_t row_bytes = reader.bytes.size() / rows;
    const int64_t sampled = std::min(rows, kSampledRows);
    const DType to = choose_type(mix_, about_, reader);
    const std::vector<float> importance = importance_.mean_squares(reader.name, 0, cols);
    std::vector<float> scaled_importance(cols);
    for (int64_t i = 0; i < cols; ++i) {
      scaled_importance[i] = importance[i] / (scales[i] * scales[i]);
    }
    std::vector<float> values(cols), scaled(cols), back(cols);
    double error = 0;
    for (int64_t n = 0; n < sampled; ++n) {
      const int64_t row = n * rows / sampled;
      kernels::dequantize(*reader.dtype, reader.bytes.subspan(row * row_bytes, row_bytes), values);
      for (int64_t i = 0; i < cols; ++i) scaled[i] = values[i] * scales[i];
      HEARTH_ASSIGN_OR_RETURN(const auto bytes, quantize_rows(to, scaled, cols, scaled_importance));
      kernels::dequantize(to, bytes, back);
      for (int64_t i = 0; i < cols; ++i) {
        const double miss = double{back[i]} / scales[i] - values[i];
        error += importance[i] * miss * miss;
      }
    }
    return error * as_double(rows) / as_double(sampled);
  }

  Result<void> scale(const Place& place) {
    ++out_.num_places;
    const std::vector<double> squares = squares_of(place);
    std::array<std::optional<Result<double>>, kExponents + 1> errors;
    pool_.run(kExponents + 1, [&](int64_t n, int32_t) {
      const std::vector<float> scales = scales_for(squares, as_double(n) / kExponents);
      double sum = 0;
      for (const GgufTensor* reader : place.readers) {
        const Result<double> error = error_of(*reader, scales);
        if (!error.ok()) {
          Error named = error.error();
          named.message = fmt::format("{}: {}", printable(reader->name), named.message);
          errors[n].emplace(std::move(named));
          return;
        }
        sum += *error;
      }
      errors[n].emplace(sum);
    });
    size_t best = 0;
    for (size_t n = 0; n < errors.size(); ++n) {
      if (!errors[n]->ok()) return errors[n]->error();
      if (errors[n]->value() < errors[best]->value()) best = n;
    }
    if (best == 0) return {};
    ++out_.num_scaled;
    apply(place, scales_for(squares, as_double(best) / kExponents));
    return {};
  }

  static void multiply(std::vector<float>& factors, std::span<const float> by) {
    factors.resize(by.size(), 1.0f);
    for (size_t i = 0; i < by.size(); ++i) factors[i] *= by[i];
  }

  void apply(const Place& place, std::span<const float> scales) {
    for (const GgufTensor* reader : place.readers) multiply(factors_of(*reader).cols, scales);
    const int64_t inputs = std::ssize(scales);
    std::vector<float> inverse(place.rows != nullptr ? place.rows->dims[1] : inputs);
    for (int64_t i = 0; i < inputs; ++i) inverse[source_of(place, i, inputs)] = 1 / scales[i];
    for (const GgufTensor* norm : place.norms) multiply(factors_of(*norm).cols, inverse);
    if (place.rows != nullptr) multiply(factors_of(*place.rows).rows, inverse);
    if (place.row_bias != nullptr) multiply(factors_of(*place.row_bias).cols, inverse);
  }

  TensorFactors& factors_of(const GgufTensor& tensor) {
    return out_.factors[std::string(tensor.name)];
  }

  const GgufFile& model_;
  const Mix& mix_;
  const ImportanceMatrix& importance_;
  kernels::ThreadPool& pool_;
  const MixModel about_;
  std::string_view ffn_norm_ = "ffn_norm";
  int64_t num_heads_ = 0;
  int64_t num_kv_heads_ = 0;
  InputScales out_;
};

}  // namespace

const TensorFactors* InputScales::find(std::string_view tensor) const {
  const auto found = factors.find(tensor);
  return found != factors.end() ? &found->second : nullptr;
}

Result<InputScales> search_input_scales(const GgufFile& model, const Mix& mix,
                                        const ImportanceMatrix& importance,
                                        kernels::ThreadPool& pool,
                                        const std::function<bool(int32_t, int32_t)>& progress) {
  return Search(model, mix, importance, pool).run(progress);
}

}  // namespace hearth::models
