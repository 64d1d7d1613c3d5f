#pragma once
// New text and tokens of one sample: what a generation is answered by, many times.

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

/// What a part of a conversation's answer is, in the order of its number on the wire.
enum class DeltaChannel : uint32_t {
  kText,
  kReasoning,  ///< what the model's template marks as such
  kCall,       ///< a call begins: {"index":0,"id":"a1B2c3D4e","name":"f"}
  kArguments,  ///< of the call that began last: more of their JSON text
};
inline constexpr uint32_t kNumDeltaChannels = 4;
/// "text", "reasoning", "call", "arguments"
std::string_view name(DeltaChannel channel);

/// On the wire: channel and number of bytes, little endian, 4 bytes each; then the text.
struct DeltaPart {
  DeltaChannel channel = DeltaChannel::kText;
  std::string text{};
  bool operator==(const DeltaPart&) const = default;
};
inline constexpr size_t kPartHeaderBytes = 8;

/// The text of a kCall part, as JSON.
struct ToolCall {
  int32_t index = 0;  ///< among the calls of the sample
  std::string id;     ///< 9 letters and digits; a conversation has it once
  std::string name;
  bool operator==(const ToolCall&) const = default;
};

struct TopLogprob {
  int32_t token = 0;
  float logprob = 0;   ///< natural log, of the distribution before temperature and truncation
  std::string text{};  ///< as of TokenLogprobs
  bool operator==(const TopLogprob&) const = default;
};
/// Of one generated token.
struct TokenLogprobs {
  float logprob = 0;
  std::vector<TopLogprob> top;  ///< best first
  /// What the token stands for; bytes that are no UTF-8 by themselves as "bytes:\\xe2\\x82".
  std::string text{};
  bool operator==(const TokenLogprobs&) const = default;
};

struct Delta {
  DeltaHeader header;
  /// Valid UTF-8; lags behind the ids while a character is incomplete. Of a delta with parts: those
  /// that are text.
  std::string text;
  std::vector<int32_t> ids;
  std::vector<TokenLogprobs> logprobs;  ///< one per token, or empty where none were asked for
  std::vector<DeltaPart> parts{};       ///< empty: all is text
};

}  // namespace hearth::ipc
