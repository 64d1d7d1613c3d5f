#pragma once
// JSON to and from the structs of ipc/schema/messages.h. Each value from a client is checked
// against the field table: an error names the field, the value met and the values wanted, and
// quotes no user text. Answers are read leniently (unknown members are skipped) so that an older
// client can talk to a newer daemon. Pure functions; any thread.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/schema/messages.h"
#include "ipc/wire/frames.h"
#include "kernels/base/result.h"

namespace hearth::ipc {

// ---- Requests -------------------------------------------------------------------------------

/// Errors: kProtocol (not a JSON object, unknown verb), kUnknownField, kInvalidArgument, kTooLarge;
/// `field` names the field.
Result<ClientRequest> decode_request(std::string_view json);
/// The same, for a long text: frees it as soon as it is parsed.
Result<ClientRequest> take_request(std::string json);
std::string encode_request(const ClientRequest& request);

// ---- Answers ----------------------------------------------------------------------------------

/// kProtocol: not an event; kUnsupported: an event this build does not know (skip it).
Result<Event> decode_event(std::string_view json);
std::string encode_event(const Event& event);
EventKind kind_of(const Event& event);
/// The kind of an event, if its name is the first member, as encode_event() writes it. The rest is
/// not looked at and need not be valid.
std::optional<EventKind> event_kind(std::string_view json);

/// The `prompt_tokens` of an embed reply as encode_event() writes it, without decoding its vectors;
/// empty if the text is none.
std::vector<int32_t> tokens_of_embed_reply(std::string_view json);

/// Decodes a delta's frames; the header's count, the ids and the logprobs must agree.
Result<Delta> decode_delta(const Answer& answer);
/// The text of a part of DeltaChannel::kCall.
Result<ToolCall> decode_tool_call(std::string_view json);
std::string encode_tool_call(const ToolCall& call);
/// The logprobs frame of a delta; read_logprobs() reads exactly this form.
std::string encode_logprobs(std::span<const TokenLogprobs> logprobs);
/// A delta as one JSON object ({"event":"delta",...}), for people and scripts; not on the socket.
std::string delta_as_json(const Delta& delta);

/// `text` (UTF-8) as a JSON string, quotes included.
std::string json_quote(std::string_view text);

}  // namespace hearth::ipc
