#include "daemon/broker/requests/session.h"

#include <fmt/core.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>

#include <utility>

namespace hearth::broker {
namespace {

constexpr const char* kGroups = "/etc/group";

// 0 if the file does not exist: groups then come from elsewhere, and only a reload looks them up
// again.
int64_t groups_changed_ns() {
  struct stat info {};
  if (::stat(kGroups, &info) != 0) return 0;
  return info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
}

}  // namespace

Result<Rights> Rights::create(const std::string& admin_group, uint32_t daemon_uid) {
  Rights rights;
  rights.admin_group_ = admin_group;
  rights.always_ = rights.uids_ = {0, daemon_uid};
  rights.groups_changed_ns_ = groups_changed_ns();
  if (!rights.look_up()) {
    return Error::invalid(fmt::format("server.admin_group: group {} does not exist", admin_group));
  }
  return rights;
}

// Runs on the only thread that looks up names, so the static results of these calls are not shared.
bool Rights::look_up() {
  uids_ = always_;
  gids_.clear();
  if (admin_group_.empty()) return true;
  const group* group = ::getgrnam(admin_group_.c_str());
  if (group == nullptr) return false;
  gids_.insert(group->gr_gid);
  for (char** member = group->gr_mem; *member != nullptr; ++member) {
    if (const passwd* user = ::getpwnam(*member)) uids_.insert(user->pw_uid);
  }
  return true;
}

bool Rights::refresh(bool at_once) {
  const int64_t changed_ns = groups_changed_ns();
  if (!at_once && changed_ns == groups_changed_ns_) return false;
  groups_changed_ns_ = changed_ns;
  const auto before = std::pair(uids_, gids_);
  look_up();
  return before != std::pair(uids_, gids_);
}

bool Rights::is_admin(const ipc::PeerCredentials& peer) const {
  return uids_.contains(peer.uid) || gids_.contains(peer.gid);
}

}  // namespace hearth::broker
