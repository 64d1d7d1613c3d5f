#include "ipc/schema/version.h"

namespace hearth::ipc {

std::string_view version() { return HEARTH_VERSION; }

}  // namespace hearth::ipc
