// Streams of remotes: any pieces make the same answer, and anything else is an error that describes
// it.

#include "daemon/broker/remote/remote_answer.h"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <string>
#include <vector>

#include "ipc/wire/codec.h"
#include "ipc/wire/frames.h"
#include "tests/unit/daemon/scripted_server.h"

namespace hearth::broker {
namespace {

using tests::chat_event;
using tests::usage_events;

struct Read {
  std::string text, reasoning, calls, arguments;  // of all samples
  Result<void> result;
};

/// The stream in pieces of `bytes`.
Read read_stream(std::string_view stream, RemoteAnswer& answer, size_t bytes = SIZE_MAX) {
  Read out;
  std::vector<RemoteText> texts;
  while (!stream.empty() && out.result.ok()) {
    out.result = answer.add(stream.substr(0, bytes), &texts);
    stream.remove_prefix(std::min(bytes, stream.size()));
  }
  if (out.result.ok()) out.result = answer.end();
  for (const RemoteText& each : texts) {
    const ipc::DeltaPayload payload = ipc::decode_delta_payload(each.payload).value();
    CHECK(payload.header.sample == each.sample);
    CHECK(payload.header.num_tokens == 0);
    if (payload.header.num_parts == 0) {
      out.text += payload.text;
      continue;
    }
    const std::vector<ipc::DeltaPart> parts = ipc::decode_parts(payload).value();
    for (const ipc::DeltaPart& part : parts) {
      switch (part.channel) {
        case ipc::DeltaChannel::kText: out.text += part.text; break;
        case ipc::DeltaChannel::kReasoning: out.reasoning += part.text; break;
        case ipc::DeltaChannel::kCall:
          CHECK(ipc::decode_tool_call(part.text).ok());
          out.calls += part.text;
          break;
        case ipc::DeltaChannel::kArguments: out.arguments += part.text; break;
      }
    }
  }
  return out;
}

Read read_stream(std::string_view stream) {
  RemoteAnswer answer(true, 1);
  return read_stream(stream, answer);
}

std::string delta_event(const std::string& delta) {
  return fmt::format("data: {{\"choices\":[{{\"index\":0,\"delta\":{}}}]}}\n\n", delta);
}

TEST_CASE("an answer in pieces of any size is the same") {
  const std::string stream = ": a comment\r\n\r\n" + chat_event("Once ") + "event: x\nid: 1\n" +
                             chat_event("\\u00fc\xC3\xBC.", "length") + usage_events(11, 3);
  for (const size_t bytes : {size_t{1}, size_t{2}, size_t{7}, size_t{100}, SIZE_MAX}) {
    CAPTURE(bytes);
    RemoteAnswer answer(true, 1);
    const Read all = read_stream(stream, answer, bytes);
    REQUIRE(all.result.ok());
    CHECK(all.text == "Once \xC3\xBC\xC3\xBC.");
    CHECK(answer.complete());
    CHECK(answer.model() == "far");
    CHECK(answer.reasons() == std::vector<std::string>{"length"});
    CHECK(answer.usage().prompt_tokens == 11);
    CHECK(answer.usage().output_tokens == 3);
    CHECK(answer.text_bytes() == all.text.size());
  }
}

TEST_CASE("completions, several samples, and an end without [DONE]") {
  RemoteAnswer answer(false, 2);
  const Read all = read_stream(
      "data: {\"choices\":[{\"index\":1,\"text\":\"b\"}]}\n\n"
      "data: {\"choices\":[{\"index\":0,\"text\":\"a\",\"finish_reason\":\"stop\"},"
      "{\"index\":1,\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n",
      answer);
  REQUIRE(all.result.ok());
  CHECK(all.text == "ba");
  CHECK(answer.reasons() == std::vector<std::string>{"stop", "length"});
}

TEST_CASE("reasoning and calls of functions are channels of their own") {
  const Read all = read_stream(
      delta_event(R"({"reasoning_content":"hm","reasoning":"hm"})") +
      delta_event(R"({"content":"ok"})") +
      delta_event(
          R"({"tool_calls":[{"index":0,"id":"call_1","function":{"name":"f","arguments":""}}]})") +
      delta_event(R"({"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]})") +
      delta_event(R"({"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]})") +
      delta_event(R"({"tool_calls":[{"index":1,"function":{"name":"g","arguments":"{}"}}]})") +
      chat_event("", "stop") + usage_events(1, 1));
  REQUIRE(all.result.ok());
  CHECK(all.reasoning == "hm");
  CHECK(all.text == "ok");
  CHECK(all.calls == R"({"index":0,"id":"call_1","name":"f"})"
                     R"({"index":1,"id":"000000002","name":"g"})");
  CHECK(all.arguments == R"({"a":1}{})");
}

