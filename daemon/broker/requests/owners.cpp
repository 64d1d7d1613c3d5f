#include "daemon/broker/requests/owners.h"

#include <fmt/core.h>

#include <algorithm>

#include "ipc/schema/request_fields.h"

namespace hearth::broker {

std::string owner_name(uint32_t uid) { return fmt::format("uid:{}", uid); }

std::string Owners::name(uint32_t owner) const {
  const auto key = keys_.find(owner);
  return key == keys_.end() ? owner_name(owner) : "key:" + key->second;
}

const OwnerConfig* Owners::find(uint32_t owner) const {
  if (owners_.empty()) return nullptr;
  const auto found = owners_.find(name(owner));
  return found == owners_.end() ? nullptr : &found->second;
}

bool Owners::may_leave(uint32_t owner, std::optional<bool> asked) const {
  if (asked == false) return false;
  const OwnerConfig* const own = find(owner);
  if (own != nullptr && own->remote) return *own->remote;
  return asked.value_or(false);
}

void Owners::bound_priority(uint32_t owner, ipc::GenerateRequest* request) const {
  const OwnerConfig* const own = find(owner);
  if (own == nullptr || !own->priority) return;
  const auto rank = [](const std::string& priority) {  // the highest class is the first
    return std::ranges::find(ipc::request_fields::kPriorities, priority) -
           ipc::request_fields::kPriorities.begin();
  };
  if (rank(request->priority) < rank(*own->priority)) request->priority = *own->priority;
}

}  // namespace hearth::broker
