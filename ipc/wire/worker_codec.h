#pragma once
// JSON to and from the structs of ipc/schema/worker_messages.h, as codec.h does it for clients.
// Pure functions; any thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "ipc/schema/serve_settings.h"
#include "ipc/schema/worker_messages.h"
#include "kernels/base/result.h"

namespace hearth::ipc {

/// `id` comes from the number frame. The verb must be generate, tokenize or embed.
Result<WorkerRequest> decode_worker_request(uint64_t id, std::string_view json);
std::string encode_worker_request(const WorkerEnvelope& envelope, const ComputeRequest& request);
/// The owner of a request that encode_worker_request() wrote, without decoding the rest; empty
/// where the text does not begin with one.
std::string_view owner_of_worker_request(std::string_view json);
/// Whether such a request only asks for the tokens of a text, and becomes no stream.
bool asks_for_tokens(std::string_view json);

Result<ServeSettings> decode_serve_settings(std::string_view json);
std::string encode_serve_settings(const ServeSettings& settings);

Result<WorkerControl> decode_worker_control(std::string_view json);
std::string encode_worker_control(WorkerControl control);

Result<WorkerEvent> decode_worker_event(std::string_view json);
std::string encode_worker_event(const WorkerEvent& event);

Result<FileFacts> decode_file_facts(std::string_view json);
std::string encode_file_facts(const FileFacts& facts);

}  // namespace hearth::ipc
