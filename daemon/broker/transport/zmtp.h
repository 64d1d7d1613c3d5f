#pragma once
// The server side of ZMTP 3.1 (ZeroMQ RFC 23 and 37) with the NULL mechanism: decodes bytes to
// greetings, commands and messages, and encodes them. It has no socket: the result depends only on
// the bytes, however they were split, and no memory is taken for bytes that have not arrived.
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

/// What a peer may send. A message beyond `kept_*` is still read to its end, so that its sender can
/// be sent the reason for the refusal, but the excess is not kept. Beyond `max_*` the connection
/// ends.
struct Limits {
  size_t kept_frames = 8;           ///< of a message
  size_t kept_bytes = 1024;         ///< of a message, all frames
  size_t max_frames = 64;           ///< of a message
  uint64_t max_bytes = 2048;        ///< of a message, all frames
  size_t max_command_bytes = 1024;  ///< of one command
};

struct Greeting {
  uint8_t minor = 0;  ///< minor version of ZMTP 3
};
struct Command {
  std::string name;
  std::string data;
};
struct Message {
  std::vector<std::string> frames;  ///< the first ones, if not all were kept
  size_t num_frames = 0;
  uint64_t num_bytes = 0;
  bool whole = true;  ///< every frame was kept
};
using Event = std::variant<Greeting, Command, Message>;

class Decoder {
 public:
  explicit Decoder(const Limits& limits) : limits_(limits) {}

  /// Consumes bytes of `input`. Nothing: all were consumed, and more are needed. kProtocol: not
  /// ZMTP 3, or beyond a bound; kUnsupported: another version or mechanism. Do not call it after an
  /// error.
  Result<std::optional<Event>> next(std::string_view* input);

  /// Memory that the current message needs once its begun frames are complete.
  uint64_t message_bytes() const { return in_message_ ? kept_bytes_ : 0; }
  /// Takes the memory of the frame that is being received in one piece. Untouched memory costs
  /// nothing, and growing would hold the bytes twice for a moment.
  void reserve() {
    if (keeps_) body_.reserve(body_.size() + left_);
  }
  /// Within a greeting, a frame or a message.
  bool is_midway() const { return !header_.empty() || state_ == State::kBody || in_message_; }

 private:
  enum class State { kGreeting, kHeader, kBody };
  Result<std::optional<Event>> take_greeting(std::string_view* input);
  Result<bool> take_header(std::string_view* input);
  Result<std::optional<Event>> end_frame();
  bool fill_header(std::string_view* input, size_t bytes);

  const Limits limits_;
  State state_ = State::kGreeting;
  std::string header_;  // of a greeting or a frame, received so far
  uint8_t flags_ = 0;
  uint64_t left_ = 0;  // bytes of the body still to come
  bool keeps_ = true;  // whether the body is kept
  std::string body_;
  bool in_message_ = false;
  uint64_t kept_bytes_ = 0;  // of the current message's frames
  Message message_;
};

std::string greeting();
void append_frame(std::string& out, std::string_view body, bool more);
void append_command(std::string& out, std::string_view name, std::string_view data);
/// The READY command of a socket of that type ("ROUTER").
void append_ready(std::string& out, std::string_view socket_type);
/// The ERROR command of a failed handshake; at most 255 bytes of `reason` are sent.
void append_error(std::string& out, std::string_view reason);

/// The Socket-Type in a READY. kProtocol: malformed properties, or no Socket-Type.
Result<std::string> socket_type_of(std::string_view ready_data);

/// A subscription or its cancellation, from a command (3.1) or a message (3.0); nothing for any
/// other input.
struct Subscription {
  bool on = false;
  std::string_view topic;
};
std::optional<Subscription> subscription_of(const Command& command);
std::optional<Subscription> subscription_of(const Message& message);
/// The data of the PONG that answers a PING; nothing if the PING is malformed.
std::optional<std::string_view> pong_of(const Command& ping);

}  // namespace hearth::broker::zmtp
