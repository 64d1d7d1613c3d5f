#include "models/random_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "kernels/base/chars.h"
#include "kernels/base/check.h"
#include "kernels/base/random.h"
#include "kernels/base/sizes.h"
#include "kernels/host/thread_pool.h"
#include "models/quantize/mix.h"
#include "models/quantize/quantize_rows.h"

namespace hearth::models {
namespace {

using kernels::DType;

constexpr int32_t kTaps = 4;             // of the convolution in front of a state
constexpr int32_t kFirstWord = 3 + 256;  // after <unk>, <s>, </s> and the bytes

/// SplitMix64.
class Noise {
 public:
  explicit Noise(uint64_t seed) : state_(seed) {}
  uint64_t bits() {
    state_ += kSplitMixStep;
    return splitmix(state_);
  }
  /// Uniform in [-1, 1).
  float next() { return static_cast<float>(static_cast<int32_t>(bits() >> 32)) * 0x1p-31f; }

 private:
  uint64_t state_;
};

/// The scale that gives outputs a variance of 1 if inputs have 1.
float scale_of(int64_t cols) { return std::sqrt(3.0f / static_cast<float>(cols)); }

/// The search for a block's scales takes microseconds, which adds up to hours for a large model. So
/// rows of such types are assembled from this many blocks.
constexpr size_t kPoolBlocks = 256;
bool is_searched(DType type) {
  return kernels::info(type).block_elements > 1 && type != DType::kQ8_0;
}

uint64_t fnv_hash(std::string_view text) {  // FNV-1a
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ byte_of(c)) * 0x100000001B3u;
  return hash;
}

/// "a" to "z", "aa" to "zz", ...: the index-th of them. Each but the first 26 is an earlier word
/// plus a letter, so merging reaches them all.
std::string word(int32_t index) {
  std::string out;
  for (int64_t n = int64_t{index} + 1; n > 0; n = (n - 1) / 26) {
    out.insert(out.begin(), static_cast<char>('a' + (n - 1) % 26));
  }
  return out;
}

void set_vocabulary(GgufWriter* writer, int32_t size) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(fmt::format("<0x{:02X}>", byte));
    types.push_back(6);
  }
  tokens.emplace_back("\xE2\x96\x81");
  for (int32_t i = 0; size32(tokens) < size; ++i) tokens.push_back(word(i));
  types.resize(tokens.size(), 1);
  std::vector<float> scores(tokens.size(), 0.0f);
  for (size_t id = kFirstWord; id < scores.size(); ++id) {
    scores[id] = -static_cast<float>(id - kFirstWord);
  }
  writer->set_string("tokenizer.ggml.model", "llama");
  writer->set_string("tokenizer.ggml.pre", "default");
  writer->set_strings("tokenizer.ggml.tokens", tokens);
  writer->set_f32s("tokenizer.ggml.scores", scores);
  writer->set_i32s("tokenizer.ggml.token_type", types);
  writer->set_u32("tokenizer.ggml.unknown_token_id", 0);
  writer->set_u32("tokenizer.ggml.bos_token_id", 1);
  writer->set_u32("tokenizer.ggml.eos_token_id", 2);
  writer->set_bool("tokenizer.ggml.add_bos_token", true);
  writer->set_bool("tokenizer.ggml.add_space_prefix", true);
}

void set_wkv(GgufWriter* writer, const ModelShape& shape) {
  const auto set = [writer](const char* rest, int32_t value) {
    writer->set_u32(fmt::format("rwkv7.{}", rest), value);
  };
  set("attention.head_count", 0);
  set("wkv.head_size", shape.state_dim);
  set("attention.decay_lora_rank", shape.decay_rank);
  set("attention.iclr_lora_rank", shape.decay_rank);
  set("attention.value_residual_mix_lora_rank", shape.v_rank);
  set("attention.gate_lora_rank", shape.gate_rank);
  writer->set_f32("rwkv7.attention.layer_norm_epsilon", 1e-5f);
}

