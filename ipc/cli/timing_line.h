#pragma once

#include <string>

#include "ipc/messages.h"

namespace hearth::cli {

/// "prompt 12 (cached 8) · TTFT 31 ms · 84.2 tokens/s · stop"
std::string timing_line(const ipc::DoneEvent& done);

}  // namespace hearth::cli
