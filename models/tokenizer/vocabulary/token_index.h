#pragma once
// Maps texts to token ids: an open-addressing hash table over strings that the caller keeps.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace hearth::models {

/// Immutable once filled, so any thread may read it.
class TokenIndex {
 public:
  /// Reserves room for `count` texts. Call once, before the first insert().
  void reserve(size_t count);
  /// `text` must outlive the table. Of two equal texts the later counts.
  void insert(std::string_view text, int32_t id);
  /// -1 if no token has this text.
  int32_t find(std::string_view text) const;
  size_t max_bytes() const { return max_bytes_; }

 private:
  struct Slot {
    uint32_t tag = 0;  // part of the hash; avoids most text comparisons
    int32_t id = -1;   // -1: free
    std::string_view text;
  };

  std::vector<Slot> slots_;  // at most three fifths full
  size_t max_bytes_ = 0;
};

}  // namespace hearth::models
