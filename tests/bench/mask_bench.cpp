// hearth-mask-bench [--smoke] [VOCABULARY.gguf]: what the masks of structured output cost per token
// of a 128256-token vocabulary.
//
//   cold   the state is met for the first time: a walk over the vocabulary
//   warm   it was met before: what a step of a running request pays
//
// The vocabulary's pieces, and pairs of them up to that size; without one, seeded syllables.
// Prints; never judges.

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/constraint.h"
#include "kernels/base/check.h"
#include "models/gguf/gguf_file.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::bench {
namespace {

using engine::Constraint;

constexpr size_t kVocabulary = 128'256;

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::vector<std::string> pieces_of(const char* path, size_t count) {
  std::vector<std::string> out;
  for (int b = 0; b < 256; ++b) out.emplace_back(1, static_cast<char>(b));
  std::mt19937 random(1);
  if (path != nullptr) {
    const auto file = models::GgufFile::open(path);
    HEARTH_CHECK(file.ok(), "{}", file.error().message);
    const auto tokenizer = models::load_tokenizer(file.value());
    HEARTH_CHECK(tokenizer.ok(), "{}", tokenizer.error().message);
    for (int32_t id = 0; id < (*tokenizer)->vocab_size(); ++id) {
      const std::string_view piece = (*tokenizer)->piece(id);
      if (!piece.empty()) out.emplace_back(piece);
    }
  } else {
    for (const char* start : {"", " ", "\"", "{\"", "\": ", ", "}) {
      for (const char* a : {"ba", "ke", "ti", "so", "ru", "1", "20"}) {
        out.push_back(std::string(start) + a);
      }
    }
  }
  const size_t own = out.size();
  while (out.size() < count) out.push_back(out[random() % own] + out[random() % own]);
  out.resize(count);
  return out;
}

struct Times {
  std::vector<double> us;
  double at(double share) {
    std::ranges::sort(us);
    return us.empty() ? 0 : us[static_cast<size_t>(share * static_cast<double>(us.size() - 1))];
  }
};

void run(const char* path, bool smoke) {
  const std::vector<std::string> texts = pieces_of(path, smoke ? 4096 : kVocabulary);
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  double begin = now_us();
  const auto trie = std::make_shared<engine::TokenTrie>(views);
  fmt::print("vocabulary of {} tokens: {} nodes, made in {:.1f} ms\n\n", texts.size(),
             trie->nodes().size(), (now_us() - begin) / 1000);
  const std::pair<const char*, const char*> schemas[] = {
      {"string to 40", R"({"type":"string","maxLength":40})"},
      {"any JSON", "{}"},
      {"record",
       R"({"type":"object","properties":{"name":{"type":"string","maxLength":30},"age":)"
       R"({"type":"integer","minimum":0,"maximum":120},"tags":{"type":"array","items":)"
       R"({"type":"string","maxLength":12},"maxItems":5},"kind":{"enum":["a","b","long name"]}},)"
       R"("required":["name","age","tags"]})"},
      {"pattern", R"({"type":"string","pattern":"^[a-z]{3,20}(-[0-9]{2}){0,4}$"})"}};
  fmt::print(
      "| schema | compiled | cold p50 | cold p99 | warm p50 | warm p99 | warm max | states |\n"
      "|---|---|---|---|---|---|---|---|\n");
  for (const auto& [name, source] : schemas) {
    begin = now_us();
    auto grammar = engine::compile_json_schema(source);
    HEARTH_CHECK(grammar.ok(), "{}", grammar.error().message);
    const double compile_us = now_us() - begin;
    Constraint constraint(std::move(*grammar), trie);
    Times cold, warm;
    // The same random texts twice: the second time every state is known.
    for (Times* times : {&cold, &warm}) {
      for (uint32_t text = 0; text < (smoke ? 2u : 20u); ++text) {
        std::mt19937 random(text);
        int32_t state = Constraint::kStart;
        for (int step = 0; step < 60; ++step) {
          const double before = now_us();
          const Constraint::Mask& mask = constraint.mask(state);
          const bool may_end = constraint.accepts(state);
          const double masked = now_us();
          if (mask.count == 0 || (may_end && random() % 8 == 0)) break;
          auto nth = static_cast<int64_t>(random() % static_cast<uint64_t>(mask.count));
          int32_t token = -1;
          for (size_t word = 0; token < 0; ++word) {
            uint64_t bits = mask.bits[word];
            const int count = __builtin_popcountll(bits);
            if (nth >= count) {
              nth -= count;
              continue;
            }
            for (; nth > 0; --nth) bits &= bits - 1;
            token = static_cast<int32_t>(word * 64) + __builtin_ctzll(bits);
          }
          const double drawn = now_us();
          state = constraint.advance(state, token);
          times->us.push_back(masked - before + now_us() - drawn);
        }
      }
    }
    fmt::print(
        "| {} | {:.2f} ms | {:.0f} us | {:.0f} us | {:.2f} us | {:.2f} us | {:.1f} us | {} |\n",
        name, compile_us / 1000, cold.at(0.5), cold.at(0.99), warm.at(0.5), warm.at(0.99),
        warm.at(1), constraint.num_states());
  }
}

}  // namespace
}  // namespace hearth::bench

int main(int argc, char** argv) {
  bool smoke = false;
  const char* path = nullptr;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--smoke") {
      smoke = true;
    } else {
      path = argv[i];
    }
  }
  hearth::bench::run(path, smoke);
  return 0;
}
