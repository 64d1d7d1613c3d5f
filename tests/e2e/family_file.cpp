#include "tests/e2e/family_file.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "kernels/ops/dtype.h"
#include "models/gguf/gguf_writer.h"

namespace hearth::e2e {
namespace {

/// `count` entries: three control tokens, printable ASCII, and filling.
void add_vocabulary(models::GgufWriter* w, size_t count) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "\xE2\x96\x81"};
  std::vector<int32_t> types = {2, 3, 3, 1};
  for (char c = '!'; c <= '~' && tokens.size() < count; ++c) tokens.emplace_back(1, c);
  while (tokens.size() < count) tokens.push_back("x" + std::to_string(tokens.size()));
  types.resize(tokens.size(), 1);
  w->set_string("tokenizer.ggml.model", "llama");
  w->set_strings("tokenizer.ggml.tokens", tokens);
  w->set_f32s("tokenizer.ggml.scores", std::vector<float>(tokens.size(), -1.0f));
  w->set_i32s("tokenizer.ggml.token_type", types);
  w->set_u32("tokenizer.ggml.bos_token_id", 1);
  w->set_u32("tokenizer.ggml.eos_token_id", 2);
  w->set_bool("tokenizer.ggml.add_eos_token", true);  // of texts to embed, and of pairs
}

}  // namespace

void write_family(const golden::FamilyModel& model, const std::filesystem::path& path) {
  models::GgufWriter w;
  model.describe(&w);
  size_t tokens = 0;
  for (const golden::FamilyTensor& tensor : model.tensors) {
    if (tensor.name == "token_embd.weight") tokens = tensor.dims[1];
  }
  add_vocabulary(&w, tokens);
  model.add_tensors(&w, kernels::DType::kF32);
  REQUIRE(w.write(path).ok());
}

}  // namespace hearth::e2e
