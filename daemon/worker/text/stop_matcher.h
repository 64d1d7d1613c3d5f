#pragma once
// Finds stop strings in text that arrives piece by piece, and holds back what could still become
// one. What comes out is a function of the pieces alone, so a resumed request repeats it exactly.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::worker {

class StopMatcher {
 public:
  /// `stops`: not empty strings. Without any, text passes through.
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// Text that is certain to be shown, now that `text` has followed. Once a stop string is
  /// complete, what stands before it is returned and everything after is swallowed. Of several in
  /// one piece the one that begins first counts.
  std::string push(std::string_view text);

  /// The text has ended: what was held back belongs to it after all.
  std::string finish();

  bool matched() const { return matched_ != kNone; }
  /// The stop string that was met; empty before. Of two at the same place, the first of the list.
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
