#pragma once
// Finds stop strings in text that arrives in pieces, and holds back text that could still become
// one. The output is a function of the pieces alone, so a resumed request repeats it exactly.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::worker {

class StopMatcher {
 public:
  /// `stops`: no empty strings. If there are none, text passes through.
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// Returns the text that is certain to be shown once `text` has arrived. When a stop string is
  /// complete, returns the text before it and discards everything after. Of several in one piece,
  /// the one that begins first counts.
  std::string push(std::string_view text);

  /// The text has ended: returns the text held back.
  std::string finish();

  bool matched() const { return matched_ != kNone; }
  /// The stop string that was found; empty before. Of two at the same place, the first in the list.
  const std::string& which() const {
    static const std::string none;
    return matched() ? stops_[matched_] : none;
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  size_t held_back() const;

  std::vector<std::string> stops_;
  std::string pending_;
  size_t matched_ = kNone;  // index into stops_
};

}  // namespace hearth::worker
