#include <fmt/core.h>

#include <array>

#include "models/gguf/gguf_file.h"
#include "models/tokenizer/kinds/bpe_tokenizer.h"
#include "models/tokenizer/kinds/plamo2_tokenizer.h"
#include "models/tokenizer/kinds/spm_tokenizer.h"
#include "models/tokenizer/kinds/unigram_tokenizer.h"
#include "models/tokenizer/kinds/wordpiece_tokenizer.h"
#include "models/tokenizer/kinds/world_tokenizer.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::models {
namespace {

struct TokenizerKind {
  std::string_view name;  // tokenizer.ggml.model
  Result<std::unique_ptr<Tokenizer>> (*load)(const GgufFile&);
};

constexpr std::array kKinds = {
    TokenizerKind{"llama", load_spm_tokenizer},  TokenizerKind{"gemma4", load_listed_tokenizer},
    TokenizerKind{"gpt2", load_bpe_tokenizer},   TokenizerKind{"bert", load_wordpiece_tokenizer},
    TokenizerKind{"t5", load_unigram_tokenizer}, TokenizerKind{"plamo2", load_plamo2_tokenizer},
    TokenizerKind{"rwkv", load_world_tokenizer},
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const GgufFile& file) {
  HEARTH_ASSIGN_OR_RETURN(const auto wanted, file.get<std::string_view>("tokenizer.ggml.model"));
  for (const TokenizerKind& kind : kKinds) {
    if (kind.name == wanted) return kind.load(file);
  }
  std::string known;
  for (const TokenizerKind& kind : kKinds)
    known += fmt::format("{}{}", known.empty() ? "" : ", ", kind.name);
  return Error::unsupported(
      fmt::format("tokenizer.ggml.model: \"{}\", this build knows {}", printable(wanted), known));
}

}  // namespace hearth::models
