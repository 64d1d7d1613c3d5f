// Any bytes as a model file: parsed, read to the last byte, loaded as tokenizer and as model. Where
// the bytes hold several files, one after another, also as the parts of a split model. Seeds:
// fuzz_seeds writes whole small files; start from those.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/base/split_name.h"
#include "tests/unit/models/exercise.h"

namespace {

constexpr const char* kText = "the abc <|end|>\n \xE2\x82\xAC\xFF<tool>  ";

/// Cut before each magic but the first.
std::vector<std::span<const std::byte>> files_in(std::span<const std::byte> bytes) {
  std::vector<std::span<const std::byte>> out;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (size_t begin = 0; begin < text.size() && out.size() < hearth::kMaxModelParts;) {
    const size_t end = std::min(text.find("GGUF", begin + 1), text.size());
    out.push_back(bytes.subspan(begin, end - begin));
    begin = end;
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hearth::models;
  const auto bytes = std::as_bytes(std::span(data, size));
  exercise(bytes, kText);
  const auto files = files_in(bytes);
  if (files.size() > 1) exercise(GgufFile::parse_parts(files, "hostile"), kText);
  return 0;
}
