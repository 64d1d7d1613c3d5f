#include "models/tokenizer/kinds/load_merges.h"

#include <fmt/core.h>

#include <string>

#include "kernels/base/chars.h"
#include "kernels/base/numbers.h"
#include "models/gguf/gguf_file.h"

namespace hearth::models {

Result<void> load_merges(const GgufFile& file, const std::function<int32_t(std::string_view)>& find,
                         const std::function<bool(const std::array<int32_t, 3>&)>& use,
                         BpeMerges* merges) {
  constexpr std::string_view kKey = "tokenizer.ggml.merges";
  constexpr size_t kMaxMerges = 1 << 23;  // far above real lists (515 000)
  HEARTH_ASSIGN_OR_RETURN(const auto list, file.get<GgufStrings>(kKey));
  if (list.size() > kMaxMerges) {
    return Error::corrupt(
        fmt::format("{}: {} merges, want at most {}", kKey, list.size(), kMaxMerges));
  }
  merges->reserve(list.size());
  uint32_t rank = 0;
  std::string joined;
  for (const std::string_view merge : list) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return Error::corrupt(
          fmt::format("{}: merge {} is \"{}\", want two tokens with a space between", kKey, rank,
                      printable(merge)));
    }
    const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    joined.assign(left).append(right);
    std::array<int32_t, 3> ids = {};
    const std::array<std::string_view, 3> texts = {left, right, joined};
    for (size_t i = 0; i < texts.size(); ++i) {
      ids[i] = find(texts[i]);
      if (ids[i] < 0) {
        return Error::corrupt(fmt::format("{}: merge {} is \"{}\", but \"{}\" is not a token", kKey,
                                          rank, printable(merge), printable(texts[i])));
      }
    }
    if (use(ids)) merges->add(ids[0], ids[1], ids[2], rank);
    ++rank;
  }
  return {};
}

}  // namespace hearth::models
