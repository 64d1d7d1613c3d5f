#include "tests/e2e/raw_client.h"

#include <doctest/doctest.h>

#include "ipc/files/paths.h"

namespace hearth::e2e {

RawClient::RawClient(const Daemon& daemon, int high_water)
    : context_(ipc::Context::create().value()),
      socket_(ipc::Socket::open(context_, ipc::SocketType::kDealer,
                                {.send_high_water = 0,
                                 .receive_high_water = high_water,
                                 .max_frame_bytes = -1,
                                 .reconnect = true,
                                 .routing_id = {}})
                  .value()) {
  REQUIRE(socket_.connect(*ipc::ipc_endpoint(ipc::api_socket(daemon.runtime()))).ok());
}

void RawClient::send(const std::vector<std::string>& frames) {
  ipc::Message message;
  for (const std::string& frame : frames) ipc::append(message, frame);
  CHECK(socket_.send(message) == ipc::SendOutcome::kSent);
}

std::optional<std::vector<std::string>> RawClient::receive(int timeout_ms) {
  ipc::PollItem item{.socket = &socket_};
  const int64_t end = now_ms() + timeout_ms;
  ipc::Message message;
  while (socket_.receive(message) != ipc::ReceiveOutcome::kReceived) {
    const int64_t left = end - now_ms();
    if (left <= 0) return std::nullopt;
    ipc::poll({&item, 1}, static_cast<int>(left));
  }
  std::vector<std::string> frames;
  for (const std::string_view frame : ipc::views(message)) frames.emplace_back(frame);
  return frames;
}

}  // namespace hearth::e2e
