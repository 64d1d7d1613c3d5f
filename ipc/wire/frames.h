#pragma once
// The frames around the JSON; ipc/schema/protocol.h has their layout. Views point into the caller's
// frames.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/schema/deltas.h"
#include "ipc/schema/protocol.h"
#include "kernels/base/result.h"

namespace hearth::ipc {

using FrameViews = std::span<const std::string_view>;

inline constexpr std::string_view kEventFrame = "event";
inline constexpr std::string_view kDeltaFrame = "delta";

/// No message of the protocol has more frames than this, the routing frame included.
inline constexpr size_t kMaxFrames = 8;

/// Client -> daemon: ["HEARTH/1"][request id][JSON].
struct ClientMessage {
  std::string_view request_id;
  std::string_view json;
};
/// `frames` without the routing frame. kProtocol: not frames of a request.
Result<ClientMessage> parse_client_message(FrameViews frames);
/// The second frame, if it is a valid request id, to address an error reply.
std::optional<std::string_view> request_id_of(FrameViews frames);
bool is_request_id(std::string_view id);

/// The part of an answer that follows its address; the same for clients and for the broker.
struct Answer {
  bool is_delta = false;
  std::string_view json;      ///< event
  std::string_view payload;   ///< delta: DeltaHeader + text
  std::string_view ids;       ///< delta
  std::string_view logprobs;  ///< delta: JSON, or empty
};
Result<Answer> parse_answer(FrameViews frames);

/// Daemon -> client: ["HEARTH/1"][request id][answer...].
struct DaemonMessage {
  std::string_view request_id;
  Answer answer;
};
Result<DaemonMessage> parse_daemon_message(FrameViews frames);

/// A worker sends all pending answers in one message, because a message costs more than a token.
/// Per answer, little endian: request number (u64), 0 for an event or 1 for a delta, three sizes in
/// bytes (u32 each), then three parts of these sizes: JSON and two empty parts, or payload, ids and
/// logprobs.
void append_answer(std::string& answers, uint64_t number, const Answer& answer);
struct NumberedAnswer {
  uint64_t number = 0;
  Answer answer;
};
/// Takes the first answer off the front of `answers`, which must not be empty; returns views into
/// it. kProtocol: the answer is incomplete or belongs to no request.
Result<NumberedAnswer> take_answer(std::string_view* answers);

// ---- Little-endian pieces, the same on every machine -----------------------------------------

std::string encode_delta_payload(const DeltaHeader& header, std::string_view text);
/// The same with parts; their number need not be set in `header`.
std::string encode_delta_payload(const DeltaHeader& header, std::span<const DeltaPart> parts);
/// kProtocol: shorter than a header.
Result<DeltaHeader> decode_delta_header(std::string_view frame);
struct DeltaPayload {
  DeltaHeader header;
  std::string_view text;  ///< in a delta with parts: the encoded parts
};
/// kProtocol: shorter than its header, or text that is not UTF-8. Parts are not checked.
Result<DeltaPayload> decode_delta_payload(std::string_view frame);
/// kProtocol: a number or sizes that do not fit the header and the frame, an unknown channel, or
/// text that is not UTF-8.
Result<std::vector<DeltaPart>> decode_parts(const DeltaPayload& payload);
/// Plain text as a single encoded part.
std::string text_as_part(std::string_view text);

std::string encode_ids(std::span<const int32_t> ids);
Result<std::vector<int32_t>> decode_ids(std::string_view frame);

}  // namespace hearth::ipc
