#pragma once
// The owners of requests: users of this machine, and keys of the HTTP server. Their names, and what
// the configuration grants each. Owned by the io thread.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "daemon/broker/config/config.h"
#include "ipc/schema/requests.h"

namespace hearth::broker {

/// "uid:1000"
std::string owner_name(uint32_t uid);

class Owners {
 public:
  /// Replaces the names of keys, by their owners' numbers.
  void set_keys(std::map<uint32_t, std::string> keys) { keys_ = std::move(keys); }
  void configure(std::map<std::string, OwnerConfig> owners) { owners_ = std::move(owners); }

  /// "uid:1000", or "key:NAME" for the owner of a key.
  std::string name(uint32_t owner) const;
  /// The settings that differ for this owner; null: none.
  const OwnerConfig* find(uint32_t owner) const;
  /// Whether a remote may answer a request of this owner. `asked`: the request's field `remote`.
  bool may_leave(uint32_t owner, std::optional<bool> asked) const;
  /// Lowers the class of a request to the highest that its owner may use.
  void bound_priority(uint32_t owner, ipc::GenerateRequest* request) const;

 private:
  std::map<uint32_t, std::string> keys_;
  std::map<std::string, OwnerConfig> owners_;
};

}  // namespace hearth::broker
