// EAGLE-3 heads: compared with PyTorch in float64 and with themselves, chunked and batched; and
// files with an error.

#include <doctest/doctest.h>

#include <algorithm>
#include <span>
#include <utility>

#include "models/model.h"
#include "tests/golden/draft_checks.h"
#include "tests/golden/family_model.h"
#include "tests/golden/random_eagle3.h"
#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

using kernels::DType;
using Rows = std::vector<std::vector<float>>;

StepRunner runner_with(const OwnedFile& model, const OwnedFile& head, const NamedTable& table,
                       DType kv_type) {
  return StepRunner(model.file, table.ops, kv_type,
                    {.seqs = 2, .step_tokens = 96, .context = 96, .heads = &head.file});
}

TEST_CASE("eagle3: logits equal PyTorch's, each draft continued from the head's own row") {
  for (const DrafterModel& head : read_drafters("eagle3")) {
    const FamilyModel target = read_family(head.target);
    const OwnedFile model(target.file_bytes(DType::kF32));
    const OwnedFile file(head.file_bytes(DType::kF32));
    const std::vector<int32_t> tokens = target.all_tokens();
    REQUIRE(head.model.drafts.size() == 3);
    for (const NamedTable& table : all_tables()) {
      for (const auto& [size, want] : head.model.drafts) {
        if (table.slow && size > 50) continue;
        INFO(head.model.name << " on " << table.name << " after " << size);
        StepRunner runner = runner_with(model, file, table, DType::kF32);
        REQUIRE(runner.info().eagle3);
        CHECK(runner.info().draft_tokens == head.tokens);
        const Rows met = runner.drafts_after(first_of(tokens, size), 96, want.tokens);
        REQUIRE(std::cmp_equal(runner.info().draft_vocab, want.logits.front().size()));
        check_logits(met, want);
      }
    }
  }
}

TEST_CASE("eagle3: the first choices are llama.cpp's, after every token of a text") {
  const std::vector<NamedTable> tables = all_tables();
  size_t compared = 0;
  for (const DrafterModel& head : read_drafters("eagle3")) {
    const FamilyModel target = read_family(head.target);
    const OwnedFile model(target.file_bytes(DType::kF32));
    const OwnedFile file(head.file_bytes(DType::kF32));
    const std::vector<int32_t> tokens = target.all_tokens();
    for (const NamedTable& table : tables) {
      for (const auto& [size, want] : head.model.llama_cpp_drafts) {
        if (&table != &tables.back() && size % 13 != 0) continue;
        INFO(head.model.name << " on " << table.name << " after " << size);
        StepRunner runner = runner_with(model, file, table, DType::kF32);
        const Rows met = runner.drafts_after(first_of(tokens, size), 96, want);
        for (size_t i = 0; i < want.size(); ++i) {
          const auto best = std::ranges::max_element(met[i]) - met[i].begin();
          CHECK((head.tokens.empty() ? best : head.tokens[static_cast<size_t>(best)]) == want[i]);
        }
      }
    }
    compared += head.model.llama_cpp_drafts.size();
  }
  CHECK(compared == 2 * 79);
}

TEST_CASE("eagle3: chunks and other sequences change no bit, and the head no logit of the model") {
  for (const DrafterModel& head : read_drafters("eagle3")) {
    const FamilyModel target = read_family(head.target);
    const OwnedFile model(target.file_bytes(DType::kQ8_0));
    const OwnedFile file(head.file_bytes(DType::kQ8_0));
    const std::vector<int32_t> tokens = target.all_but_last();
    const std::vector<int32_t> drafts(3, 6);
    for (const NamedTable& table : all_tables()) {
      if (table.name == "reference" && !tests::full_counts()) continue;
      INFO(head.model.name << " on " << table.name);
      StepRunner plain(model.file, table.ops, DType::kF16, {.step_tokens = 96, .context = 96});
      const std::vector<int32_t> chunks = {33, 7, 1};
      check_drafts_alone(
          plain, [&] { return runner_with(model, file, table, DType::kF16); }, tokens, drafts,
          std::span(chunks).first(table.slow ? 1 : 3));
    }
  }
}

// ---- What is refused ----------------------------------------------------------------------------

/// The message of loading a random llama with such a head; empty if it loads.
std::string refusal_of(const std::vector<std::byte>& head) {
  const OwnedFile model(RandomLlama(llama_shapes().front(), 3).file_bytes(DType::kF32));
  const auto file = models::GgufFile::parse(head, "hostile");
  if (!file.ok()) return file.error().message;
  const auto loaded =
      models::load_model(model.file, kernels::reference_ops(), nullptr, {.heads = &*file});
  return loaded.ok() ? "" : loaded.error().message;
}