void set_shape(GgufWriter* writer, const ModelShape& shape) {
  const auto key = [&](const char* rest) { return fmt::format("{}.{}", shape.architecture, rest); };
  const auto set = [&](const char* rest, int32_t value) { writer->set_u32(key(rest), value); };
  writer->set_string("general.architecture", shape.architecture);
  writer->set_string("general.name", fmt::format("random {}", shape.name));
  set("block_count", shape.layers + (shape.draft_layer ? 1 : 0));
  if (shape.draft_layer) set("nextn_predict_layers", 1);
  set("context_length", shape.context);
  set("embedding_length", shape.width);
  set("feed_forward_length", shape.ffn);
  set("vocab_size", shape.vocab);
  if (shape.decay_rank > 0) return set_wkv(writer, shape);
  set("attention.head_count", shape.heads);
  set("attention.head_count_kv", shape.kv_heads);
  if (shape.kv_rank > 0) {
    set("attention.kv_lora_rank", shape.kv_rank);
    if (shape.q_rank > 0) set("attention.q_lora_rank", shape.q_rank);
    set("attention.key_length", shape.kv_rank + shape.rotated);
    set("attention.value_length", shape.kv_rank);
    set("attention.key_length_mla", shape.head_dim + shape.rotated);
    set("attention.value_length_mla", shape.head_dim);
    set("rope.dimension_count", shape.rotated);
  } else {
    set("attention.key_length", shape.head_dim);
    set("attention.value_length", shape.head_dim);
    set("rope.dimension_count", shape.rotated > 0 ? shape.rotated : shape.head_dim);
  }
  if (shape.state_heads > 0) {
    set("full_attention_interval", shape.attention_every);
    set("ssm.conv_kernel", kTaps);
    set("ssm.inner_size", shape.state_heads * shape.state_dim);
    set("ssm.state_size", shape.state_dim);
    set("ssm.time_step_rank", shape.state_heads);
    set("ssm.group_count", shape.state_heads);
    // The sections of a position in an image; text has the same position in all.
    const int32_t section = shape.rotated / 6, rest = shape.rotated / 2 - 2 * section;
    writer->set_i32s(key("rope.dimension_sections"),
                     std::vector<int32_t>{rest, section, section, 0});
  }
  writer->set_f32(key("rope.freq_base"), 500000.0f);
  writer->set_f32(key("attention.layer_norm_rms_epsilon"), 1e-5f);
  if (shape.window > 0) set("attention.sliding_window", shape.window);
  if (shape.architecture == "llada") {
    writer->set_bool(key("attention.causal"), false);
    writer->set_u32("tokenizer.ggml.mask_token_id", shape.vocab - 1);
    writer->set_bool("diffusion.shift_logits", false);
  }
  if (shape.experts == 0) return;
  set("expert_count", shape.experts);
  set("expert_used_count", shape.experts_used);
  set("expert_feed_forward_length", shape.expert_ffn);
  if (shape.shared_experts > 0) set("expert_shared_count", shape.shared_experts);
  if (shape.architecture != "deepseek2") return;
  set("leading_dense_block_count", shape.dense_layers);
  writer->set_f32(key("expert_weights_scale"), 1.0f);
  writer->set_bool(key("expert_weights_norm"), false);
}

/// The tensors of one shape, in file order.
class ShapeTensors {
 public:
  ShapeTensors(const ModelShape& shape, DType type)
      : s_(shape),
        expert_type_(type),
        type_(shape.experts > 0 && type == DType::kMXFP4 ? DType::kQ8_0 : type),
        oss_(shape.architecture == "gpt-oss"),
        wkv_(shape.decay_rank > 0),
        hybrid_(shape.state_heads > 0 && !wkv_) {}

