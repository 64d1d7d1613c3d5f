#pragma once
// A daemon's side of the socket on its own thread: answers pings, passes every other request to a
// handler, and misbehaves on request.

#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "ipc/client/client.h"
#include "ipc/files/paths.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/socket.h"
#include "tests/temp_dir.h"

namespace hearth::tests {

class FakeDaemon {
 public:
  /// Sends answers to one request.
  class Reply {
   public:
    Reply(ipc::Socket& router, std::string identity, std::string id)
        : router_(&router), identity_(std::move(identity)), id_(std::move(id)) {}
    void event(const ipc::Event& event) { send({ipc::kEventFrame, ipc::encode_event(event)}); }
    void delta(uint32_t sample, uint32_t first, const std::string& text,
               const std::vector<int32_t>& ids) {
      const auto count = static_cast<uint32_t>(ids.size());
      send({ipc::kDeltaFrame, ipc::encode_delta_payload({sample, first, count, 0}, text),
            ipc::encode_ids(ids)});
    }
    void send(const std::vector<std::string>& answer) {
      ipc::Message message;
      ipc::append(message, identity_, ipc::kProtocol, id_);
      for (const std::string& frame : answer) ipc::append(message, frame);
      // A full queue is the reader's problem; bounded, so that a test cannot hang in here.
      for (int i = 0; i < 1000 && router_->send(message) == ipc::SendOutcome::kWouldBlock; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    void send(std::initializer_list<std::string_view> answer) {
      send(std::vector<std::string>(answer.begin(), answer.end()));
    }
    const std::string& id() const { return id_; }

   private:
    ipc::Socket* router_;
    std::string identity_;
    std::string id_;
  };
  using Handler = std::function<void(const ipc::ClientRequest&, Reply)>;

  explicit FakeDaemon(std::filesystem::path runtime, Handler handler)
      : handler_(std::move(handler)),
        thread_([this, runtime = std::move(runtime)] { run(runtime); }) {
    while (!bound_) std::this_thread::yield();
  }
  ~FakeDaemon() {
    stop_ = true;
    thread_.join();
  }

  std::atomic<bool> silent{false};        ///< answers nothing, pings neither
  std::atomic<bool> new_instance{false};  ///< pongs as another daemon
  std::atomic<int> pong_pid{::getpid()};  ///< its description of itself
  std::atomic<int> num_cancels{0};
  std::atomic<int> num_pings{0};
  std::atomic<int> num_unanswered{0};  ///< messages received while silent

 private:
  void run(const std::filesystem::path& runtime) {
    ipc::Context context = std::move(ipc::Context::create()).value();
    ipc::Socket router = std::move(ipc::Socket::open(context, ipc::SocketType::kRouter)).value();
    const bool bound = router.bind(*ipc::ipc_endpoint(ipc::api_socket(runtime))).ok();
    bound_ = true;
    while (bound && !stop_) {
      ipc::PollItem item{.socket = &router};
      ipc::poll({&item, 1}, 5);
      ipc::Message message;
      while (router.receive(message) == ipc::ReceiveOutcome::kReceived) answer(router, message);
    }
  }

  void answer(ipc::Socket& router, const ipc::Message& message) {
    if (silent) {
      ++num_unanswered;
      return;
    }
    const auto frames = ipc::views(message, 1);
    const auto parsed = ipc::parse_client_message(frames);
    if (!parsed.ok()) return;
    Reply reply(router, std::string(message[0].view()), std::string(parsed->request_id));
    auto request = ipc::decode_request(parsed->json);
    if (!request.ok()) return reply.event(ipc::ErrorEvent{request.take_error(), 0});
    if (std::holds_alternative<ipc::PingRequest>(*request)) {
      ++num_pings;
      return reply.event(
          ipc::PongReply{new_instance ? "second" : "first", pong_pid, "0.1.0", 1, false});
    }
    if (std::holds_alternative<ipc::CancelRequest>(*request)) ++num_cancels;
    handler_(*request, reply);
  }

  Handler handler_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> bound_{false};
  std::thread thread_;
};

/// How many pings a client with these options sends at most, before it reports kLost, to a daemon
/// that falls silent after an answer. It counts the silence from the first unanswered ping, and
/// pings are at least an interval apart, so this holds however slow the machine is. As many may be
/// under way when the answer arrives.
inline int pings_until_lost(const ipc::ClientOptions& options) {
  return 2 * ((options.lost_after_ms - 1) / options.ping_interval_ms);
}

}  // namespace hearth::tests
