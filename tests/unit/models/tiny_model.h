#pragma once
// A whole model file of family llama of a few kilobytes, with a vocabulary.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/gguf/gguf_writer.h"
#include "tests/unit/models/test_vocab.h"

namespace hearth::models {

inline void set_llama_metadata(GgufWriter* w, uint32_t layers = 1, uint32_t width = 8,
                               uint32_t ffn = 12, uint32_t heads = 2, uint32_t kv_heads = 1) {
  w->set_u32("llama.context_length", 64);
  w->set_u32("llama.embedding_length", width);
  w->set_u32("llama.block_count", layers);
  w->set_u32("llama.feed_forward_length", ffn);
  w->set_u32("llama.attention.head_count", heads);
  w->set_u32("llama.attention.head_count_kv", kv_heads);
  w->set_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

/// A tensor of ones, left out if its name is `omitted`.
inline void add_ones(GgufWriter* w, const std::string& name, std::vector<uint64_t> dims,
                     const std::string& omitted = "") {
  if (name == omitted) return;
  uint64_t elements = 1;
  for (const uint64_t dim : dims) elements *= dim;
  w->add_floats(name, dims, kernels::DType::kF32, std::vector<float>(elements, 1.0f));
}

/// Of the default shape.
inline void add_llama_tensors(GgufWriter* w, uint64_t vocab, const std::string& omitted = "") {
  constexpr uint64_t kWidth = 8, kFfn = 12, kKv = kWidth / 2;
  add_ones(w, "token_embd.weight", {kWidth, vocab}, omitted);
  add_ones(w, "blk.0.attn_norm.weight", {kWidth}, omitted);
  add_ones(w, "blk.0.attn_q.weight", {kWidth, kWidth}, omitted);
  add_ones(w, "blk.0.attn_k.weight", {kWidth, kKv}, omitted);
  add_ones(w, "blk.0.attn_v.weight", {kWidth, kKv}, omitted);
  add_ones(w, "blk.0.attn_output.weight", {kWidth, kWidth}, omitted);
  add_ones(w, "blk.0.ffn_norm.weight", {kWidth}, omitted);
  add_ones(w, "blk.0.ffn_gate.weight", {kWidth, kFfn}, omitted);
  add_ones(w, "blk.0.ffn_up.weight", {kWidth, kFfn}, omitted);
  add_ones(w, "blk.0.ffn_down.weight", {kFfn, kWidth}, omitted);
  add_ones(w, "output_norm.weight", {kWidth}, omitted);
}

/// Chained heads for that shape with 16 tokens, which draft two of them.
inline GgufWriter tiny_heads() {
  constexpr uint64_t kWidth = 8;
  GgufWriter w;
  w.set_string("general.architecture", "medusa");
  w.set_u32("medusa.head_count", 1);
  w.set_u32("medusa.block_count", 1);
  w.set_u32("medusa.embedding_length", kWidth);
  w.set_u32("medusa.vocab_size", 16);
  w.set_bool("medusa.chained", true);
  w.set_i32s("medusa.draft_tokens", std::vector<int32_t>{3, 11});
  w.set_string("medusa.target.name", "tiny");
  add_ones(&w, "head.0.pair.weight", {2 * kWidth, kWidth});
  for (const char* norm : {"embedding_norm", "hidden_norm", "output_norm"}) {
    add_ones(&w, std::string("head.0.") + norm + ".weight", {kWidth});
  }
  add_ones(&w, "head.0.block.0.weight", {kWidth, kWidth});
  add_ones(&w, "head.0.block.0.bias", {kWidth});
  add_ones(&w, "head.0.output.weight", {kWidth, 2});
  return w;
}

/// An adapter for that shape, of two matrices that are joined in the model and one that is not.
inline GgufWriter tiny_adapter() {
  constexpr uint64_t kWidth = 8, kFfn = 12, kRank = 2;
  GgufWriter w;
  w.set_string("general.type", "adapter");
  w.set_string("general.architecture", "llama");
  w.set_string("adapter.type", "lora");
  w.set_f32("adapter.lora.alpha", 4);
  const auto add_pair = [&w](const std::string& name, uint64_t inputs, uint64_t outputs) {
    add_ones(&w, name + ".lora_a", {inputs, kRank});
    add_ones(&w, name + ".lora_b", {kRank, outputs});
  };
  add_pair("blk.0.attn_q.weight", kWidth, kWidth);
  add_pair("blk.0.attn_v.weight", kWidth, kWidth / 2);
  add_pair("blk.0.ffn_down.weight", kFfn, kWidth);
  return w;
}

/// Keys of a drafter of one layer, and its feed-forward and norms (attn_norm, ffn_norm,
/// output_norm).
inline GgufWriter tiny_drafter(const std::string& architecture, uint32_t width, uint32_t vocab,
                               const std::vector<int32_t>& target_layers) {
  constexpr uint32_t kFfn = 12;
  GgufWriter w;
  w.set_string("general.architecture", architecture);
  const auto set = [&](const char* key, uint32_t value) {
    w.set_u32(architecture + "." + key, value);
  };
  set("context_length", 64);
  set("embedding_length", width);
  set("block_count", 1);
  set("feed_forward_length", kFfn);
  set("vocab_size", vocab);
  w.set_f32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
  w.set_i32s(architecture + ".target_layers", target_layers);
  for (const char* norm : {"blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"}) {
    add_ones(&w, std::string(norm) + ".weight", {width});
  }
  add_ones(&w, "blk.0.ffn_gate.weight", {width, kFfn});
  add_ones(&w, "blk.0.ffn_up.weight", {width, kFfn});
  add_ones(&w, "blk.0.ffn_down.weight", {kFfn, width});
  return w;
}

/// An EAGLE-3 head of another width for it, or for a model of the given width and vocabulary; it
/// drafts two tokens.
inline GgufWriter tiny_eagle3(uint32_t target_width = 8, uint32_t vocab = 16) {
  constexpr uint32_t kWidth = 16, kTokens = 2;
  GgufWriter w = tiny_drafter("eagle3", kWidth, vocab, {0, 1, 1});
  w.set_u32("eagle3.attention.head_count", 2);
  w.set_u32("eagle3.target_hidden_size", target_width);
  add_ones(&w, "fc.weight", {3 * target_width, kWidth});
  add_ones(&w, "blk.0.attn_norm_2.weight", {kWidth});
  for (const char* part : {"q", "k", "v"}) {
    add_ones(&w, std::string("blk.0.attn_") + part + ".weight", {2 * kWidth, kWidth});
  }
  add_ones(&w, "blk.0.attn_output.weight", {kWidth, kWidth});
  add_ones(&w, "token_embd.weight", {kWidth, vocab});
  add_ones(&w, "output.weight", {kWidth, kTokens});
  constexpr uint64_t kDims[] = {kTokens};
  constexpr std::array<int64_t, kTokens> kDraftTokens = {3, 11};
  const auto bytes = std::as_bytes(std::span(kDraftTokens));
  w.add_tensor("d2t", kDims, kernels::DType::kI64, {bytes.begin(), bytes.end()});
  return w;
}

/// A DFlash drafter for it, or for a model of the given width and vocabulary; it drafts three
/// tokens.
inline GgufWriter tiny_dflash(uint32_t width = 8, uint32_t vocab = 16) {
  constexpr uint32_t kHeadDim = 8;
  GgufWriter w = tiny_drafter("dflash", width, vocab, {0, 1});
  w.set_u32("dflash.attention.head_count", 1);
  w.set_u32("dflash.attention.key_length", kHeadDim);
  w.set_u32("dflash.attention.value_length", kHeadDim);
  w.set_u32("dflash.block_size", 4);
  w.set_u32("tokenizer.ggml.mask_token_id", 5);
  add_ones(&w, "fc.weight", {2 * width, width});
  add_ones(&w, "enc.output_norm.weight", {width});
  for (const char* part : {"q", "k", "v"}) {
    add_ones(&w, std::string("blk.0.attn_") + part + ".weight", {width, kHeadDim});
  }
  add_ones(&w, "blk.0.attn_q_norm.weight", {kHeadDim});
  add_ones(&w, "blk.0.attn_k_norm.weight", {kHeadDim});
  add_ones(&w, "blk.0.attn_output.weight", {kHeadDim, width});
  return w;
}

inline GgufWriter tiny_model() {
  const TestVocab vocab = small_vocab();
  GgufWriter w = vocab_file(vocab);
  set_llama_metadata(&w);
  add_llama_tensors(&w, vocab.tokens.size());
  return w;
}

}  // namespace hearth::models
