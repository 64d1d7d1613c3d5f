#pragma once
// Deltas: the new text and tokens of one sample. A generation is answered by many of them.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::ipc {

/// First bytes of a delta's payload frame, little endian, 16 bytes; text or parts follow.
struct DeltaHeader {
  uint32_t sample = 0;
  uint32_t first_index = 0;  ///< of the delta's first token among the sample's generated tokens
  uint32_t num_tokens = 0;   ///< equals the ids frame; a gap in indices is a lost delta
  uint32_t num_parts = 0;    ///< 0: the rest of the frame is text
  bool operator==(const DeltaHeader&) const = default;
};
inline constexpr size_t kDeltaHeaderBytes = 16;

/// Kinds of parts in an answer to a conversation. The order gives the numbers on the wire.
enum class DeltaChannel : uint32_t {
  kText,
  kReasoning,  ///< text that the model's template marks as reasoning
  kCall,       ///< a call begins: {"index":0,"id":"a1B2c3D4e","name":"f"}
  kArguments,  ///< more JSON text of the arguments of the latest call
};
inline constexpr uint32_t kNumDeltaChannels = 4;
/// "text", "reasoning", "call", "arguments"
std::string_view name(DeltaChannel channel);

/// Wire layout: channel and number of bytes (little endian, 4 bytes each), then the text.
struct DeltaPart {
  DeltaChannel channel = DeltaChannel::kText;
  std::string text{};
  bool operator==(const DeltaPart&) const = default;
};
inline constexpr size_t kPartHeaderBytes = 8;

/// The text of a kCall part, as JSON.
struct ToolCall {
  int32_t index = 0;  ///< among the calls of the sample
  std::string id;     ///< 9 letters and digits, unique in the conversation
  std::string name;
  bool operator==(const ToolCall&) const = default;
};

struct TopLogprob {
  int32_t token = 0;
  float logprob = 0;   ///< natural log of the probability before temperature and truncation
  std::string text{};  ///< as in TokenLogprobs
  bool operator==(const TopLogprob&) const = default;
};
/// Log probabilities of one generated token.
struct TokenLogprobs {
  float logprob = 0;
  std::vector<TopLogprob> top;  ///< best first
  /// The token's text. Bytes that are not valid UTF-8 by themselves become "bytes:\\xe2\\x82".
  std::string text{};
  bool operator==(const TokenLogprobs&) const = default;
};

struct Delta {
  DeltaHeader header;
  /// Valid UTF-8. A character comes with the delta of its last token, so text may come later than
  /// the ids. In a delta with parts, the text parts alone.
  std::string text;
  std::vector<int32_t> ids;
  std::vector<TokenLogprobs> logprobs;  ///< one per token, or empty if not requested
  std::vector<DeltaPart> parts{};       ///< empty: all is text
};

}  // namespace hearth::ipc
