// hearth doctor: what hearth would use on this machine, and why; one line per finding.

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ipc/cli/connect/connection.h"
#include "ipc/cli/connect/program.h"
#include "ipc/cli/doctor/doctor_worker.h"
#include "ipc/cli/doctor/machine.h"
#include "ipc/cli/terminal/terminal.h"
#include "ipc/cli/verbs/verbs.h"
#include "ipc/files/model_file.h"
#include "ipc/files/paths.h"
#include "ipc/schema/version.h"
#include "ipc/wire/probe.h"
#include "kernels/base/numbers.h"
#include "kernels/base/split_name.h"

namespace hearth::cli {
namespace fs = std::filesystem;
namespace {

class Findings {
 public:
  void ok(std::string name, std::string detail) {
    add(Level::kOk, std::move(name), std::move(detail));
  }
  void warn(std::string name, std::string detail) {
    add(Level::kWarn, std::move(name), std::move(detail));
  }
  void fail(std::string name, std::string detail) {
    add(Level::kFail, std::move(name), std::move(detail));
  }
  void add(Level level, std::string name, std::string detail) {
    checks_.push_back({level, std::move(name), std::move(detail)});
  }
  const std::vector<Check>& checks() const { return checks_; }

 private:
  std::vector<Check> checks_;
};

void look_at_cpu(Findings& out) {
  const CpuFacts cpu = parse_cpuinfo(read_small_file("/proc/cpuinfo").value_or(""));
  cpu_set_t allowed;
  int usable = cpu.num_threads;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) usable = CPU_COUNT(&allowed);
  const std::string features = useful_features(cpu);
  const std::string detail = fmt::format(
      "{}, {} cores, {} threads of which {} may be used; {}",
      cpu.model.empty() ? "model not named" : cpu.model,
      cpu.num_cores > 0 ? fmt::format("{}", cpu.num_cores) : "?", cpu.num_threads, usable,
      features.empty() ? "no vector instructions that hearth knows: the plain path" : features);
  out.add(features.empty() ? Level::kWarn : Level::kOk, "cpu", detail);
}

void look_at_workers(Findings& out) {
  const fs::path cpu = find_program("hearth-worker-cpu");
  if (cpu.empty()) {
    out.fail("worker",
             "hearth-worker-cpu is neither next to hearth nor on PATH: nothing can compute");
  }
  const fs::path cuda = find_program("hearth-worker-cuda");
  if (cuda.empty()) {
    out.ok("gpu", "no hearth-worker-cuda installed: the CPU computes");
  }
  for (const fs::path& program : {cpu, cuda}) {
    if (program.empty()) continue;
    const std::string label = program.filename().string();
    Result<std::vector<Check>> checks = ask_worker(program);
    if (!checks.ok()) {
      out.warn(label, fmt::format("{}: asked for its doctor, {}", program.string(),
                                  checks.error().message));
      continue;
    }
    for (const Check& check : *checks) {
      if (program == cpu) {
        out.add(check.level, check.name, check.detail);
      } else if (check.level == Level::kFail) {
        // With worker.device = auto the CPU computes; with a GPU configured this is reported as
        // well.
        out.warn("gpu " + check.name, check.detail);
      } else {
        out.add(check.level, "gpu " + check.name, check.detail);
      }
    }
  }
}

/// Checks that every program of the installation exists and that all have the same version, because
/// programs of different versions do not understand each other.
void look_at_installation(Findings& out) {
  struct Part {
    const char* name;
    const char* without;
  };
  constexpr Part kParts[] = {{"hearthd", "no daemon can be started"},
                             {"hearth-worker-cpu", "nothing can compute"},
                             {"hearth-pull", "models cannot be fetched"}};
  for (const Part& part : kParts) {
    const fs::path program = find_program(part.name);
    const bool needed = part.name != std::string_view("hearth-pull");
    if (program.empty()) {
      out.add(needed ? Level::kFail : Level::kWarn, "installation",
              fmt::format("no {} next to hearth, in ../libexec/hearth or on PATH: {}", part.name,
                          part.without));
      continue;
    }
    Result<ProgramOutput> output = run_and_read(program, {"--version"});
    if (!output.ok() || output->status != 0) {
      out.fail("installation", fmt::format("{} --version: {}", program.string(),
                                           output.ok() ? output->text : output.error().message));
      continue;
    }
    while (!output->text.empty() && output->text.back() == '\n') output->text.pop_back();
    const bool same = output->text.find(ipc::version()) != output->text.npos;
    out.add(same ? Level::kOk : Level::kFail, "installation",
            fmt::format("{} {}{}", program.string(), output->text,
                        same ? "" : fmt::format(", but this is hearth {}", ipc::version())));
  }
}

/// What the daemon would report about its configuration, were it started now.
void look_at_configuration(Findings& out) {
  const fs::path program = find_program("hearthd");
  if (program.empty()) return;
  Result<ProgramOutput> output = run_and_read(program, {"--check"});
  if (!output.ok()) return out.warn("configuration", output.error().message);
  while (!output->text.empty() && output->text.back() == '\n') output->text.pop_back();
  out.add(output->status == 0 ? Level::kOk : Level::kFail, "configuration", output->text);
}

/// The service, where one is installed.
void look_at_service(Findings& out) {
  constexpr const char* kUnits[] = {"/lib/systemd/system/hearth.service",
                                    "/usr/lib/systemd/system/hearth.service",
                                    "/etc/systemd/system/hearth.service"};
  for (const char* unit : kUnits) {
    std::error_code ignored;
    if (!fs::exists(unit, ignored)) continue;
    const group* members = ::getgrnam("hearth");
    const bool there = ::getpwnam("hearth") != nullptr && members != nullptr;
    if (!there) {
      return out.fail("service", fmt::format("{}, but user or group hearth does not exist "
                                             "(systemd-sysusers hearth.conf makes them)",
                                             unit));
    }
    gid_t groups[256];
    const int count = ::getgroups(256, groups);
    bool may = ::geteuid() == 0 || ::getegid() == members->gr_gid;
    for (int i = 0; i < count; ++i) may = may || groups[i] == members->gr_gid;
    return out.add(may ? Level::kOk : Level::kWarn, "service",
                   may ? fmt::format("{}; you may reach its socket", unit)
                       : fmt::format("{}; to reach its socket you need the group hearth "
                                     "(adduser NAME hearth, then log in again)",
                                     unit));
  }
  out.ok("service", "no system service is installed; daemons are users' own");
}

void look_at_memory(Findings& out) {
  const MemoryFacts memory = parse_meminfo(read_small_file("/proc/meminfo").value_or(""));
  const bool little = memory.available_bytes < uint64_t{1} << 30;
  out.add(little ? Level::kWarn : Level::kOk, "memory",
          fmt::format("{} available of {}; a model needs its file's size and room for KV",
                      human_bytes(memory.available_bytes), human_bytes(memory.total_bytes)));
  const std::string pages =
      parse_choice(read_small_file("/sys/kernel/mm/transparent_hugepage/enabled").value_or(""));
  const bool huge = pages == "always" || pages == "madvise";
  out.add(huge ? Level::kOk : Level::kWarn, "huge pages",
          huge ? fmt::format("transparent huge pages: {}; weights use them", pages)
               : fmt::format("transparent huge pages: {}; weights are read a few percent slower "
                             "(want always or madvise in "
                             "/sys/kernel/mm/transparent_hugepage/enabled)",
                             pages.empty() ? "not known" : pages));
}

std::string limit_text(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : fmt::format("{}", limit);
}

void look_at_limits(Findings& out) {
  rlimit files{}, locked{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  ::getrlimit(RLIMIT_MEMLOCK, &locked);
  constexpr rlim_t kFilesWanted = 1024;  // a few per client, and some of our own
  out.add(files.rlim_cur >= kFilesWanted ? Level::kOk : Level::kWarn, "open files",
          fmt::format("limit {}, want {} or more (ulimit -n)", limit_text(files.rlim_cur),
                      kFilesWanted));
  out.ok(
      "locked memory",
      fmt::format("limit {}; hearth locks none, weights stay in ordinary memory",
                  locked.rlim_cur == RLIM_INFINITY ? "unlimited" : human_bytes(locked.rlim_cur)));
}

/// The nearest parent that exists: its permissions decide whether `path` can be created.
fs::path existing_parent(fs::path path) {
  std::error_code ignored;
  while (!path.empty() && path != path.root_path() && !fs::exists(path, ignored)) {
    path = path.parent_path();
  }
  return path;
}

void look_at_private_dir(Findings& out, const std::string& label, const fs::path& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) {
    const fs::path parent = existing_parent(path);
    const bool can = ::access(parent.c_str(), W_OK | X_OK) == 0;
    out.add(can ? Level::kOk : Level::kFail, label,
            can ? fmt::format("{} will be made when a daemon starts", path.string())
                : fmt::format("{} is absent and {} may not be written", path.string(),
                              parent.string()));
    return;
  }
  // It exists, so this call creates nothing and makes the same check as the daemon.
  const Result<void> checked = ipc::ensure_private_dir(path);
  if (checked.ok()) {
    out.ok(label, fmt::format("{} is private", path.string()));
  } else {
    out.fail(label, checked.error().message);
  }
}

void look_at_models(Findings& out, const ipc::Paths& paths) {
  int num_models = 0;
  for (const fs::path& dir : paths.model_dirs) {
    std::error_code problem;
    if (!fs::is_directory(dir, problem)) continue;
    if (fs::directory_iterator(dir, problem); problem) {
      out.warn("models", fmt::format("{}: {}", dir.string(), problem.message()));
      continue;
    }
    for (const ipc::FoundModel& model : ipc::list_model_files({dir}).models) {
      const std::vector<fs::path> parts = parts_of_model(model.path);
      std::string bad = model.problem;
      for (const fs::path& part : parts) {
        if (bad.empty() && ::access(part.c_str(), R_OK) != 0) bad = "not readable by you";
      }
      if (bad.empty()) ++num_models;
      const std::string size = human_bytes(model.bytes) +
                               (parts.size() > 1 ? fmt::format(" in {} files", parts.size()) : "");
      out.add(bad.empty() ? Level::kOk : Level::kWarn, "model",
              fmt::format("{}{}", model.path.string(), bad.empty() ? ", " + size : ": " + bad));
    }
  }
  if (num_models > 0) return;
  std::string folders;
  for (const fs::path& dir : paths.model_dirs) folders += " " + dir.string();
  out.warn("models", "none found; put .gguf files into one of:" + folders);
}

void look_at_daemon(Findings& out) {
  Result<ipc::Client> client = ipc::Client::connect();
  if (!client.ok()) {
    const bool startable = !find_program("hearthd").empty();
    out.add(startable ? Level::kOk : Level::kFail, "daemon",
            fmt::format("{}; {}", client.error().message,
                        startable ? "hearth run starts one"
                                  : "and hearthd is neither next to hearth nor on PATH"));
    return;
  }
  const ipc::PongReply& pong = client->daemon();
  out.add(pong.version == ipc::version() ? Level::kOk : Level::kWarn, "daemon",
          fmt::format("hearthd {} answers in {}, pid {}, up {}{}", pong.version,
                      client->runtime_dir().string(), pong.pid, human_duration(pong.uptime_ms),
                      pong.version == ipc::version()
                          ? std::string()
                          : fmt::format("; this is hearth {}", ipc::version())));
  const Result<ipc::HealthReply> health = client->health();
  if (!health.ok()) {
    out.warn("health", health.error().message);
  } else if (health->status != "ok") {
    out.warn("health", fmt::format("{}: {}", health->status, fmt::join(health->problems, "; ")));
  }
}

void print(const std::vector<Check>& checks) {
  const bool colour = stdout_is_terminal();
  for (const Check& check : checks) {
    constexpr const char* kColours[] = {"\x1b[32m", "\x1b[33m", "\x1b[31m"};
    const std::string level = fmt::format("{:<5}", name(check.level));
    write_stdout((colour ? kColours[to_underlying(check.level)] + level + "\x1b[0m" : level) +
                 terminal_safe(fmt::format(" {:<16} {}", check.name, check.detail)) + "\n");
  }
}

}  // namespace

int doctor(bool json) {
  Findings out;
  out.ok("hearth", fmt::format("version {}", ipc::version()));
  look_at_installation(out);
  look_at_configuration(out);
  look_at_service(out);
  look_at_cpu(out);
  look_at_workers(out);
  look_at_memory(out);
  look_at_limits(out);
  const Result<ipc::Paths> paths = ipc::resolve_paths(ipc::Environment::of_process());
  if (paths.ok()) {
    look_at_private_dir(out, "runtime folder", paths->runtime);
    look_at_private_dir(out, "state folder", paths->state);
    look_at_models(out, *paths);
    look_at_daemon(out);
  } else {
    out.fail("folders", paths.error().message);
  }
  if (json) {
    write_stdout(checks_as_json(out.checks()) + "\n");
  } else {
    print(out.checks());
  }
  for (const Check& check : out.checks()) {
    if (check.level == Level::kFail) return kFailed;
  }
  return kOk;
}

}  // namespace hearth::cli
