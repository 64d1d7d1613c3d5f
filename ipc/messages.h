#pragma once
// The protocol HEARTH/1 as plain data. Byte layout of its frames (ZeroMQ multipart, one per line):
//
//   client -> daemon                    daemon -> client
//   "HEARTH/1"                          "HEARTH/1"
//   request id, 1 to 64 bytes           request id, as the client wrote it
//   JSON request (UTF-8)                "event" | "delta"
//                                       event: JSON          delta: DeltaHeader + UTF-8 text
//                                                            delta: token ids, i32 little endian
//                                                            delta: JSON array of logprobs (only
//                                                                   where they were asked for)
//
// A request id belongs to its owner (the uid the kernel names for the connection) and is unique
// among that owner's live requests. A request's answer is either one reply event ("reply", or
// "error") or, for `generate`, the events queued? progress* started delta* sample_done* and last
// `done` or `error`.
//
//   broker -> worker                    worker -> broker
//   u64 little endian, the broker's     the same u64; 0: about the worker itself
//   number for the request
//   "request" | "control"               "event" | "delta"
//   JSON                                as above
//
// The broker puts the client's frames in front of a worker's answer and sends it on; it keeps the
// ids frame of each delta (the token log, for resuming) and parses neither text nor JSON of a token.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::ipc {

inline constexpr std::string_view kProtocol = "HEARTH/1";
inline constexpr size_t kMaxRequestIdBytes = 64;
inline constexpr size_t kMaxRequestBytes = 32u << 20;  ///< one JSON request

/// First bytes of a delta's payload frame, little endian, 16 bytes; text follows.
struct DeltaHeader {
  uint32_t sample = 0;
  uint32_t first_index = 0;  ///< of the delta's first token among the sample's generated tokens
  uint32_t num_tokens = 0;   ///< equals the ids frame; a gap in indices is a lost delta
  uint32_t reserved = 0;
};
inline constexpr size_t kDeltaHeaderBytes = 16;

enum class Verb {
  kPing,      ///< is anybody there: answers from the broker at once, with the instance id
  kGenerate,
  kTokenize,
  kCancel,
  kModels,
  kPs,        ///< live requests of the caller (of everybody for an admin)
  kStats,
  kHealth,
};

/// A generate request, ranges checked. Defaults are those of the field table.
struct GenerateRequest {
  std::string model = "default";  ///< a role or a model's name
  std::string prompt;             ///< text; or
  std::vector<int32_t> prompt_ids;  ///< token ids, exactly as they shall be computed
  bool raw = false;               ///< no BOS put in front
  bool parse_special = false;     ///< control tokens in the prompt's text become tokens
  int32_t n = 1;
  int32_t max_tokens = 256;
  int32_t min_tokens = 0;
  float temperature = 0.8f;
  int32_t top_k = 40;
  float top_p = 0.95f;
  float min_p = 0.0f;
  float typical_p = 1.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  int32_t penalty_window = 256;
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::optional<uint64_t> seed;  ///< absent: the daemon chooses; `done` reports it
  std::vector<std::string> stop;  ///< stop strings; not part of the text
  std::vector<int32_t> stop_ids;
  bool ignore_eos = false;
  int32_t logprobs = -1;         ///< -1: none; 0..20: that many alternatives
  bool prompt_logprobs = false;
  std::string priority = "normal";  ///< interactive, normal, batch
  int64_t deadline_ms = 0;       ///< from receipt; 0: none
  bool cache = true;             ///< look up and keep the prefix
};

/// What the broker adds to a request before a worker sees it.
struct WorkerRequest {
  uint64_t id = 0;
  Verb verb = Verb::kGenerate;
  std::string owner;            ///< "uid:1000"
  int64_t received_ms_ago = 0;  ///< spent in the broker already
  GenerateRequest generate;
  std::vector<std::vector<int32_t>> resume;  ///< per sample, tokens already sent
};

struct Usage {
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t output_tokens = 0;
};
struct Timings {
  double queue_ms = 0;
  double prefill_ms = 0;
  double ttft_ms = 0;
  double tpot_ms = 0;
  double total_ms = 0;
};

/// The last event of a generate request that did not fail.
struct DoneEvent {
  std::vector<std::string> finish_reasons;  ///< per sample: stop, length, cancelled, deadline
  std::string model;
  uint64_t seed = 0;
  Usage usage;
  Timings timings;
  int32_t preemptions = 0;
  int32_t resumed = 0;  ///< worker deaths that the request survived
  double bandwidth_share = 0;
};

struct ErrorEvent {
  Error error;
  int64_t retry_ms = 0;  ///< kBusy: when to try again
};

}  // namespace hearth::ipc
