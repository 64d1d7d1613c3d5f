// Any bytes as the Unix sockets' decoder meets them, however they are cut: the same events and the
// same end, nothing kept beyond the bounds, and what was decoded can be encoded and decoded again.
//
// Input: how long the pieces are, whether a greeting goes in front, then the bytes.

#include <algorithm>
#include <string>
#include <vector>

#include "daemon/broker/transport/zmtp.h"
#include "ipc/text/utf8.h"
#include "kernels/base/check.h"
#include "tests/fuzz/input.h"

namespace {

using namespace hearth;
using namespace hearth::broker::zmtp;

constexpr Limits kLimits{
    .kept_frames = 3, .kept_bytes = 64, .max_frames = 6, .max_bytes = 300, .max_command_bytes = 40};

struct Read {
  std::string events;  // as text, one after the other
  std::string valid;   // what was decoded, encoded again
  bool failed = false;
};

void note(const Message& message, Read* to) {
  HEARTH_CHECK(message.num_frames >= 1 && message.num_frames <= kLimits.max_frames);
  HEARTH_CHECK(message.num_bytes <= kLimits.max_bytes);
  HEARTH_CHECK(message.frames.size() <= kLimits.kept_frames);
  HEARTH_CHECK(message.whole == (message.frames.size() == message.num_frames));
  size_t kept = 0;
  for (const std::string& frame : message.frames) kept += frame.size();
  HEARTH_CHECK(kept <= kLimits.kept_bytes);
  to->events += "message";
  for (size_t i = 0; i < message.frames.size(); ++i) {
    to->events += ' ' + message.frames[i];
    if (message.whole) append_frame(to->valid, message.frames[i], i + 1 < message.frames.size());
  }
  to->events +=
      ' ' + std::to_string(message.num_frames) + ' ' + std::to_string(message.num_bytes) + '\n';
  if (const auto subscription = subscription_of(message)) {
    HEARTH_CHECK(subscription->topic.size() + 1 == message.frames[0].size());
  }
}

void note(const Command& command, Read* to) {
  HEARTH_CHECK(!command.name.empty());
  HEARTH_CHECK(1 + command.name.size() + command.data.size() <= kLimits.max_command_bytes);
  to->events += "command " + command.name + ' ' + command.data + '\n';
  append_command(to->valid, command.name, command.data);
  if (const auto type = socket_type_of(command.data)) HEARTH_CHECK(!type->empty());
  if (const auto pong = pong_of(command)) HEARTH_CHECK(pong->size() <= command.data.size());
  if (const auto subscription = subscription_of(command)) {
    HEARTH_CHECK(subscription->topic == command.data);
  }
  std::string refusal;
  append_error(refusal, command.data);
  HEARTH_CHECK(refusal.size() <= 9 + 1 + 5 + 1 + 255);
}

Read read_in_pieces(std::string_view bytes, size_t piece) {
  Decoder decoder(kLimits);
  Read out;
  while (!bytes.empty()) {
    std::string_view part = bytes.substr(0, piece);
    bytes.remove_prefix(part.size());
    while (true) {
      const size_t before = part.size();
      const Result<std::optional<Event>> event = decoder.next(&part);
      HEARTH_CHECK(part.size() <= before);
      HEARTH_CHECK(decoder.message_bytes() <= kLimits.kept_bytes);
      if (!event) {
        HEARTH_CHECK(!event.error().message.empty() && ipc::is_valid_utf8(event.error().message));
        out.failed = true;
        return out;
      }
      if (!*event) {
        // Its memory, as a connection takes it, within the bounds that the header passed.
        if (decoder.is_midway()) decoder.reserve();
        break;
      }
      if (const auto* message = std::get_if<Message>(&**event)) note(*message, &out);
      if (const auto* command = std::get_if<Command>(&**event)) note(*command, &out);
      if (std::holds_alternative<Greeting>(**event)) out.events += "greeting\n";
    }
    HEARTH_CHECK(part.empty());
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hearth::fuzz::Input input(data, size);
  const auto piece = static_cast<size_t>(input.number(1, 64));
  const std::string bytes = (input.flag() ? greeting() : std::string()) + std::string(input.rest());
  const Read whole = read_in_pieces(bytes, std::max<size_t>(bytes.size(), 1));
  const Read cut = read_in_pieces(bytes, piece);
  HEARTH_CHECK(whole.events == cut.events && whole.failed == cut.failed);
  const Read again = read_in_pieces(greeting() + whole.valid, piece);
  HEARTH_CHECK(!again.failed && again.valid == whole.valid);
  return 0;
}
