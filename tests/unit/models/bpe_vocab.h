#pragma once
// A small vocabulary of the "gpt2" kind for tests, and files that hold it.

#include <cstdint>
#include <string>
#include <vector>

#include "models/gguf/gguf_writer.h"
#include "models/tokenizer/text/byte_alphabet.h"

namespace hearth::models {

struct TestBpeVocab {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<std::string> merges;

  int32_t add(const std::string& token, int32_t type) {
    tokens.push_back(token);
    types.push_back(type);
    return static_cast<int32_t>(tokens.size() - 1);
  }
  /// The merge of two tokens, and the resulting token.
  int32_t merge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    return add(left + right, 1);
  }
};

/// `bytes` as written in entries of such a vocabulary.
inline std::string in_alphabet(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) {
    const uint32_t code = byte_alphabet()[static_cast<uint8_t>(c)];
    if (code >= 0x80) {
      out.push_back(static_cast<char>(0xC0 | code >> 6));
      out.push_back(static_cast<char>(0x80 | (code & 0x3F)));
    } else {
      out.push_back(static_cast<char>(code));
    }
  }
  return out;
}

/// Token b is byte b; then a few merges, <|end|> (control) and <tool> (user-defined).
inline TestBpeVocab small_bpe_vocab() {
  TestBpeVocab v;
  for (int b = 0; b < 256; ++b) v.add(in_alphabet(std::string(1, static_cast<char>(b))), 1);
  const std::string space = in_alphabet(" ");
  v.merge("h", "e");
  v.merge("t", "he");
  v.merge(space, "the");
  v.merge("a", "b");
  v.merge("b", "c");
  v.merge("ab", "c");
  v.merge("1", "2");
  v.merge(space, space);
  v.merge(space + space, space + space);
  v.add("<|end|>", 3);
  v.add("<tool>", 4);
  return v;
}

/// `pre` names the rule that splits a text; without one the key is left out.
inline GgufWriter vocab_file(const TestBpeVocab& v, const std::string& pre) {
  GgufWriter w;
  w.set_string("general.architecture", "llama");
  w.set_string("tokenizer.ggml.model", "gpt2");
  if (!pre.empty()) w.set_string("tokenizer.ggml.pre", pre);
  w.set_strings("tokenizer.ggml.tokens", v.tokens);
  w.set_i32s("tokenizer.ggml.token_type", v.types);
  w.set_strings("tokenizer.ggml.merges", v.merges);
  w.set_u32("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(v.tokens.size() - 2));
  return w;
}

}  // namespace hearth::models
