#include "daemon/broker/requests/cache_verbs.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace hearth::broker {
namespace {

const CachePaths kPaths{"/bin/worker", "/state", {"/models"}};
const Caller kUser{{}, 1000, false};
const Caller kAdmin{{}, 0, true};

ipc::CacheRequest request(const std::string& op, std::vector<std::string> names = {}) {
  ipc::CacheRequest out;
  out.op = op;
  out.names = std::move(names);
  return out;
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("a caller reaches its own prefixes, an administrator all") {
  CHECK(*cache_arguments(kPaths, kUser, request("ls")) ==
        Words{"/bin/worker", "cache", "ls", "--state-dir=/state", "--owner=uid:1000"});
  ipc::CacheRequest all = request("rm");
  all.all = all.wipe = true;
  CHECK(*cache_arguments(kPaths, kUser, all) ==
        Words{"/bin/worker", "cache", "rm", "--state-dir=/state", "--owner=uid:1000", "--wipe"});
  CHECK(*cache_arguments(kPaths, kAdmin, all) ==
        Words{"/bin/worker", "cache", "rm", "--state-dir=/state", "--all", "--wipe"});
  CHECK(*cache_arguments(kPaths, kAdmin, request("rm", {"0123abcd"})) ==
        Words{"/bin/worker", "cache", "rm", "--state-dir=/state", "--owner=uid:0", "0123abcd"});
  for (const char* op : {"verify", "compact"}) {
    CHECK(cache_arguments(kPaths, kUser, request(op)).error().code == ErrorCode::kForbidden);
    CHECK(*cache_arguments(kPaths, kAdmin, request(op)) ==
          Words{"/bin/worker", "cache", op, "--state-dir=/state"});
  }
}

TEST_CASE("nothing that a client writes becomes a command line option") {
  for (const char* name : {"--all", "-h", "", "abc", "0123abcd;", "0123ABCD", "../../x",
                           "0123456789012345678901234567890123"}) {
    CAPTURE(name);
    CHECK(cache_arguments(kPaths, kUser, request("rm", {name})).error().field == "names");
  }
  ipc::CacheRequest sly = request("ls");
  sly.model = "--owner=uid:0";
  const Words words = *cache_arguments(kPaths, kUser, sly);
  CHECK(std::ranges::find(words, "--model=--owner=uid:0") != words.end());
  CHECK(cache_arguments(kPaths, kUser, request("rm")).error().field == "names");
  CHECK(cache_arguments(kPaths, kUser, request("pin")).error().field == "names");
  CHECK(cache_arguments(kPaths, kUser, request("ls", {"0123abcd"})).error().field == "names");
  CHECK(cache_arguments({"/bin/worker", "", {}}, kUser, request("ls")).error().code ==
        ErrorCode::kUnavailable);
}

TEST_CASE("pins have an expiry time, lists have their JSON form") {
  ipc::CacheRequest pin = request("pin", {"0123abcd", "ffff"});
  pin.ttl_s = 60;
  CHECK(*cache_arguments(kPaths, kUser, pin) ==
        Words{"/bin/worker", "cache", "pin", "--state-dir=/state", "--owner=uid:1000", "--ttl-s=60",
              "--pinned-bytes=2147483648", "0123abcd", "ffff"});
  ipc::CacheRequest list = request("ls");
  list.show_text = list.as_json = true;
  CHECK(*cache_arguments(kPaths, kUser, list) ==
        Words{"/bin/worker", "cache", "ls", "--state-dir=/state", "--owner=uid:1000", "--json",
              "--show-text", "--model-dir=/models"});
}

TEST_CASE("why: of the owner's own requests, the newest") {
  MissLog log;
  ipc::DoneEvent done;
  done.usage.prompt_tokens = 100;
  done.usage.cached_tokens = 48;
  done.usage.cached_disk_tokens = 16;
  done.cache_miss = "from token 48 on: what was kept ends there";
  log.note(1000, "a", done);
  CHECK(
      *log.why(1000, "a") ==
      "a: 48 of 100 prompt tokens cached, 16 of them from disk; missed from token 48 on: what was "
      "kept ends there");
  CHECK(log.why(1001, "a").error().code == ErrorCode::kNotFound);
  done.cache_miss.clear();
  log.note(1000, "a", done);
  CHECK(log.why(1000, "a")->find("missed nothing") != std::string::npos);
  log.note_left_out(1000, "b", 2);
  CHECK_FALSE(log.why(1000, "b").ok());  // it has not ended
  log.note(1000, "b", done);
  CHECK(log.why(1000, "b")->ends_with("were left out: 2 (http.volatile_lines)"));
  CHECK(log.why(1000, "a")->find("left out") == std::string::npos);
  for (int i = 0; i < 64; ++i) log.note(1000, std::to_string(i), done);
  CHECK_FALSE(log.why(1000, "a").ok());
  CHECK(log.why(1000, "63").ok());
  for (uint32_t owner = 0; owner < 1000; ++owner) log.note(owner, "x", done);
  CHECK(log.why(999, "x").ok());
}

}  // namespace hearth::broker
