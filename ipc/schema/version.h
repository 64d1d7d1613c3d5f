#pragma once

#include <string_view>

namespace hearth::ipc {

/// Of this build, e.g. "0.1.0"; a worker's must equal its broker's.
std::string_view version();

}  // namespace hearth::ipc
