#include "daemon/worker/text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace hearth::worker {

std::string StopMatcher::push(std::string_view text) {
  if (matched()) return {};
  pending_ += text;
  size_t first = std::string::npos;
  size_t which = kNone;
  for (size_t i = 0; i < stops_.size(); ++i) {
    const size_t at = pending_.find(stops_[i]);
    if (at >= first) continue;
    first = at;
    which = i;
  }
  if (first != std::string::npos) {
    matched_ = which;
    std::string out = pending_.substr(0, first);
    pending_.clear();
    return out;
  }
  const size_t held = held_back();
  std::string out = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, out.size());
  return out;
}

// Length of the longest end of pending_ that begins a stop string. Nothing before it is kept, so
// pending_ stays shorter than the longest stop string and the search above covers only a few bytes.
size_t StopMatcher::held_back() const {
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, pending_.size()); n > longest; --n) {
      if (pending_.ends_with(std::string_view(stop).substr(0, n))) {
        longest = n;
        break;
      }
    }
  }
  return longest;
}

std::string StopMatcher::finish() { return std::exchange(pending_, {}); }

}  // namespace hearth::worker
