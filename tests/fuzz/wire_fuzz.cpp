// Any frames and any JSON, as each of the sockets would meet them. What is accepted comes back from
// the wire equal.
//
// Input: messages with the byte 0x1D between them; each a byte that chooses the socket, then frames
// with the byte 0x1E between them.

#include <algorithm>
#include <string>
#include <vector>

#include "ipc/text/utf8.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/frames.h"
#include "ipc/wire/json.h"
#include "ipc/wire/worker_codec.h"
#include "ipc/wire/worker_pipe.h"
#include "kernels/base/check.h"
#include "tests/fuzz/input.h"

namespace {

using namespace hearth;
using namespace hearth::ipc;

void check_error(const Error& error) {
  HEARTH_CHECK(!error.message.empty() && is_valid_utf8(error.message));
}

std::vector<std::string_view> split(std::string_view bytes) {
  std::vector<std::string_view> frames;
  while (frames.size() < kMaxFrames) {
    const size_t end = std::min(bytes.find('\x1E'), bytes.size());
    frames.push_back(bytes.substr(0, end));
    if (end == bytes.size()) break;
    bytes.remove_prefix(end + 1);
  }
  return frames;
}

void as_request(std::string_view json) {
  const auto request = decode_request(json);
  if (!request.ok()) return check_error(request.error());
  const auto again = decode_request(encode_request(*request));
  HEARTH_CHECK(again.ok(), "{}", again.error().message);
  HEARTH_CHECK(*again == *request);
}

void as_worker_request(std::string_view json) {
  const auto request = decode_worker_request(7, json);
  if (!request.ok()) return check_error(request.error());
  const auto again = decode_worker_request(7, encode_worker_request(*request, request->task));
  HEARTH_CHECK(again.ok(), "{}", again.error().message);
  HEARTH_CHECK(again->task == request->task);
}

void as_control(std::string_view json) {
  const auto control = decode_worker_control(json);
  if (!control.ok()) return check_error(control.error());
  const auto again = decode_worker_control(encode_worker_control(*control));
  HEARTH_CHECK(again.ok() && *again == *control);
}

void as_event(std::string_view json) {
  const auto event = decode_event(json);
  if (!event.ok()) return check_error(event.error());
  const auto again = decode_event(encode_event(*event));
  HEARTH_CHECK(again.ok(), "{}", again.error().message);
  HEARTH_CHECK(again.value().index() == event.value().index());
}

void as_worker_event(std::string_view json) {
  const auto event = decode_worker_event(json);
  if (!event.ok()) return check_error(event.error());
  const auto again = decode_worker_event(encode_worker_event(*event));
  HEARTH_CHECK(again.ok(), "{}", again.error().message);
  HEARTH_CHECK(again.value().index() == event.value().index());
}

void as_delta(const Answer& answer) {
  const auto delta = decode_delta(answer);
  if (!delta.ok()) return check_error(delta.error());
  HEARTH_CHECK(is_valid_utf8(delta_as_json(*delta)));
  const std::string payload = encode_delta_payload(delta.value().header, delta.value().text);
  const std::string ids = encode_ids(delta.value().ids);
  const std::string logprobs =
      delta.value().logprobs.empty() ? "" : encode_logprobs(delta.value().logprobs);
  const auto again = decode_delta(
      {.is_delta = true, .json = {}, .payload = payload, .ids = ids, .logprobs = logprobs});
  HEARTH_CHECK(again.ok(), "{}", again.error().message);
  HEARTH_CHECK(again.value().ids == delta.value().ids && again.value().text == delta.value().text);
}

void as_answer(const Answer& answer) {
  if (answer.is_delta) return as_delta(answer);
  as_event(answer.json);
}

void from_client(FrameViews frames) {
  request_id_of(frames);
  const auto message = parse_client_message(frames);
  if (!message.ok()) return check_error(message.error());
  as_request(message.value().json);
}

void from_daemon(FrameViews frames) {
  const auto message = parse_daemon_message(frames);
  if (!message.ok()) return check_error(message.error());
  as_answer(message.value().answer);
}

void as_answers(std::string_view bytes) {
  std::string again;
  for (std::string_view rest = bytes; !rest.empty();) {
    const auto next = take_answer(&rest);
    if (!next.ok()) return check_error(next.error());
    as_answer(next->answer);
    append_answer(again, next->number, next->answer);
  }
  HEARTH_CHECK(again == bytes);
}

/// A pipe's bytes between broker and worker, in pieces.
void from_pipe(fuzz::Input& input) {
  const size_t piece = static_cast<size_t>(input.number(1, 64));
  PipeReader reader;
  for (std::string_view rest = input.rest(); !rest.empty();) {
    const size_t bytes = std::min(piece, rest.size());
    rest.copy(reader.room().data(), bytes);
    reader.filled(bytes);
    rest.remove_prefix(bytes);
    while (true) {
      const auto message = reader.next();
      if (!message.ok()) return check_error(message.error());
      if (!*message) break;
      switch ((*message)->kind) {
        case PipeKind::kRequest: as_worker_request((*message)->bytes); break;
        case PipeKind::kControl: as_control((*message)->bytes); break;
        case PipeKind::kEvent: as_worker_event((*message)->bytes); break;
        case PipeKind::kAnswers: as_answers((*message)->bytes); break;
        case PipeKind::kWatch: break;        // decoded by listeners
        case PipeKind::kKvEvents: break;     // decoded by subscribers
        case PipeKind::kDropAdapter: break;  // a name
      }
    }
  }
}

/// A small limit, so that inputs of a few bytes exceed it.
void as_bounded_json(std::string_view text) {
  const JsonLimits limits{
      .max_bytes = 256, .max_depth = 4, .max_value_bytes = 640, .max_object_keys = 4};
  const auto object = parse_json_object(text, limits);
  if (!object.ok()) return check_error(object.error());
  const auto again = parse_json_object(dump_json(*object), {});
  HEARTH_CHECK(again.ok() && *again == *object);
  for (const auto& [key, value] : object.value().items()) {
    HEARTH_CHECK(!describe(value).empty());
    printable(key);
  }
}

void one_message(std::string_view bytes) {
  fuzz::Input input(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  const int socket = input.number(0, 5);
  if (socket == 2) return from_pipe(input);
  const std::vector<std::string_view> frames = split(input.rest());
  switch (socket) {
    case 0: from_client(frames); break;
    case 1: from_daemon(frames); break;
    case 3: as_answers(input.rest()); break;
    case 4: as_bounded_json(input.rest()); break;
    default: HEARTH_CHECK(is_valid_utf8(to_valid_utf8(input.rest())));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest = fuzz::Input(data, size).rest();
  while (true) {
    const size_t end = std::min(rest.find('\x1D'), rest.size());
    one_message(rest.substr(0, end));
    if (end == rest.size()) return 0;
    rest.remove_prefix(end + 1);
  }
}
