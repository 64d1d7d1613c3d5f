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
  constexpr const char* kRules[] = {"default", "gpt-2", "llama-bpe", "starcoder", "deepseek-llm"};
  return vocab_file(v, kRules[input->ConsumeIntegralInRange(0, 4)]);
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
  const GgufWriter writer = input.ConsumeBool() ? spm_vocabulary(&input) : bpe_vocabulary(&input);
  const std::vector<std::byte> bytes = writer.bytes();
  const auto file = GgufFile::parse(bytes, "fuzz");
  HEARTH_CHECK(file.ok(), "{}", file.error().message);  // the writer writes what the reader reads
  const auto tokenizer = load_tokenizer(file.value());
  if (!tokenizer.ok()) return 0;
  const std::string text = input.ConsumeRemainingBytesAsString();
  check_text(*tokenizer.value(), text, false);
  check_text(*tokenizer.value(), text, true);
  return 0;
}
