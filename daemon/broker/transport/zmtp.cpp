#include "daemon/broker/transport/zmtp.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/base/ascii.h"

namespace hearth::broker::zmtp {
namespace {

constexpr uint8_t kMore = 1, kLong = 2, kCommand = 4;
constexpr size_t kMaxErrorBytes = 255;
constexpr size_t kTtlBytes = 2, kMaxPingContextBytes = 16;
constexpr std::string_view kNull = "NULL";
constexpr size_t kMajorAt = 10, kMinorAt = 11, kMechanismAt = 12, kMechanismBytes = 20;

uint64_t load_big_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | byte_of(byte);
  return value;
}

void append_big_endian(std::string& out, uint64_t value, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}

void append_header(std::string& out, uint8_t flags, size_t bytes) {
  if (bytes > 255) {
    out += static_cast<char>(flags | kLong);
    append_big_endian(out, bytes, 8);
  } else {
    out += static_cast<char>(flags);
    out += static_cast<char>(bytes);
  }
}

}  // namespace

// True once `header_` has `bytes` bytes.
bool Decoder::fill_header(std::string_view* input, size_t bytes) {
  if (header_.size() < bytes) {
    const size_t n = std::min(bytes - header_.size(), input->size());
    header_.append(input->substr(0, n));
    input->remove_prefix(n);
  }
  return header_.size() >= bytes;
}

Result<std::optional<Event>> Decoder::take_greeting(std::string_view* input) {
  // Checked byte by byte: input that is not a greeting may never reach 64 bytes.
  const bool whole = fill_header(input, kGreetingBytes);
  const auto byte = [this](size_t at) { return byte_of(header_[at]); };
  if ((!header_.empty() && byte(0) != 0xFF) || (header_.size() > 9 && byte(9) != 0x7F)) {
    return Error::protocol("greeting: met no ZMTP signature");
  }
  if (header_.size() > kMajorAt && byte(kMajorAt) < 3) {
    return Error::unsupported(fmt::format("greeting: met ZMTP {}, want 3", byte(kMajorAt)));
  }
  if (!whole) return std::optional<Event>();
  std::string_view mechanism = std::string_view(header_).substr(kMechanismAt, kMechanismBytes);
  mechanism = mechanism.substr(0, mechanism.find('\0'));
  if (mechanism != kNull) {
    return Error::unsupported("greeting: want the mechanism NULL on this socket");
  }
  const Greeting greeting{byte(kMinorAt)};
  header_.clear();
  state_ = State::kHeader;
  return std::optional<Event>(greeting);
}

// True once the header is complete and the body follows.
Result<bool> Decoder::take_header(std::string_view* input) {
  if (!fill_header(input, 1)) return false;
  flags_ = byte_of(header_[0]);
  if ((flags_ & ~(kMore | kLong | kCommand)) != 0 || (flags_ & (kMore | kCommand)) == 5) {
    return Error::protocol(fmt::format("frame: met flags {:#04x}", flags_));
  }
  if (!fill_header(input, (flags_ & kLong) != 0 ? 9 : 2)) return false;
  left_ = load_big_endian(std::string_view(header_).substr(1));
  header_.clear();
  keeps_ = true;
  if ((flags_ & kCommand) != 0) {
    if (left_ > limits_.max_command_bytes) {
      return Error::protocol(
          fmt::format("command: met {} bytes, want at most {}", left_, limits_.max_command_bytes));
    }
  } else {
    if (left_ > limits_.max_bytes || message_.num_bytes + left_ > limits_.max_bytes) {
      return Error::protocol(fmt::format("message: met more than {} bytes", limits_.max_bytes));
    }
    if (message_.num_frames >= limits_.max_frames) {
      return Error::protocol(fmt::format("message: met more than {} frames", limits_.max_frames));
    }
    if (!std::exchange(in_message_, true)) kept_bytes_ = 0;
    ++message_.num_frames;
    message_.num_bytes += left_;
    keeps_ = message_.whole && message_.frames.size() < limits_.kept_frames &&
             message_.num_bytes <= limits_.kept_bytes;
    message_.whole = keeps_;
    if (keeps_) kept_bytes_ += left_;
  }
  state_ = State::kBody;
  return true;
}

