#pragma once
// Who speaks on a connection, and what they may do. The owner is what the kernel says about the
// peer of the socket, or over TCP the key that the peer proved; nothing in a payload is believed
// about identity. Pure; owned by the io thread.

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "ipc/socket.h"
#include "kernels/base/result.h"

namespace hearth::broker {

struct Caller {
  std::string identity;  ///< the ROUTER's name for the connection
  uint32_t uid = 0;
  bool is_admin = false;  ///< sees and cancels everybody's requests
};

/// See it, cancel it.
inline bool may_touch(const Caller& caller, uint32_t owner) {
  return caller.is_admin || caller.uid == owner;
}

/// "uid:1000"
std::string owner_name(uint32_t uid);

class Rights {
 public:
  /// Administrators: root, the daemon's own user, and the members of `admin_group` ("": none),
  /// looked up once here, so that no request waits for a name service. kInvalidArgument when there
  /// is no such group.
  static Result<Rights> create(const std::string& admin_group, uint32_t daemon_uid);

  bool is_admin(const ipc::PeerCredentials& peer) const;

 private:
  std::set<uint32_t> uids_;
  std::set<uint32_t> gids_;
};

/// The caller of a received message (its routing frame in front). kForbidden where the kernel names
/// no peer, and where the client chose its own routing id: such a name could be taken over by
/// somebody else after it, with the answers still under way; ours never come twice.
Result<Caller> identify(const ipc::Message& message, const Rights& rights);

}  // namespace hearth::broker
