#pragma once
// The connection of a broker and a worker: a Unix stream socket with no thread behind it, so that
// what one end says wakes nobody but the other. Messages in both directions, little endian:
//
//   u32 bytes   u32 kind   u64 number   bytes
//
//   broker -> worker                      worker -> broker
//   request, control: number of the       event: JSON of a WorkerEvent, about the worker itself
//   request, 0 of none; JSON              answers: see append_answer in frames.h
//   watch: "1" tell what you do, from     watch: an encoded WatchUpdate
//   the beginning; "0" no more
//
// Neither end ever waits for the other. What the socket does not take waits in the sender's memory,
// without a bound of its own: what goes to a worker was admitted, what comes from one is bounded by
// the tokens that live requests may have, and both ends read at once. One thread owns an end.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::ipc {

enum class PipeKind : uint32_t { kRequest, kControl, kWatch, kEvent, kAnswers };
inline constexpr uint32_t kNumPipeKinds = 5;

struct PipeMessage {
  PipeKind kind = PipeKind::kEvent;
  uint64_t number = 0;
  std::string_view bytes;
};

void append_pipe_message(std::string& out, const PipeMessage& message);

/// Bytes in, messages out.
class PipeReader {
 public:
  /// Room for what comes next; the views that next() gave end here.
  std::span<char> room();
  void filled(size_t bytes) { end_ += bytes; }
  /// The next whole message, a view into this; nothing: more bytes are wanted. kProtocol: no
  /// message begins so, and none follows.
  Result<std::optional<PipeMessage>> next();

 private:
  std::vector<char> buffer_;
  size_t begin_ = 0;  // of what next() has not given
  size_t end_ = 0;
};

class WorkerPipe {
 public:
  /// Owns `fd`, a connected socket, and makes it non-blocking.
  explicit WorkerPipe(int fd);
  ~WorkerPipe();
  WorkerPipe(WorkerPipe&& other) noexcept;
  WorkerPipe& operator=(WorkerPipe&&) = delete;

  /// To a socket that is listened on.
  static Result<WorkerPipe> connect(const std::filesystem::path& socket);

  int fd() const { return fd_; }

  /// Writes as much as the socket takes now; the rest waits for write(). False: the other end is
  /// gone.
  bool send(const PipeMessage& message);
  bool write();
  bool has_unsent() const { return sent_ < out_.size(); }

  enum class Read {
    kMore,     ///< there may be more to read
    kDrained,  ///< all that was there
    kEnded,    ///< the other end is gone, and nothing more comes
  };
  /// Reads once, at most 64 KiB; the views that next() gave end here.
  Read read();
  Result<std::optional<PipeMessage>> next() { return reader_.next(); }

 private:
  int fd_ = -1;
  PipeReader reader_;
  std::string out_;
  size_t sent_ = 0;  // of it
};

}  // namespace hearth::ipc
