#pragma once
// A subscriber of KV events over libzmq (docs/kv-events.md), as a router is one.

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ipc/wire/socket.h"

namespace hearth::tests {

struct KvMessage {
  std::string topic;
  uint64_t sequence = 0;
  std::string payload;
  bool operator==(const KvMessage&) const = default;
};

inline uint64_t big_endian_u64(std::string_view bytes) {
  REQUIRE(bytes.size() == 8);
  uint64_t out = 0;
  for (const char c : bytes) out = out << 8 | static_cast<unsigned char>(c);
  return out;
}

class KvSubscriber {
 public:
  /// `queued`: messages that libzmq holds here while nothing is read.
  explicit KvSubscriber(const std::string& endpoint, const std::string& topic = "kv@",
                        int queued = 100'000)
      : context_(ipc::Context::create().value()),
        socket_(ipc::Socket::open(context_, ipc::SocketType::kSub,
                                  {.send_high_water = 1000,  // subscriptions
                                   .receive_high_water = queued,
                                   .max_frame_bytes = -1,
                                   .reconnect = true,
                                   .routing_id = {}})
                    .value()) {
    REQUIRE(socket_.subscribe(topic).ok());
    REQUIRE(socket_.connect(endpoint).ok());
  }

  void subscribe(const std::string& topic) { REQUIRE(socket_.subscribe(topic).ok()); }
  /// What has arrived, after waiting up to `timeout_ms` for the first.
  std::vector<KvMessage> read(int timeout_ms) {
    std::array<ipc::PollItem, 1> items = {ipc::PollItem{.socket = &socket_}};
    if (!socket_.readable()) ipc::poll(items, timeout_ms);
    std::vector<KvMessage> out;
    ipc::Message message;
    while (socket_.receive(message) == ipc::ReceiveOutcome::kReceived) {
      REQUIRE(message.size() == 3);
      out.push_back({std::string(message[0].view()), big_endian_u64(message[1].view()),
                     std::string(message[2].view())});
    }
    return out;
  }

 private:
  ipc::Context context_;
  ipc::Socket socket_;
};

class KvReplayClient {
 public:
  explicit KvReplayClient(const std::string& endpoint)
      : context_(ipc::Context::create().value()),
        socket_(ipc::Socket::open(context_, ipc::SocketType::kDealer,
                                  {.send_high_water = 16,
                                   .receive_high_water = 100'000,
                                   .max_frame_bytes = -1,
                                   .reconnect = true,
                                   .routing_id = {}})
                    .value()) {
    REQUIRE(socket_.connect(endpoint).ok());
  }

  void send(std::string_view number) {
    ipc::Message message;
    ipc::append(message, "", number);
    REQUIRE(socket_.send(message) == ipc::SendOutcome::kSent);
  }
  void ask(uint64_t from) {
    std::string number(8, '\0');
    for (size_t i = 0; i < 8; ++i) number[i] = static_cast<char>(from >> (56 - 8 * i));
    send(number);
  }
  /// Adds what has arrived to `out`; true: the end of the replay, which is not added.
  bool read(std::vector<KvMessage>& out) {
    ipc::Message message;
    while (socket_.receive(message) == ipc::ReceiveOutcome::kReceived) {
      REQUIRE(message.size() == 4);
      REQUIRE(message[0].view().empty());
      KvMessage each{std::string(message[1].view()), big_endian_u64(message[2].view()),
                     std::string(message[3].view())};
      if (each.sequence == UINT64_MAX) {
        CHECK(each.topic.empty());
        CHECK(each.payload.empty());
        return true;
      }
      out.push_back(std::move(each));
    }
    return false;
  }

 private:
  ipc::Context context_;
  ipc::Socket socket_;
};

}  // namespace hearth::tests
