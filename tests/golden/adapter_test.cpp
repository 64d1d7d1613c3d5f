// Low-rank adapters: compared with merged weights in float64, and with themselves in other batches;
// and files with an error.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "models/model.h"
#include "tests/golden/random_adapter.h"
#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

using kernels::DType;
using Rows = std::vector<std::vector<float>>;
using Used = std::vector<std::pair<int32_t, float>>;

StepRunner adapted_runner(const OwnedFile& model, const NamedTable& table, DType kv_type) {
  return StepRunner(model.file, table.ops, kv_type, {.seqs = 4, .step_tokens = 64, .context = 96});
}

int32_t must_add(StepRunner& runner, const OwnedFile& adapter) {
  const auto added = runner.model().add_adapter(adapter.file);
  REQUIRE_MESSAGE(added.ok(), added.error().message);
  return *added;
}

/// The largest difference, relative to the largest logit.
double difference(const Rows& met, const std::vector<std::vector<double>>& want) {
  double most = 0, worst = 0;
  REQUIRE(met.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    for (size_t j = 0; j < want[i].size(); ++j) {
      most = std::max(most, std::fabs(want[i][j]));
      worst = std::max(worst, std::fabs(double{met[i][j]} - want[i][j]));
    }
  }
  return worst / most;
}

TEST_CASE("adapters: logits are those of merged weights") {
  for (const LlamaShape& shape : llama_shapes()) {
    if (shape.name == "window" || shape.name == "squeezed positions") continue;
    RandomLlama model(shape, 3);
    const OwnedFile owned(model.file_bytes(DType::kF32));
    const std::vector<int32_t> tokens = random_tokens(23, shape.vocab, 4);
    const auto plain = model.forward(tokens);
    for (const AdapterShape& adapter_shape : adapter_shapes()) {
      if (shape.tied && adapter_shape.ranks.contains("output.weight")) continue;
      const RandomAdapter adapter(adapter_shape, model, 5);
      const OwnedFile adapter_file(adapter.file_bytes(DType::kF32));
      for (const float scale : {1.0f, -0.75f}) {
        RandomLlama merged = model;
        adapter.merge_into(merged, scale);
        const auto want = merged.forward(tokens);
        for (const NamedTable& table : all_tables()) {
          if (table.slow && shape.name != "gqa" && shape.name != "odd sizes") continue;
          INFO(shape.name << ", " << adapter_shape.name << " on " << table.name);
          StepRunner runner = adapted_runner(owned, table, DType::kF32);
          const Used used = {{must_add(runner, adapter_file), scale}};
          const Chunk all{0, tokens, true, used};
          const Rows met = runner.step({&all, 1});
          CHECK(difference(met, want) < 5e-5);
          CHECK(difference(met, plain) > 1e-2);
        }
      }
    }
  }
}

TEST_CASE("adapters: two of one request add up") {
  const LlamaShape shape = llama_shapes().front();
  RandomLlama model(shape, 3);
  const OwnedFile owned(model.file_bytes(DType::kF32));
  const std::vector<int32_t> tokens = random_tokens(17, shape.vocab, 4);
  const RandomAdapter first(adapter_shapes()[0], model, 5), second(adapter_shapes()[3], model, 6);
  const OwnedFile first_file(first.file_bytes(DType::kF32));
  const OwnedFile second_file(second.file_bytes(DType::kF32));
  RandomLlama merged = model;
  first.merge_into(merged, 0.5);
  second.merge_into(merged, 2);
  const auto want = merged.forward(tokens);
  for (const NamedTable& table : all_tables()) {
    INFO(table.name);
    StepRunner runner = adapted_runner(owned, table, DType::kF32);
    const Used used = {{must_add(runner, first_file), 0.5f}, {must_add(runner, second_file), 2.0f}};
    const Chunk all{0, tokens, true, used};
    CHECK(difference(runner.step({&all, 1}), want) < 5e-5);
  }
}

TEST_CASE("adapters: other rows change no bit, and rows without one keep theirs") {
  const LlamaShape shape = llama_shapes().front();
  RandomLlama model(shape, 3);
  const std::vector<int32_t> tokens = random_tokens(40, shape.vocab, 4);
  const std::span<const int32_t> all(tokens);
  for (const DType type : {DType::kF32, DType::kF16, DType::kQ8_0}) {
    const OwnedFile owned(model.file_bytes(type));
    const OwnedFile files[] = {
        OwnedFile(RandomAdapter(adapter_shapes()[0], model, 5).file_bytes(type)),
        OwnedFile(RandomAdapter(adapter_shapes()[3], model, 6).file_bytes(type))};
    for (const NamedTable& table : all_tables()) {
      if (table.name == "reference" && !tests::full_counts()) continue;
      INFO(static_cast<int>(type) << " on " << table.name);
      // Alone, token by token, and without any adapter loaded.
      StepRunner alone = adapted_runner(owned, table, DType::kF16);
      const Used first = {{must_add(alone, files[0]), 1.0f}};
      const Used second = {{must_add(alone, files[1]), 0.3f}};
      Rows want[2];
      for (size_t i = 0; i < all.size(); ++i) {
        const Chunk next[] = {{0, all.subspan(i, 1), true, first}};
        const Chunk other[] = {{1, all.subspan(i, 1), true, second}};
        want[0].push_back(alone.step(next).front());
        want[1].push_back(alone.step(other).front());
      }
      StepRunner without = adapted_runner(owned, table, DType::kF16);
      const Rows plain = without.feed(0, all, 64, true);
      // Together: rows of both, and rows without one between them.
      StepRunner batched = adapted_runner(owned, table, DType::kF16);
      must_add(batched, files[0]);
      must_add(batched, files[1]);
      const Chunk chunks[] = {{2, all.first(11), true},
                              {0, all.first(13), true, first},
                              {1, all.first(16), false, second},
                              {3, all.first(2), true}};
      const Rows met = batched.step(chunks);
      for (size_t i = 0; i < 11; ++i) CHECK(met[i] == plain[i]);
      for (size_t i = 0; i < 13; ++i) CHECK(met[11 + i] == want[0][i]);
      CHECK(met[24] == want[1][15]);
      for (size_t i = 0; i < 2; ++i) CHECK(met[25 + i] == plain[i]);
    }
  }
}

