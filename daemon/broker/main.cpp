// hearthd: reads its configuration and runs the broker.

#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "daemon/broker/broker.h"
#include "daemon/broker/config/check.h"
#include "daemon/broker/config/config.h"
#include "daemon/broker/process/turns.h"
#include "ipc/files/paths.h"
#include "ipc/schema/version.h"
#include "kernels/base/log.h"
#include "kernels/base/log_level.h"

namespace hearth::broker {
namespace {

constexpr rlim_t kWantedDescriptors = 16384;

struct Flags {
  std::string config_file;
  std::string runtime_dir;
  std::vector<std::string> model_dirs;
  std::string log_level;
  std::vector<std::string> assignments;
  bool allow_root = false;
  bool check = false;
  bool print_config = false;
};

// Flags over environment over file over defaults.
Result<Config> read_config(const Flags& flags) {
  const ipc::Environment environment = ipc::Environment::of_process();
  HEARTH_ASSIGN_OR_RETURN(const ipc::Paths paths, ipc::resolve_paths(environment));
  Config config;
  config.server.runtime_dir = paths.runtime;
  config.server.state_dir = paths.state;
  config.server.model_dirs = paths.model_dirs;
  const bool named = !flags.config_file.empty() || !environment.variable("HEARTH_CONFIG").empty();
  const std::filesystem::path file =
      flags.config_file.empty() ? paths.config_file : std::filesystem::path(flags.config_file);
  std::error_code ignored;
  if (named || std::filesystem::exists(file, ignored)) HEARTH_TRY(apply_file(file, &config));
  HEARTH_TRY(apply_environment(environment, paths, &config));
  for (const std::string& assignment : flags.assignments) {
    HEARTH_TRY(apply_assignment(assignment, &config));
  }
  if (!flags.runtime_dir.empty()) {
    config.server.runtime_dir = flags.runtime_dir;
    config.sources["server.runtime_dir"] = "--runtime-dir";
  }
  if (!flags.model_dirs.empty()) {
    config.server.model_dirs.assign(flags.model_dirs.begin(), flags.model_dirs.end());
    config.sources["server.model_dirs"] = "--model-dir";
  }
  if (!flags.log_level.empty()) {
    parse_log_level(flags.log_level, &config.server.log_level);
    config.sources["server.log_level"] = "--log-level";
  }
  return config;
}

// Raises the descriptor limit to its maximum, for connections, and disables core dumps, which would
// contain users' prompts.
void raise_limits() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < kWantedDescriptors) {
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, kWantedDescriptors);
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  if (::getrlimit(RLIMIT_CORE, &limit) == 0) {
    limit.rlim_cur = 0;
    ::setrlimit(RLIMIT_CORE, &limit);
  }
}

int fail(const Error& error) {
  std::fprintf(stderr, "hearthd: %s\n", error.message.c_str());
  return 1;
}

int run(int argc, char** argv) {
  Flags flags;
  CLI::App app("hearthd: keeps language models warm and serves them to local programs");
  app.set_version_flag("--version", std::string(ipc::version()));
  app.add_option("--config", flags.config_file, "configuration file (see hearth.toml)");
  app.add_option("--runtime-dir", flags.runtime_dir, "directory of the sockets");
  app.add_option("--model-dir", flags.model_dirs, "directory of models; may be repeated");
  app.add_option("--log-level", flags.log_level)
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
  app.add_option("--set", flags.assignments, "one setting: section.key=value; may be repeated");
  app.add_flag("--allow-root", flags.allow_root, "run as root all the same");
  app.add_flag("--check", flags.check, "read the configuration, report, and exit");
  app.add_flag("--print-config", flags.print_config,
               "print every setting and where it came from, and exit");
  CLI11_PARSE(app, argc, argv);

  Result<Config> config = read_config(flags);
  if (!config) return fail(config.error());
  if (flags.check || !flags.print_config) {
    if (const Result<void> checked = check_config(*config); !checked) return fail(checked.error());
  }
  if (flags.check) {
    std::printf("configuration is valid; sockets in %s\n", config->server.runtime_dir.c_str());
    return 0;
  }
  if (flags.print_config) {
    std::fputs(settings_as_toml(list_settings(*config)).c_str(), stdout);
    return 0;
  }
  const char* insists = std::getenv("HEARTH_ALLOW_ROOT");
  const bool allowed = flags.allow_root || (insists != nullptr && std::string_view(insists) == "1");
  if (::geteuid() == 0 && !allowed) {
    return fail(Error::forbidden(
        "refusing to run as root: reading models and answering programs needs no such "
        "rights. The service has a user of its own (systemctl start hearth); any other "
        "user will do; --allow-root (or HEARTH_ALLOW_ROOT=1) insists"));
  }
  ::signal(SIGPIPE, SIG_IGN);
  raise_limits();
  init_logging("hearthd", config->server.log_level);
  take_short_turns();  // before the socket library starts its threads
  Result<std::unique_ptr<Broker>> broker =
      Broker::create(*config, [flags] { return read_config(flags); });
  if (!broker) return fail(broker.error());
  (*broker)->run();
  return 0;
}

}  // namespace
}  // namespace hearth::broker

int main(int argc, char** argv) {
  hearth::reserve_standard_descriptors();
  // By default glibc raises this threshold to the largest block freed so far and keeps such blocks,
  // so the memory of one large request would never return to the system.
  ::mallopt(M_MMAP_THRESHOLD, 256 << 10);
  return hearth::broker::run(argc, argv);
}
