#include "daemon/worker/load/inspection.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>

#include "daemon/worker/load/measuring_ops.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::worker {
namespace {

using models::GgufFile;
using models::GgufNumbers;
using models::GgufStrings;

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";

std::string text_or_empty(const GgufFile& file, std::string_view key) {
  const auto text = file.get<std::string_view>(key);
  return text.ok() ? std::string(text.value()) : std::string();
}

std::vector<TypeShare> shares(const GgufFile& file) {
  std::map<std::string, TypeShare> by_type;
  for (const models::GgufTensor& tensor : file.tensors()) {
    TypeShare& share = by_type[tensor.type_name()];
    share.type = tensor.type_name();
    ++share.tensors;
    share.parameters += tensor.num_elements();
    share.bytes += tensor.bytes.size();
  }
  std::vector<TypeShare> out;
  for (auto& [type, share] : by_type) out.push_back(std::move(share));
  std::stable_sort(out.begin(), out.end(),
                   [](const TypeShare& a, const TypeShare& b) { return a.bytes > b.bytes; });
  return out;
}

/// tokenizer.ggml.ROLE_token_id for every ROLE that the file has.
std::vector<SpecialToken> special_tokens(const GgufFile& file) {
  constexpr std::string_view kPrefix = "tokenizer.ggml.", kSuffix = "_token_id";
  std::vector<SpecialToken> out;
  for (const models::GgufEntry& entry : file.metadata()) {
    if (!entry.key.starts_with(kPrefix) || !entry.key.ends_with(kSuffix) ||
        entry.key.size() <= kPrefix.size() + kSuffix.size()) {
      continue;
    }
    const auto id = file.get<int32_t>(entry.key);
    if (!id.ok()) continue;
    SpecialToken token;
    token.role =
        entry.key.substr(kPrefix.size(), entry.key.size() - kPrefix.size() - kSuffix.size());
    token.id = id.value();
    out.push_back(std::move(token));
  }
  if (const auto tokens = file.get<GgufStrings>("tokenizer.ggml.tokens")) {
    int64_t id = 0;
    for (const std::string_view entry : tokens.value()) {
      for (SpecialToken& token : out) {
        if (token.id == id) token.entry = entry;
      }
      ++id;
    }
  }
  return out;
}

TokenizerSummary summarize_tokenizer(const GgufFile& file) {
  TokenizerSummary out;
  out.kind = text_or_empty(file, "tokenizer.ggml.model");
  if (out.kind.empty() && !file.has("tokenizer.ggml.tokens")) return out;
  out.pre = text_or_empty(file, "tokenizer.ggml.pre");
  if (const auto tokens = file.get<GgufStrings>("tokenizer.ggml.tokens")) {
    out.size = tokens.value().size();
  }
  if (const auto merges = file.get<GgufStrings>("tokenizer.ggml.merges")) {
    out.merges = merges.value().size();
  }
  out.special = special_tokens(file);
  const auto loaded = models::load_tokenizer(file);
  if (!loaded.ok()) {
    out.problem = loaded.error().message;
    return out;
  }
  const models::Tokenizer& tokenizer = *loaded.value();
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    out.control += tokenizer.is_control(id) ? 1 : 0;
  }
  out.adds_bos = !tokenizer.encode("", {}).empty();
  return out;
}

/// The main template and the named ones (tokenizer.chat_template.NAME).
std::vector<ChatTemplate> chat_templates(const GgufFile& file) {
  constexpr std::array<std::string_view, 5> kWords = {"system", "tools", "tool_calls", "think",
                                                      "add_generation_prompt"};
  std::vector<ChatTemplate> out;
  for (const models::GgufEntry& entry : file.metadata()) {
    if (!entry.key.starts_with(kTemplateKey)) continue;
    const std::string_view rest = entry.key.substr(kTemplateKey.size());
    if (!rest.empty() && !rest.starts_with('.')) continue;
    const auto text = file.get<std::string_view>(entry.key);
    if (!text.ok()) continue;
    ChatTemplate found;
    found.name = rest.empty() ? "" : std::string(rest.substr(1));
    found.text = text.value();
    for (const std::string_view word : kWords) {
      if (found.text.find(word) != found.text.npos) found.mentions.emplace_back(word);
    }
    out.push_back(std::move(found));
  }
  return out;
}

}  // namespace

Inspection inspect(const GgufFile& file, std::string path) {
  Inspection out;
  out.file = std::move(path);
  out.gguf = &file;
  out.architecture = text_or_empty(file, "general.architecture");
  out.title = text_or_empty(file, "general.name");
  out.types = shares(file);
  for (const TypeShare& share : out.types) {
    out.parameters += share.parameters;
    out.tensor_bytes += share.bytes;
  }
  const auto model = models::load_model(file, measuring_ops(), nullptr, {.draft_layer = true});
  if (model.ok()) {
    out.model = model.value()->info();
  } else {
    out.refused = model.error().message;
  }
  out.tokenizer = summarize_tokenizer(file);
  if (out.refused.empty()) out.refused = out.tokenizer.problem;
  out.templates = chat_templates(file);
  return out;
}

int64_t kv_bytes_per_token(const models::LayerGroup& group, kernels::KvTypes kv_type) {
  if (group.recurrent()) return 0;
  return group.block_bytes(kv_type, kernels::kAttentionTile) / kernels::kAttentionTile;
}

int64_t state_bytes(const models::LayerGroup& group) {
  return group.num_layers * group.state_bytes + group.hidden_bytes;
}

std::string layers_of(const models::LayerGroup& group) {
  if (group.recurrent() && group.num_layers == 0) return "draft layer";
  if (group.num_sharing == 0) return fmt::format("{} layers", group.num_layers);
  return fmt::format("{} layers, shared by {} more", group.num_layers, group.num_sharing);
}

std::string describe(const models::LayerGroup& group) {
  switch (group.kind) {
    case models::LayerGroup::Kind::kFull: return "full";
    case models::LayerGroup::Kind::kSliding: return fmt::format("sliding {}", group.window);
    case models::LayerGroup::Kind::kRecurrent: return "state";
  }
  return "";
}

std::string describe(const kernels::KvShape& shape) {
  if (shape.v_in_k) return fmt::format("latent of {}", shape.k_width());
  const std::string heads = fmt::format("{} KV heads of {}", shape.num_kv_heads, shape.k_dim);
  return shape.k_dim == shape.v_dim ? heads : fmt::format("{} and {}", heads, shape.v_dim);
}

}  // namespace hearth::worker
