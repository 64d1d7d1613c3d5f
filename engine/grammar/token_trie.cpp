#include "engine/grammar/token_trie.h"

#include <algorithm>
#include <limits>

#include "kernels/base/chars.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {

TokenTrie::TokenTrie(std::span<const std::string_view> pieces) : vocab_size_(size32(pieces)) {
  begins_.push_back(0);
  for (const std::string_view piece : pieces) {
    text_.insert(text_.end(), piece.begin(), piece.end());
    begins_.push_back(text_.size());
  }
  std::vector<int32_t> order;
  for (int32_t id = 0; id < vocab_size_; ++id) {
    const size_t size = pieces[id].size();
    // A token longer than a node's depth can represent is never drawn.
    if (size > 0 && size < std::numeric_limits<uint16_t>::max()) order.push_back(id);
  }
  std::ranges::sort(order, [this](int32_t a, int32_t b) {
    const std::string_view x = piece(a), y = piece(b);
    return x != y ? x < y : a < b;
  });
  std::vector<int32_t> open;  // nodes from the root to the last token
  std::string_view before;
  const auto close = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back()) {
      nodes_[open.back()].after = size32(nodes_);
    }
  };
  for (const int32_t id : order) {
    const std::string_view now = piece(id);
    size_t common = 0;
    while (common < now.size() && common < before.size() && now[common] == before[common]) {
      ++common;
    }
    close(common);
    const auto at = size32(tokens_);
    for (size_t i = common; i < now.size(); ++i) {
      open.push_back(size32(nodes_));
      nodes_.push_back({byte_of(now[i]), static_cast<uint16_t>(i), 0, at, at});
    }
    tokens_.push_back(id);
    nodes_[open.back()].tokens_end = at + 1;
    max_bytes_ = std::max(max_bytes_, now.size());
    before = now;
  }
  close(0);
}

}  // namespace hearth::engine
