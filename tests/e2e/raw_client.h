#pragma once
// A client that may send what our clients never send: raw frames.

#include <optional>
#include <string>
#include <vector>

#include "ipc/wire/socket.h"
#include "tests/e2e/daemon.h"

namespace hearth::e2e {

class RawClient {
 public:
  /// `high_water`: messages queued on our side before the daemon's stay on its side.
  explicit RawClient(const Daemon& daemon, int high_water = 1000);

  void send(const std::vector<std::string>& frames);
  void send_json(const std::string& id, const std::string& json) { send({"HEARTH/1", id, json}); }
  /// The next message's frames; nothing if none comes in time.
  std::optional<std::vector<std::string>> receive(int timeout_ms = kPatienceMs);

 private:
  ipc::Context context_;
  ipc::Socket socket_;
};

}  // namespace hearth::e2e
