// Family llama on random models of every shape: compared with the formulas in double, and with
// itself with the same tokens batched, chunked and alone.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "tests/golden/random_llama.h"
#include "tests/golden/step_runner.h"

namespace hearth::golden {
namespace {

using kernels::DType;
using kernels::KvType;
using kernels::KvTypes;

/// Largest difference as a share of the largest magnitude of `want`.
template <typename A, typename B>
double relative_error(const std::vector<A>& met, const std::vector<B>& want) {
  double most = 0, worst = 0;
  REQUIRE(met.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    most = std::max(most, std::fabs(static_cast<double>(want[i])));
    worst = std::max(worst, std::fabs(static_cast<double>(met[i]) - static_cast<double>(want[i])));
    if (std::isnan(met[i])) return std::nan("");
  }
  return worst / most;
}

TEST_CASE("logits equal the formulas, for every shape, on every table") {
  for (const LlamaShape& shape : llama_shapes()) {
    const RandomLlama model(shape, 5);
    const OwnedFile owned(model.file_bytes(DType::kF32));
    const auto tokens = random_tokens(40, shape.vocab, 6);
    const auto want = model.forward(tokens);
    for (const NamedTable& table : all_tables()) {
      StepRunner runner(owned.file, table.ops, DType::kF32, {.seqs = 1, .context = 48});
      const auto met = runner.feed(0, tokens, 40, true);
      REQUIRE(met.size() == want.size());
      double worst = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        worst = std::max(worst, relative_error(met[i], want[i]));
      }
      INFO(shape.name << " on " << table.name);
      CHECK(worst < 2e-5);
    }
  }
}

TEST_CASE("weights in half precision differ by about their rounding") {
  const LlamaShape shape = llama_shapes()[0];
  const RandomLlama model(shape, 8);
  const OwnedFile owned(model.file_bytes(DType::kF16));
  const auto tokens = random_tokens(20, shape.vocab, 9);
  const auto want = model.forward(tokens);
  for (const NamedTable& table : all_tables()) {
    StepRunner runner(owned.file, table.ops, DType::kF32, {.context = 48});
    const auto met = runner.feed(0, tokens, 20);
    INFO(table.name);
    CHECK(relative_error(met.back(), want.back()) < 5e-3);
  }
}

TEST_CASE("every table's logits are within bounds of the reference's, with Q8_0 and F32 weights") {
  // Widths that are multiples of 32, so that every matrix is Q8_0 and uses int8 products.
  LlamaShape shape = llama_shapes()[0];
  shape.tied = true;
  shape.qk_gain = 1.0f;
  const RandomLlama model(shape, 21);
  const auto tokens = random_tokens(64, shape.vocab, 22);
  const auto exact = model.forward(tokens);
  for (const DType weight_type : {DType::kQ8_0, DType::kF32}) {
    const bool quantized = weight_type == DType::kQ8_0;
    const OwnedFile owned(model.file_bytes(weight_type));
    for (const DType kv_type : {DType::kF32, DType::kF16}) {
      StepRunner reference(owned.file, kernels::reference_ops(), kv_type, {.context = 80});
      const auto want = reference.feed(0, tokens, 64, true);
      // 8 bits in weights and activations cost about 4 %; sharper attention would multiply it.
      for (size_t i = 0; i < want.size(); ++i) {
        CHECK(relative_error(want[i], exact[i]) < (quantized ? 0.06 : 2e-3));
      }
      for (const NamedTable& table : all_tables()) {
        StepRunner runner(owned.file, table.ops, kv_type, {.context = 80});
        const auto met = runner.feed(0, tokens, 64, true);
        double worst = 0;
        for (size_t i = 0; i < want.size(); ++i) {
          worst = std::max(worst, relative_error(met[i], want[i]));
        }
        INFO(table.name << ", weights " << kernels::info(weight_type).name << ", KV "
                        << kernels::info(kv_type).name << ": " << worst);
        // With Q8_0 the same integers, summed in another order. A value that sits on a rounding
        // border may fall to the other side once in a while: one step of 127.
        //
        // CUDA's attention over KV of f16 rounds its weights to f16, and that is all that differs:
        // the reference with CUDA's kv_store and attention in it is as far off as CUDA is, and CUDA
        // with the reference's is within 2e-5. It costs 3e-4 with F32 weights. With Q8_0 it moves
        // nearly every activation a little, some over their borders: 2.3e-2. The reference with
        // noise of 2^-13 on attention's output moves by as much, 1.8e-2 to 2.6e-2 in three models,
        // and with 2^-22 on its queries, what two terms of f16 leave out, not at all in this one.
        const bool rounded = table.ops.device.kind == "cuda" && kv_type == DType::kF16;
        if (quantized) CHECK(worst < (rounded ? 3e-2 : 1e-2));
        if (!quantized) CHECK(worst < (rounded ? 6e-4 : 5e-5));
      }
    }
  }
}

TEST_CASE("alone, chunked, batched and on one thread, logits have the same bits") {
  for (const DType weight_type : {DType::kF32, DType::kF16, DType::kQ8_0}) {
    for (const KvTypes kv_type :
         {KvTypes(KvType::kF32), KvTypes(KvType::kF16), KvTypes(KvType::kQ8_0),
          KvTypes(KvType::kFp8), KvTypes(KvType::kQ4_0), KvTypes(KvType::kQ4_0, KvType::kF16)}) {
      const bool common = kv_type == KvType::kF32 || kv_type == KvType::kF16;
      if (!common && weight_type != DType::kQ8_0) continue;
      LlamaShape shape = llama_shapes()[0];
      const RandomLlama model(shape, 31);
      const OwnedFile owned(model.file_bytes(weight_type));
      constexpr int32_t kSeqs = 5;
      constexpr int32_t kTokens = 50;
      std::vector<std::vector<int32_t>> tokens;
      for (int32_t s = 0; s < kSeqs; ++s) {
        tokens.push_back(random_tokens(kTokens, shape.vocab, 100 + static_cast<uint32_t>(s)));
      }
      for (const NamedTable& table : all_tables()) {
        if (table.slow && (weight_type != DType::kQ8_0 || kv_type != KvType::kF16)) continue;
        INFO(table.name << ", weights " << kernels::info(weight_type).name << ", KV "
                        << kernels::kv_type_name(kv_type));
        StepRunner alone(owned.file, table.ops, kv_type, {.seqs = kSeqs, .context = 64});
        std::vector<std::vector<std::vector<float>>> want;
        for (int32_t s = 0; s < kSeqs; ++s) {
          want.push_back(alone.feed(s, tokens[static_cast<size_t>(s)], kTokens, true));
        }

        StepRunner one_thread(owned.file, table.ops, kv_type, {.seqs = 1, .context = 64});
        table.ops.set_num_threads(table.ops.state.get(), 1);
        CHECK(one_thread.feed(0, tokens[0], kTokens, true) == want[0]);
        table.ops.set_num_threads(table.ops.state.get(), table.ops.device.num_threads);

        for (const int32_t chunk : {1, 7, 16, 33}) {
          StepRunner chunked(owned.file, table.ops, kv_type, {.seqs = 1, .context = 64});
          CHECK(chunked.feed(0, tokens[0], chunk, true) == want[0]);
        }

        // All five at once, each with its own chunks: 1, 4, 7, 10, 13 tokens a step.
        StepRunner batched(owned.file, table.ops, kv_type, {.seqs = kSeqs, .context = 64});
        std::vector<std::vector<std::vector<float>>> met(kSeqs);
        while (true) {
          std::vector<Chunk> chunks;
          for (int32_t s = 0; s < kSeqs; ++s) {
            const auto& all = tokens[static_cast<size_t>(s)];
            const size_t done = met[static_cast<size_t>(s)].size();
            const size_t count =
                std::min<size_t>(static_cast<size_t>(1 + 3 * s), all.size() - done);
            if (count > 0) chunks.push_back({s, std::span(all).subspan(done, count), true});
          }
          if (chunks.empty()) break;
          const auto logits = batched.step(chunks);
          size_t row = 0;
          for (const Chunk& part : chunks) {
            auto& sequence = met[static_cast<size_t>(part.seq)];
            for (size_t i = 0; i < part.tokens.size(); ++i) sequence.push_back(logits[row++]);
          }
        }
        CHECK(met == want);
      }
    }
  }
}

}  // namespace
}  // namespace hearth::golden
