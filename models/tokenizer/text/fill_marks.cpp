#include "models/tokenizer/text/fill_marks.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "kernels/base/numbers.h"
#include "models/gguf/gguf_file.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::models {
namespace {

struct Names {
  std::string_view prefix, suffix, middle;
};

// By the models that introduced them. Codestral's have no mark before the middle.
constexpr std::array kNames = {
    Names{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},     // CodeGemma, Qwen2.5-Coder
    Names{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},           // StarCoder, Granite
    Names{"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},           // SantaCoder
    Names{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},     // DeepSeek
    Names{"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},  // GLM-4
    Names{"▁<PRE>", "▁<SUF>", "▁<MID>"},                             // Code Llama
    Names{"<PRE>", "<SUF>", "<MID>"},
    Names{"[PREFIX]", "[SUFFIX]", ""},  // Codestral
};

constexpr std::array<std::string_view, 12> kOtherEnds = {
    "<|fim_pad|>",        "<fim_pad>",  "<fim-pad>",     "<|file_sep|>",
    "<|file_separator|>", "<file_sep>", "<|repo_name|>", "<repo_name>",
    "<reponame>",         "<|cursor|>", "▁<EOT>",        "<EOT>",
};

Result<std::optional<int32_t>> id_at(const GgufFile& file, const Tokenizer& tokenizer,
                                     std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const std::string key = fmt::format("tokenizer.ggml.{}_token_id", name);
    if (!file.has(key)) continue;
    HEARTH_ASSIGN_OR_RETURN(const auto id, file.get<uint32_t>(key));
    if (std::cmp_less(id, tokenizer.vocab_size())) return std::optional<int32_t>(id);
    return Error::corrupt(
        fmt::format("{}: token {}, want one of {} tokens", key, id, tokenizer.vocab_size()));
  }
  return std::optional<int32_t>();
}

}  // namespace

std::vector<int32_t> FillMarks::prompt(std::span<const int32_t> before,
                                       std::span<const int32_t> after) const {
  std::vector<int32_t> out;
  out.reserve(before.size() + after.size() + 3);
  const auto add = [&](int32_t mark, std::span<const int32_t> tokens) {
    out.push_back(mark);
    out.insert(out.end(), tokens.begin(), tokens.end());
  };
  if (middle) {
    add(prefix, before);
    add(suffix, after);
    out.push_back(*middle);
  } else {
    add(suffix, after);
    add(prefix, before);
  }
  return out;
}

Result<std::optional<FillMarks>> load_fill_marks(const GgufFile& file, const Tokenizer& tokenizer) {
  HEARTH_ASSIGN_OR_RETURN(std::optional<int32_t> prefix,
                          id_at(file, tokenizer, {"fim_pre", "prefix"}));
  HEARTH_ASSIGN_OR_RETURN(std::optional<int32_t> suffix,
                          id_at(file, tokenizer, {"fim_suf", "suffix"}));
  HEARTH_ASSIGN_OR_RETURN(std::optional<int32_t> middle,
                          id_at(file, tokenizer, {"fim_mid", "middle"}));
  std::vector<int32_t> ends;
  std::array<std::array<std::optional<int32_t>, 3>, kNames.size()> named{};
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view entry = tokenizer.entry(id);
    if (entry.size() < 5) continue;
    for (size_t i = 0; i < kNames.size(); ++i) {
      if (entry == kNames[i].prefix) named[i][0] = id;
      if (entry == kNames[i].suffix) named[i][1] = id;
      if (entry == kNames[i].middle) named[i][2] = id;
    }
    if (std::ranges::find(kOtherEnds, entry) != kOtherEnds.end()) ends.push_back(id);
  }
  for (size_t i = 0; i < kNames.size() && !(prefix && suffix); ++i) {
    if (!named[i][0] || !named[i][1]) continue;
    prefix = named[i][0];
    suffix = named[i][1];
    middle = named[i][2];
  }
  if (!prefix || !suffix) return std::optional<FillMarks>();
  ends.insert(ends.end(), {*prefix, *suffix});
  if (middle) ends.push_back(*middle);
  return std::optional(FillMarks{*prefix, *suffix, middle, std::move(ends)});
}

}  // namespace hearth::models
