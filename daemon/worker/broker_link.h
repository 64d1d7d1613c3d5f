#pragma once
// The worker's end of its socket to the broker. Owned by the front door.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>

#include "daemon/worker/sample_text.h"
#include "ipc/messages.h"
#include "ipc/socket.h"
#include "ipc/worker_messages.h"
#include "kernels/base/result.h"

namespace hearth::worker {

/// What the broker says.
struct BrokerControl {
  uint64_t number = 0;  ///< kCancel: the request
  ipc::WorkerControl control = ipc::WorkerControl::kStop;
};
/// A request that cannot be read is answered with the error.
struct UnreadableRequest {
  uint64_t number = 0;
  Error error;
};
/// Whether somebody watches; true again: anew.
struct WatchControl {
  bool on = false;
};
using FromBroker = std::variant<ipc::WorkerRequest, BrokerControl, UnreadableRequest, WatchControl>;

class BrokerLink {
 public:
  static Result<BrokerLink> connect(const ipc::Context& context,
                                    const std::filesystem::path& socket);

  const ipc::Socket& socket() const { return socket_; }
  /// The next message; nothing when none waits.
  std::optional<FromBroker> receive();

  /// About the worker itself.
  void send(const ipc::WorkerEvent& event);
  /// An encoded ipc::WatchUpdate.
  void send_watch(const std::string& update);
  /// An answer to request `number`.
  void send(uint64_t number, const ipc::Event& event);
  void send_error(uint64_t number, Error error);
  void send_delta(uint64_t number, uint32_t sample, const SampleText::Pending& pending);

 private:
  explicit BrokerLink(ipc::Socket socket) : socket_(std::move(socket)) {}
  void send_frames(uint64_t number, ipc::Message rest);

  ipc::Socket socket_;
};

}  // namespace hearth::worker
