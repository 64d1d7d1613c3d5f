#include "engine/scheduling/prompt_scores.h"

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/base/sizes.h"

namespace hearth::engine {

void take_known_scores(const KvCache& kv, LiveRequest& request) {
  const int32_t num_best = std::max(0, request.request.sampling.top_logprobs);
  const int32_t size = kv.block_size();
  const std::span<const int32_t> prompt = request.request.prompt;
  NodeId node = kv.index().find_root(request.scope);
  for (int32_t first = 0; node != kNoNode && first + size < request.prompt_size(); first += size) {
    node = kv.index().find_child(node, prompt.subspan(first, size));
    if (node == kNoNode) return;
    const BlockScores& block = kv.index().scores(node);
    if (block.logprobs.empty() || block.num_best < num_best) return;
    const int32_t width = size32(block.best_tokens) / size;
    for (int32_t i = first == 0 ? 1 : 0; i < size; ++i) {
      request.prompt_logprobs.push_back(block.logprobs[i]);
      if (num_best == 0) continue;
      auto& best = request.prompt_top.emplace_back();
      for (int32_t at = i * width; at < i * width + std::min(num_best, width); ++at) {
        best.push_back({block.best_tokens[at], block.best_logprobs[at]});
      }
    }
  }
}

void keep_scores(KvCache& kv, const LiveRequest& request, const SequenceBlocks& blocks) {
  const int32_t num_best = std::max(0, request.request.sampling.top_logprobs);
  if (num_best > kMaxKeptBest) return;
  const int32_t size = kv.block_size();
  int32_t end = 0;
  for (const NodeMark& mark : kv.marks(blocks)) {
    const int32_t first = std::exchange(end, end + size);
    if (end > request.prompt_size()) return;
    const BlockScores& known = kv.scores(mark);
    if (!known.logprobs.empty() && known.num_best >= num_best) continue;
    BlockScores scores;
    scores.num_best = num_best;
    for (int32_t token = first; token < end; ++token) {
      // Those of token t are at t - 1.
      scores.logprobs.push_back(token == 0 ? 0 : request.prompt_logprobs[token - 1]);
      if (num_best == 0) continue;
      for (const TokenLogprob& best : request.prompt_top[std::max(0, token - 1)]) {
        scores.best_tokens.push_back(token == 0 ? 0 : best.token);
        scores.best_logprobs.push_back(token == 0 ? 0 : best.logprob);
      }
    }
    kv.set_scores(mark, std::move(scores));
  }
}

}  // namespace hearth::engine
