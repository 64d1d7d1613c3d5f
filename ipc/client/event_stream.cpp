#include "ipc/client/event_stream.h"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "ipc/files/paths.h"
#include "kernels/base/clock.h"
#include "kernels/base/little_endian.h"

namespace hearth::ipc {
namespace {

constexpr std::string_view kMagic = "HEARTHREC1\n";
constexpr int kQueuedMessages = 1000;

void append_text(std::string& out, std::string_view text) {
  append_size(out, text.size());
  out += text;
}

bool take_text(std::string_view& rest, std::string& out) {
  if (rest.size() < 4) return false;
  const size_t size = load_u32(rest.data());
  if (size > rest.size() - 4) return false;
  out.assign(rest.substr(4, size));
  rest.remove_prefix(4 + size);
  return true;
}

}  // namespace

std::string stream_topic_prefix(uint32_t uid) { return fmt::format("uid:{}/", uid); }

Result<EventStream> EventStream::open(const std::filesystem::path& runtime_dir) {
  const SocketOptions options{.send_high_water = 16,
                              .receive_high_water = kQueuedMessages,
                              .max_frame_bytes = kMaxStreamMessageBytes,
                              .reconnect = true,
                              .routing_id = {}};
  HEARTH_ASSIGN_OR_RETURN(const std::string endpoint, ipc_endpoint(events_socket(runtime_dir)));
  HEARTH_ASSIGN_OR_RETURN(Context context, Context::create());
  HEARTH_ASSIGN_OR_RETURN(Socket socket, Socket::open(context, SocketType::kSub, options));
  uint64_t random = 0;
  if (::getentropy(&random, sizeof random) != 0) {
    return Error::io(fmt::format("getentropy: {}", std::strerror(errno)));
  }
  const std::string topic = fmt::format("{}{:016x}", stream_topic_prefix(::geteuid()), random);
  HEARTH_TRY(socket.subscribe(topic));
  HEARTH_TRY(socket.connect(endpoint));
  return EventStream(std::move(context), std::move(socket), std::string(kStreamAlive) + topic);
}

std::vector<StreamMessage> EventStream::wait(int timeout_ms) {
  std::vector<StreamMessage> out;
  if (!socket_.readable()) {
    std::array<PollItem, 1> items = {PollItem{.socket = &socket_}};
    poll(items, timeout_ms);
  }
  const int64_t now_us = SteadyClock().now_us();
  if (now_us >= renew_due_us_) {
    renew_due_us_ = now_us + kStreamRenewUs;
    // Only changes travel, so it is on and off in turn. Where it fails, so will receiving.
    (void)(alive_on_ ? socket_.unsubscribe(alive_) : socket_.subscribe(alive_)).ok();
    alive_on_ = !alive_on_;
  }
  Message message;
  while (out.size() < kQueuedMessages) {
    const ReceiveOutcome outcome = socket_.receive(message);
    if (outcome == ReceiveOutcome::kWouldBlock || outcome == ReceiveOutcome::kFailed) break;
    if (outcome != ReceiveOutcome::kReceived || message.size() != 4) continue;
    out.push_back({now_us, std::string(message[1].view()), std::string(message[2].view()),
                   std::string(message[3].view())});
  }
  return out;
}

Result<RecordingWriter> RecordingWriter::create(const std::filesystem::path& file) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << kMagic;
  if (!out.flush()) {
    return Error::io(fmt::format("{}: {}", file.string(), std::strerror(errno)));
  }
  return RecordingWriter(std::move(out));
}

Result<void> RecordingWriter::add(const StreamMessage& message) {
  std::string rest;
  append_u64(rest, message.time_us);
  append_text(rest, message.kind);
  append_text(rest, message.model);
  append_text(rest, message.payload);
  std::string length;
  append_size(length, rest.size());
  if (out_ << length << rest << std::flush) return {};
  return Error::io("the recording cannot be written");
}

Result<std::vector<StreamMessage>> parse_recording(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) {
    return Error::invalid("not a recording: it does not begin with HEARTHREC1");
  }
  bytes.remove_prefix(kMagic.size());
  std::vector<StreamMessage> out;
  while (bytes.size() >= 4) {
    const size_t size = load_u32(bytes.data());
    if (size > bytes.size() - 4) break;  // the recorder was killed amid it
    std::string_view rest = bytes.substr(4, size);
    bytes.remove_prefix(4 + size);
    StreamMessage message;
    bool whole = size <= kMaxStreamMessageBytes && rest.size() >= 8;
    if (whole) {
      message.time_us = load_u64(rest.data());
      rest.remove_prefix(8);
      whole = take_text(rest, message.kind) && take_text(rest, message.model) &&
              take_text(rest, message.payload) && rest.empty();
    }
    if (!whole) {
      return Error::invalid(fmt::format("recording: message {} is damaged", out.size()));
    }
    out.push_back(std::move(message));
  }
  return out;
}

Result<std::vector<StreamMessage>> read_recording(const std::filesystem::path& file,
                                                  size_t max_bytes) {
  std::error_code problem;
  const uintmax_t size = std::filesystem::file_size(file, problem);
  if (problem) {
    return Error::not_found(fmt::format("{}: {}", file.string(), problem.message()));
  }
  if (size > max_bytes) {
    return Error::too_large(
        fmt::format("{}: {} bytes, at most {}", file.string(), size, max_bytes));
  }
  std::ifstream in(file, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  if (!in) return Error::io(fmt::format("{}: cannot be read", file.string()));
  return parse_recording(bytes.view());
}

}  // namespace hearth::ipc
