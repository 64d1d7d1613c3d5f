#pragma once
// The connection between the broker and a worker: a Unix stream socket without a thread of its own,
// so that a message wakes only its receiver. Messages in both directions, little endian:
//
//   u32 bytes   u32 kind   u64 number   bytes
//
//   broker -> worker                      worker -> broker
//   request, control: number of the       event: JSON of a WorkerEvent, about the worker itself
//   request or 0; JSON                    answers: see append_answer in frames.h
//   watch: "1" start sending updates,     watch: an encoded WatchUpdate
//   with a full one; "0" stop             KV events: a msgpack array (docs/kv-events.md)
//   drop adapter: name of one to remove
//   if no request uses it
//
// Neither end waits for the other. Bytes that the socket does not take are kept in the sender's
// memory without a bound of its own: requests to a worker were admitted, answers are bounded by the
// tokens that live requests may generate, and both ends read immediately. One thread owns an end.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::ipc {

enum class PipeKind : uint32_t {
  kRequest,
  kControl,
  kWatch,
  kEvent,
  kAnswers,
  kKvEvents,
  kDropAdapter
};
inline constexpr uint32_t kNumPipeKinds = 7;

struct PipeMessage {
  PipeKind kind = PipeKind::kEvent;
  uint64_t number = 0;
  std::string_view bytes;
};

void append_pipe_message(std::string& out, const PipeMessage& message);

/// Bytes in, messages out.
class PipeReader {
 public:
  /// Space for the next bytes. Invalidates the views that next() returned.
  std::span<char> room();
  void filled(size_t bytes) { end_ += bytes; }
  /// The next complete message, a view into this reader; nothing: more bytes are needed. kProtocol:
  /// not a message; the stream cannot be read further.
  Result<std::optional<PipeMessage>> next();

 private:
  std::vector<char> buffer_;
  size_t begin_ = 0;  // of the bytes that next() has not returned
  size_t end_ = 0;
};

class WorkerPipe {
 public:
  /// Owns `fd`, a connected socket, and makes it non-blocking.
  explicit WorkerPipe(int fd);
  ~WorkerPipe();
  WorkerPipe(WorkerPipe&& other) noexcept;
  WorkerPipe& operator=(WorkerPipe&&) = delete;

  /// Connects to a listening socket.
  static Result<WorkerPipe> connect(const std::filesystem::path& socket);

  int fd() const { return fd_; }

  /// Writes as much as the socket takes now and keeps the rest for write(). False: the other end
  /// has closed.
  bool send(const PipeMessage& message);
  /// The same, for a message that may be long, which is not copied then.
  bool send(PipeKind kind, uint64_t number, std::string bytes);
  bool write();
  bool has_unsent() const { return out_.size() > 1 || sent_ < out_.front().size(); }

  enum class Read {
    kMore,     ///< there may be more to read
    kDrained,  ///< everything available was read
    kEnded,    ///< the other end has closed; nothing more follows
  };
  /// Reads once, at most 64 KiB. Invalidates the views that next() returned.
  Read read();
  Result<std::optional<PipeMessage>> next() { return reader_.next(); }

 private:
  std::string& block_with_room();

  int fd_ = -1;
  PipeReader reader_;
  // What is not sent, in order; never without a block.
  std::deque<std::string> out_ = std::deque<std::string>(1);
  size_t sent_ = 0;  // of the first block
};

}  // namespace hearth::ipc
