#pragma once
// Listening to the daemon's events.sock, and keeping what came in a file. One thread.
//
// A message of the stream (frames): topic, kind, model, payload. The topic is "uid:<number>": a
// listener subscribes to its own and is told about its own requests, an administrator about all.
//   kind       payload
//   stats      JSON, the reply to `stats`, ten times a second while somebody listens
//   models     JSON, the reply to `models`, once a second
//   watch      WatchUpdate of the model's worker: steps and blocks
//   requests   WatchUpdate with requests alone
// Who does not read loses messages (a bounded queue), never holds anybody up.
//
// A recording: "HEARTHREC1\n", then per message u32 length of the rest, i64 time in microseconds on
// the machine's monotonic clock, then kind, model, payload, each u32 length and bytes. Little
// endian.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "ipc/socket.h"
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

/// "uid:1000"
std::string stream_topic(uint32_t uid);

class EventStream {
 public:
  /// Connects in the background and again whenever the daemon comes back; there need be none yet.
  static Result<EventStream> open(const std::filesystem::path& runtime_dir);

  /// What came, after waiting up to `timeout_ms` for something.
  std::vector<StreamMessage> wait(int timeout_ms);
  const Socket& socket() const { return socket_; }

 private:
  EventStream(Context context, Socket socket)
      : context_(std::move(context)), socket_(std::move(socket)) {}
  Context context_;
  Socket socket_;
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
