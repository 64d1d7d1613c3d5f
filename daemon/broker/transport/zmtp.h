#pragma once
// ZMTP 3.1 (ZeroMQ RFC 23 and 37) with the NULL mechanism, the server's side: bytes in, greetings,
// commands and messages out, and back. No socket in it: what is decoded depends on the bytes alone,
// however they were cut, and no memory is taken for bytes that have not come.
//
//   greeting  64 bytes: FF, 8 bytes, 7F, major, minor, mechanism (20 bytes, zero-padded),
//             as-server, 31 bytes
//   frame     flags (1 more, 2 long, 4 command), size (1 byte, or 8 bytes big endian), body
//   command   in a frame's body: length of the name (1 byte), name, data

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::broker::zmtp {

inline constexpr size_t kGreetingBytes = 64;

/// What a peer may send. Beyond `kept_*` a message still ends, so that its sender can be told why
/// it was refused, but no more of it is kept; beyond `max_*` the connection ends.
struct Limits {
  size_t kept_frames = 8;           ///< of a message
  size_t kept_bytes = 1024;         ///< of a message, all frames
  size_t max_frames = 64;           ///< of a message
  uint64_t max_bytes = 2048;        ///< of a message, all frames
  size_t max_command_bytes = 1024;  ///< of one command
};

struct Greeting {
  uint8_t minor = 0;  ///< of version 3
};
struct Command {
  std::string name;
  std::string data;
};
struct Message {
  std::vector<std::string> frames;  ///< the first ones, where not all were kept
  size_t num_frames = 0;
  uint64_t num_bytes = 0;
  bool whole = true;  ///< every frame was kept
};
using Event = std::variant<Greeting, Command, Message>;

class Decoder {
 public:
  explicit Decoder(const Limits& limits) : limits_(limits) {}

  /// Takes bytes off `input`. Nothing: all were taken, and more are wanted. kProtocol: this is not
  /// ZMTP 3, or over a bound; kUnsupported: another version or mechanism. Nothing follows an error.
  Result<std::optional<Event>> next(std::string_view* input);

  /// Bytes that the message at hand takes once the frames that it has begun are whole.
  uint64_t message_bytes() const { return in_message_ ? kept_bytes_ : 0; }
  /// In the middle of a greeting, a frame or a message.
  bool is_midway() const { return !header_.empty() || state_ == State::kBody || in_message_; }

 private:
  enum class State { kGreeting, kHeader, kBody };
  Result<std::optional<Event>> take_greeting(std::string_view* input);
  Result<bool> take_header(std::string_view* input);
  Result<std::optional<Event>> end_frame();
  bool fill_header(std::string_view* input, size_t bytes);

  const Limits limits_;
  State state_ = State::kGreeting;
  std::string header_;  // of a greeting or a frame, as far as it has come
  uint8_t flags_ = 0;
  uint64_t left_ = 0;  // of the body
  bool keeps_ = true;  // the body
  std::string body_;
  bool in_message_ = false;
  uint64_t kept_bytes_ = 0;  // of the message's frames
  Message message_;
};

std::string greeting();
void append_frame(std::string& out, std::string_view body, bool more);
void append_command(std::string& out, std::string_view name, std::string_view data);
/// READY of a socket of that type ("ROUTER").
void append_ready(std::string& out, std::string_view socket_type);
/// The last words of a handshake that failed; at most 255 bytes of `reason` go.
void append_error(std::string& out, std::string_view reason);

/// The Socket-Type that a READY names. kProtocol: malformed properties, or none of that name.
Result<std::string> socket_type_of(std::string_view ready_data);

/// A subscription or its end, by a command (3.1) or a message (3.0); nothing for anything else.
struct Subscription {
  bool on = false;
  std::string_view topic;
};
std::optional<Subscription> subscription_of(const Command& command);
std::optional<Subscription> subscription_of(const Message& message);
/// The data of the PONG that answers a PING; nothing where the PING is malformed.
std::optional<std::string_view> pong_of(const Command& ping);

}  // namespace hearth::broker::zmtp
