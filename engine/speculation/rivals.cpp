#include "engine/speculation/rivals.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/base/numbers.h"

namespace hearth::engine {

void draw_rivals(Sampler& sampler, std::span<float> logits, const SampleArgs& args, int32_t token,
                 int32_t place, Draft* draft) {
  if (draft->max_rivals == 0) return;
  const std::vector<int32_t>& stops = draft->seq->request->request.stop_ids;
  std::vector<int32_t> banned(args.banned.begin(), args.banned.end());
  banned.insert(banned.end(), stops.begin(), stops.end());
  banned.push_back(token);
  SampleArgs next = args;
  for (int32_t rank = 0; rank < std::min(draft->max_rivals, kMaxRivals); ++rank) {
    next.banned = banned;
    const Result<Sampled> sampled = sampler.sample(logits, next);
    // Where everything is banned, something banned is drawn.
    if (!sampled.ok() || std::ranges::find(banned, sampled->token) != banned.end()) return;
    draft->rivals.push_back({place, rank, {sampled->token}});
    banned.push_back(sampled->token);
  }
}

void replay_rivals(const ReplayScript& script, int32_t position, int32_t place, Draft* draft) {
  const int32_t ranks = std::min(draft->max_rivals, narrow<int32_t>(script.num_rivals()));
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const std::optional<int32_t> token = script.rival(*draft->seq, position, place, rank);
    if (token.has_value()) draft->rivals.push_back({place, rank, {*token}});
  }
}

}  // namespace hearth::engine
