// [roles.NAME] of hearth.toml: addresses, rules, key files, and their listing.

#include "daemon/broker/config/remote_config.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "daemon/broker/config/check.h"
#include "daemon/broker/config/config.h"
#include "daemon/broker/config/reload.h"
#include "tests/temp_dir.h"

namespace hearth::broker {
namespace {

constexpr const char* kRole =
    "[roles]\nsmall = \"tiny\"\n"
    "[roles.code]\nlocal = \"big\"\nremote = \"https://gpu.example.com:8443/v1/\"\n"
    "model = \"default\"\nwhen = \"absent or queue_ms > 5000\"\nstall_timeout_ms = 2000\n"
    "[owners.\"key:ada\"]\nremote = true\n";

void write_file(const std::filesystem::path& file, const std::string& text, mode_t mode) {
  std::ofstream(file) << text;
  REQUIRE(::chmod(file.c_str(), mode) == 0);
}

TEST_CASE("a role's remote is read, listed, and read again from its listing") {
  Config config;
  REQUIRE(apply_toml(kRole, "a.toml", &config).ok());
  CHECK(config.roles == std::map<std::string, std::string>{{"code", "big"}, {"small", "tiny"}});
  REQUIRE(config.remotes.contains("code"));
  const RemoteConfig& remote = config.remotes.at("code");
  CHECK(remote.remote == "https://gpu.example.com:8443/v1/");
  CHECK(remote.model == "default");
  CHECK(remote.stall_timeout_ms == 2000);
  CHECK(config.owners.at("key:ada").remote == true);
  REQUIRE(check_config(config).ok());

  const std::string listed = settings_as_toml(list_settings(config));
  Config again;
  const Result<void> read = apply_toml(listed, "b.toml", &again);
  REQUIRE_MESSAGE(read.ok(), read.error().message);
  CHECK(again.roles == config.roles);
  CHECK(again.remotes.at("code").when == remote.when);
  CHECK(again.owners.at("key:ada").remote == true);

  Config without;
  const ConfigChanges changes = take_over(without, &config);
  CHECK(config.remotes.empty());
  CHECK(changes.refused.empty());
}

TEST_CASE("a role without an address, a rule or a model, and unknown keys, are errors") {
  const auto error = [](const std::string& text) {
    Config config;
    if (Result<void> read = apply_toml(text, "a.toml", &config); !read) {
      return read.error().message;
    }
    const Result<void> checked = check_config(config);
    return checked.ok() ? std::string() : checked.error().message;
  };
  const std::string good = "[roles.code]\nremote = \"https://a/v1\"\nmodel = \"m\"\n";
  CHECK(error(good + "when = \"absent\"\n").empty());
  CHECK(error("[roles.code]\nlocal = \"big\"\n").find("roles.code.remote: absent") !=
        std::string::npos);
  CHECK(error(good).find("roles.code.when: met \"\", want \"absent\"") != std::string::npos);
  CHECK(error(good + "when = \"later\"\n").find("roles.code.when") != std::string::npos);
  CHECK(error("[roles.code]\nremote = \"https://a/v1\"\nwhen = \"absent\"\n")
            .find("roles.code.model: absent") != std::string::npos);
  CHECK(error(good + "key = \"x\"\n").find("unknown key roles.code.key") != std::string::npos);
  CHECK(error(good + "when = \"absent\"\nkey_file = \"/nowhere\"\n")
            .find("roles.code.key_file: /nowhere: cannot be opened") != std::string::npos);
}

TEST_CASE("rules") {
  const RemoteRule both = parse_remote_rule("absent or queue_ms > 5000").value();
  CHECK(both.absent);
  CHECK(both.queue_ms == 5000);
  CHECK_FALSE(parse_remote_rule("queue_ms>0").value().absent);
  CHECK(parse_remote_rule(" absent ").value().queue_ms == -1);
  for (const char* wrong :
       {"", "or", "absent or", "absent or absent", "queue_ms < 5", "queue_ms > -1", "queue_ms > 5s",
        "queue_ms > 99999999999", "queue_ms > 1 or queue_ms > 2", "always"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_remote_rule(wrong).ok());
  }
}

TEST_CASE("addresses: TLS, or this machine") {
  const RemoteUrl url = parse_remote_url("https://gpu.example.com:8443/v1/").value();
  CHECK(url.tls);
  CHECK(url.host == "gpu.example.com:8443");
  CHECK(url.path == "/v1");
  CHECK(parse_remote_url("http://127.0.0.1:8080/v1").value().host == "127.0.0.1:8080");
  CHECK(parse_remote_url("http://[::1]:8080").ok());
  CHECK(parse_remote_url("http://localhost").value().path.empty());
  const auto open = parse_remote_url("http://192.0.2.1/v1");
  REQUIRE_FALSE(open.ok());
  CHECK(open.error().message.find("in the open") != std::string::npos);
  for (const char* wrong :
       {"", "gpu.example.com", "ftp://a", "https://", "https:///v1", "https://user@a/v1",
        "https://a:0", "https://a:70000", "https://a:", "https://a/v1?x=1", "https://a/v1#x",
        "https://a b", "https://a/\r\nx", "http://127.0.0.1.example.com", "http://localhost.x",
        "https://[::1", "https://[x]"}) {
    CAPTURE(wrong);
    CHECK_FALSE(parse_remote_url(wrong).ok());
  }
}

TEST_CASE("key files: an owner, a mode, one line; no error quotes them") {
  const tests::TempDir dir;
  const auto file = dir.path() / "key";
  write_file(file, "  secret-1234\n", 0600);
  CHECK(read_remote_key(file).value() == "secret-1234");
  write_file(file, "secret-1234", 0640);
  CHECK(read_remote_key(file).ok());
  for (const mode_t mode : {0644, 0604, 0660, 0602}) {
    write_file(file, "secret-1234", mode);
    const Result<std::string> read = read_remote_key(file);
    REQUIRE_FALSE(read.ok());
    CHECK(read.error().code == ErrorCode::kForbidden);
  }
  for (const std::string& text :
       {std::string(), std::string("\n"), std::string("secret one"), std::string("secret\nsecret"),
        std::string("secret\x01"), std::string(5000, 's')}) {
    write_file(file, text, 0600);
    const Result<std::string> read = read_remote_key(file);
    REQUIRE_FALSE(read.ok());
    CHECK(read.error().message.find("secret") == std::string::npos);
  }
  CHECK(read_remote_key(dir.path()).error().code == ErrorCode::kInvalidArgument);
  write_file(file, "no certificate", 0644);
  CHECK_FALSE(read_remote_certificates(file).ok());
}

}  // namespace
}  // namespace hearth::broker
