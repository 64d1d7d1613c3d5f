#pragma once
// Reads the list of merges of a file, tokenizer.ggml.merges: two tokens and a space between them.

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>

#include "kernels/base/result.h"
#include "models/tokenizer/kinds/bpe_merges.h"

namespace hearth::models {

class GgufFile;

/// Fills `merges`, ranked in the list's order. `find`: the id of a token by its text, negative if
/// there is none. `use`: whether a merge of these three (left, right, joined) is wanted. kCorrupt
/// names the merge.
Result<void> load_merges(const GgufFile& file, const std::function<int32_t(std::string_view)>& find,
                         const std::function<bool(const std::array<int32_t, 3>&)>& use,
                         BpeMerges* merges);

}  // namespace hearth::models
