#include "daemon/broker/session.h"

#include <fmt/core.h>
#include <grp.h>
#include <pwd.h>

#include "ipc/curve.h"

namespace hearth::broker {

std::string owner_name(uint32_t uid) { return fmt::format("uid:{}", uid); }

Result<Rights> Rights::create(const std::string& admin_group, uint32_t daemon_uid) {
  Rights rights;
  rights.uids_ = {0, daemon_uid};
  if (admin_group.empty()) return rights;
  // At start, on the only thread: the static results of these calls are not shared.
  const group* group = ::getgrnam(admin_group.c_str());
  if (group == nullptr) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("server.admin_group: there is no group {}", admin_group), ""};
  }
  rights.gids_.insert(group->gr_gid);
  for (char** member = group->gr_mem; *member != nullptr; ++member) {
    if (const passwd* user = ::getpwnam(*member)) rights.uids_.insert(user->pw_uid);
  }
  return rights;
}

bool Rights::is_admin(const ipc::PeerCredentials& peer) const {
  return uids_.contains(peer.uid) || gids_.contains(peer.gid);
}

Result<Caller> identify(const ipc::Message& message, const Rights& rights) {
  if (message.size() < 2) {
    return Error{ErrorCode::kProtocol, "message without frames", ""};
  }
  const std::string_view identity = message.front().view();
  // A ROUTER's own names begin with a zero byte, which no client may choose.
  if (identity.empty() || identity.front() != '\0') {
    return Error{ErrorCode::kForbidden, "the connection chose its own routing id; leave it unset",
                 ""};
  }
  const std::optional<ipc::PeerCredentials> peer = ipc::peer_of(message[1]);
  if (const auto uid = peer ? std::nullopt : ipc::authenticated_uid(message[1])) {
    // A key says which user, and no key makes an administrator: that takes this machine's kernel.
    return Caller{std::string(identity), *uid, false};
  }
  if (!peer) {
    return Error{ErrorCode::kForbidden, "the kernel names no peer for this connection", ""};
  }
  return Caller{std::string(identity), peer->uid, rights.is_admin(*peer)};
}

}  // namespace hearth::broker
