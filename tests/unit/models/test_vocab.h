#pragma once
// A small vocabulary of the "llama" kind for tests, and files that hold it.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/gguf/gguf_writer.h"

namespace hearth::models {

struct TestVocab {
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;

  int32_t add(const std::string& token, float score, int32_t type) {
    tokens.push_back(token);
    scores.push_back(score);
    types.push_back(type);
    return static_cast<int32_t>(tokens.size() - 1);
  }
};

/// <unk>, <s>, </s>, 256 bytes, letters, a few merges, a user-defined and a control token.
inline TestVocab small_vocab() {
  TestVocab v;
  v.add("<unk>", 0, 2);
  v.add("<s>", 0, 3);
  v.add("</s>", 0, 3);
  for (int b = 0; b < 256; ++b) {
    constexpr char kHex[] = "0123456789ABCDEF";
    v.add(std::string("<0x") + kHex[b / 16] + kHex[b % 16] + ">", 0, 6);
  }
  float score = -1;
  for (const char* piece :
       {"ab", "bc", "abc",
        "\xE2\x96\x81"
        "a",
        "\xE2\x96\x81\xE2\x96\x81", "\xE2\x96\x81\xE2\x96\x81\xE2\x96\x81\xE2\x96\x81", "the",
        "\xE2\x96\x81the", "th", "he"}) {
    v.add(piece, score, 1);
    score -= 1;
  }
  v.add("\xE2\x96\x81", score--, 1);
  for (char c = 'a'; c <= 'z'; ++c) v.add(std::string(1, c), score--, 1);
  v.add("\xC3\xA9", score--, 1);  // e acute
  v.add("<tool>", 0, 4);
  v.add("<|end|>", 0, 3);
  return v;
}

/// A file with a vocabulary of this kind. Scores or types that are empty are left out.
inline GgufWriter vocab_file(std::string_view kind, const TestVocab& v) {
  GgufWriter w;
  w.set_string("tokenizer.ggml.model", kind);
  w.set_strings("tokenizer.ggml.tokens", v.tokens);
  if (!v.scores.empty()) w.set_f32s("tokenizer.ggml.scores", v.scores);
  if (!v.types.empty()) w.set_i32s("tokenizer.ggml.token_type", v.types);
  return w;
}

inline GgufWriter vocab_file(const TestVocab& v) {
  GgufWriter w = vocab_file("llama", v);
  w.set_string("general.architecture", "llama");
  w.set_u32("tokenizer.ggml.bos_token_id", 1);
  w.set_u32("tokenizer.ggml.eos_token_id", 2);
  return w;
}

}  // namespace hearth::models
