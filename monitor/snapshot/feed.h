#pragma once
// The source of messages: the daemon's events.sock or, while that is silent (some daemons lack it),
// polling of its request socket, which reports neither steps nor blocks. The daemon may come and
// go.

#include <atomic>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "ipc/client/event_stream.h"
#include "ipc/schema/replies.h"
#include "kernels/base/mailbox.h"
#include "kernels/base/result.h"

namespace hearth::monitor {

class Feed {
 public:
  /// If `runtime_dir` is empty, uses the first of the usual directories in which a daemon has
  /// sockets.
  static Result<std::unique_ptr<Feed>> open(std::filesystem::path runtime_dir);
  ~Feed();
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  /// Messages received, oldest first, after waiting up to `timeout_ms` for events.
  std::vector<ipc::StreamMessage> wait(int timeout_ms);
  const std::filesystem::path& runtime_dir() const { return runtime_dir_; }

 private:
  Feed(std::filesystem::path runtime_dir, ipc::EventStream stream);
  void ask();  ///< runs in the polling thread

  const std::filesystem::path runtime_dir_;
  ipc::EventStream stream_;
  Mailbox<ipc::StreamMessage> answers_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> heard_us_{0};  ///< time of the last event from events.sock
  std::thread thread_;
};

/// The rows of `ps` in the form of the broker's events.
ipc::StreamMessage requests_message(int64_t time_us, const ipc::PsReply& reply);

}  // namespace hearth::monitor
