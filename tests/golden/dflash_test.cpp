// DFlash drafters: compared with PyTorch in float64 and with themselves, chunked and batched; and
// files with an error.

#include <doctest/doctest.h>

#include <algorithm>
#include <span>
#include <utility>

#include "models/model.h"
#include "tests/golden/draft_checks.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_dflash.h"
#include "tests/golden/step_runner.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

using kernels::DType;
using LogitRows = std::vector<std::vector<float>>;

StepRunner with_drafter(const OwnedFile& model, const OwnedFile& drafter, const NamedTable& table,
                        DType kv_type) {
  return StepRunner(model.file, table.ops, kv_type,
                    {.seqs = 2, .step_tokens = 96, .context = 112, .heads = &drafter.file});
}

TEST_CASE("dflash: the logits of a block equal PyTorch's") {
  for (const DrafterModel& drafter : read_drafters("dflash")) {
    const FamilyModel target = read_family(drafter.target);
    const OwnedFile model(target.file_bytes(DType::kF32));
    const OwnedFile file(drafter.file_bytes(DType::kF32));
    REQUIRE(drafter.model.drafts.size() == 3);
    for (const NamedTable& table : all_tables()) {
      for (const auto& [size, want] : drafter.model.drafts) {
        if (table.slow && size > 50) continue;
        INFO(drafter.model.name << " on " << table.name << " after " << size);
        StepRunner runner = with_drafter(model, file, table, DType::kF32);
        REQUIRE(runner.info().draft_block == 5);
        check_logits(runner.block_after(first_of(target.all_tokens(), size), 96, 5), want);
      }
    }
  }
}

TEST_CASE("dflash: the drafts of a block are llama.cpp's, after every token of a text") {
  const std::vector<NamedTable> tables = all_tables();
  size_t compared = 0;
  for (const DrafterModel& drafter : read_drafters("dflash")) {
    const FamilyModel target = read_family(drafter.target);
    const OwnedFile model(target.file_bytes(DType::kF32));
    const OwnedFile file(drafter.file_bytes(DType::kF32));
    for (const NamedTable& table : tables) {
      for (const auto& [size, want] : drafter.model.llama_cpp_drafts) {
        if (&table != &tables.back() && size % 13 != 0) continue;
        INFO(drafter.model.name << " on " << table.name << " after " << size);
        StepRunner runner = with_drafter(model, file, table, DType::kF32);
        const LogitRows met = runner.block_after(first_of(target.all_tokens(), size), 96, 5);
        std::vector<int32_t> best;
        for (const std::vector<float>& row : met) {
          best.push_back(static_cast<int32_t>(std::ranges::max_element(row) - row.begin()));
        }
        CHECK(best == want);
      }
    }
    compared += drafter.model.llama_cpp_drafts.size();
  }
  CHECK(compared == 3 * 79);
}

TEST_CASE(
    "dflash: chunks and other sequences change no bit, and the drafter no logit of the model") {
  for (const DrafterModel& drafter : read_drafters("dflash")) {
    const FamilyModel target = read_family(drafter.target);
    const OwnedFile model(target.file_bytes(DType::kQ8_0));
    const OwnedFile file(drafter.file_bytes(DType::kQ8_0));
    const std::vector<int32_t> tokens = target.all_but_last();
    const std::vector<int32_t> computed = first_of(tokens, tokens.size() - 1);
    const std::vector<int32_t> reversed(computed.rbegin(), computed.rend());
    for (const NamedTable& table : all_tables()) {
      if (table.name == "reference" && !tests::full_counts()) continue;
      INFO(drafter.model.name << " on " << table.name);
      const auto make = [&] { return with_drafter(model, file, table, DType::kF16); };
      StepRunner alone = make();
      const LogitRows want = alone.block_after(tokens, 96, 4);
      for (const int32_t chunk : {33, 7, 1}) {
        if (table.slow && chunk != 33) continue;
        CHECK(make().block_after(tokens, chunk, 4) == want);
      }
      // What was drafted is written over by what follows, and changed nothing of the model.
      StepRunner plain(model.file, table.ops, DType::kF16, {.step_tokens = 96, .context = 112});
      plain.feed(0, computed, 96);
      CHECK(alone.feed(0, std::span(tokens).last(1), 1) ==
            plain.feed(0, std::span(tokens).last(1), 1));
      StepRunner again = make();
      again.feed(0, tokens, 96);
      CHECK(alone.blocks(std::vector<int32_t>{7}, 3) == again.blocks(std::vector<int32_t>{7}, 3));
      StepRunner both = make();
      both.feed(0, computed, 96);
      both.feed(1, reversed, 96);
      const LogitRows together = both.blocks(std::vector<int32_t>{tokens.back(), 9}, 4);
      CHECK(LogitRows(together.begin(), together.begin() + 4) == want);
    }
  }
}

