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

constexpr int32_t kFirstWord = 3 + 256;  // after <unk>, <s>, </s> and the bytes

constexpr ModelShape kShapes[] = {
    {"tiny", 2, 256, 512, 4, 2, 64, 512, 2048, true},
    {"0.1B", 12, 768, 2048, 12, 4, 64, 32000, 8192, true},
    {"0.5B", 24, 1024, 4096, 16, 4, 64, 128256, 8192, true},
    {"S", 16, 2048, 8192, 32, 8, 64, 128256, 8192, true},
    {"M", 32, 4096, 14336, 32, 8, 128, 128256, 8192, false},
    {"13B", 40, 5120, 13824, 40, 40, 128, 32000, 4096, false},
};

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

void set_shape(GgufWriter* writer, const ModelShape& shape) {
  const auto set = [writer](const char* key, int32_t value) { writer->set_u32(key, value); };
  writer->set_string("general.architecture", "llama");
  writer->set_string("general.name", fmt::format("random {}", shape.name));
  set("llama.block_count", shape.layers);
  set("llama.context_length", shape.context);
  set("llama.embedding_length", shape.width);
  set("llama.feed_forward_length", shape.ffn);
  set("llama.attention.head_count", shape.heads);
  set("llama.attention.head_count_kv", shape.kv_heads);
  set("llama.attention.key_length", shape.head_dim);
  set("llama.attention.value_length", shape.head_dim);
  set("llama.rope.dimension_count", shape.head_dim);
  set("llama.vocab_size", shape.vocab);
  writer->set_f32("llama.rope.freq_base", 500000.0f);
  writer->set_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

std::vector<RandomModel::Tensor> tensors_of(const ModelShape& shape, DType type) {
  std::vector<RandomModel::Tensor> out;
  const auto matrix = [&](std::string name, int32_t rows, int32_t cols) {
    out.push_back({std::move(name), rows, cols, type, 0, 0, false});
  };
  const auto norm = [&](std::string name) {
    out.push_back({std::move(name), 1, shape.width, DType::kF32, 0, 0, true});
  };
  matrix("token_embd.weight", shape.vocab, shape.width);
  norm("output_norm.weight");
  if (!shape.tied) matrix("output.weight", shape.vocab, shape.width);
  for (int32_t layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    norm(prefix + "attn_norm.weight");
    matrix(prefix + "attn_q.weight", shape.heads * shape.head_dim, shape.width);
    matrix(prefix + "attn_k.weight", shape.kv_heads * shape.head_dim, shape.width);
    matrix(prefix + "attn_v.weight", shape.kv_heads * shape.head_dim, shape.width);
    matrix(prefix + "attn_output.weight", shape.width, shape.heads * shape.head_dim);
    norm(prefix + "ffn_norm.weight");
    matrix(prefix + "ffn_gate.weight", shape.ffn, shape.width);
    matrix(prefix + "ffn_up.weight", shape.ffn, shape.width);
    matrix(prefix + "ffn_down.weight", shape.width, shape.ffn);
  }
  return out;
}

uint64_t padded(uint64_t bytes) {
  return (bytes + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

}  // namespace

std::span<const ModelShape> named_shapes() { return kShapes; }

std::string shape_names() {
  std::vector<std::string_view> names;
  for (const ModelShape& shape : kShapes) names.push_back(shape.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<ModelShape> find_shape(std::string_view name) {
  for (const ModelShape& shape : kShapes) {
    if (shape.name == name) return shape;
  }
  return Error::not_found(fmt::format("no shape is called {}, want one of {}", name, shape_names()),
                          "shape");
}

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
  about.heads_per_kv_head = shape.heads / shape.kv_heads;
  about.tied = shape.tied;
  std::vector<Tensor> tensors = tensors_of(shape, mixed.base);
  for (Tensor& tensor : tensors) {
    GgufTensor unmixed;
    unmixed.name = tensor.name;
    unmixed.num_dims = tensor.is_norm ? 1 : 2;
    unmixed.dims[0] = tensor.cols;
    unmixed.dims[1] = tensor.rows;
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
    const uint64_t dims[] = {cols, rows};
    writer.declare_tensor(tensor.name, {dims, tensor.is_norm ? size_t{1} : size_t{2}},
                          tensor.dtype);
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
  std::vector<float> values(count * tensor.cols, 1.0f);
  if (!tensor.is_norm) {
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