TEST_CASE("eagle3: each missing, ill-shaped or unknown tensor is named") {
  const LlamaShape model = llama_shapes().front();
  const std::vector<Eagle3Shape> shapes = {
      {.name = "all tokens"},
      {.name = "some", .draft_tokens = {0, 5, 95}, .norms = true},
      {.name = "the model's output", .own_output = false}};
  for (const Eagle3Shape& shape : shapes) {
    const RandomEagle3 good(shape, model, 6);
    CHECK(refusal_of(good.file_bytes()).empty());
    RandomEagle3 names = good;
    for (const auto& [name, tensor] : names.tensors()) {
      INFO(shape.name << ", " << name);
      RandomEagle3 without = good;
      without.tensors().erase(name);
      const std::string missing = refusal_of(without.file_bytes());
      const bool optional = name == "output.weight" && shape.draft_tokens.empty();
      CHECK_MESSAGE((optional ? missing.empty() : missing.starts_with(name + ": missing")),
                    missing);
      RandomEagle3 wrong = good;
      wrong.tensors()[name] = {{2, 3}, std::vector<float>(6)};
      CHECK(refusal_of(wrong.file_bytes()).starts_with(name + ": shape [2,3], want ["));
    }
    RandomEagle3 more = good;
    more.tensors()["blk.0.other.weight"] = {{4}, std::vector<float>(4)};
    CHECK(refusal_of(more.file_bytes()).starts_with("blk.0.other.weight"));
  }
}

TEST_CASE("eagle3: a file for another model, layers and tokens out of range are refused") {
  const LlamaShape model = llama_shapes().front();
  const auto with = [&](const LlamaShape& target, const Eagle3Shape& shape) {
    return refusal_of(RandomEagle3(shape, target, 6).file_bytes());
  };
  LlamaShape other = model;
  other.width = 32;
  CHECK(with(other, {}).starts_with("eagle3.target_hidden_size: 32, want 64"));
  other = model;
  other.vocab = 97;
  CHECK(with(other, {}).starts_with("eagle3.vocab_size: 97, want 96"));
  CHECK(with(model, {.layers = {0, 1, 2}}).empty());
  CHECK(with(model, {.layers = {2, 2, 0}}).empty());
  CHECK(with(model, {.layers = {0, 1, 3}}).starts_with("eagle3.target_layers"));
  CHECK(with(model, {.layers = {0, -1, 2}}).starts_with("eagle3.target_layers"));
  CHECK(with(model, {.layers = {0, 1}}).starts_with("eagle3.target_layers"));
  CHECK(with(model, {.layers = {0, 1, 2, 2}}).starts_with("eagle3.target_layers"));
  CHECK(with(model, {.draft_tokens = {3, 96}}) == "d2t: element 1 is 96, want 0 to 95");
  CHECK(with(model, {.draft_tokens = {-1}}) == "d2t: element 0 is -1, want 0 to 95");
  CHECK(with(model, {.draft_tokens = {int64_t{1} << 40}}).starts_with("d2t: element 0 is"));
  CHECK(with(model, {.draft_tokens = std::vector<int64_t>(97)}).starts_with("d2t: I64 of shape"));

  CHECK(with(model, {.block_count = 2}) == "eagle3.block_count: 2, want 1");

  const RandomEagle3 good({}, model, 6);
  models::GgufWriter unknown;
  good.describe(&unknown);
  unknown.set_u32("eagle3.expert_count", 8);
  good.add_tensors(&unknown);
  CHECK(refusal_of(unknown.bytes()).starts_with("eagle3.expert_count"));
}

TEST_CASE("eagle3: a truncated file is refused, and a head alone is refused as a model") {
  const std::vector<std::byte> whole = RandomEagle3({}, llama_shapes().front(), 6).file_bytes();
  for (size_t size = 0; size < whole.size(); size += whole.size() / 16) {
    INFO(size);
    CHECK_FALSE(refusal_of({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)}).empty());
  }
  const OwnedFile head(whole);
  const auto loaded = models::load_model(head.file, kernels::reference_ops(), nullptr);
  REQUIRE_FALSE(loaded.ok());
  CHECK(loaded.error().message.find("heads that draft for a model") != std::string::npos);
  CHECK(models::check_heads(head.file, kernels::reference_ops()).ok());
}

}  // namespace
}  // namespace hearth::golden