  std::vector<RandomModel::Tensor> list() {
    matrix("token_embd", s_.vocab, s_.width);
    norm("output_norm", s_.width);
    if (wkv_) {
      bias("output_norm", s_.width);
      norm("token_embd_norm", s_.width);
      bias("token_embd_norm", s_.width);
    }
    if (!s_.tied) matrix("output", s_.vocab, s_.width);
    for (int32_t layer = 0; layer < s_.layers + (s_.draft_layer ? 1 : 0); ++layer) {
      prefix_ = fmt::format("blk.{}.", layer);
      norm("attn_norm", s_.width);
      if (wkv_) {
        time_mix();
        continue;
      }
      if (hybrid_ && layer < s_.layers && (layer + 1) % s_.attention_every != 0) {
        gated_delta_net();
      } else if (s_.kv_rank > 0) {
        latent_attention();
      } else {
        attention();
      }
      norm(oss_ || hybrid_ ? "post_attention_norm" : "ffn_norm", s_.width);
      if (s_.experts > 0 && layer >= s_.dense_layers) {
        experts();
      } else {
        feed_forward("", s_.ffn);
      }
    }
    if (s_.draft_layer) {
      matrix("nextn.eh_proj", s_.width, 2 * s_.width);
      for (const char* part : {"enorm", "hnorm", "shared_head_norm"}) {
        norm(fmt::format("nextn.{}", part), s_.width);
      }
    }
    return std::move(out_);
  }

 private:
  void add(const std::string& name, int32_t rows, int32_t cols, DType type, int32_t experts = 1) {
    out_.push_back({prefix_ + name, int64_t{rows} * experts, cols, type, 0, 0, {}, experts});
  }
  void matrix(const std::string& name, int32_t rows, int32_t cols) {
    add(name + ".weight", rows, cols, type_);
  }
  void stack(const std::string& name, int32_t rows, int32_t cols, int32_t count, DType type) {
    add(name + ".weight", rows, cols, type, count);
  }
  void norm(const std::string& name, int32_t size) { constant(name + ".weight", size, 1.0f); }
  void constant(const std::string& name, int32_t size, float value) {
    out_.push_back({prefix_ + name, 1, size, DType::kF32, 0, 0, value, 1});
  }
  /// Small values, one row for each expert.
  void bias(const std::string& name, int32_t size, int32_t experts = 1) {
    add(name + ".bias", experts, size, DType::kF32);
  }

