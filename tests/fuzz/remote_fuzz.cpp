// Any bytes as the stream of a remote: the same texts and the same end however it is split, and as
// much text as is counted. And any conversation as the body of a request to one: JSON, or the
// reason why there is none. And any text as an address or a rule of the configuration.
//
// Input: a byte (kind and number of samples, below), then the bytes.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/broker/config/remote_config.h"
#include "daemon/broker/remote/remote_answer.h"
#include "daemon/broker/remote/remote_request.h"
#include "ipc/text/utf8.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/frames.h"
#include "kernels/base/check.h"
#include "tests/fuzz/input.h"

namespace {

using namespace hearth;
using namespace hearth::broker;

struct Read {
  std::vector<std::string> payloads{};
  std::vector<std::string> reasons{};
  std::string error{};
  size_t text_bytes = 0;
  bool operator==(const Read&) const = default;
};

Read read(std::string_view stream, bool chat, int32_t samples, size_t step) {
  RemoteAnswer answer(chat, samples);
  std::vector<RemoteText> texts;
  Result<void> result;
  for (size_t at = 0; at < stream.size() && result.ok(); at += step) {
    result = answer.add(stream.substr(at, step), &texts);
  }
  if (result.ok()) result = answer.end();
  Read out{.reasons = answer.reasons(), .text_bytes = answer.text_bytes()};
  if (!result.ok()) out.error = result.error().message;
  HEARTH_CHECK(result.ok() == answer.complete() || !result.ok());
  for (RemoteText& text : texts) {
    HEARTH_CHECK(text.sample < static_cast<uint32_t>(samples));
    out.payloads.push_back(std::move(text.payload));
  }
  return out;
}

void as_answer(std::string_view stream, bool chat, int32_t samples) {
  const Read whole = read(stream, chat, samples, stream.size() + 1);
  for (const size_t step : {size_t{1}, size_t{3}, size_t{7}}) {
    HEARTH_CHECK(read(stream, chat, samples, step) == whole, "step {}", step);
  }
  HEARTH_CHECK(ipc::is_valid_utf8(whole.error));
  size_t bytes = 0;
  for (const std::string& each : whole.payloads) {
    const ipc::DeltaPayload payload = ipc::decode_delta_payload(each).value();
    if (payload.header.num_parts == 0) {
      bytes += payload.text.size();
      continue;
    }
    const std::vector<ipc::DeltaPart> parts = ipc::decode_parts(payload).value();
    for (const ipc::DeltaPart& part : parts) {
      if (part.channel == ipc::DeltaChannel::kCall) {
        const ipc::ToolCall call = ipc::decode_tool_call(part.text).value();
        HEARTH_CHECK((call.id + call.name).find_first_of("\"\\\n") == std::string::npos);
      }
      bytes += part.text.size();
    }
  }
  // A text that exceeds the bound is counted and not passed on.
  HEARTH_CHECK(whole.error.empty() ? bytes == whole.text_bytes : bytes <= whole.text_bytes);
}

void as_request(std::string_view messages, bool tools) {
  ipc::GenerateRequest request;
  (tools ? request.tools : request.messages).text = messages;
  if (tools) request.messages.text = R"([{"role":"user","content":"a"}])";
  const Result<RemoteRequest> made = make_remote_request(request, "far", true);
  if (made.ok()) {
    HEARTH_CHECK(nlohmann::json::accept(made->body));
  } else {
    HEARTH_CHECK(!made.error().field.empty() && ipc::is_valid_utf8(made.error().message));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::Input input(data, size);
  const int kind = input.number(0, 4);
  const int32_t samples = input.number(1, 3);
  const std::string bytes(input.rest());
  switch (kind) {
    case 0:
    case 1: as_answer(bytes, kind == 0, samples); break;
    case 2:
    case 3: as_request(bytes, kind == 2); break;
    default:
      (void)parse_remote_rule(bytes).ok();
      if (const Result<RemoteUrl> url = parse_remote_url(bytes); url.ok()) {
        HEARTH_CHECK((url->host + url->path).find_first_of("\r\n @?#") == std::string::npos);
      }
  }
  return 0;
}
