// Any vocabulary with any text. Where the vocabulary loads, every id is one of it, what is decoded
// is UTF-8, and control tokens appear only where they may.

#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/check.h"
#include "models/gguf/gguf_file.h"
#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/utf8.h"
#include "tests/unit/models/bpe_vocab.h"
#include "tests/unit/models/test_vocab.h"

namespace {

using namespace hearth;
using namespace hearth::models;

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Char c = front_char(text);
    if (c.kind != Utf8Char::Kind::kWhole) return false;
    text.remove_prefix(c.bytes);
  }
  return true;
}

/// The small vocabulary of the unit tests or an empty one, and what the input adds and breaks.
GgufWriter spm_vocabulary(FuzzedDataProvider* input) {
  TestVocab v;
  if (input->ConsumeBool()) v = small_vocab();
  const int added = input->ConsumeIntegralInRange(0, 40);
  for (int i = 0; i < added; ++i) {
    v.add(input->ConsumeRandomLengthString(12), input->ConsumeFloatingPointInRange(-9.0f, 9.0f),
          input->ConsumeIntegralInRange(-1, 7));
  }
  if (!v.types.empty() && input->ConsumeIntegralInRange(0, 15) == 0) v.types.pop_back();
  GgufWriter w;
  w.set_string("tokenizer.ggml.model", "llama");
  w.set_strings("tokenizer.ggml.tokens", v.tokens);
  w.set_f32s("tokenizer.ggml.scores", v.scores);
  if (input->ConsumeBool()) w.set_i32s("tokenizer.ggml.token_type", v.types);
  for (const char* id : {"bos", "eos", "eot", "unknown"}) {
    if (input->ConsumeBool()) {
      w.set_u32(std::string("tokenizer.ggml.") + id + "_token_id",
                input->ConsumeIntegralInRange<uint32_t>(0, 400));
    }
  }
  if (input->ConsumeBool()) w.set_bool("tokenizer.ggml.add_space_prefix", input->ConsumeBool());
  if (input->ConsumeBool()) w.set_bool("tokenizer.ggml.add_bos_token", input->ConsumeBool());
  return w;
}

GgufWriter bpe_vocabulary(FuzzedDataProvider* input) {
  TestBpeVocab v = small_bpe_vocab();
  const int added = input->ConsumeIntegralInRange(0, 20);
  for (int i = 0; i < added; ++i) {
    switch (input->ConsumeIntegralInRange(0, 2)) {
      case 0:
        v.add(input->ConsumeRandomLengthString(8), input->ConsumeIntegralInRange(-1, 7));
        break;
      case 1: v.merges.push_back(input->ConsumeRandomLengthString(8)); break;
      default: {
        const auto token = [&] {
          return v.tokens[input->ConsumeIntegralInRange<size_t>(0, v.tokens.size() - 1)];
        };
        const std::string left = token();
        v.merge(left, token());
      }
    }
  }
  const char* rule = input->PickValueInArray({"default", "gpt-2", "llama-bpe", "starcoder",
                                              "falcon", "qwen2", "qwen35", "seed-coder", "minicpm5",
                                              "tekken", "gpt-4o", "deepseek-llm", "deepseek-coder",
                                              "deepseek-v3", "bloom", "viking", "nonesuch"});
  GgufWriter w = vocab_file(v, rule);
  if (input->ConsumeBool()) w.set_bool("tokenizer.ggml.add_space_prefix", input->ConsumeBool());
  return w;
}

/// Of the kinds without merges. A space in the input's tokens is the mark that stands for one.
TestVocab words(FuzzedDataProvider* input) {
  TestVocab v;
  v.add("[UNK]", 0, input->ConsumeIntegralInRange(1, 3));
  v.add("[CLS]", 0, 3);
  if (input->ConsumeBool()) {
    const TestVocab small = small_vocab();
    for (size_t id = 3; id < small.tokens.size(); ++id)
      v.add(small.tokens[id], small.scores[id], small.types[id]);
  }
  const int added = input->ConsumeIntegralInRange(0, 20);
  for (int i = 0; i < added; ++i) {
    std::string token;
    for (const char c : input->ConsumeRandomLengthString(8)) {
      if (c == ' ') {
        token += "\xE2\x96\x81";
      } else {
        token.push_back(c);
      }
    }
    v.add(token, input->ConsumeFloatingPointInRange(-9.0f, 9.0f),
          input->ConsumeIntegralInRange(0, 5));
  }
  return v;
}

