#pragma once
// The identity and rights of a connection. The owner is the user that the kernel reports for the
// peer of the socket, or over TCP the user of the key that the peer proved. Identity is never taken
// from a payload. Owned by the io thread.

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>

#include "daemon/broker/transport/peer_id.h"
#include "ipc/wire/socket.h"
#include "kernels/base/result.h"

namespace hearth::broker {

struct Caller {
  PeerId peer;  ///< the connection
  uint32_t uid = 0;
  bool is_admin = false;  ///< sees and cancels the requests of all users
};

/// Whether the caller may see and cancel requests of `owner`.
inline bool may_touch(const Caller& caller, uint32_t owner) {
  return caller.is_admin || caller.uid == owner;
}

class Rights {
 public:
  /// Administrators: root, the daemon's own user, and the members of `admin_group` ("": none).
  /// Looked up here and by refresh(), so that no request waits for a name service. kInvalidArgument
  /// if the group does not exist.
  static Result<Rights> create(const std::string& admin_group, uint32_t daemon_uid);

  /// Looks the group up again if the system's list of groups has changed or if `at_once`. A deleted
  /// group has no members. True: the membership changed.
  bool refresh(bool at_once);

  bool is_admin(const ipc::PeerCredentials& peer) const;

 private:
  bool look_up();

  std::string admin_group_;
  std::set<uint32_t> always_;  // administrators without the group
  std::set<uint32_t> uids_;
  std::set<uint32_t> gids_;
  int64_t groups_changed_ns_ = 0;
};

}  // namespace hearth::broker
