#pragma once
// The replies to every verb but generate.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ipc/schema/sampling.h"
#include "ipc/schema/worker_stats.h"

namespace hearth::ipc {

struct PongReply {
  std::string instance;  ///< random, new at each start: identifies this run of the daemon
  int32_t pid = 0;
  std::string version;
  int64_t uptime_ms = 0;
  bool draining = false;
  bool operator==(const PongReply&) const = default;
};

struct TokenizeReply {
  std::string model;
  std::vector<int32_t> ids;
  std::vector<std::string> entries;  ///< vocabulary entries as written ("▁the"), one per id
  std::string text{};                ///< of the request's ids, control tokens as their entries
  std::string bos{}, eos{};  ///< entries that begin and end texts; empty: the model has none
  bool operator==(const TokenizeReply&) const = default;
};

struct CancelReply {
  std::string id;
  bool operator==(const CancelReply&) const = default;
};

/// One of the workers of a model that has several devices.
struct ReplicaEntry {
  std::string device;   ///< as the configuration names it
  std::string state;    ///< as of ModelEntry
  std::string problem;  ///< failed: the sentence
  int32_t worker_pid = 0;
  uint64_t memory_bytes = 0;  ///< as of ModelEntry
  uint64_t budget_bytes = 0;  ///< of the device; 0: it shares that of all models
  int32_t requests = 0;       ///< that wait for it or run on it
  bool operator==(const ReplicaEntry&) const = default;
};

struct ModelEntry {
  std::string name;                ///< file name without suffix
  std::vector<std::string> roles;  ///< roles that point at it
  /// found (a file), loading, resident, draining, asleep (its worker holds little memory; the next
  /// request wakes it), parked (was resident; the next request brings it back), failed
  std::string state;
  uint64_t file_bytes = 0;  ///< of all its files
  double load_share = 0;    ///< loading: 0 to 1
  std::string problem;      ///< failed: the sentence; found: its parts that are missing
  // From the file; known soon after the file was found, unless this build refuses it:
  std::string architecture;
  std::string file_type;  ///< dominant weight type, e.g. "Q8_0"
  uint64_t num_parameters = 0;
  int32_t context_length = 0;  ///< as configured where that is less
  // Known once it has been resident:
  std::string device;  ///< "cpu avx512-vnni", ...; empty unless resident
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;         ///< reserved for KV
  uint64_t kv_bytes_used = 0;    ///< of these, in blocks in use or caching a prefix
  uint64_t kv_backed_bytes = 0;  ///< of the reserved ones, backed by memory
  uint64_t kv_bound_bytes = 0;   ///< that may be backed at the moment
  int32_t worker_pid = 0;
  /// Memory that it takes, or would take once loaded; 0: not known yet.
  uint64_t memory_bytes = 0;
  int64_t keep_alive_ms = 0;  ///< it is unloaded after being idle this long; 0: never
  int64_t idle_ms = 0;        ///< resident: since its last request ended
  std::string draft;          ///< its draft model while it is resident; "": none
  /// Sampling of requests that leave it out; known with the file's other facts.
  std::optional<SamplingDefaults> sampling{};
  std::optional<ExpertUse> experts{};  ///< of a mixture; known once it has been resident
  bool chat_template = false;          ///< its file has one; known with the file's other facts
  /// text, tools (its template has a form of calls that is known, or the configuration adds one),
  /// reasoning (its template marks it), vectors; known with the file's other facts.
  std::vector<std::string> abilities{};
  std::optional<GpuSnapshot> gpu{};    ///< if it is resident on a GPU that reports its state
  std::vector<AdapterUse> adapters{};  ///< in its memory
  /// Of a model with several devices, whose bytes above are sums.
  std::vector<ReplicaEntry> replicas{};
  std::vector<StageUse> stages{};  ///< of a model in stages; known once a worker has planned it
  bool operator==(const ModelEntry&) const = default;
};
/// A file of an adapter, which requests may name.
struct AdapterEntry {
  std::string name;
  uint64_t file_bytes = 0;
  bool operator==(const AdapterEntry&) const = default;
};
struct ModelsReply {
  std::vector<ModelEntry> models;
  std::vector<std::string> folders;  ///< searched, in order
  std::vector<AdapterEntry> adapters{};
  bool operator==(const ModelsReply&) const = default;
};

struct PsEntry {
  std::string id;
  std::string owner;  ///< "uid:1000"
  std::string model;
  std::string state;  ///< queued, waiting, prefill, decode, recovering, remote
  std::string priority;
  int32_t prompt_tokens = 0;
  int32_t output_tokens = 0;
  int64_t age_ms = 0;
  std::optional<std::string> remote{};  ///< host of the remote that answers it
  bool operator==(const PsEntry&) const = default;
};
struct PsReply {
  std::vector<PsEntry> requests;
  std::vector<ModelEntry> models;  ///< resident or loading
  bool operator==(const PsReply&) const = default;
};

struct WorkerStats {
  std::string model;
  std::string device;
  std::string state;  ///< starting, ready, draining, asleep, lost
  int32_t pid = 0;
  int32_t restarts = 0;
  int64_t heartbeat_age_ms = 0;
  WorkerSnapshot snapshot;
  bool operator==(const WorkerStats&) const = default;
};
/// What a role's remote was asked since the daemon started.
struct RemoteStats {
  std::string role;
  std::string remote;              ///< its host
  int32_t requests_live = 0;       ///< at the remote
  uint64_t requests_sent = 0;      ///< so far; each ends as one of the next four
  uint64_t requests_done = 0;      ///< answered by the remote
  uint64_t requests_failed = 0;    ///< amid its answer, or this machine could not answer either
  uint64_t requests_returned = 0;  ///< to this machine: it failed before its answer began
  uint64_t requests_cancelled = 0;
  uint64_t output_tokens_total = 0;  ///< as it counts them
  bool operator==(const RemoteStats&) const = default;
};
struct StatsReply {
  std::string instance;
  std::string version;
  int64_t uptime_ms = 0;
  int32_t requests_live = 0;
  uint64_t requests_total = 0;
  uint64_t requests_done = 0;
  uint64_t requests_failed = 0;
  uint64_t requests_cancelled = 0;
  uint64_t output_tokens_total = 0;
  std::vector<WorkerStats> workers;
  std::vector<RemoteStats> remotes{};  ///< of roles with a remote
  bool operator==(const StatsReply&) const = default;
};

struct HealthReply {
  std::string status;                 ///< ok, degraded, draining
  std::vector<std::string> problems;  ///< sentences; empty when ok
  bool operator==(const HealthReply&) const = default;
};

/// Sent before the reply to load, unload and swap, at most every 100 ms and only on a change.
struct LoadingEvent {
  std::string model;
  /// "room" (other models are unloaded first), "starting", "reading", "warming_up", "recovering"
  /// (its worker died and is restarted), "draining" (unload: its requests finish)
  std::string stage;
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
  int64_t estimate_ms = 0;  ///< until it is ready; 0: not known
  bool operator==(const LoadingEvent&) const = default;
};

struct LoadReply {
  std::string model;    ///< the file, not the role
  int64_t load_ms = 0;  ///< from the request to this reply; 0: it was resident
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  std::string draft;  ///< its draft model; "": none
  bool operator==(const LoadReply&) const = default;
};
struct UnloadReply {
  std::string model;
  bool was_resident = false;
  bool asleep = false;  ///< it is kept, and wakes with the next request
  bool operator==(const UnloadReply&) const = default;
};
struct SwapReply {
  std::string role;
  std::string model;
  std::string previous;  ///< the model that the role pointed at before
  int64_t load_ms = 0;   ///< from the request until the role points at the new model
  bool operator==(const SwapReply&) const = default;
};

struct CacheReply {
  bool ok = true;
  std::string text;  ///< as `hearth cache` prints it
  bool operator==(const CacheReply&) const = default;
};

/// The first answer to `attach`; the same events as for `generate` follow.
struct AttachedEvent {
  std::string id;             ///< the request
  std::string model;          ///< the file, or what it will be
  bool live = false;          ///< false: it has ended; its `done` or `error` follows
  std::vector<int32_t> from;  ///< per sample: the first token that will be sent
  bool operator==(const AttachedEvent&) const = default;
};

struct EmbedReply {
  std::string model;
  int32_t dimensions = 0;
  std::vector<int32_t> prompt_tokens;  ///< per text
  /// Per text: f32, little endian, in base64 (RFC 4648 section 4).
  std::vector<std::string> vectors;
  bool operator==(const EmbedReply&) const = default;
};

}  // namespace hearth::ipc