Result<std::optional<Event>> Decoder::end_frame() {
  state_ = State::kHeader;
  if ((flags_ & kCommand) != 0) {
    const std::string body = std::exchange(body_, {});
    const size_t name = body.empty() ? 0 : byte_of(body[0]);
    if (name == 0 || name + 1 > body.size()) return Error::protocol("command: met no name");
    return std::optional<Event>(Command{body.substr(1, name), body.substr(1 + name)});
  }
  if (keeps_) message_.frames.push_back(std::exchange(body_, {}));
  if ((flags_ & kMore) != 0) return std::optional<Event>();
  in_message_ = false;
  return std::optional<Event>(std::exchange(message_, {}));
}

Result<std::optional<Event>> Decoder::next(std::string_view* input) {
  if (state_ == State::kGreeting) return take_greeting(input);
  while (true) {
    if (state_ == State::kHeader) {
      HEARTH_ASSIGN_OR_RETURN(const bool whole, take_header(input));
      if (!whole) return std::optional<Event>();
    }
    const size_t n = std::min<uint64_t>(left_, input->size());
    if (keeps_) body_.append(input->substr(0, n));
    input->remove_prefix(n);
    left_ -= n;
    if (left_ > 0) return std::optional<Event>();
    HEARTH_ASSIGN_OR_RETURN(std::optional<Event> event, end_frame());
    if (event) return event;
  }
}

std::string greeting() {
  std::string out(kGreetingBytes, '\0');
  out[0] = '\xFF';
  out[9] = '\x7F';
  out[kMajorAt] = 3;
  out[kMinorAt] = 1;
  out.replace(kMechanismAt, kNull.size(), kNull);
  return out;
}

void append_frame(std::string& out, std::string_view body, bool more) {
  append_header(out, more ? kMore : 0, body.size());
  out += body;
}

void append_command(std::string& out, std::string_view name, std::string_view data) {
  append_header(out, kCommand, 1 + name.size() + data.size());
  out += static_cast<char>(name.size());
  out += name;
  out += data;
}

void append_ready(std::string& out, std::string_view socket_type) {
  constexpr std::string_view kName = "Socket-Type";
  std::string data;
  data += static_cast<char>(kName.size());
  data += kName;
  append_big_endian(data, socket_type.size(), 4);
  data += socket_type;
  append_command(out, "READY", data);
}

void append_error(std::string& out, std::string_view reason) {
  reason = reason.substr(0, kMaxErrorBytes);
  std::string data;
  data += static_cast<char>(reason.size());
  data += reason;
  append_command(out, "ERROR", data);
}

Result<std::string> socket_type_of(std::string_view data) {
  std::string type;
  while (!data.empty()) {
    const size_t name_bytes = byte_of(data[0]);
    if (name_bytes == 0 || data.size() < 1 + name_bytes + 4) {
      return Error::protocol("READY: met a malformed property");
    }
    const std::string_view name = data.substr(1, name_bytes);
    const uint64_t value_bytes = load_big_endian(data.substr(1 + name_bytes, 4));
    data.remove_prefix(1 + name_bytes + 4);
    if (value_bytes > data.size()) return Error::protocol("READY: met a malformed property");
    if (equal_no_case(name, "Socket-Type")) type = data.substr(0, value_bytes);
    data.remove_prefix(value_bytes);
  }
  if (type.empty()) return Error::protocol("READY: met no Socket-Type");
  return type;
}

std::optional<Subscription> subscription_of(const Command& command) {
  if (command.name == "SUBSCRIBE") return Subscription{true, command.data};
  if (command.name == "CANCEL") return Subscription{false, command.data};
  return std::nullopt;
}

std::optional<Subscription> subscription_of(const Message& message) {
  if (!message.whole || message.frames.size() != 1 || message.frames[0].empty()) {
    return std::nullopt;
  }
  const std::string_view frame = message.frames[0];
  if (frame[0] != 0 && frame[0] != 1) return std::nullopt;
  return Subscription{frame[0] == 1, frame.substr(1)};
}

std::optional<std::string_view> pong_of(const Command& ping) {
  if (ping.data.size() < kTtlBytes || ping.data.size() > kTtlBytes + kMaxPingContextBytes) {
    return std::nullopt;
  }
  return std::string_view(ping.data).substr(kTtlBytes);
}

}  // namespace hearth::broker::zmtp
