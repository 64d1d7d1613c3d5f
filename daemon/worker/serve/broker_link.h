#pragma once
// The worker's end of its socket to the broker. Owned by the front door.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "daemon/worker/text/sample_text.h"
#include "ipc/schema/messages.h"
#include "ipc/schema/worker_messages.h"
#include "ipc/wire/frames.h"
#include "ipc/wire/worker_pipe.h"
#include "kernels/base/result.h"

namespace hearth::worker {

/// A control message from the broker.
struct BrokerControl {
  uint64_t number = 0;  ///< kCancel: the request
  ipc::WorkerControl control = ipc::WorkerControl::kStop;
};
/// A request as received. Another thread decodes it.
struct RequestText {
  uint64_t number = 0;
  std::string json;
};
/// Whether a client watches; true again: a new one does, so begin again.
struct WatchControl {
  bool on = false;
};
/// An adapter to remove.
struct DropAdapter {
  std::string name;
};
using FromBroker = std::variant<RequestText, BrokerControl, WatchControl, DropAdapter>;

class BrokerLink {
 public:
  static Result<BrokerLink> connect(const std::filesystem::path& socket);

  int fd() const { return pipe_.fd(); }
  /// The events to wait for, in terms of poll(2).
  short events() const;
  /// The broker has disconnected.
  bool ended() const { return ended_; }
  /// The next message; nothing if there is none.
  std::optional<FromBroker> receive();

  /// An event of the worker itself; sent after all answers.
  void send(const ipc::WorkerEvent& event);
  /// An encoded ipc::WatchUpdate.
  void send_watch(const std::string& update);
  /// Encoded by encode_kv_events.
  void send_kv_events(const std::string& events);

  /// Queues an answer to request `number`. Answers are sent in one message by the next flush().
  void send(uint64_t number, const ipc::Event& event);
  void send_event(uint64_t number, const std::string& json);
  void send_error(uint64_t number, Error error);
  void send_delta(uint64_t number, uint32_t sample, const SampleText::Pending& pending);
  /// Sends the answers, as far as the socket has room.
  void flush();

 private:
  explicit BrokerLink(ipc::WorkerPipe pipe) : pipe_(std::move(pipe)) {}
  void send(ipc::PipeKind kind, const std::string& bytes);
  void add(uint64_t number, const ipc::Answer& answer);

  ipc::WorkerPipe pipe_;
  bool drained_ = false;  // the last read took everything available
  bool ended_ = false;
  std::string answers_;  // not sent yet
};

}  // namespace hearth::worker
