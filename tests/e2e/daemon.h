#pragma once
// The real hearthd on its own runtime directory, for one test. Every wait is bounded; processes
// that still run at destruction are killed.

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ipc/client/client.h"
#include "ipc/schema/messages.h"
#include "tests/temp_dir.h"

namespace hearth::e2e {

/// Long enough for a busy machine under a sanitizer; only a failure waits this long.
inline constexpr int kPatienceMs = 60'000;

/// Polls until it returns true; false after kPatienceMs.
bool eventually(const std::function<bool()>& condition, int every_ms = 10);

int64_t now_ms();

/// A temporary directory with model files and room for runtime directories; removed at the end.
class Sandbox {
 public:
  Sandbox();

  const std::filesystem::path& path() const { return dir_.path(); }
  std::filesystem::path models() const { return path() / "models"; }
  std::filesystem::path runtime() const { return path() / "run"; }
  std::filesystem::path state() const { return path() / "state"; }

 private:
  tests::TempDir dir_;
};

/// With HEARTH_TEST_NOISE=1 and root a second user sends small requests to a test's daemon
/// (noise.cpp).
enum class Company {
  kNoise,
  kAlone,  ///< never: the test counts all requests, connections or blocks
};

class Daemon {
 public:
  /// Starts hearthd with these `--set` assignments after the tests' own, and waits until it
  /// answers. Adds a model called "tiny" to the sandbox if it has none. `config`: its configuration
  /// file; empty: none.
  explicit Daemon(const Sandbox& sandbox, std::vector<std::string> settings = {},
                  Company company = Company::kNoise, const std::filesystem::path& config = {});
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// Its wait status; fails the test if it does not end.
  int wait_for_exit();

  /// Patient with a daemon that a busy machine keeps from running, unlike a program's defaults.
  ipc::ClientOptions client_options() const;
  ipc::Client connect() const { return connect(client_options()); }
  static ipc::Client connect(const ipc::ClientOptions& options);
  ipc::StatsReply stats() const;
  /// The pid of the one model's worker, once it is ready.
  pid_t wait_for_worker() const;
  /// No sequence is left and no block is referenced, by a snapshot taken after this call, which
  /// ends the second user's noise.
  bool wait_until_idle() const;

  const std::filesystem::path& runtime() const { return runtime_; }

 private:
  void end_noise() const;

  std::filesystem::path runtime_;
  pid_t pid_ = -1;
  mutable pid_t noise_ = -1;
};

/// Starts a program of the build; stdout and stderr go to `output`, or nowhere.
pid_t start_program(const std::vector<std::string>& argv, const std::filesystem::path& output = {});
/// Its wait status; nothing if it does not end in time.
std::optional<int> wait_for_exit(pid_t pid, int timeout_ms);
std::filesystem::path program(const std::string& name);
std::string text_of(const std::filesystem::path& file);

/// A whole answer.
struct Answer {
  std::vector<std::string> texts;         ///< per sample
  std::vector<std::vector<int32_t>> ids;  ///< per sample
  std::vector<ipc::Event> events;         ///< without the last
  std::optional<ipc::DoneEvent> done;
  std::optional<Error> error;
  int64_t retry_ms = 0;
};

/// Its error as a message; "no end" if there is neither an error nor `done`.
std::string why(const Answer& answer);

/// Runs a request to its end. `on_delta` is called after each delta was added.
Answer run(ipc::Client& client, const ipc::GenerateRequest& request,
           const std::function<void(const Answer&)>& on_delta = {});

/// Collects the answers of requests started with client.start(), until this many have ended.
std::map<std::string, Answer> collect(ipc::Client& client, int requests);

/// A request for `max_tokens` random but seeded tokens of the tiny model.
ipc::GenerateRequest seeded(uint64_t seed, int32_t max_tokens, const std::string& prompt = "the");

}  // namespace hearth::e2e
