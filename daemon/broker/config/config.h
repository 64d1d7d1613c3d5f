#pragma once
// hearth.toml as plain data: every setting of the broker and of the workers it starts, with unit,
// range and default. Read at start and again on SIGHUP. Order of precedence: flags, environment,
// file, default.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/broker/config/remote_config.h"
#include "ipc/files/paths.h"
#include "ipc/schema/serve_settings.h"
#include "kernels/base/log.h"
#include "kernels/base/result.h"

namespace hearth::broker {

struct ServerConfig {
  std::filesystem::path runtime_dir;  ///< sockets and lock; "": the default of ipc/files/paths.h
  std::filesystem::path state_dir;  ///< what is kept on disk; "": the default of ipc/files/paths.h
  std::vector<std::filesystem::path>
      model_dirs;  ///< searched in order; empty: the default of ipc/files/paths.h
  std::vector<std::filesystem::path> other_model_dirs;  ///< of other programs; searched last
  std::string admin_group;  ///< its members see and cancel all requests; "": no group
  LogLevel log_level = LogLevel::kInfo;
  int64_t drain_timeout_ms = 30'000;  ///< after SIGTERM, before live requests are ended
  /// When the service reports ready: "loaded" (once the default role's model is loaded), "idle" (at
  /// once), "auto" (loaded if a service manager waits, else idle).
  std::string start = "auto";
  std::string tcp;  ///< "127.0.0.1:7117": also listen there, with CURVE; "": no TCP
  std::filesystem::path tcp_secret_file;   ///< the daemon's key, written by hearth keygen
  std::filesystem::path tcp_clients_file;  ///< public keys that may connect, and the user of each
  std::string sleep_closes = "gpu";  ///< workers to end before the machine sleeps: gpu, all, none
};

/// Bounds on the load that clients may put on the broker.
struct LimitsConfig {
  int64_t max_message_bytes = 32 << 20;  ///< one request, all frames
  int64_t max_requests = 256;            ///< live requests of all users
  int64_t max_requests_per_owner = 128;
  int64_t max_queued_bytes = 256 << 20;  ///< request bytes held, of all users
  int64_t max_queued_bytes_per_owner = 32 << 20;
  int64_t max_output_tokens_per_owner = 0;   ///< that live requests may still generate; 0: no bound
  int64_t output_buffer_bytes = 4 << 20;     ///< unread answers of one slow connection
  int64_t max_connections = 1024;            ///< to api.sock, if the descriptor limit permits
  int64_t max_connections_per_owner = 256;   ///< of one user
  int64_t max_resident = 8;                  ///< models in memory at once
  int64_t attach_bytes_per_owner = 8 << 20;  ///< answers kept for `attach`, per owner
  int64_t attach_bytes = 64 << 20;           ///< the same, of all owners
  int64_t attach_keep_ms = 300'000;          ///< after a request's end
};

/// Which models stay in memory, and for how long.
struct ResidencyConfig {
  int64_t memory_bytes = 0;           ///< for all models; 0: the memory free when one is loaded
  int64_t keep_alive_ms = 1'800'000;  ///< idle time after which a model is unloaded; 0: never
  int64_t keep_alive_max_ms = 86'400'000;  ///< the longest that a request may ask for
  int64_t turn_ms = 10'000;    ///< minimum stay of a model in use while others wait for memory
  bool load_on_demand = true;  ///< requests may load models; false: only administrators may
};

/// How workers are started and watched, and the settings passed to them.
struct WorkerConfig : ipc::EngineSettings {
  /// "": hearth-worker-<device> next to hearthd, in ../libexec/hearth, or on PATH.
  std::filesystem::path program;
  int64_t heartbeat_timeout_ms = 60'000;  ///< time without a heartbeat after which it is killed
  int64_t load_timeout_ms = 300'000;      ///< the same, without progress while loading
  int64_t restart_delay_ms = 100;         ///< after a death; doubles with each successive one
  int64_t restart_delay_max_ms = 30'000;
};

/// Prefix caching: the storage tier each owner may use, and the disk space of all databases.
struct CacheConfig {
  std::string tier = "disk";  ///< off, memory, disk: the highest tier a request may use
  int64_t disk_bytes = int64_t{32} << 30;  ///< beyond it, unopened databases are dropped
  /// "uid:1000" or "key:NAME" -> off, memory, disk: overrides tier.
  std::map<std::string, std::string> owners;
  /// The tier granted to a request of `owner` for `wanted`: the lower of the two.
  const std::string& allowed(const std::string& owner, const std::string& wanted) const {
    const auto found = owners.find(owner);
    const std::string& most = found == owners.end() ? tier : found->second;
    const auto rank = [](const std::string& name) { return name == "disk" ? 2 : name == "memory"; };
    return rank(wanted) < rank(most) ? wanted : most;
  }
};

/// Events of the prefix cache for routers (docs/kv-events.md): on Unix sockets in the runtime
/// directory, and TCP if configured.
struct KvEventsConfig {
  std::string publish = "off";  ///< off; shared: prefixes that are shared by a name; all
  std::string listen;         ///< "127.0.0.1:5557": a loopback address, for subscribers; "": no TCP
  std::string replay_listen;  ///< the same for replays
  std::string pod;            ///< this daemon's name in topics; "": the machine's
  int64_t buffer_bytes = 16 << 20;  ///< of the last messages, kept for replays
};

/// The HTTP front door: $RUNTIME/http.sock, and TCP if configured.
struct HttpConfig {
  bool enabled = true;
  std::string listen;                          ///< "127.0.0.1:8080"; "": no TCP
  std::filesystem::path keys_file;             ///< keys for TCP; "": only the daemon's own user
  std::filesystem::path tls_certificate_file;  ///< "": no TLS
  std::filesystem::path tls_key_file;
  std::vector<std::string> trusted_proxy;    ///< addresses that alone may connect; empty: all
  std::vector<std::string> allowed_hosts;    ///< in addition to localhost and the address
  std::vector<std::string> allowed_origins;  ///< of web pages in a browser; none by default
  /// System prompts lose the lines that match `volatile_lines` (daemon/http/requests).
  bool leave_out_volatile_lines = false;
  std::vector<std::string> volatile_lines = {"x-anthropic-billing-header: *"};
  int64_t max_connections = 256;
  int64_t header_timeout_ms = 10'000;  ///< from a request's first byte to the end of its header
  int64_t body_timeout_ms = 60'000;    ///< for the body
  int64_t idle_timeout_ms = 60'000;    ///< between requests
  int64_t write_timeout_ms = 60'000;   ///< without progress by the reader
  /// How long answers of /v1/responses are kept, under state_dir; 0: none are.
  int64_t responses_keep_s = 30 * 86'400;
  int64_t responses_bytes = int64_t{1} << 30;            ///< of all kept answers
  int64_t responses_bytes_per_owner = int64_t{1} << 28;  ///< of one user's
  /// How long files and batches are kept, under state_dir; 0: there are none.
  int64_t batches_keep_s = 30 * 86'400;
  int64_t batches_bytes = int64_t{1} << 30;            ///< of all files
  int64_t batches_bytes_per_owner = int64_t{1} << 28;  ///< of one user's
  int64_t batch_requests = 8;                          ///< of all batches, in progress at once
};

/// Sampling defaults, for fields that neither the request nor the model's file sets.
struct SamplingConfig {
  /// Field of a generate request -> number. Key: a model's name, or "" for all models.
  std::map<std::string, std::map<std::string, double>> models;
  /// The settings of one model.
  ipc::SamplingSettings of(const std::string& model) const;
};

/// Devices of one model, or its stages, at most.
inline constexpr size_t kMaxReplicas = 16;

/// A device by a name of its own.
struct DeviceConfig {
  std::string kind = "cpu";      ///< as WorkerConfig::device
  std::vector<int32_t> cores{};  ///< of a CPU: those that its workers use; empty: all
  int64_t threads = 0;           ///< of a CPU; 0: one per physical core of these
  int64_t memory_bytes = 0;      ///< for all models on it; 0: it shares residency.memory_bytes
};

/// What is different for one model: from the next time it is loaded on, its keep-alive at once.
struct ModelConfig {
  /// Names of devices, or kinds; one worker on each. In place of `device`.
  std::optional<std::vector<std::string>> devices;
  /// Names of devices, or kinds; one worker computes some of its layers on each. In place of
  /// `device`, too. "auto" alone: see Config::stages_of.
  std::optional<std::vector<std::string>> stages;
  /// The same, where each device computes a share of every layer. In place of `stages`, too.
  std::optional<std::vector<std::string>> split;
  std::optional<std::string> experts;  ///< the CPU that computes them, by name; the rest: `device`
  std::optional<int64_t> hot_expert_bytes;  ///< of these, those most used, on `device`, too
  std::optional<std::string> device, numerics, mapping, kv_type, draft;
  std::optional<int64_t> weight_bytes, kv_bytes, context_length;
  std::optional<int64_t> keep_alive_ms;  ///< overrides residency's
};

/// What is different for one owner of requests.
struct OwnerConfig {
  // Override the limits per owner (LimitsConfig).
  std::optional<int64_t> max_requests{}, max_queued_bytes{}, max_output_tokens{};
  std::optional<std::string> priority{};  ///< the highest class of its requests
  /// Whether a role's remote may answer its requests: true: those that do not forbid it; false:
  /// none. Absent: those that ask for it.
  std::optional<bool> remote{};
};

struct Config {
  ServerConfig server;
  HttpConfig http;
  LimitsConfig limits;
  ResidencyConfig residency;
  WorkerConfig worker;
  CacheConfig cache;
  KvEventsConfig kv_events;
  SamplingConfig sampling;
  std::map<std::string, std::string> roles;     ///< role -> model name
  std::map<std::string, RemoteConfig> remotes;  ///< by role
  std::map<std::string, DeviceConfig> devices;  ///< by name
  std::map<std::string, ModelConfig> models;    ///< by name
  std::map<std::string, OwnerConfig> owners;    ///< by "uid:1000" or "key:NAME"
  /// "section.key" -> source of its value: "/etc/hearth/hearth.toml:12", "environment HEARTH_LOG",
  /// "--set ..."; absent: the default.
  std::map<std::string, std::string> sources;

