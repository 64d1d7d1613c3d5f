#include "models/tokenizer/vocabulary/special_tokens.h"

#include "kernels/base/chars.h"
#include "kernels/base/numbers.h"

namespace hearth::models {
namespace {

uint64_t edge(uint32_t node, char byte) { return uint64_t{node} * 256 + byte_of(byte); }

}  // namespace

void SpecialTokens::add(std::string_view text, int32_t id, bool is_control) {
  if (text.empty()) return;
  begins_[byte_of(text[0])] = true;
  uint32_t node = 0;
  for (const char byte : text) {
    const auto next = narrow<uint32_t>(nodes_.size());
    const auto [at, is_new] = edges_.try_emplace(edge(node, byte), next);
    if (is_new) nodes_.emplace_back();
    node = at->second;
  }
  nodes_[node] = {id, is_control};
}

std::optional<SpecialTokens::Match> SpecialTokens::match_front(std::string_view text,
                                                               size_t control_bytes) const {
  if (text.empty() || !begins_[byte_of(text[0])]) return std::nullopt;
  std::optional<Match> longest;
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto at = edges_.find(edge(node, text[i]));
    if (at == edges_.end()) break;
    node = at->second;
    const Node& here = nodes_[node];
    if (here.id >= 0 && (!here.is_control || i < control_bytes)) longest = Match{here.id, i + 1};
  }
  return longest;
}

}  // namespace hearth::models
