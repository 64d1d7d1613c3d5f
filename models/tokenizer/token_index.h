#pragma once
// From texts to token ids: an open-addressing table over strings that somebody else keeps.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace hearth::models {

/// Immutable once filled, so any thread may look.
class TokenIndex {
 public:
  /// Room for `count` texts. Once, before the first.
  void reserve(size_t count);
  /// The text must stay readable where it is. Of two equal ones the later counts.
  void insert(std::string_view text, int32_t id);
  /// -1 where no token has this text.
  int32_t find(std::string_view text) const;
  size_t max_bytes() const { return max_bytes_; }

 private:
  struct Slot {
    uint32_t tag = 0;  // of the hash: most other texts are told apart without being read
    int32_t id = -1;   // -1: free
    std::string_view text;
  };

  std::vector<Slot> slots_;  // at most three fifths full
  size_t max_bytes_ = 0;
};

}  // namespace hearth::models
