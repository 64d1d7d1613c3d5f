#pragma once
// A whole model file of family llama of a few kilobytes, with a vocabulary.

#include <cstdint>
#include <string>
#include <vector>

#include "models/gguf/gguf_writer.h"
#include "tests/unit/models/test_vocab.h"

namespace hearth::models {

struct TinyShape {
  uint32_t layers = 1;
  uint64_t width = 8;
  uint64_t ffn = 12;
  uint32_t heads = 2;
  uint32_t kv_heads = 1;
};

inline void set_llama_metadata(GgufWriter* w, const TinyShape& shape) {
  w->set_u32("llama.context_length", 64);
  w->set_u32("llama.embedding_length", static_cast<uint32_t>(shape.width));
  w->set_u32("llama.block_count", shape.layers);
  w->set_u32("llama.feed_forward_length", static_cast<uint32_t>(shape.ffn));
  w->set_u32("llama.attention.head_count", shape.heads);
  w->set_u32("llama.attention.head_count_kv", shape.kv_heads);
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

inline void add_llama_tensors(GgufWriter* w, const TinyShape& s, uint64_t vocab,
                              const std::string& omitted = "") {
  const uint64_t q = s.width, kv = s.width / s.heads * s.kv_heads;
  add_ones(w, "token_embd.weight", {s.width, vocab}, omitted);
  for (uint32_t i = 0; i < s.layers; ++i) {
    const std::string blk = "blk." + std::to_string(i) + ".";
    add_ones(w, blk + "attn_norm.weight", {s.width}, omitted);
    add_ones(w, blk + "attn_q.weight", {s.width, q}, omitted);
    add_ones(w, blk + "attn_k.weight", {s.width, kv}, omitted);
    add_ones(w, blk + "attn_v.weight", {s.width, kv}, omitted);
    add_ones(w, blk + "attn_output.weight", {q, s.width}, omitted);
    add_ones(w, blk + "ffn_norm.weight", {s.width}, omitted);
    add_ones(w, blk + "ffn_gate.weight", {s.width, s.ffn}, omitted);
    add_ones(w, blk + "ffn_up.weight", {s.width, s.ffn}, omitted);
    add_ones(w, blk + "ffn_down.weight", {s.ffn, s.width}, omitted);
  }
  add_ones(w, "output_norm.weight", {s.width}, omitted);
}

inline GgufWriter tiny_model() {
  const TestVocab vocab = small_vocab();
  GgufWriter w = vocab_file(vocab);
  set_llama_metadata(&w, {});
  add_llama_tensors(&w, {}, vocab.tokens.size());
  return w;
}

}  // namespace hearth::models