TEST_CASE("adapters: a number is free once its adapter is removed, and the others stay") {
  const LlamaShape shape = llama_shapes().front();
  RandomLlama model(shape, 3);
  const OwnedFile owned(model.file_bytes(DType::kF32));
  const OwnedFile small(RandomAdapter(adapter_shapes()[1], model, 5).file_bytes(DType::kF32));
  const OwnedFile large(RandomAdapter(adapter_shapes()[3], model, 6).file_bytes(DType::kF32));
  const NamedTable table = all_tables().back();
  StepRunner runner = adapted_runner(owned, table, DType::kF32);
  const std::vector<int32_t> tokens = random_tokens(9, shape.vocab, 4);
  const auto logits_with = [&](int32_t adapter, int32_t seq) {
    const Used used = {{adapter, 1.0f}};
    const Chunk all{seq, tokens, false, used};
    return runner.step({&all, 1}).front();
  };
  CHECK(must_add(runner, small) == 0);
  CHECK(must_add(runner, large) == 1);
  CHECK(runner.model().adapter_bytes(1) > runner.model().adapter_bytes(0));
  const auto want = logits_with(1, 0);
  runner.model().remove_adapter(0);
  CHECK(logits_with(1, 1) == want);
  CHECK(must_add(runner, large) == 0);
  CHECK(logits_with(0, 2) == want);
}

// ---- What is refused ----------------------------------------------------------------------------

/// The error of adding a file that `change` made of a good one's parts.
template <typename Change>
Error refused(const Change& change, const LlamaShape& shape = llama_shapes().front()) {
  RandomLlama model(shape, 3);
  const OwnedFile owned(model.file_bytes(DType::kF32));
  RandomAdapter adapter(adapter_shapes().front(), model, 5);
  models::GgufWriter file;
  change(&adapter, &file);
  const std::vector<std::byte> bytes = file.bytes();
  const auto parsed = models::GgufFile::parse(bytes, "mine");
  REQUIRE(parsed.ok());
  auto loaded = models::load_model(owned.file, kernels::reference_ops(), nullptr);
  REQUIRE(loaded.ok());
  REQUIRE((*loaded)->reserve(8, 8).ok());
  auto added = (*loaded)->add_adapter(*parsed);
  REQUIRE(!added.ok());
  return added.take_error();
}

/// The same for keys in place of its own.
template <typename Set>
Error refused_keys(const Set& set) {
  return refused([&](RandomAdapter* adapter, models::GgufWriter* file) {
    set(file);
    adapter->add_tensors(file, DType::kF32);
  });
}

/// The same for changed tensors.
template <typename Set>
Error refused_tensors(const Set& set) {
  return refused([&](RandomAdapter* adapter, models::GgufWriter* file) {
    adapter->describe(file);
    set(&adapter->tensors());
    adapter->add_tensors(file, DType::kF32);
  });
}

void set_keys(models::GgufWriter* file, const char* type, const char* architecture,
              const char* kind) {
  file->set_string("general.type", type);
  file->set_string("general.architecture", architecture);
  file->set_string("adapter.type", kind);
}

