#include "ipc/wire/socket.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ipc/files/paths.h"
#include "ipc/wire/frames.h"
#include "tests/temp_dir.h"

namespace hearth::ipc {
namespace {

/// The next outcome other than kWouldBlock; waits for it, up to a bound that only a failure
/// reaches.
ReceiveOutcome wait_receive(Socket& socket, Message& out) {
  for (int i = 0; i < 100; ++i) {
    const ReceiveOutcome outcome = socket.receive(out);
    if (outcome != ReceiveOutcome::kWouldBlock) return outcome;
    PollItem item{.socket = &socket};
    poll({&item, 1}, 100);
  }
  return ReceiveOutcome::kWouldBlock;
}

struct Pair {
  tests::TempDir temp;
  Context context = std::move(Context::create()).value();
  std::string endpoint = *ipc_endpoint(temp.path() / "s");
  Socket router;
  Socket dealer;

  explicit Pair(const SocketOptions& options = {})
      : router(std::move(Socket::open(context, SocketType::kRouter, options)).value()),
        dealer(std::move(Socket::open(context, SocketType::kDealer, options)).value()) {
    REQUIRE(router.bind(endpoint).ok());
    REQUIRE(dealer.connect(endpoint).ok());
  }
};

Message message_of(std::initializer_list<std::string_view> frames) {
  Message message;
  for (const std::string_view frame : frames) append(message, frame);
  return message;
}

TEST_CASE("messages are sent both ways, and the kernel identifies their sender") {
  Pair pair;
  Message hello = message_of({"HEARTH/1", "id", std::string_view("a\0b", 3), ""});
  CHECK(pair.dealer.send(hello) == SendOutcome::kSent);
  CHECK(hello.empty());

  Message received;
  REQUIRE(wait_receive(pair.router, received) == ReceiveOutcome::kReceived);
  REQUIRE(received.size() == 5);
  CHECK(views(received, 1) ==
        std::vector<std::string_view>{"HEARTH/1", "id", std::string_view("a\0b", 3), ""});
  const auto peer = peer_of(received[1]);
  REQUIRE(peer.has_value());
  CHECK(peer->uid == ::geteuid());
  CHECK(peer->gid == ::getegid());
  CHECK(peer->pid == ::getpid());

  CHECK(pair.router.send(received) == SendOutcome::kSent);
  REQUIRE(wait_receive(pair.dealer, received) == ReceiveOutcome::kReceived);
  CHECK(received.size() == 4);
  CHECK(pair.dealer.receive(received) == ReceiveOutcome::kWouldBlock);
}

TEST_CASE("an unknown peer and a full one are outcomes, and the message is kept") {
  SocketOptions small;
  small.send_high_water = 4;
  small.receive_high_water = 4;
  Pair pair(small);
  Message unknown = message_of({"unknown", "x"});
  CHECK(pair.router.send(unknown) == SendOutcome::kUnreachable);
  CHECK(unknown.size() == 2);

  Message hello = message_of({"x"});
  REQUIRE(pair.dealer.send(hello) == SendOutcome::kSent);
  Message received;
  REQUIRE(wait_receive(pair.router, received) == ReceiveOutcome::kReceived);
  const std::string identity(received[0].view());
  const std::string big(1 << 20, 'x');
  SendOutcome outcome = SendOutcome::kSent;
  int sent = 0;
  Message message;
  while (sent < 10'000) {
    message = message_of({identity, big});
    outcome = pair.router.send(message);
    if (outcome != SendOutcome::kSent) break;
    ++sent;
  }
  CHECK(outcome == SendOutcome::kWouldBlock);
  CHECK(message.size() == 2);
  CHECK(sent < 100);  // small high-water marks take effect

  { Socket gone = std::move(pair.dealer); }
  // While it closes there may be room once more.
  for (int i = 0; i < 1000 && outcome != SendOutcome::kUnreachable; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    (void)pair.router.receive(received);
    if (outcome == SendOutcome::kSent) message = message_of({identity, big});
    outcome = pair.router.send(message);
  }
  CHECK(outcome == SendOutcome::kUnreachable);
}

TEST_CASE("a message with too many frames is dropped and the next one is complete") {
  Pair pair;
  Message many;
  for (int i = 0; i < 100; ++i) append(many, std::to_string(i));
  REQUIRE(pair.dealer.send(many) == SendOutcome::kSent);
  Message good = message_of({"good"});
  REQUIRE(pair.dealer.send(good) == SendOutcome::kSent);
  Message received;
  CHECK(wait_receive(pair.router, received) == ReceiveOutcome::kMalformed);
  CHECK(received.size() == kMaxFrames);
  REQUIRE(wait_receive(pair.router, received) == ReceiveOutcome::kReceived);
  CHECK(received[1].view() == "good");
}

TEST_CASE("a frame above the bound ends the connection, not the socket") {
  SocketOptions small;
  small.max_frame_bytes = 1000;
  Pair pair(small);
  SocketOptions none;
  none.max_frame_bytes = -1;
  Message received;
  Message big = message_of({std::string(1001, 'x')});
  REQUIRE(pair.dealer.send(big) == SendOutcome::kSent);
  Socket other = std::move(Socket::open(pair.context, SocketType::kDealer, none)).value();
  REQUIRE(other.connect(pair.endpoint).ok());
  Message fits = message_of({std::string(1000, 'y')});
  REQUIRE(other.send(fits) == SendOutcome::kSent);
  REQUIRE(wait_receive(pair.router, received) == ReceiveOutcome::kReceived);
  CHECK(received[1].view().size() == 1000);
}

TEST_CASE("a connection that may not reconnect blocks sends when it ends") {
  tests::TempDir temp;
  const std::string endpoint = *ipc_endpoint(temp.path() / "s");
  Context context = std::move(Context::create()).value();
  SocketOptions once;
  once.reconnect = false;
  Socket dealer = std::move(Socket::open(context, SocketType::kDealer, once)).value();
  {
    Socket router = std::move(Socket::open(context, SocketType::kRouter)).value();
    REQUIRE(router.bind(endpoint).ok());
    REQUIRE(dealer.connect(endpoint).ok());
    Message hello = message_of({"x"});
    REQUIRE(dealer.send(hello) == SendOutcome::kSent);
    Message received;
    REQUIRE(wait_receive(router, received) == ReceiveOutcome::kReceived);
  }
  SendOutcome outcome = SendOutcome::kSent;
  for (int i = 0; i < 200 && outcome == SendOutcome::kSent; ++i) {
    Message again = message_of({"x"});
    outcome = dealer.send(again);
    PollItem item{.socket = &dealer};
    poll({&item, 1}, 10);
  }
  CHECK(outcome == SendOutcome::kWouldBlock);
}

TEST_CASE("binding where it is impossible is an error that names the endpoint") {
  Context context = std::move(Context::create()).value();
  Socket router = std::move(Socket::open(context, SocketType::kRouter)).value();
  const auto bound = router.bind("ipc:///nonexistent/dir/s");
  REQUIRE_FALSE(bound.ok());
  CHECK(bound.error().code == ErrorCode::kIo);
  CHECK(bound.error().message.find("/nonexistent/dir/s") != std::string::npos);
}

TEST_CASE("peer addresses are parsed completely or not at all") {
  CHECK(parse_peer_address("localhost:1000:1001:4242") == PeerCredentials{1000, 1001, 4242});
  CHECK(parse_peer_address("localhost:4294967295:0:1")->uid == 4294967295u);
  for (const char* bad :
       {"", "localhost", "localhost:", "localhost:1:2", "localhost:1:2:3:4", "localhost:-1:2:3",
        "localhost:4294967296:2:3", "localhost:a:b:c", "127.0.0.1", "localhost:1:2:3 "}) {
    CHECK_FALSE(parse_peer_address(bad).has_value());
  }
}

}  // namespace
}  // namespace hearth::ipc
