#pragma once
// Turns flags into request fields: the command line becomes the JSON that any client would send,
// and the codec checks it.

#include <string>
#include <utility>
#include <vector>

#include "ipc/schema/requests.h"
#include "kernels/base/result.h"

namespace hearth::cli {

/// `fields` as in RunOptions. `prompt` must be empty if prompt_ids are given, and is then left out.
/// Errors as for ipc::decode_request.
Result<ipc::GenerateRequest> request_from_flags(
    const std::string& model, const std::string& prompt,
    const std::vector<std::pair<std::string, std::string>>& fields);

}  // namespace hearth::cli