  /// The settings of a model's worker.
  WorkerConfig worker_of(const std::string& model) const;
  int64_t keep_alive_ms(const std::string& model) const;
  /// Of the model's workers; empty: it has one, on the device of worker_of().
  std::vector<std::string> devices_of(const std::string& model) const;
  /// Of the model's worker; empty: one device computes it. "auto" is all GPUs of `devices`, without
  /// any cuda:0, and then a CPU, of `devices` if there is one.
  std::vector<std::string> stages_of(const std::string& model) const;
  /// Each of stages_of() then has a share of every layer.
  bool is_split(const std::string& model) const;
  bool stages_are_auto(const std::string& model) const;
  /// The second of stages_of() then is the device of the experts.
  bool experts_apart(const std::string& model) const;
  /// Of a name, or a kind.
  DeviceConfig device(const std::string& name) const;
};

/// Applies `text` (TOML) to `config`; absent keys keep their value. Errors are kInvalidArgument and
/// begin with "<source>:<line>:<column>: ". Unknown keys are errors.
Result<void> apply_toml(std::string_view text, std::string_view source, Config* config);

/// apply_toml of a file; kIo if it cannot be read.
Result<void> apply_file(const std::filesystem::path& file, Config* config);

/// Applies one override from the command line: `limits.max_requests=4`. A value that is not valid
/// TOML is taken as a string, so `--set worker.kv_type=f32` needs no quotes.
Result<void> apply_assignment(std::string_view assignment, Config* config);

/// Applies HEARTH_RUNTIME_DIR, HEARTH_MODEL_DIRS (both already in `paths`) and HEARTH_LOG, if set.
Result<void> apply_environment(const ipc::Environment& environment, const ipc::Paths& paths,
                               Config* config);

/// The effective value of one setting.
struct Setting {
  std::string key;     ///< "limits.max_requests"
  std::string value;   ///< as TOML
  std::string source;  ///< as in Config::sources; "default"
};
/// All settings, in the order of the documentation.
std::vector<Setting> list_settings(const Config& config);
/// The settings as a hearth.toml, each followed by its source.
std::string settings_as_toml(const std::vector<Setting>& settings);

/// Directory of the running program, from /proc/self/exe.
std::filesystem::path program_dir();

}  // namespace hearth::broker
