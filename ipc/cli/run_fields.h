#pragma once
// Flags as fields of a request: text from the command line becomes the JSON that any client would
// send, and the codec's own checks judge it.

#include <string>
#include <utility>
#include <vector>

#include "ipc/schema/requests.h"
#include "kernels/base/result.h"

namespace hearth::cli {

/// `fields` as RunOptions holds them. `prompt` is left out where prompt_ids are given (and must be
/// empty then). Errors as ipc::decode_request gives them.
Result<ipc::GenerateRequest> request_from_flags(
    const std::string& model, const std::string& prompt,
    const std::vector<std::pair<std::string, std::string>>& fields);

}  // namespace hearth::cli
