#pragma once
// How far one sample is with the reasoning of its answer, and which token must come next. It
// depends only on the bound and on the sample's tokens, except for the moment at which reasoning is
// ended from outside. So a text is the same with drafts, in any batch, and when it resumes. Owned
// by the engine thread.

#include <cstdint>
#include <optional>
#include <span>

#include "engine/request.h"

namespace hearth::engine {

class ReasoningProgress {
 public:
  /// The token that must follow `output`, the answer's tokens so far; nothing: any may follow. Each
  /// call continues where the last one ended: `output` only grows. `end_now`: the reasoning must
  /// end here.
  std::optional<int32_t> forced(const ReasoningBound& bound, std::span<const int32_t> output,
                                bool end_now);

 private:
  enum class Phase : uint8_t {
    kNew,
    kBefore,   ///< blanks, and part of the first mark
    kInside,   ///< between the marks
    kClosing,  ///< `closed_` tokens of the closing have come
    kAfter,    ///< any token may follow, to the end
  };
  void take(const ReasoningBound& bound, int32_t token);
  void take_byte(const ReasoningBound& bound, char c);

  Phase phase_ = Phase::kNew;
  size_t num_taken_ = 0;   // tokens of the output
  size_t num_inside_ = 0;  // of them, reasoning
  size_t matched_ = 0;     // bytes of the mark that comes next
  size_t closed_ = 0;
};

}  // namespace hearth::engine
