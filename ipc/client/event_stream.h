#pragma once
// Reads the daemon's event stream (events.sock) and records it to a file. One thread.
//
// Frames of a message: topic, kind, model, payload. Each listener has its own topic,
// "uid:<number>/<16 random hex digits>", on which it receives its user's requests; an administrator
// receives all.
//   kind       payload
//   stats      JSON, the reply to `stats`, ten times a second while there are listeners
//   models     JSON, the reply to `models`, once a second
//   watch      WatchUpdate of the model's worker: steps and blocks
//   requests   WatchUpdate with requests alone
// A listener that does not read loses messages (the queue is bounded) and delays no other. A
// listener renews its lease every kStreamRenewUs by switching a subscription to "alive:<topic>" on
// or off; one that has not done so for kStreamLeaseUs is sent nothing until it does.
//
// A recording: "HEARTHREC1\n", then per message u32 length of the rest, i64 time in microseconds on
// the machine's monotonic clock, then kind, model, payload, each u32 length and bytes. Little
// endian.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/wire/socket.h"
#include "kernels/base/result.h"

namespace hearth::ipc {

struct StreamMessage {
  int64_t time_us = 0;  ///< when it arrived
  std::string kind;
  std::string model;
  std::string payload;
  bool operator==(const StreamMessage&) const = default;
};

inline constexpr size_t kMaxStreamMessageBytes = 64u << 20;

inline constexpr int64_t kStreamRenewUs = 2'000'000;
inline constexpr int64_t kStreamLeaseUs = 10'000'000;
inline constexpr std::string_view kStreamAlive = "alive:";

/// "uid:1000/": the prefix of that user's topics.
std::string stream_topic_prefix(uint32_t uid);

class EventStream {
 public:
  /// Connects in the background, and again whenever the daemon restarts; none needs to run yet.
  static Result<EventStream> open(const std::filesystem::path& runtime_dir);

  /// Messages that arrived, after waiting up to `timeout_ms` for the first. Call it at least every
  /// few seconds, because it renews the lease.
  std::vector<StreamMessage> wait(int timeout_ms);
  const Socket& socket() const { return socket_; }

 private:
  EventStream(Context context, Socket socket, std::string alive)
      : context_(std::move(context)), socket_(std::move(socket)), alive_(std::move(alive)) {}
  Context context_;
  Socket socket_;
  std::string alive_;  ///< the topic that renews the lease
  bool alive_on_ = false;
  int64_t renew_due_us_ = 0;
};

class RecordingWriter {
 public:
  static Result<RecordingWriter> create(const std::filesystem::path& file);
  /// kIo, for example if the disk is full.
  Result<void> add(const StreamMessage& message);

 private:
  explicit RecordingWriter(std::ofstream out) : out_(std::move(out)) {}
  std::ofstream out_;
};

/// Reads a recording; a truncated last message is left out. kInvalidArgument: not a recording;
/// kTooLarge: more than `max_bytes`.
Result<std::vector<StreamMessage>> read_recording(const std::filesystem::path& file,
                                                  size_t max_bytes = 1u << 30);
Result<std::vector<StreamMessage>> parse_recording(std::string_view bytes);

}  // namespace hearth::ipc
