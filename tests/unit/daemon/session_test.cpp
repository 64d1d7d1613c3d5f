#include "daemon/broker/session.h"

#include <doctest/doctest.h>
#include <grp.h>

namespace hearth::broker {
namespace {

TEST_CASE(
    "root, the daemon's user and the group's members are administrators; others touch their own") {
  const Result<Rights> rights = Rights::create("", 1000);
  REQUIRE(rights.ok());
  CHECK(rights->is_admin({.uid = 0, .gid = 0, .pid = 1}));
  CHECK(rights->is_admin({.uid = 1000, .gid = 1000, .pid = 1}));
  CHECK_FALSE(rights->is_admin({.uid = 1001, .gid = 1001, .pid = 1}));
  const Caller plain{.identity = "x", .uid = 1001, .is_admin = false};
  CHECK(may_touch(plain, 1001));
  CHECK_FALSE(may_touch(plain, 1002));
  CHECK(may_touch({.identity = "x", .uid = 0, .is_admin = true}, 1002));
}

TEST_CASE("an administrators' group counts by its gid; one that does not exist is an error") {
  const group* any = ::getgrgid(0);
  REQUIRE(any != nullptr);
  const Result<Rights> rights = Rights::create(any->gr_name, 1000);
  REQUIRE(rights.ok());
  CHECK(rights->is_admin({.uid = 4321, .gid = 0, .pid = 1}));
  const Result<Rights> missing = Rights::create("no-such-group-here", 1000);
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().message == "server.admin_group: there is no group no-such-group-here");
}

TEST_CASE(
    "a message without a kernel-named peer, or with a name of its own choice, has no caller") {
  const Rights rights = Rights::create("", 0).value();
  ipc::Message own_name;
  ipc::append(own_name, std::string("me"), std::string("HEARTH/1"));
  const Result<Caller> chosen = identify(own_name, rights);
  REQUIRE_FALSE(chosen.ok());
  CHECK(chosen.error().code == ErrorCode::kForbidden);

  ipc::Message no_peer;  // made here and not received: the kernel said nothing
  ipc::append(no_peer, std::string("\0abcd", 5), std::string("HEARTH/1"));
  CHECK(identify(no_peer, rights).error().code == ErrorCode::kForbidden);

  ipc::Message empty;
  ipc::append(empty, std::string("\0abcd", 5));
  CHECK(identify(empty, rights).error().code == ErrorCode::kProtocol);
}

}  // namespace
}  // namespace hearth::broker