  void attention() {
    const int32_t q = s_.heads * s_.head_dim, kv = s_.kv_heads * s_.head_dim;
    matrix("attn_q", hybrid_ ? 2 * q : q, s_.width);  // with its gate
    matrix("attn_k", kv, s_.width);
    matrix("attn_v", kv, s_.width);
    matrix("attn_output", s_.width, q);
    if (hybrid_) {
      norm("attn_q_norm", s_.head_dim);
      norm("attn_k_norm", s_.head_dim);
    }
    if (!oss_) return;
    bias("attn_q", q);
    bias("attn_k", kv);
    bias("attn_v", kv);
    bias("attn_output", s_.width);
    add("attn_sinks.weight", 1, s_.heads, DType::kF32);
  }
  void gated_delta_net() {
    const int32_t inner = s_.state_heads * s_.state_dim;
    matrix("attn_qkv", 3 * inner, s_.width);
    matrix("attn_gate", inner, s_.width);
    add("ssm_beta.weight", s_.state_heads, s_.width, DType::kF32);
    add("ssm_alpha.weight", s_.state_heads, s_.width, DType::kF32);
    add("ssm_conv1d.weight", 3 * inner, kTaps, DType::kF32);
    constant("ssm_dt.bias", s_.state_heads, -1.0f);
    constant("ssm_a", s_.state_heads, -0.5f);  // states decay
    norm("ssm_norm", s_.state_dim);
    matrix("ssm_out", s_.width, inner);
  }
  /// And the feed-forward, which mixes rows, too.
  void time_mix() {
    bias("attn_norm", s_.width);
    norm("attn_norm_2", s_.width);
    bias("attn_norm_2", s_.width);
    constant("time_mix_lerp_fused.weight", s_.width, 0.5f);
    out_.back().rows = out_.back().experts = 6;
    out_.back().fourth = true;
    for (const char* part : {"receptance", "key", "value", "output"}) {
      matrix(fmt::format("time_mix_{}", part), s_.width, s_.width);
    }
    // The smallest matrices stay as they are.
    pair("w", s_.decay_rank, DType::kF32);
    pair("a", s_.decay_rank, DType::kF16);
    pair("v", s_.v_rank, DType::kF16);
    pair("g", s_.gate_rank, DType::kF16);
    for (const char* part : {"w0", "a0", "v0", "k_k", "k_a", "r_k"}) {
      constant(fmt::format("time_mix_{}.weight", part), s_.width, part[1] == '0' ? 0.0f : 0.5f);
    }
    norm("time_mix_ln", s_.width);
    bias("time_mix_ln", s_.width);
    constant("channel_mix_lerp_k.weight", s_.width, 0.5f);
    matrix("channel_mix_key", s_.ffn, s_.width);
    matrix("channel_mix_value", s_.width, s_.ffn);
  }
  void pair(const char* letter, int32_t rank, DType type) {
    add(fmt::format("time_mix_{}1.weight", letter), rank, s_.width, type);
    add(fmt::format("time_mix_{}2.weight", letter), s_.width, rank, type);
  }
  void latent_attention() {
    const int32_t q = s_.heads * (s_.head_dim + s_.rotated);
    if (s_.q_rank > 0) {
      matrix("attn_q_a", s_.q_rank, s_.width);
      norm("attn_q_a_norm", s_.q_rank);
      matrix("attn_q_b", q, s_.q_rank);
    } else {
      matrix("attn_q", q, s_.width);
    }
    matrix("attn_kv_a_mqa", s_.kv_rank + s_.rotated, s_.width);
    norm("attn_kv_a_norm", s_.kv_rank);
    stack("attn_k_b", s_.kv_rank, s_.head_dim, s_.heads, type_);
    stack("attn_v_b", s_.head_dim, s_.kv_rank, s_.heads, type_);
    matrix("attn_output", s_.width, s_.heads * s_.head_dim);
  }
  void feed_forward(const std::string& suffix, int32_t ffn) {
    matrix("ffn_gate" + suffix, ffn, s_.width);
    matrix("ffn_up" + suffix, ffn, s_.width);
    matrix("ffn_down" + suffix, s_.width, ffn);
  }
  void experts() {
    add("ffn_gate_inp.weight", s_.experts, s_.width, DType::kF32);
    stack("ffn_gate_exps", s_.expert_ffn, s_.width, s_.experts, expert_type_);
    stack("ffn_up_exps", s_.expert_ffn, s_.width, s_.experts, expert_type_);
    stack("ffn_down_exps", s_.width, s_.expert_ffn, s_.experts, expert_type_);
    if (oss_) {
      bias("ffn_gate_inp", s_.experts);
      bias("ffn_gate_exps", s_.expert_ffn, s_.experts);
      bias("ffn_up_exps", s_.expert_ffn, s_.experts);
      bias("ffn_down_exps", s_.width, s_.experts);
    }
    if (s_.shared_experts > 0) feed_forward("_shexp", s_.shared_experts * s_.expert_ffn);
  }

  const ModelShape& s_;
  const DType expert_type_;
  const DType type_;  ///< of the other matrices
  const bool oss_;
  const bool wkv_;
  const bool hybrid_;
  std::string prefix_;
  std::vector<RandomModel::Tensor> out_;
};

std::vector<RandomModel::Tensor> tensors_of(const ModelShape& shape, DType type) {
  return ShapeTensors(shape, type).list();
}

/// The dimensions of a tensor in the file: a vector, a matrix, or one per expert.
uint32_t num_dims(const RandomModel::Tensor& tensor) {
  if (tensor.experts > 1) return tensor.fourth ? 4 : 3;
  return tensor.rows == 1 ? 1 : 2;
}

