#pragma once
// Finds where the last tokens of a growing text occurred before in it: the tokens that followed
// there are a good draft of those that follow now. Source: prompt lookup decoding (Saxena 2023),
// with the search made incremental.
//
// Every pair of neighbouring tokens is chained to the pair before it with the same hash, newest
// first, as dictionary coders chain theirs. A lookup walks the chain of the last pair, at most
// kMaxCandidates of it, and takes the place with the longest run of equal tokens before it; of
// equally long ones the newest. It remembers the last `capacity` tokens' pairs in 8 bytes each.

#include <cstdint>
#include <span>
#include <vector>

namespace hearth::engine {

class LookupIndex {
 public:
  static constexpr int32_t kMinMatch = 2;
  static constexpr int32_t kMaxMatch = 32;  ///< longer runs count as this long
  static constexpr int32_t kMaxCandidates = 32;
  static constexpr int32_t kMaxCapacity = 1 << 16;

  /// For a text of up to `max_tokens` tokens; of a longer one the newest kMaxCapacity are found.
  explicit LookupIndex(int32_t max_tokens);

  struct Match {
    int32_t next = 0;    ///< position after the earlier place
    int32_t length = 0;  ///< equal tokens before it; 0: nothing found
  };
  /// Where the last tokens of `text` occurred before. `text` is that of earlier calls, grown.
  Match find(std::span<const int32_t> text);
  /// Up to `count` tokens that followed there, as if the text repeated itself: past the end of the
  /// text, the draft continues from its own beginning.
  static void draft(std::span<const int32_t> text, const Match& match, int32_t count,
                    std::vector<int32_t>& out);

  size_t bytes() const { return (head_.size() + prev_.size()) * sizeof(int32_t); }

 private:
  uint32_t bucket(int32_t a, int32_t b) const;
  void insert(std::span<const int32_t> text, int32_t position);

  int32_t capacity_;           ///< a power of two
  std::vector<int32_t> head_;  ///< per bucket: newest position of such a pair's second token, or -1
  std::vector<int32_t> prev_;  ///< per position modulo capacity: the one before with its bucket
  int32_t indexed_ = 1;        ///< pairs that end before this position are in
};

}  // namespace hearth::engine
