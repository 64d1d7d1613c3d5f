#include "engine/speculation/replay_proposer.h"

#include <algorithm>
#include <random>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::engine {

ReplayProposer::ReplayProposer(std::vector<bool> pattern, int32_t vocab_size)
    : pattern_(std::move(pattern)), vocab_size_(vocab_size) {
  HEARTH_CHECK(!pattern_.empty() && vocab_size > 1);
}

std::vector<bool> ReplayProposer::random_pattern(double acceptance, size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<bool> out(size);
  for (size_t i = 0; i < size; ++i) {
    out[i] = as_double(random() >> 11) * 0x1p-53 < acceptance;
  }
  return out;
}

void ReplayProposer::know(RequestId id, int32_t sample, std::vector<int32_t> output) {
  outputs_[{id, sample}] = std::move(output);
}

void ReplayProposer::propose(std::span<Draft* const> drafts, double) {
  for (Draft* draft : drafts) {
    const Sequence& seq = *draft->seq;
    const auto known = outputs_.find({seq.request->request.id, seq.sample});
    draft->clear();
    draft->confidence = kConfidences - 1;
    if (known == outputs_.end()) continue;
    const std::vector<int32_t>& output = known->second;
    const size_t prompt = seq.request->request.prompt.size();
    const size_t begin = seq.tokens.size() - prompt;
    const size_t end = std::min(output.size(), begin + draft->max_tokens);
    const auto token_at = [&](size_t at) {
      return pattern_[(prompt + at) % pattern_.size()] ? output[at]
                                                       : (output[at] + 1) % vocab_size_;
    };
    for (size_t at = begin; at < end; ++at) {
      draft->tokens.push_back(token_at(at));
      if (draft->max_rivals == 0) continue;
      // Right where the chain is wrong; each third time wrong, too.
      const bool right = draft->tokens.back() != output[at] && (prompt + at) % 3 != 0;
      Draft::Rival rival{narrow<int32_t>(at - begin), 0, {}};
      rival.tokens.push_back(right ? output[at] : (output[at] + 2) % vocab_size_);
      for (size_t next = at + 1; next < end; ++next) rival.tokens.push_back(token_at(next));
      draft->rivals.push_back(std::move(rival));
    }
  }
}

}  // namespace hearth::engine
