#include "models/tokenizer/text/text_end.h"

#include <fmt/core.h>

#include <utility>

#include "models/gguf/gguf_file.h"

namespace hearth::models {

Result<std::optional<int32_t>> load_text_end(const GgufFile& file, const Tokenizer& tokenizer) {
  constexpr std::string_view kSep = "tokenizer.ggml.seperator_token_id";  // as converters spell it
  HEARTH_ASSIGN_OR_RETURN(const bool add_sep,
                          file.get_or("tokenizer.ggml.add_sep_token", tokenizer.kind() == "bert"));
  if (add_sep && file.has(kSep)) {
    HEARTH_ASSIGN_OR_RETURN(const uint32_t id, file.get<uint32_t>(kSep));
    if (std::cmp_less(id, tokenizer.vocab_size())) {
      return std::optional<int32_t>(id);
    }
    return Error::corrupt(
        fmt::format("{}: {}, want less than {}", kSep, id, tokenizer.vocab_size()));
  }
  HEARTH_ASSIGN_OR_RETURN(const bool add_eos, file.get_or("tokenizer.ggml.add_eos_token", false));
  return add_sep || add_eos ? tokenizer.eos() : std::nullopt;
}

}  // namespace hearth::models