TEST_CASE("a sample with calls has ended with them, whatever the server calls it") {
  RemoteAnswer answer(true, 1);
  REQUIRE(
      read_stream(delta_event(R"({"tool_calls":[{"index":0,"id":"c","function":{"name":"f"}}]})") +
                      chat_event("", "stop"),
                  answer)
          .result.ok());
  CHECK(answer.reasons() == std::vector<std::string>{"tool_calls"});
}

TEST_CASE("anything but such a stream is an error that describes it") {
  const auto error = [](const std::string& stream) {
    const Read all = read_stream(stream);
    REQUIRE_FALSE(all.result.ok());
    return all.result.error().message;
  };
  const auto has = [](const std::string& message, std::string_view part) {
    CAPTURE(message);
    CHECK(message.find(part) != std::string::npos);
  };
  has(error("<html>nothing here</html>\n"), "is not server-sent events");
  has(error("{\"object\":\"chat.completion\"}\n"), "is not server-sent events");
  has(error("data: {\"choices\":\n\n"), "not JSON");
  has(error("data: \xFF\xFE\n\n"), "not JSON");
  has(error("data: [1]\n\n"), "not JSON");
  has(error("data: {\"choices\":{}}\n\n"), "choices that are not a list");
  has(error("data: {\"choices\":[1]}\n\n"), "choice that is not an object");
  has(error("data: {\"choices\":[{\"index\":-1}]}\n\n"), "index is not a number");
  has(error("data: {\"choices\":[{\"index\":1}]}\n\n"), "choice 1, want 0 to 0");
  has(error(chat_event("a") + "data: {\"choi"), "in the middle of an event");
  has(error(chat_event("a")), "ends before its text has");
  has(error(chat_event("a") + std::string(tests::kDoneEvent)), "ends before its text has");
  has(error(""), "ends before its text has");
  has(error(chat_event("a", "stop") + chat_event("b")), "goes on after its end");
  has(error(chat_event("a", "content_filter")), "content_filter");
  has(error("data: {\"error\":{\"message\":\"no \\u0007room\",\"code\":1}}\n\n"),
      "reports an error: \"no  room\"");
  has(error(delta_event(R"({"tool_calls":[{"index":0,"function":{"name":"f\",\"x\":\"\\"}}]})")),
      "without a valid name");
  has(error(delta_event(R"({"tool_calls":[{"index":0,"id":"\"","function":{"name":"f"}}]})")),
      "without a valid id");
  has(error(delta_event(R"({"tool_calls":[{"index":2,"id":"c","function":{"name":"f"}}]})")),
      "call 2 after call -1");
  has(error("data: " + std::string(200, '[') + "\n\n"), "not JSON");
}

TEST_CASE("lines, events and answers that never end are bounded") {
  RemoteAnswer line(true, 1);
  std::vector<RemoteText> texts;
  const std::string piece(1 << 16, 'x');
  size_t sent = 0;
  Result<void> result = line.add("data: ", &texts);
  for (; result.ok() && sent < 4 * RemoteAnswer::kMaxEventBytes; sent += piece.size()) {
    result = line.add(piece, &texts);
  }
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().code == ErrorCode::kTooLarge);
  CHECK(sent <= RemoteAnswer::kMaxEventBytes);

  RemoteAnswer event(true, 1);
  result = {};
  for (sent = 0; result.ok() && sent < 4 * RemoteAnswer::kMaxEventBytes; sent += piece.size()) {
    result = event.add("data: " + piece + "\n", &texts);
  }
  REQUIRE_FALSE(result.ok());
  CHECK(sent <= RemoteAnswer::kMaxEventBytes);

  RemoteAnswer answer(true, 1);
  result = {};
  const std::string chunk = chat_event(piece);
  for (sent = 0; result.ok() && sent < 2 * RemoteAnswer::kMaxTextBytes; sent += piece.size()) {
    texts.clear();
    result = answer.add(chunk, &texts);
  }
  REQUIRE_FALSE(result.ok());
  CHECK(sent <= RemoteAnswer::kMaxTextBytes + piece.size());
}

}  // namespace
}  // namespace hearth::broker
