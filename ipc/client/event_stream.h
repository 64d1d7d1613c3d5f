#pragma once
// Listening to the daemon's events.sock, and keeping what came in a file. One thread.
//
// A message of the stream (frames): topic, kind, model, payload. The topic is the listener's own,
// "uid:<number>/<16 random hex digits>": it is told about its user's requests, an administrator
// about all.
//   kind       payload
//   stats      JSON, the reply to `stats`, ten times a second while somebody listens
//   models     JSON, the reply to `models`, once a second
//   watch      WatchUpdate of the model's worker: steps and blocks
//   requests   WatchUpdate with requests alone
// Who does not read loses messages (a bounded queue), never holds anybody up. Who reads says so
// every kStreamRenewUs, by turning a subscription to "alive:<topic>" on or off; who has not for
// kStreamLeaseUs is told nothing more until it does.
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
  int64_t time_us = 0;  ///< when it came
  std::string kind;
  std::string model;
  std::string payload;
  bool operator==(const StreamMessage&) const = default;
};

inline constexpr size_t kMaxStreamMessageBytes = 64u << 20;

inline constexpr int64_t kStreamRenewUs = 2'000'000;
inline constexpr int64_t kStreamLeaseUs = 10'000'000;
inline constexpr std::string_view kStreamAlive = "alive:";

/// "uid:1000/": what a topic of that user's begins with.
std::string stream_topic_prefix(uint32_t uid);

class EventStream {
 public:
  /// Connects in the background and again whenever the daemon comes back; there need be none yet.
  static Result<EventStream> open(const std::filesystem::path& runtime_dir);

  /// What came, after waiting up to `timeout_ms` for something. To be called every few seconds at
  /// least: it says that somebody reads.
  std::vector<StreamMessage> wait(int timeout_ms);
  const Socket& socket() const { return socket_; }

 private:
  EventStream(Context context, Socket socket, std::string alive)
      : context_(std::move(context)), socket_(std::move(socket)), alive_(std::move(alive)) {}
  Context context_;
  Socket socket_;
  std::string alive_;  ///< the topic that says so
  bool alive_on_ = false;
  int64_t renew_due_us_ = 0;
};

class RecordingWriter {
 public:
  static Result<RecordingWriter> create(const std::filesystem::path& file);
  /// kIo: the disk is full, say.
  Result<void> add(const StreamMessage& message);

 private:
  explicit RecordingWriter(std::ofstream out) : out_(std::move(out)) {}
  std::ofstream out_;
};

/// All of a recording; a last message that was cut is left out. kInvalidArgument: no recording;
/// kTooLarge: over `max_bytes`.
Result<std::vector<StreamMessage>> read_recording(const std::filesystem::path& file,
                                                  size_t max_bytes = 1u << 30);
Result<std::vector<StreamMessage>> parse_recording(std::string_view bytes);

}  // namespace hearth::ipc