uint64_t padded(uint64_t bytes) {
  return (bytes + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

}  // namespace

std::span<const DType> weight_types() {
  static const std::vector<DType> types = [] {
    std::vector<DType> out;
    for (uint32_t id = 0; id < 256; ++id) {
      const std::optional<DType> type = kernels::dtype_from_gguf(id);
      if (!type || !kernels::info(*type).usable_as_weight) continue;
      const std::vector<float> block(kernels::info(*type).block_elements);
      if (quantize_rows(*type, block, kernels::info(*type).block_elements)) out.push_back(*type);
    }
    return out;
  }();
  return types;
}

Result<DType> parse_weight_type(std::string_view name) {
  std::vector<std::string_view> names;
  for (const DType type : weight_types()) {
    names.push_back(kernels::info(type).name);
    if (names.back() == name) return type;
  }
  return Error::unsupported(fmt::format("no weights can be made of type {}, want one of {}", name,
                                        fmt::join(names, ", ")),
                            "type");
}

Result<RandomModel> RandomModel::create(const ModelShape& shape, DType type, uint64_t seed) {
  HEARTH_TRY(parse_weight_type(kernels::info(type).name));
  HEARTH_CHECK(shape.vocab >= 512, "{} tokens", shape.vocab);
  GgufWriter writer;
  set_shape(&writer, shape);
  set_vocabulary(&writer, shape.vocab);
  return create(tensors_of(shape, type), std::move(writer), seed);
}

Result<RandomModel> RandomModel::create(const ModelShape& shape, std::string_view type,
                                        uint64_t seed) {
  if (const Result<DType> one = parse_weight_type(type); one.ok()) {
    return create(shape, *one, seed);
  }
  HEARTH_ASSIGN_OR_RETURN(const Mix mixed, find_mix(type));
  HEARTH_CHECK(shape.vocab >= 512, "{} tokens", shape.vocab);
  MixModel about;
  about.num_layers = shape.layers;
  about.num_experts = shape.experts;
  about.heads_per_kv_head = shape.heads / shape.kv_heads;
  about.tied = shape.tied;
  std::vector<Tensor> tensors = tensors_of(shape, mixed.base);
  for (Tensor& tensor : tensors) {
    GgufTensor unmixed;
    unmixed.name = tensor.name;
    unmixed.num_dims = num_dims(tensor);
    unmixed.dims[0] = tensor.cols;
    unmixed.dims[1] = tensor.rows / tensor.experts;
    unmixed.dims[2] = tensor.experts;
    unmixed.dtype = tensor.dtype;
    tensor.dtype = choose_type(mixed, about, unmixed);
  }
  GgufWriter writer;
  set_shape(&writer, shape);
  writer.set_u32("general.file_type", mixed.file_type);
  set_vocabulary(&writer, shape.vocab);
  return create(std::move(tensors), std::move(writer), seed);
}

Result<RandomModel> RandomModel::create(std::vector<Tensor> tensors, GgufWriter writer,
                                        uint64_t seed) {
  RandomModel model;
  model.seed_ = seed;
  model.tensors_ = std::move(tensors);
  for (Tensor& tensor : model.tensors_) {
    const kernels::DTypeInfo& info = kernels::info(tensor.dtype);
    if (tensor.cols % info.block_elements != 0) {
      return Error::unsupported(
          fmt::format("{}: rows of {} inputs, {} wants a multiple of {}", tensor.name, tensor.cols,
                      info.name, info.block_elements),
          "type");
    }
    const uint64_t cols = tensor.cols, rows = tensor.rows;
    tensor.bytes = kernels::bytes_of(tensor.dtype, rows * cols);
    model.parameters_ += rows * cols;
    const uint64_t experts = tensor.experts;
    const uint64_t dims[] = {cols, rows / experts, tensor.fourth ? 1 : experts, experts};
    writer.declare_tensor(tensor.name, {dims, num_dims(tensor)}, tensor.dtype);
    const std::pair key(tensor.dtype, tensor.cols);
    if (!is_searched(tensor.dtype) || model.pools_.contains(key)) continue;
    std::vector<float> values(kPoolBlocks * info.block_elements);
    Noise noise(splitmix(splitmix(seed ^ fnv_hash(info.name)) + cols));
    for (float& value : values) value = scale_of(tensor.cols) * noise.next();
    HEARTH_ASSIGN_OR_RETURN(model.pools_[key],
                            quantize_rows(tensor.dtype, values, info.block_elements));
  }
  model.header_ = writer.header();
  model.file_bytes_ = model.header_.size();
  for (Tensor& tensor : model.tensors_) {
    tensor.offset = model.file_bytes_;
    model.file_bytes_ += padded(tensor.bytes);
  }
  return model;
}

const RandomModel::Tensor* RandomModel::find(std::string_view name) const {
  const auto at = std::find_if(tensors_.begin(), tensors_.end(),
                               [name](const Tensor& tensor) { return tensor.name == name; });
  return at == tensors_.end() ? nullptr : &*at;
}

void RandomModel::fill(const Tensor& tensor, int64_t first, int64_t count,
                       std::span<std::byte> out) const {
  const uint64_t seed = splitmix(seed_ ^ fnv_hash(tensor.name));
  if (const auto pool = pools_.find({tensor.dtype, tensor.cols}); pool != pools_.end()) {
    const size_t block = pool->second.size() / kPoolBlocks;
    const size_t row_bytes = tensor.bytes / tensor.rows;
    HEARTH_CHECK(out.size() == count * row_bytes, "{} bytes", out.size());
    std::byte* at = out.data();
    for (int64_t row = first; row < first + count; ++row) {
      Noise noise(splitmix(seed + row));
      for (size_t byte = 0; byte < row_bytes; byte += block, at += block) {
        std::memcpy(at, pool->second.data() + (noise.bits() >> 32) % kPoolBlocks * block, block);
      }
    }
    return;
  }
  std::vector<float> values(count * tensor.cols, tensor.constant.value_or(0));
  if (!tensor.constant) {
    const float scale = scale_of(tensor.cols);
    float* value = values.data();
    for (int64_t row = first; row < first + count; ++row) {
      Noise noise(splitmix(seed + row));
      for (int64_t col = 0; col < tensor.cols; ++col) *value++ = scale * noise.next();
    }
  }
  const auto bytes = quantize_rows(tensor.dtype, values, tensor.cols);
  HEARTH_CHECK(bytes.ok(), "{}", bytes.error().message);  // create() has checked the type
  HEARTH_CHECK(bytes.value().size() == out.size(), "{} bytes for {}", out.size(),
               bytes.value().size());
  std::memcpy(out.data(), bytes.value().data(), out.size());
}

Result<void> write_random_model(const RandomModel& model, const std::filesystem::path& path,
                                int32_t num_threads, const WriteProgressFn& progress) {
  constexpr int64_t kElements = 1 << 18;  // that one thread fills per turn
  kernels::ThreadPool pool(num_threads);
  HEARTH_ASSIGN_OR_RETURN(GgufOutput file, GgufOutput::create(path, model.file_bytes(), progress));
  HEARTH_TRY(file.append(model.header()));
  std::vector<std::byte> buffer;
  for (const RandomModel::Tensor& tensor : model.tensors()) {
    const auto row_bytes = tensor.bytes / tensor.rows;
    const int64_t turn = std::max<int64_t>(1, kElements / tensor.cols);
    const int64_t batch = turn * num_threads * 4;
    for (int64_t first = 0; first < tensor.rows; first += batch) {
      const int64_t rows = std::min(batch, tensor.rows - first);
      buffer.resize(rows * row_bytes);
      pool.run((rows + turn - 1) / turn, [&](int64_t item, int32_t) {
        const int64_t from = item * turn, count = std::min(turn, rows - from);
        model.fill(tensor, first + from, count,
                   std::span(buffer).subspan(from * row_bytes, count * row_bytes));
      });
      HEARTH_TRY(file.append(buffer));
    }
    HEARTH_TRY(file.pad());
  }
  return file.finish();
}

}  // namespace hearth::models
