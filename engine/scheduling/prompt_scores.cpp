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
    // Those of token t are at t - 1.
    const int32_t known = size32(request.prompt_logprobs) + 1 - first;
    for (int32_t i = std::max(0, known); i < size; ++i) {
      request.prompt_logprobs.push_back(block.logprobs[i]);
      if (num_best == 0) continue;
      auto& best = request.prompt_top.emplace_back();
      for (int32_t at = i * width; at < i * width + std::min(num_best, width); ++at) {
        best.push_back({block.best_tokens[at], block.best_logprobs[at]});
      }
    }
  }
}

bool keeps_scores_for(const Request& from, const Request& request) {
  const int32_t num_best = std::max(0, from.sampling.top_logprobs);
  return from.sampling.prompt_logprobs && num_best <= kMaxKeptBest &&
         num_best >= request.sampling.top_logprobs;
}

void keep_scores(KvCache& kv, const LiveRequest& request, const SequenceBlocks& blocks) {
  const int32_t num_best = std::max(0, request.request.sampling.top_logprobs);
  if (num_best > kMaxKeptBest) return;
  const int32_t size = kv.block_size();
  int32_t end = 0;
  for (const NodeMark& mark : kv.marks(blocks)) {
    const int32_t first = std::exchange(end, end + size);
    if (end - 1 > size32(request.prompt_logprobs)) return;
    const BlockScores& known = kv.scores(mark);
    if (!known.logprobs.empty() && known.num_best >= num_best) continue;
    BlockScores scores;
    scores.num_best = num_best;
    for (int32_t token = first; token < end; ++token) {
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