// ---- What is refused ----------------------------------------------------------------------------

LlamaShape target_shape() { return llama_shapes().front(); }

/// The message of loading a random llama with such a drafter; empty if it loads.
std::string refused(const std::vector<std::byte>& drafter) {
  const OwnedFile model(RandomLlama(target_shape(), 3).file_bytes(DType::kF32));
  const auto file = models::GgufFile::parse(drafter, "hostile");
  if (!file.ok()) return file.error().message;
  const auto loaded =
      models::load_model(model.file, kernels::reference_ops(), nullptr, {.heads = &*file});
  return loaded.ok() ? "" : loaded.error().message;
}

TEST_CASE("dflash: each missing, ill-shaped or unknown tensor is named") {
  const RandomDFlash good({}, RandomLlama(target_shape(), 3), 6);
  CHECK(refused(good.file_bytes()).empty());
  RandomDFlash names = good;
  for (const auto& [name, tensor] : names.tensors()) {
    INFO(name);
    RandomDFlash without = good;
    without.tensors().erase(name);
    CHECK(refused(without.file_bytes()).starts_with(name + ": missing"));
    RandomDFlash wrong = good;
    wrong.tensors()[name] = {{2, 3}, std::vector<float>(6)};
    CHECK(refused(wrong.file_bytes()).starts_with(name + ": shape [2,3], want ["));
  }
  for (const char* later : {"markov_w1.weight", "selector_hidden.weight", "d2t"}) {
    RandomDFlash more = good;
    more.tensors()[later] = {{4}, std::vector<float>(4)};
    CHECK(refused(more.file_bytes()).starts_with(later));
  }
}

TEST_CASE("dflash: a drafter of another model, and numbers out of range are refused") {
  const auto with = [&](const LlamaShape& target, const DFlashShape& shape) {
    return refused(RandomDFlash(shape, RandomLlama(target, 3), 6).file_bytes());
  };
  LlamaShape other = target_shape();
  other.width = 32;
  CHECK(with(other, {}).starts_with("dflash.embedding_length: 32, want 64"));
  other = target_shape();
  other.vocab = 97;
  CHECK(with(other, {}).starts_with("dflash.vocab_size: 97, want 96"));
  CHECK(with(target_shape(), {.layers = {2, 0}}).empty());
  CHECK(with(target_shape(), {.layers = {0, 3}}).starts_with("dflash.target_layers"));
  CHECK(with(target_shape(), {.layers = {-1}}).starts_with("dflash.target_layers"));
  CHECK(with(target_shape(), {.layers = std::vector<int32_t>(17)})
            .starts_with("dflash.target_layers: 17 layers, want 1 to 16"));
  CHECK(with(target_shape(), {.block_size = 1}).starts_with("dflash.block_size"));
  CHECK(with(target_shape(), {.block_size = 65}).starts_with("dflash.block_size"));
  CHECK(with(target_shape(), {.mask = 96}).starts_with("tokenizer.ggml.mask_token_id: 96"));

  const RandomDFlash good({}, RandomLlama(target_shape(), 3), 6);
  for (const char* key : {"dflash.attention.sliding_window", "dflash.selector_rank"}) {
    models::GgufWriter unknown;
    good.describe(&unknown);
    unknown.set_u32(key, 8);
    good.add_tensors(&unknown);
    CHECK(refused(unknown.bytes()).starts_with(key));
  }
}

TEST_CASE("dflash: a truncated file is refused, and a drafter alone is refused as a model") {
  const std::vector<std::byte> whole =
      RandomDFlash({}, RandomLlama(target_shape(), 3), 6).file_bytes();
  for (size_t size = 0; size < whole.size(); size += whole.size() / 16) {
    INFO(size);
    CHECK_FALSE(refused({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)}).empty());
  }
  const OwnedFile drafter(whole);
  const auto loaded = models::load_model(drafter.file, kernels::reference_ops(), nullptr);
  REQUIRE_FALSE(loaded.ok());
  CHECK(loaded.error().message.find("heads that draft for a model") != std::string::npos);
  CHECK(models::check_heads(drafter.file, kernels::reference_ops()).ok());
}

}  // namespace
}  // namespace hearth::golden
