// Heads that draft: compared with their formulas in float64 and with themselves, batched; and files
// with an error.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/model.h"
#include "tests/golden/random_heads.h"
#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

using kernels::DType;
using Rows = std::vector<std::vector<float>>;

StepRunner runner_of(const OwnedFile& model, const OwnedFile& heads, const NamedTable& table,
                     DType kv_type) {
  return StepRunner(model.file, table.ops, kv_type,
                    {.seqs = 2, .step_tokens = 64, .context = 96, .heads = &heads.file});
}

/// The names of llama_shapes() with which heads are tested.
bool chosen(const LlamaShape& shape) {
  return shape.name == "gqa" || shape.name == "mha, tied" || shape.name == "odd sizes";
}

TEST_CASE("draft heads: logits equal the formulas, each place from the row that it continues") {
  for (const LlamaShape& shape : llama_shapes()) {
    if (!chosen(shape)) continue;
    const RandomLlama model(shape, 3);
    const OwnedFile owned(model.file_bytes(DType::kF32));
    const std::vector<int32_t> tokens = random_tokens(23, shape.vocab, 4);
    const std::vector<int32_t> drafts = random_tokens(3, shape.vocab, 5);
    for (const HeadsShape& heads_shape : heads_shapes()) {
      const RandomHeads heads(heads_shape, shape, 6);
      const OwnedFile owned_heads(heads.file_bytes(DType::kF32));
      const auto want = heads.drafts_after(model, tokens, drafts);
      for (const NamedTable& table : all_tables()) {
        INFO(shape.name << ", " << heads_shape.name << " on " << table.name);
        StepRunner runner = runner_of(owned, owned_heads, table, DType::kF32);
        const models::ModelInfo& info = runner.info();
        REQUIRE(info.drafts);
        CHECK(info.draft_heads == (heads_shape.chained ? 4 : std::min(heads_shape.heads, 4)));
        CHECK(info.draft_tokens == heads_shape.draft_tokens);
        REQUIRE(info.draft_vocab == static_cast<int32_t>(want.front().size()));
        const Rows met = runner.drafts_after(tokens, 7, drafts);
        double most = 0, worst = 0;
        for (size_t i = 0; i < want.size(); ++i) {
          for (size_t j = 0; j < want[i].size(); ++j) {
            most = std::max(most, std::fabs(want[i][j]));
            worst = std::max(worst, std::fabs(double{met[i][j]} - want[i][j]));
          }
        }
        CHECK(worst < 5e-5 * most);
      }
    }
  }
}

TEST_CASE("draft heads: other sequences change no bit, and heads no logit of the model") {
  const LlamaShape shape = llama_shapes().front();
  const RandomLlama model(shape, 3);
  const OwnedFile owned(model.file_bytes(DType::kQ8_0));
  const std::vector<int32_t> tokens = random_tokens(40, shape.vocab, 4);
  const std::vector<int32_t> drafts = random_tokens(3, shape.vocab, 5);
  for (const HeadsShape& heads_shape : heads_shapes()) {
    const OwnedFile heads(RandomHeads(heads_shape, shape, 6).file_bytes(DType::kQ8_0));
    for (const NamedTable& table : all_tables()) {
      if (table.name == "reference" && !tests::full_counts()) continue;
      INFO(heads_shape.name << " on " << table.name);
      StepRunner alone = runner_of(owned, heads, table, DType::kF16);
      const Rows want = alone.drafts_after(tokens, 64, drafts);
      StepRunner plain(owned.file, table.ops, DType::kF16, {.step_tokens = 64, .context = 96});
      CHECK_FALSE(plain.info().drafts);
      const std::span<const int32_t> all(tokens);
      plain.feed(0, all.first(39), 64);
      CHECK(alone.feed(0, all.last(1), 1) == plain.feed(0, all.last(1), 1));
      // Two sequences drafted together, the second of the reversed tokens.
      StepRunner batched = runner_of(owned, heads, table, DType::kF16);
      const std::vector<int32_t> other(tokens.rbegin(), tokens.rend());
      const Chunk steps[] = {{1, std::span(other).first(20)}, {0, all.first(39)}};
      batched.step(steps);
      std::vector<int32_t> rows = {19, 58};
      for (size_t i = 0; i < drafts.size(); ++i) {
        const int32_t token = i == 0 ? tokens.back() : drafts[i - 1];
        const Chunk next[] = {{1, {&token, 1}}, {0, {&token, 1}}};
        CHECK(batched.draft(next, rows, static_cast<int32_t>(i)).back() == want[i]);
        rows = {0, 1};
      }
    }
  }
}

// ---- What is refused ----------------------------------------------------------------------------

