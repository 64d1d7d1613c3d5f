#include "engine/speculation/prediction_proposer.h"

#include <algorithm>

namespace hearth::engine {
namespace {

/// Equal tokens from which a place found by searching is believed.
constexpr size_t kMinMatch = 2;
constexpr size_t kMaxMatch = 32;  ///< longer runs count as this long
/// Searched first: so many tokens before and after the place where the texts parted.
constexpr size_t kNearBefore = 16, kNearAfter = 256;
/// Replaced tokens in a row that are assumed at most.
constexpr size_t kMaxReplaced = 16;

struct Found {
  size_t next = 0;    ///< position after the equal tokens
  size_t length = 0;  ///< of them; 0: nothing found
};

/// Where in [begin, end) of `prediction` the last tokens of `text` end: the longest run of them,
/// and of equally long ones the first.
Found find_end(std::span<const int32_t> text, std::span<const int32_t> prediction, size_t begin,
               size_t end) {
  Found best;
  for (size_t i = begin; i < end && best.length < kMaxMatch; ++i) {
    if (prediction[i] != text.back()) continue;
    const size_t longest = std::min({kMaxMatch, i + 1, text.size()});
    size_t length = 1;
    while (length < longest && prediction[i - length] == text[text.size() - 1 - length]) ++length;
    if (length >= kMinMatch && length > best.length) best = {i + 1, length};
  }
  return best;
}

}  // namespace

void PredictionProposer::follow(std::span<const int32_t> text, std::span<const int32_t> prediction,
                                Place* place) {
  for (; place->seen < text.size(); ++place->seen) {
    if (place->next < prediction.size() && prediction[place->next] == text[place->seen]) {
      ++place->next;
      if (++place->equal < kMinMatch) continue;
      place->parted = place->next;
      place->lost = false;
    } else {
      if (place->next < place->parted + kMaxReplaced) ++place->next;
      place->equal = 0;
      place->lost = true;
    }
  }
  if (!place->lost) return;
  const size_t size = prediction.size();
  const size_t near = place->parted - std::min(place->parted, kNearBefore);
  Found found = find_end(text, prediction, near, std::min(size, place->parted + kNearAfter));
  if (found.length == 0) found = find_end(text, prediction, 0, size);
  if (found.length > 0) *place = {text.size(), found.next, found.next, found.length, false};
}

void PredictionProposer::propose(std::span<Draft* const> drafts, double) {
  for (Draft* draft : drafts) {
    draft->tokens.clear();
    const LiveRequest& live = *draft->seq->request;
    std::span<const int32_t> prediction = live.request.prediction;
    if (prediction.empty()) continue;
    prediction = prediction.first(std::min(prediction.size(), kMaxTokens));
    const Place begin{.seen = live.request.prompt.size()};
    Place& place = places_.try_emplace(draft->seq, begin).first->second;
    follow(draft->seq->tokens, prediction, &place);
    draft->confidence = confidence_of(place.equal);
    const size_t end = std::min(prediction.size(), place.next + draft->max_tokens);
    for (size_t i = place.next; i < end; ++i) draft->tokens.push_back(prediction[i]);
  }
}

}  // namespace hearth::engine