GgufWriter words_file(const TestVocab& v, const char* kind) {
  GgufWriter w;
  w.set_string("tokenizer.ggml.model", kind);
  w.set_strings("tokenizer.ggml.tokens", v.tokens);
  w.set_i32s("tokenizer.ggml.token_type", v.types);
  w.set_u32("tokenizer.ggml.bos_token_id", 1);
  return w;
}

GgufWriter wordpiece_vocabulary(FuzzedDataProvider* input) {
  GgufWriter w = words_file(words(input), "bert");
  if (input->ConsumeBool()) w.set_u32("tokenizer.ggml.unknown_token_id", 0);
  w.set_bool("tokenizer.ggml.normalizer.lowercase", input->ConsumeBool());
  if (input->ConsumeBool()) {
    w.set_bool("tokenizer.ggml.normalizer.strip_accents", input->ConsumeBool());
  }
  return w;
}

GgufWriter unigram_vocabulary(FuzzedDataProvider* input) {
  const TestVocab v = words(input);
  GgufWriter w = words_file(v, "t5");
  w.set_f32s("tokenizer.ggml.scores", v.scores);
  if (input->ConsumeBool()) w.set_u32("tokenizer.ggml.unknown_token_id", 0);
  w.set_bool("tokenizer.ggml.add_space_prefix", input->ConsumeBool());
  w.set_bool("tokenizer.ggml.remove_extra_whitespaces", input->ConsumeBool());
  if (input->ConsumeBool()) {
    // An index of the input's making, or bytes that are no charsmap at all.
    std::vector<int32_t> bytes;
    const auto index = input->ConsumeBytes<uint8_t>(input->ConsumeIntegralInRange(0, 2048));
    if (input->ConsumeBool()) {
      const size_t whole = index.size() / 4 * 4;
      for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<int32_t>(whole >> (8 * i) & 0xFF));
      bytes.insert(bytes.end(), index.begin(), index.begin() + static_cast<ptrdiff_t>(whole));
      for (const char c : std::string_view("ab\0 \0\xC3\xA9\0", 8)) {
        bytes.push_back(static_cast<uint8_t>(c));
      }
    } else {
      bytes.assign(index.begin(), index.end());
    }
    w.set_i32s("tokenizer.ggml.precompiled_charsmap", bytes);
  }
  return w;
}

GgufWriter vocabulary(FuzzedDataProvider* input) {
  switch (input->ConsumeIntegralInRange(0, 3)) {
    case 0: return spm_vocabulary(input);
    case 1: return bpe_vocabulary(input);
    case 2: return wordpiece_vocabulary(input);
    default: return unigram_vocabulary(input);
  }
}

void check_text(const Tokenizer& tokenizer, std::string_view text, bool parse_special) {
  const auto ids = tokenizer.encode(text, {.add_bos = true, .parse_special = parse_special});
  StreamingDetokenizer detokenizer(tokenizer, true);
  std::string decoded;
  for (const int32_t id : ids) {
    HEARTH_CHECK(id >= 0 && id < tokenizer.vocab_size(), "id {}", id);
    HEARTH_CHECK(tokenizer.piece(id).size() <= tokenizer.max_piece_bytes(), "id {}", id);
    if (!parse_special && tokenizer.is_control(id)) HEARTH_CHECK(id == tokenizer.bos());
    decoded += detokenizer.push(id);
  }
  decoded += detokenizer.finish();
  HEARTH_CHECK(is_utf8(decoded));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  const std::vector<std::byte> bytes = vocabulary(&input).bytes();
  const auto file = GgufFile::parse(bytes, "fuzz");
  HEARTH_CHECK(file.ok(), "{}", file.error().message);  // the writer writes what the reader reads
  const auto tokenizer = load_tokenizer(file.value());
  if (!tokenizer.ok()) return 0;
  const std::string text = input.ConsumeRemainingBytesAsString();
  check_text(*tokenizer.value(), text, false);
  check_text(*tokenizer.value(), text, true);
  return 0;
}