/// The message of loading a model with such heads; empty if it loads.
std::string refusal(const std::vector<std::byte>& heads, const char* title = nullptr) {
  const LlamaShape shape = llama_shapes().front();
  const OwnedFile plain(RandomLlama(shape, 3).file_bytes(DType::kF32));
  models::GgufWriter titled;
  for (const models::GgufEntry& entry : plain.file.metadata()) titled.copy(entry);
  if (title != nullptr) titled.set_string("general.name", title);
  for (const models::GgufTensor& tensor : plain.file.tensors()) {
    titled.add_tensor(tensor.name, std::span(tensor.dims).first(tensor.num_dims), *tensor.dtype,
                      {tensor.bytes.begin(), tensor.bytes.end()});
  }
  const OwnedFile model(titled.bytes());
  const auto file = models::GgufFile::parse(heads, "hostile");
  if (!file.ok()) return file.error().message;
  const auto loaded =
      models::load_model(model.file, kernels::reference_ops(), nullptr, {.heads = &*file});
  return loaded.ok() ? "" : loaded.error().message;
}

bool has(const std::string& message, const char* part) {
  return message.find(part) != std::string::npos;
}

TEST_CASE("draft heads: each missing, ill-shaped or unknown tensor is named") {
  const LlamaShape model = llama_shapes().front();
  for (const HeadsShape& shape : heads_shapes()) {
    const RandomHeads good(shape, model, 6);
    CHECK(refusal(good.file_bytes(DType::kF32)).empty());
    RandomHeads names = good;
    for (const auto& [name, tensor] : names.tensors()) {
      INFO(shape.name << ", " << name);
      if (name.starts_with("head.4.")) continue;  // not loaded
      RandomHeads without = good;
      without.tensors().erase(name);
      const bool optional = name.ends_with("output.weight") && shape.draft_tokens.empty();
      const std::string missing = refusal(without.file_bytes(DType::kF32));
      CHECK_MESSAGE((optional ? missing.empty() : missing.starts_with(name + ": missing")),
                    missing);
      RandomHeads wrong = good;
      wrong.tensors()[name] = {{2, 3}, std::vector<float>(6)};
      CHECK(refusal(wrong.file_bytes(DType::kF32)).starts_with(name + ": shape [2,3], want ["));
    }
    RandomHeads more = good;
    more.tensors()["head.0.other.weight"] = {{4}, std::vector<float>(4)};
    CHECK(has(refusal(more.file_bytes(DType::kF32)), "head.0.other.weight"));
  }
}

TEST_CASE("draft heads: a file for another model, and counts out of range, are refused") {
  const LlamaShape model = llama_shapes().front();
  HeadsShape shape = heads_shapes().front();
  const auto with = [&](const LlamaShape& target, const HeadsShape& heads) {
    return refusal(RandomHeads(heads, target, 6).file_bytes(DType::kF32));
  };
  LlamaShape other = model;
  other.width = 32;
  CHECK(has(with(other, shape), "medusa.embedding_length: 32, want 64"));
  other = model;
  other.vocab = 97;
  CHECK(has(with(other, shape), "medusa.vocab_size: 97, want 96"));
  shape.heads = 17;
  CHECK(has(with(model, shape), "medusa.head_count: 17, want 1 to 16"));
  shape.heads = 0;
  CHECK(has(with(model, shape), "medusa.head_count: 0, want 1 to 16"));
  shape.heads = 1;
  shape.blocks = 17;
  CHECK(has(with(model, shape), "medusa.block_count: 17, want 0 to 16"));
  shape.blocks = 1;
  shape.draft_tokens = {3, 96};
  CHECK(has(with(model, shape), "medusa.draft_tokens: element 1 is 96, want 4 to 95"));
  shape.draft_tokens = {3, 3};
  CHECK(has(with(model, shape), "medusa.draft_tokens: element 1 is 3, want 4 to 95"));
  shape.draft_tokens = {-1};
  CHECK(has(with(model, shape), "medusa.draft_tokens: element 0 is -1, want 0 to 95"));

  const RandomHeads good(heads_shapes().front(), model, 6);
  models::GgufWriter named;
  good.describe(&named);
  named.set_string("medusa.target.name", "tales");
  good.add_tensors(&named, DType::kF32);
  CHECK(refusal(named.bytes()).empty());  // the model has no name
  CHECK(refusal(named.bytes(), "tales").empty());
  CHECK(has(refusal(named.bytes(), "stories"), "medusa.target.name: \"tales\", want \"stories\""));
  CHECK(has(refusal(RandomLlama(model, 3).file_bytes(DType::kF32)),
            "general.architecture: \"llama\", want \"medusa\""));
}

TEST_CASE("draft heads: a truncated file is refused, and heads alone are refused as a model") {
  const std::vector<std::byte> whole =
      RandomHeads(heads_shapes().front(), llama_shapes().front(), 6).file_bytes(DType::kF32);
  for (size_t size = 0; size < whole.size(); size += std::max<size_t>(1, size / 16)) {
    INFO(size);
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    CHECK_FALSE(refusal(cut).empty());
  }
  const OwnedFile heads(whole);
  const auto loaded = models::load_model(heads.file, kernels::reference_ops(), nullptr);
  REQUIRE_FALSE(loaded.ok());
  CHECK(has(loaded.error().message, "heads that draft for a model"));
  CHECK(models::check_heads(heads.file, kernels::reference_ops()).ok());
}

}  // namespace
}  // namespace hearth::golden
