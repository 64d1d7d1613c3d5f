#include "daemon/broker/transport/zmtp.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

namespace hearth::broker::zmtp {
namespace {

const Limits kLimits{.kept_frames = 3,
                     .kept_bytes = 1000,
                     .max_frames = 6,
                     .max_bytes = 2000,
                     .max_command_bytes = 100};

struct Read {
  std::vector<Message> messages;
  std::vector<Command> commands;
  int greetings = 0;
  std::optional<Error> error;
};

// All of `bytes` in pieces of at most `piece`.
Read read_all(Decoder& decoder, std::string_view bytes, size_t piece) {
  Read out;
  while (!bytes.empty() && !out.error) {
    std::string_view part = bytes.substr(0, piece);
    bytes.remove_prefix(part.size());
    while (true) {
      Result<std::optional<Event>> event = decoder.next(&part);
      if (!event) {
        out.error = event.take_error();
        break;
      }
      if (!*event) break;
      if (auto* message = std::get_if<Message>(&**event)) out.messages.push_back(*message);
      if (auto* command = std::get_if<Command>(&**event)) out.commands.push_back(*command);
      if (std::holds_alternative<Greeting>(**event)) ++out.greetings;
    }
  }
  return out;
}

Read read_all(std::string_view bytes, size_t piece = 1 << 20) {
  Decoder decoder(kLimits);
  return read_all(decoder, bytes, piece);
}

TEST_CASE("encoded messages are decoded, however they are split") {
  std::string bytes = greeting();
  append_ready(bytes, "DEALER");
  append_frame(bytes, "HEARTH/1", true);
  append_frame(bytes, "", true);
  append_frame(bytes, std::string(700, 'x'), false);
  append_command(bytes, "PING",
                 std::string("\0\x0a"
                             "abc",
                             5));
  append_frame(bytes, "alone", false);
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, size_t{64}, size_t{10'000}}) {
    const Read read = read_all(bytes, piece);
    CAPTURE(piece);
    REQUIRE_FALSE(read.error);
    CHECK(read.greetings == 1);
    REQUIRE(read.commands.size() == 2);
    CHECK(socket_type_of(read.commands[0].data).value() == "DEALER");
    CHECK(pong_of(read.commands[1]) == std::optional<std::string_view>("abc"));
    REQUIRE(read.messages.size() == 2);
    CHECK(read.messages[0].frames ==
          std::vector<std::string>{"HEARTH/1", "", std::string(700, 'x')});
    CHECK(read.messages[0].whole);
    CHECK(read.messages[0].num_bytes == 708);
    CHECK(read.messages[1].frames == std::vector<std::string>{"alone"});
  }
}

TEST_CASE("bytes that are not ZMTP 3 with NULL are refused at the first byte that differs") {
  CHECK(read_all("GET / HTTP/1.1\r\n").error->code == ErrorCode::kProtocol);
  CHECK(read_all(std::string("\xFF\0\0\0\0\0\0\0\1\x7F\1", 11)).error->code ==
        ErrorCode::kUnsupported);
  std::string curve = greeting();
  curve.replace(12, 5, "CURVE");
  CHECK(read_all(curve).error->code == ErrorCode::kUnsupported);
  CHECK_FALSE(read_all(std::string("\xFF\0\0", 3)).error);  // more may come
}

TEST_CASE("a message above what is kept still ends; above what is allowed, the connection ends") {
  std::string bytes = greeting();
  for (int i = 0; i < 5; ++i) append_frame(bytes, "f", true);
  append_frame(bytes, "last", false);
  append_frame(bytes, "next", false);
  Read read = read_all(bytes);
  REQUIRE_FALSE(read.error);
  REQUIRE(read.messages.size() == 2);
  CHECK_FALSE(read.messages[0].whole);
  CHECK(read.messages[0].frames.size() == 3);
  CHECK(read.messages[0].num_frames == 6);
  CHECK(read.messages[1].whole);

  bytes = greeting();
  append_frame(bytes, "id", true);
  append_frame(bytes, std::string(1500, 'x'), false);
  read = read_all(bytes);
  REQUIRE(read.messages.size() == 1);
  CHECK(read.messages[0].frames == std::vector<std::string>{"id"});
  CHECK(read.messages[0].num_bytes == 1502);

  bytes = greeting();
  for (int i = 0; i < 7; ++i) append_frame(bytes, "", true);
  CHECK(read_all(bytes).error);
  bytes = greeting();
  append_frame(bytes, std::string(1500, 'x'), true);
  append_frame(bytes, std::string(600, 'x'), false);
  CHECK(read_all(bytes).error);
  bytes = greeting();
  append_command(bytes, "SUBSCRIBE", std::string(200, 'x'));
  CHECK(read_all(bytes).error);
}

TEST_CASE("a hostile length is refused by its header alone, without overflow") {
  for (const char* size :
       {"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", "\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF"}) {
    CHECK(read_all(greeting() + '\2' + std::string(size, 8)).error);
    std::string second = greeting();
    append_frame(second, "x", true);
    CHECK(read_all(second + '\2' + std::string(size, 8)).error);
    CHECK(read_all(greeting() + '\6' + std::string(size, 8)).error);
  }
  // Within the limit, but its bytes have not come: nothing is delivered and no memory is taken.
  Decoder decoder(kLimits);
  std::string long_frame = greeting() + std::string("\2\0\0\0\0\0\0\3\xE8", 9);
  CHECK(read_all(decoder, long_frame, 1000).messages.empty());
  CHECK(decoder.message_bytes() == 1000);
  CHECK(decoder.is_midway());
}

TEST_CASE("unknown flags, and commands without a name, are refused") {
  for (const char flags : {'\x08', '\x10', '\x80', '\x05', '\x07'}) {
    CHECK(read_all(greeting() + flags + std::string(20, '\0')).error);
  }
  CHECK(read_all(greeting() + std::string("\4\0", 2)).error);
  CHECK(read_all(greeting() + std::string("\4\2\5A", 4)).error);
}

TEST_CASE("READY's properties are parsed and never trusted") {
  const std::string type = std::string("\x0bSocket-Type\0\0\0\3SUB", 19);
  CHECK(socket_type_of(type).value() == "SUB");
  CHECK(socket_type_of(std::string("\x08Identity\0\0\0\2id", 15) + type).value() == "SUB");
  CHECK_FALSE(socket_type_of("").ok());
  CHECK_FALSE(socket_type_of(std::string("\x0bSocket-Type\xFF\xFF\xFF\xFFSUB", 19)).ok());
  CHECK_FALSE(socket_type_of(std::string("\0\0\0\0\0\0", 6)).ok());
  for (size_t cut = 1; cut < type.size(); ++cut)
    CHECK_FALSE(socket_type_of(type.substr(0, cut)).ok());
}

TEST_CASE("subscriptions come as messages of 3.0 and as commands of 3.1") {
  CHECK(subscription_of(Command{"SUBSCRIBE", "a"})->on);
  CHECK_FALSE(subscription_of(Command{"CANCEL", "a"})->on);
  CHECK_FALSE(subscription_of(Command{"PING", "a"}));
  Message message{.frames = {std::string("\1topic")}, .num_frames = 1, .num_bytes = 6};
  CHECK(subscription_of(message)->topic == "topic");
  message.frames[0][0] = '\0';
  CHECK_FALSE(subscription_of(message)->on);
  message.frames[0][0] = 'x';
  CHECK_FALSE(subscription_of(message));
  message.frames.push_back("more");
  CHECK_FALSE(subscription_of(message));
  CHECK_FALSE(pong_of(Command{"PING", "a"}));
  CHECK_FALSE(pong_of(Command{"PING", std::string(40, 'a')}));
}

TEST_CASE("the same events in the same order, however a connection's bytes are split") {
  std::mt19937 random(9);
  for (int i = 0; i < 500; ++i) {
    std::string bytes = greeting();
    std::vector<std::vector<std::string>> sent;
    for (size_t n = 1 + random() % 6; n > 0; --n) {
      if (random() % 4 == 0) append_command(bytes, "PING", std::string(2 + random() % 10, 'p'));
      auto& frames = sent.emplace_back(1 + random() % kLimits.kept_frames);
      for (std::string& frame : frames) {
        frame.assign(random() % 3 == 0 ? 256 + random() % 50 : random() % 20,
                     static_cast<char>('a' + random() % 26));
        append_frame(bytes, frame, &frame != &frames.back());
      }
    }
    Decoder decoder(kLimits);
    std::vector<std::vector<std::string>> read;
    for (std::string_view rest = bytes; !rest.empty();) {
      const size_t piece = std::min<size_t>(rest.size(), random() % 40);
      const Read part = read_all(decoder, rest.substr(0, piece), 1 << 20);
      rest.remove_prefix(piece);
      REQUIRE_FALSE(part.error);
      for (const Message& message : part.messages) {
        CHECK(message.whole);
        read.push_back(message.frames);
      }
    }
    CHECK(read == sent);
    CHECK_FALSE(decoder.is_midway());
  }
}

TEST_CASE("any bytes end in events or an error") {
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = greeting();
    for (size_t n = random() % 200; n > 0; --n) bytes += static_cast<char>(random() % 9);
    if (random() % 4 == 0) bytes[random() % bytes.size()] = static_cast<char>(random());
    const Read whole = read_all(bytes);
    const Read cut = read_all(bytes, 1 + random() % 5);
    CHECK(whole.messages.size() == cut.messages.size());
    CHECK(whole.commands.size() == cut.commands.size());
    CHECK(whole.error.has_value() == cut.error.has_value());
    for (const Message& message : whole.messages) CHECK(message.frames.size() <= 3);
  }
}

}  // namespace
}  // namespace hearth::broker::zmtp
