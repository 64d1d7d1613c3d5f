#pragma once
// A request as the body of OpenAI's completion APIs. Only what those APIs can express exactly is
// carried over. Pure; any thread.

#include <string>

#include "ipc/schema/requests.h"
#include "kernels/base/result.h"

namespace hearth::broker {

struct RemoteRequest {
  bool chat = false;  ///< POST .../chat/completions; else .../completions
  int32_t samples = 1;
  std::string body{};  ///< JSON; asks for a stream
};

/// Whether the settings of a request can be carried over. kUnsupported names the first field that
/// cannot. Reads no text, so it costs nothing; make_remote_request() may find more.
Result<void> check_portable(const ipc::GenerateRequest& request);

/// A request whose settings are portable. `model`: its name at the remote. `with_seed`: the client
/// chose the seed. What only makes this machine faster or concerns its cache is left out, and so
/// are marks in messages and tools that are hearth's own. kUnsupported names the field that cannot
/// be carried over.
Result<RemoteRequest> make_remote_request(const ipc::GenerateRequest& request,
                                          const std::string& model, bool with_seed);

}  // namespace hearth::broker
