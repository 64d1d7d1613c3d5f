#pragma once
// The frames around the JSON, as ipc/schema/messages.h draws them. Views point into the caller's
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
/// `frames` without the routing frame. kProtocol says what was met and what was wanted.
Result<ClientMessage> parse_client_message(FrameViews frames);
/// The second frame of anything, if it may be a request id: to address an error reply.
std::optional<std::string_view> request_id_of(FrameViews frames);
bool is_request_id(std::string_view id);

/// What follows the address in an answer, for clients and for the broker alike.
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

/// What a worker has for its requests goes together, as much as there is: a message costs more than
/// a token. Of each answer, little endian: number of the request (u64), 0 event or 1 delta, three
/// sizes in bytes (u32 each), and what has these: JSON and twice nothing, or payload, ids,
/// logprobs.
void append_answer(std::string& answers, uint64_t number, const Answer& answer);
struct NumberedAnswer {
  uint64_t number = 0;
  Answer answer;
};
/// Takes the first off the front of `answers`, which are not empty; views into them. kProtocol: no
/// whole answer, or of no request.
Result<NumberedAnswer> take_answer(std::string_view* answers);

// ---- Little-endian pieces, the same on every machine -----------------------------------------

std::string encode_delta_payload(const DeltaHeader& header, std::string_view text);
/// The same with parts; `header` need not have their number.
std::string encode_delta_payload(const DeltaHeader& header, std::span<const DeltaPart> parts);
struct DeltaPayload {
  DeltaHeader header;
  std::string_view text;  ///< of a delta with parts: they, as they stand on the wire
};
/// kProtocol: shorter than its header, text not UTF-8. Parts are not looked at.
Result<DeltaPayload> decode_delta_payload(std::string_view frame);
/// kProtocol: their number is not the header's, they are longer or shorter than the frame, of no
/// known channel, or not UTF-8.
Result<std::vector<DeltaPart>> decode_parts(const DeltaPayload& payload);
/// A text on the wire as the one part that it is.
std::string text_as_part(std::string_view text);

std::string encode_ids(std::span<const int32_t> ids);
Result<std::vector<int32_t>> decode_ids(std::string_view frame);

}  // namespace hearth::ipc
