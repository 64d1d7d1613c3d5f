#include "ipc/cli/doctor/doctor_worker.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "ipc/wire/json.h"
#include "kernels/base/numbers.h"

extern char** environ;

namespace hearth::cli {
namespace {

constexpr auto kDoctorPatience = std::chrono::seconds(10);
constexpr size_t kMaxOutputBytes = 1 << 20;
constexpr std::array<std::string_view, 3> kLevelNames = {"ok", "warn", "fail"};

std::string text_of(const ipc::Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Reads `fd` until its other end closes.
Result<std::string> read_until_closed(int fd) {
  const auto give_up = std::chrono::steady_clock::now() + kDoctorPatience;
  std::string out;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        give_up - std::chrono::steady_clock::now());
    if (left.count() <= 0) return Error::io("did not end within 10 s");
    pollfd waiting{fd, POLLIN, 0};
    if (::poll(&waiting, 1, narrow<int>(left.count())) <= 0) continue;
    char chunk[4096];
    const ssize_t n = ::read(fd, chunk, sizeof chunk);
    if (n == 0) return out;
    if (n < 0 && errno != EINTR) return Error::io(std::strerror(errno));
    if (n > 0) out.append(chunk, n);
    if (out.size() > kMaxOutputBytes) return Error::io("wrote more than 1 MiB");
  }
}

}  // namespace

std::string_view name(Level level) { return kLevelNames[to_underlying(level)]; }

Result<std::vector<Check>> parse_worker_checks(std::string_view json) {
  HEARTH_ASSIGN_OR_RETURN(const ipc::Json object,
                          ipc::parse_json_object(json, {.max_bytes = kMaxOutputBytes}));
  const auto list = object.find("checks");
  if (list == object.end() || !list->is_array()) {
    return Error::protocol("checks: want a list", "checks");
  }
  std::vector<Check> checks;
  for (const ipc::Json& item : *list) {
    if (!item.is_object()) return Error::protocol("checks: want objects", "checks");
    const std::string level = text_of(item, "level");
    Check check{Level::kWarn, text_of(item, "name"), text_of(item, "detail")};
    for (size_t i = 0; i < kLevelNames.size(); ++i) {
      if (kLevelNames[i] == level) check.level = static_cast<Level>(i);
    }
    checks.push_back(std::move(check));
  }
  return checks;
}

Result<ProgramOutput> run_and_read(const std::filesystem::path& program,
                                   const std::vector<std::string>& words) {
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) != 0) return Error::io(std::strerror(errno));
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDERR_FILENO);
  std::vector<std::string> all = {program.string()};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& word : all) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int problem = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(pipe_fds[1]);
  if (problem != 0) {
    ::close(pipe_fds[0]);
    return Error::io(std::strerror(problem));
  }
  Result<std::string> output = read_until_closed(pipe_fds[0]);
  ::close(pipe_fds[0]);
  if (!output.ok()) ::kill(pid, SIGKILL);
  int how = 0;
  while (::waitpid(pid, &how, 0) < 0 && errno == EINTR) {
  }
  if (!output.ok()) return output.take_error();
  if (WIFSIGNALED(how)) return Error::io(fmt::format("ended by signal {}", WTERMSIG(how)));
  return ProgramOutput{std::move(output).value(), WEXITSTATUS(how)};
}

Result<std::vector<Check>> ask_worker(const std::filesystem::path& program) {
  Result<ProgramOutput> output = run_and_read(program, {"doctor", "--json"});
  if (!output.ok()) return output.take_error();
  // The answer is one line; log lines may come before and after it.
  const std::string_view text = output->text;
  const size_t begin = text.starts_with('{') ? 0 : text.find("\n{") + 1;
  return parse_worker_checks(text.substr(begin, text.find('\n', begin) - begin));
}

std::string checks_as_json(const std::vector<Check>& checks) {
  ipc::Json list = ipc::Json::array();
  for (const Check& check : checks) {
    ipc::Json object = ipc::Json::object();
    object["level"] = std::string(name(check.level));
    object["name"] = check.name;
    object["detail"] = check.detail;
    list.push_back(std::move(object));
  }
  ipc::Json whole = ipc::Json::object();
  whole["checks"] = std::move(list);
  return ipc::dump_json(whole);
}

}  // namespace hearth::cli
