// Any schema and any GBNF gives a grammar or an error with a message, soon. The rest of the input
// walks through the grammar; masks agree with asking for each token.
//
// Input: a byte (schema or GBNF), the source, the byte 0x1E, bytes that choose among what is
// allowed.

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/constraint.h"
#include "kernels/base/check.h"
#include "tests/fuzz/input.h"

namespace {

using namespace hearth;
using namespace hearth::engine;

std::shared_ptr<const TokenTrie> vocabulary() {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> out = {"", "{\"", "\":", "\": ", "true", "12", "\xC3\xA9", "\\u00"};
    for (int b = 0; b < 256; ++b) out.emplace_back(1, static_cast<char>(b));
    return out;
  }();
  const std::vector<std::string_view> pieces(texts.begin(), texts.end());
  return std::make_shared<TokenTrie>(pieces);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::shared_ptr<const TokenTrie> trie = vocabulary();
  fuzz::Input input(data, size);
  const bool schema = input.flag();
  const std::string_view all = input.rest();
  const size_t gap = std::min(all.find('\x1E'), all.size());
  const std::string_view source = all.substr(0, gap);
  auto grammar = schema ? compile_json_schema(source) : compile_gbnf(source);
  if (!grammar.ok()) {
    HEARTH_CHECK(!grammar.error().message.empty());
    return 0;
  }
  if (grammar->num_nodes() > 20'000) return 0;  // right, and slow
  Constraint constraint(std::move(*grammar), trie);
  int32_t state = Constraint::kStart;
  for (const char choice : all.substr(std::min(gap + 1, all.size()))) {
    const std::vector<uint64_t> bits = constraint.mask(state).bits;
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < trie->vocab_size(); ++id) {
      const auto at = static_cast<size_t>(id);
      const bool may = (bits[at / 64] >> (at % 64) & 1) != 0;
      HEARTH_CHECK(may == (constraint.advance(state, id) != Constraint::kDead), "token {}", id);
      if (may) allowed.push_back(id);
    }
    if (allowed.empty()) break;
    state = constraint.advance(state, allowed[static_cast<uint8_t>(choice) % allowed.size()]);
  }
  return 0;
}
