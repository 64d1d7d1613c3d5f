#include "daemon/broker/requests/session.h"

#include <doctest/doctest.h>
#include <grp.h>

namespace hearth::broker {
namespace {

TEST_CASE(
    "root, the daemon's user and the group's members are administrators; others reach their own") {
  const Result<Rights> rights = Rights::create("", 1000);
  REQUIRE(rights.ok());
  CHECK(rights->is_admin({.uid = 0, .gid = 0, .pid = 1}));
  CHECK(rights->is_admin({.uid = 1000, .gid = 1000, .pid = 1}));
  CHECK_FALSE(rights->is_admin({.uid = 1001, .gid = 1001, .pid = 1}));
  const Caller plain{.peer = {}, .uid = 1001, .is_admin = false};
  CHECK(may_touch(plain, 1001));
  CHECK_FALSE(may_touch(plain, 1002));
  CHECK(may_touch({.peer = {}, .uid = 0, .is_admin = true}, 1002));
}

TEST_CASE("an administrators' group counts by its gid; an unknown group is an error") {
  const group* any = ::getgrgid(0);
  REQUIRE(any != nullptr);
  const Result<Rights> rights = Rights::create(any->gr_name, 1000);
  REQUIRE(rights.ok());
  CHECK(rights->is_admin({.uid = 4321, .gid = 0, .pid = 1}));
  const Result<Rights> missing = Rights::create("no-such-group-here", 1000);
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().message == "server.admin_group: group no-such-group-here does not exist");
}

TEST_CASE("the same number at another socket, or of another user, is another peer") {
  const PeerId ipc{.door = Door::kIpc, .uid = 5, .number = 7};
  CHECK(ipc != PeerId{.door = Door::kHttp, .uid = 5, .number = 7});
  CHECK(ipc != PeerId{.door = Door::kIpc, .uid = 6, .number = 7});
  CHECK(ipc == PeerId{.door = Door::kIpc, .uid = 5, .number = 7});
}

}  // namespace
}  // namespace hearth::broker
