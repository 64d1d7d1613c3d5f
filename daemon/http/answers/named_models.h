#pragma once
// What the lists of models of several APIs share. Included by this folder's .cpp files only.

#include <cstdint>
#include <string>
#include <string_view>

#include "ipc/schema/replies.h"

namespace hearth::http {

/// The model or role that a name means; null: none.
struct NamedEntry {
  std::string name;
  const ipc::ModelEntry* entry = nullptr;
};
NamedEntry find_entry(const ipc::ModelsReply& reply, std::string_view name);

/// "2026-11-25T08:00:00Z"
std::string time_text(int64_t seconds);

}  // namespace hearth::http
