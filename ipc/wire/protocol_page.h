#pragma once
// The protocol as a page of documentation, written from the field table and the codec itself.

#include <string>

namespace hearth::ipc {

/// Markdown; docs/protocol.md is this text, and a test compares them.
std::string protocol_page();

}  // namespace hearth::ipc