TEST_CASE("adapters: files of another kind or model are refused, by key") {
  using models::GgufWriter;
  CHECK(refused_keys([](GgufWriter* f) { set_keys(f, "model", "llama", "lora"); }).message ==
        "adapter mine: general.type: \"model\", want \"adapter\"");
  CHECK(refused_keys([](GgufWriter* f) { set_keys(f, "adapter", "qwen2", "lora"); }).message ==
        "adapter mine: general.architecture: \"qwen2\", want \"llama\"");
  const Error vector =
      refused_keys([](GgufWriter* f) { set_keys(f, "adapter", "llama", "control_vector"); });
  CHECK(vector.code == ErrorCode::kUnsupported);
  CHECK(vector.message == "adapter mine: adapter.type: \"control_vector\", want \"lora\"");
  const Error no_alpha =
      refused_keys([](GgufWriter* f) { set_keys(f, "adapter", "llama", "lora"); });
  CHECK(no_alpha.code == ErrorCode::kCorrupt);
  CHECK(no_alpha.message.find("adapter.lora.alpha") != std::string::npos);
  for (const float alpha : {-1.0f, INFINITY, NAN}) {
    const Error bad = refused_keys([alpha](GgufWriter* f) {
      set_keys(f, "adapter", "llama", "lora");
      f->set_f32("adapter.lora.alpha", alpha);
    });
    CHECK(bad.code == ErrorCode::kCorrupt);
    CHECK(bad.message.starts_with("adapter mine: adapter.lora.alpha: "));
  }
  const Error alora = refused_keys([](GgufWriter* f) {
    set_keys(f, "adapter", "llama", "lora");
    f->set_f32("adapter.lora.alpha", 8);
    f->set_i32s("adapter.alora.invocation_tokens", std::vector<int32_t>{1, 2});
  });
  CHECK(alora.code == ErrorCode::kUnsupported);
  CHECK(alora.message.find("adapter.alora.invocation_tokens") != std::string::npos);
}

TEST_CASE("adapters: a file of one cannot be loaded as a model") {
  RandomLlama model(llama_shapes().front(), 3);
  const OwnedFile file(RandomAdapter(adapter_shapes()[0], model, 5).file_bytes(DType::kF32));
  const auto loaded = models::load_model(file.file, kernels::reference_ops(), nullptr);
  REQUIRE_FALSE(loaded.ok());
  CHECK(loaded.error().code == ErrorCode::kUnsupported);
  CHECK(loaded.error().message.starts_with("general.type: \"adapter\""));
}

TEST_CASE("adapters: tensors that do not fit the model are refused, by name") {
  using Tensors = std::map<std::string, RandomLlama::Tensor>;
  const std::string a = "blk.0.attn_q.weight.lora_a", b = "blk.0.attn_q.weight.lora_b";
  const auto shaped = [](std::vector<uint64_t> dims) {
    uint64_t count = 1;
    for (const uint64_t dim : dims) count *= dim;
    return RandomLlama::Tensor{std::move(dims), std::vector<float>(count, 0.5f)};
  };
  CHECK(refused_tensors([&](Tensors* t) {
          (*t)[a] = shaped({60, 4});
        }).message == "adapter mine: blk.0.attn_q.weight.lora_a: shape [60,4], want [64,4]");
  CHECK(refused_tensors([&](Tensors* t) {
          (*t)[b] = shaped({4, 32});
        }).message == "adapter mine: blk.0.attn_q.weight.lora_b: shape [4,32], want [4,64]");
  CHECK(refused_tensors([&](Tensors* t) {
          (*t)[b] = shaped({8, 64});
        }).message == "adapter mine: blk.0.attn_q.weight.lora_b: shape [8,64], want [4,64]");
  CHECK(refused_tensors([&](Tensors* t) {
          (*t)[b] = shaped({4, 64, 2});
        }).message == "adapter mine: blk.0.attn_q.weight.lora_b: shape [4,64,2], want [4,64]");
  CHECK(refused_tensors([&](Tensors* t) { t->erase(b); }).message ==
        "adapter mine: blk.0.attn_q.weight.lora_b: missing");
  CHECK(refused_tensors([&](Tensors* t) { t->erase(a); }).message ==
        "adapter mine: blk.0.attn_q.weight.lora_a: missing");
  CHECK(refused_tensors([&](Tensors* t) {
          (*t)[a] = shaped({64, 1025});
          (*t)[b] = shaped({1025, 64});
        }).message == "adapter mine: blk.0.attn_q.weight.lora_a: rank 1025, want at most 1024");
  CHECK(refused_tensors([&](Tensors* t) { t->clear(); }).message ==
        "adapter mine: no tensors, want an adapter's");
  const Error norm =
      refused_tensors([&](Tensors* t) { (*t)["blk.0.attn_norm.weight"] = shaped({64}); });
  CHECK(norm.code == ErrorCode::kUnsupported);
  CHECK(
      norm.message ==
      "adapter mine: blk.0.attn_norm.weight: want a tensor whose name ends in .lora_a or .lora_b");
  const auto with_pair = [&](const std::string& name) {
    return refused_tensors([&](Tensors* t) {
      (*t)[name + ".lora_a"] = shaped({64, 4});
      (*t)[name + ".lora_b"] = shaped({4, 64});
    });
  };
  const Error embedding = with_pair("token_embd.weight");
  CHECK(embedding.code == ErrorCode::kUnsupported);
  CHECK(embedding.message.starts_with("adapter mine: token_embd.weight: want an adapter of"));
  CHECK(with_pair("blk.0.attn_norm.weight").code == ErrorCode::kUnsupported);
  const Error layer = with_pair("blk.7.attn_q.weight");
  CHECK(layer.code == ErrorCode::kCorrupt);
  CHECK(layer.message ==
        "adapter mine: blk.7.attn_q.weight: an adapter for a tensor that model random does not "
        "have");
}

}  // namespace
}  // namespace hearth::golden
