#include "ipc/files/paths.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "tests/temp_dir.h"

namespace fs = std::filesystem;

namespace hearth::ipc {
namespace {

Environment environment_of(std::map<std::string, std::string> variables) {
  Environment environment;
  environment.variable = [variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
  environment.home = "/home/ada";
  environment.program = "/opt/hearth/bin/hearth";
  return environment;
}

TEST_CASE("a user's files are where XDG puts them, or at its defaults") {
  const auto plain = resolve_paths(environment_of({}));
  REQUIRE(plain.ok());
  CHECK_FALSE(plain->service);
  CHECK(plain->runtime == "/home/ada/.cache/hearth/run");
  CHECK(plain->state == "/home/ada/.local/state/hearth");
  CHECK(plain->config_file == "/home/ada/.config/hearth/hearth.toml");
  CHECK(plain->model_dirs == std::vector<fs::path>{"/home/ada/.local/share/hearth/models",
                                                   "/var/lib/hearth/models",
                                                   "/opt/hearth/share/hearth/models"});

  const auto xdg = resolve_paths(environment_of({{"XDG_RUNTIME_DIR", "/run/user/1000"},
                                                 {"XDG_STATE_HOME", "/s"},
                                                 {"XDG_CONFIG_HOME", "relative"},
                                                 {"XDG_DATA_HOME", "/d"}}));
  REQUIRE(xdg.ok());
  CHECK(xdg->runtime == "/run/user/1000/hearth");
  CHECK(xdg->state == "/s/hearth");
  CHECK(xdg->config_file == "/home/ada/.config/hearth/hearth.toml");
  CHECK(xdg->model_dirs[0] == "/d/hearth/models");
}

TEST_CASE("the environment takes precedence, and must be absolute") {
  const auto given = resolve_paths(environment_of({{"HEARTH_RUNTIME_DIR", "/r"},
                                                   {"HEARTH_STATE_DIR", "/s"},
                                                   {"HEARTH_CONFIG", "/c/hearth.toml"},
                                                   {"HEARTH_MODEL_DIRS", "/a:/b::"}}));
  REQUIRE(given.ok());
  CHECK(given->runtime == "/r");
  CHECK(given->state == "/s");
  CHECK(given->config_file == "/c/hearth.toml");
  CHECK(given->model_dirs == std::vector<fs::path>{"/a", "/b"});
  for (const char* name :
       {"HEARTH_RUNTIME_DIR", "HEARTH_STATE_DIR", "HEARTH_CONFIG", "HEARTH_MODEL_DIRS"}) {
    const auto bad = resolve_paths(environment_of({{name, "here/there"}}));
    REQUIRE_FALSE(bad.ok());
    CHECK(bad.error().field == name);
  }
}

TEST_CASE("the service uses its own directory where it exists") {
  tests::TempDir temp;
  Environment environment = environment_of({});
  environment.root = temp.path();
  environment.service_user = true;
  CHECK_FALSE(resolve_paths(environment)->service);
  fs::create_directories(temp.path() / "run/hearth");
  const auto service = resolve_paths(environment);
  CHECK(service->service);
  CHECK(service->runtime == temp.path() / "run/hearth");
  CHECK(service->config_file == temp.path() / "etc/hearth/hearth.toml");
  CHECK(service->model_dirs[0] == temp.path() / "var/lib/hearth/models");
  CHECK(client_runtime_dirs(environment) == std::vector<fs::path>{temp.path() / "run/hearth"});

  environment.service_user = false;
  CHECK_FALSE(resolve_paths(environment)->service);
  CHECK(client_runtime_dirs(environment) ==
        std::vector<fs::path>{"/home/ada/.cache/hearth/run", temp.path() / "run/hearth"});
  CHECK(client_runtime_dirs(environment_of({{"HEARTH_RUNTIME_DIR", "/r"}})) ==
        std::vector<fs::path>{"/r"});
}

TEST_CASE("a runtime directory is private or refused") {
  tests::TempDir temp;
  const fs::path made = temp.path() / "a/b/run";
  REQUIRE(ensure_private_dir(made).ok());
  CHECK(ensure_private_dir(made).ok());
  CHECK((fs::status(made).permissions() & fs::perms::mask) == fs::perms::owner_all);
  const fs::path group = temp.path() / "group";
  const mode_t old_mask = ::umask(0077);
  REQUIRE(ensure_private_dir(group, 0750).ok());
  ::umask(old_mask);
  CHECK((fs::status(group).permissions() & fs::perms::mask) == fs::perms(0750));

  for (const mode_t mode : {0755, 0770, 0777, 0701}) {
    fs::permissions(made, fs::perms(mode));
    const auto wide = ensure_private_dir(made);
    REQUIRE_FALSE(wide.ok());
    CHECK(wide.error().code == ErrorCode::kForbidden);
  }
  fs::permissions(made, fs::perms(0700));
  fs::create_directory_symlink(made, temp.path() / "link");
  CHECK(ensure_private_dir(temp.path() / "link").error().code == ErrorCode::kForbidden);
  std::ofstream(temp.path() / "file") << "x";
  CHECK(ensure_private_dir(temp.path() / "file").error().code == ErrorCode::kForbidden);
  CHECK(ensure_private_dir(temp.path() / "file/below").error().code == ErrorCode::kIo);
  CHECK_FALSE(ensure_private_dir("relative/path").ok());
}

TEST_CASE("a socket path that the system cannot hold is an error") {
  CHECK(*ipc_endpoint("/run/hearth/api.sock") == "ipc:///run/hearth/api.sock");
  const std::string longest = "/" + std::string(kMaxSocketPathBytes - 1, 'x');
  CHECK(ipc_endpoint(longest).ok());
  const auto over = ipc_endpoint(longest + "x");
  REQUIRE_FALSE(over.ok());
  CHECK(over.error().message.find("108 bytes") != std::string::npos);
}

}  // namespace
}  // namespace hearth::ipc
