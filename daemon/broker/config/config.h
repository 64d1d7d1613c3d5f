#pragma once
// hearth.toml as plain data: every setting of the broker and of the workers it starts, with unit,
// range and default. Read once at start; order of precedence: flags, environment, file, default.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/files/paths.h"
#include "ipc/schema/serve_settings.h"
#include "kernels/base/log.h"
#include "kernels/base/result.h"

namespace hearth::broker {

struct ServerConfig {
  std::filesystem::path runtime_dir;  ///< sockets and lock; "": as ipc/files/paths.h says
  std::filesystem::path state_dir;    ///< prefixes on disk; "": as ipc/files/paths.h says
  std::vector<std::filesystem::path>
      model_dirs;           ///< searched in order; empty: as ipc/files/paths.h says
  std::string admin_group;  ///< its members see and cancel everybody's requests; "": nobody
  LogLevel log_level = LogLevel::kInfo;
  int64_t drain_timeout_ms = 30'000;  ///< after SIGTERM, until live requests are given up
  /// When the service is ready: "loaded" (the default role's model is), "idle" (at once), "auto"
  /// (loaded where a service manager waits, else idle).
  std::string start = "auto";
  std::string tcp;  ///< "127.0.0.1:7117": also listen there, with CURVE; "": on ipc alone
  std::filesystem::path tcp_secret_file;   ///< the daemon's key, as hearth keygen writes it
  std::filesystem::path tcp_clients_file;  ///< public keys that may connect, and as which user
  std::string sleep_closes = "gpu";  ///< workers that end before the machine sleeps: gpu, all, none
};

/// Bounds on what clients may ask of the broker.
struct LimitsConfig {
  int64_t max_message_bytes = 32 << 20;  ///< one request, all frames
  int64_t max_requests = 256;            ///< live requests of everybody
  int64_t max_requests_per_owner = 128;
  int64_t max_queued_bytes = 256 << 20;  ///< request bytes held, of everybody
  int64_t max_queued_bytes_per_owner = 128 << 20;
  int64_t max_output_tokens_per_owner = 0;   ///< that live requests may still make; 0: no bound
  int64_t output_buffer_bytes = 4 << 20;     ///< answers waiting for one slow connection
  int64_t max_connections = 1024;            ///< to api.sock, as far as descriptors allow
  int64_t max_connections_per_owner = 256;   ///< of one user
  int64_t max_resident = 8;                  ///< models in memory at once
  int64_t attach_bytes_per_owner = 8 << 20;  ///< answers kept for `attach`, of one owner
  int64_t attach_bytes = 64 << 20;           ///< and of everybody
  int64_t attach_keep_ms = 300'000;          ///< so long after a request's end
};

/// Which models are in memory, and for how long.
struct ResidencyConfig {
  int64_t memory_bytes = 0;           ///< for all of them; 0: what is free when one is loaded
  int64_t keep_alive_ms = 1'800'000;  ///< idle, a model leaves after so long; 0: never
  int64_t turn_ms = 10'000;    ///< a model in use keeps its place so long when others wait for it
  bool load_on_demand = true;  ///< requests load what is not there; else only administrators
};

/// How workers are started and watched, and the settings that they are given.
struct WorkerConfig : ipc::EngineSettings {
  /// "": hearth-worker-<device> next to hearthd, in ../libexec/hearth, or on PATH.
  std::filesystem::path program;
  int64_t heartbeat_timeout_ms = 60'000;  ///< without a heartbeat for this long it is killed
  int64_t load_timeout_ms = 300'000;      ///< and without progress in loading
  int64_t restart_delay_ms = 100;         ///< after a death; doubles with each in a row
  int64_t restart_delay_max_ms = 30'000;
};

/// Prefixes: how far those of each owner may go, and how much disk all databases take together.
struct CacheConfig {
  std::string tier = "disk";                  ///< off, memory, disk: what requests may ask for
  int64_t disk_bytes = int64_t{32} << 30;     ///< databases that no worker has open go beyond it
  std::map<std::string, std::string> owners;  ///< "uid:1000" -> off, memory, disk: instead of tier
  /// What a request of that owner gets that asks for `wanted`.
  const std::string& allowed(const std::string& owner, const std::string& wanted) const {
    const auto found = owners.find(owner);
    const std::string& most = found == owners.end() ? tier : found->second;
    const auto rank = [](const std::string& name) { return name == "disk" ? 2 : name == "memory"; };
    return rank(wanted) < rank(most) ? wanted : most;
  }
};

/// The HTTP front door: $RUNTIME/http.sock, and TCP where it is asked for.
struct HttpConfig {
  bool enabled = true;
  std::string listen;                        ///< "127.0.0.1:8080", loopback alone; "": no TCP
  std::filesystem::path keys_file;           ///< who may use TCP; "": the daemon's own user alone
  std::vector<std::string> allowed_hosts;    ///< besides localhost and the address
  std::vector<std::string> allowed_origins;  ///< of pages in a browser; none by default
  int64_t max_connections = 256;
  int64_t header_timeout_ms = 10'000;  ///< from a request's first byte to the end of its head
  int64_t body_timeout_ms = 60'000;    ///< for its body
  int64_t idle_timeout_ms = 60'000;    ///< between requests
  int64_t write_timeout_ms = 60'000;   ///< a reader that takes nothing for so long is given up
};

/// How tokens are drawn where neither a request nor the model's file says.
struct SamplingConfig {
  /// Field of a generate request -> number; of all models under "", of one under its name.
  std::map<std::string, std::map<std::string, double>> models;
  /// The settings of one model.
  ipc::SamplingSettings of(const std::string& model) const;
};

struct Config {
  ServerConfig server;
  HttpConfig http;
  LimitsConfig limits;
  ResidencyConfig residency;
  WorkerConfig worker;
  CacheConfig cache;
  SamplingConfig sampling;
  std::map<std::string, std::string> roles;      ///< role -> model name
  std::map<std::string, int64_t> keep_alive_ms;  ///< model name -> instead of residency's
  /// "section.key" -> where its value was set: "/etc/hearth/hearth.toml:12", "environment
  /// HEARTH_LOG", "--set ..."; absent: a default.
  std::map<std::string, std::string> sources;
};

/// Reads `text` (TOML) over `config`: keys that are absent keep their value. Errors are
/// kInvalidArgument and begin with "<source>:<line>:<column>: ". Unknown keys are errors.
Result<void> apply_toml(std::string_view text, std::string_view source, Config* config);

/// apply_toml of a file; kIo when it cannot be read.
Result<void> apply_file(const std::filesystem::path& file, Config* config);

/// One override of the command line: `limits.max_requests=4`. A value that is not valid TOML is
/// taken as a string, so `--set worker.kv_type=f32` needs no quotes.
Result<void> apply_assignment(std::string_view assignment, Config* config);

/// What HEARTH_RUNTIME_DIR, HEARTH_MODEL_DIRS (both already in `paths`) and HEARTH_LOG say, where
/// they are set.
Result<void> apply_environment(const ipc::Environment& environment, const ipc::Paths& paths,
                               Config* config);

/// One setting as it is in effect.
struct Setting {
  std::string key;     ///< "limits.max_requests"
  std::string value;   ///< as TOML
  std::string source;  ///< as Config::sources; "default"
};
/// Every setting there is, in the order of the documentation.
std::vector<Setting> list_settings(const Config& config);
/// The settings as a hearth.toml with each one's source behind it.
std::string settings_as_toml(const std::vector<Setting>& settings);

/// Directory of the running program, from /proc/self/exe.
std::filesystem::path program_dir();

}  // namespace hearth::broker
