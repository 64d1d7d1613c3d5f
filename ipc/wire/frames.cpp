#include "ipc/wire/frames.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "ipc/text/utf8.h"
#include "kernels/base/little_endian.h"
#include "kernels/base/numbers.h"

namespace hearth::ipc {
namespace {

constexpr size_t kAnswerHeaderBytes = 24;

void append_part(std::string& out, DeltaChannel channel, std::string_view text) {
  append_u32(out, to_underlying(channel));
  append_size(out, text.size());
  out.append(text);
}

Result<void> check_front(FrameViews frames, size_t want) {
  if (frames.size() < want) {
    return Error::protocol(fmt::format("met {} frames, want at least {}", frames.size(), want));
  }
  if (frames[0] != kProtocol) {
    const bool other_version =
        frames[0].starts_with("HEARTH/") && frames[0].size() <= 16 && is_request_id(frames[0]);
    return Error::protocol(fmt::format(
        "first frame: met {}, want {}",
        other_version ? std::string(frames[0]) : fmt::format("{} bytes", frames[0].size()),
        kProtocol));
  }
  if (!is_request_id(frames[1])) {
    return Error::protocol(
        fmt::format("request id: met {} bytes, want 1 to {} visible ASCII characters",
                    frames[1].size(), kMaxRequestIdBytes));
  }
  return {};
}

}  // namespace

bool is_request_id(std::string_view id) {
  return !id.empty() && id.size() <= kMaxRequestIdBytes &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

std::optional<std::string_view> request_id_of(FrameViews frames) {
  if (frames.size() < 2 || !is_request_id(frames[1])) return std::nullopt;
  return frames[1];
}

Result<ClientMessage> parse_client_message(FrameViews frames) {
  HEARTH_TRY(check_front(frames, 3));
  if (frames.size() != 3) {
    return Error::protocol(fmt::format("met {} frames, want 3", frames.size()));
  }
  return ClientMessage{frames[1], frames[2]};
}

Result<Answer> parse_answer(FrameViews frames) {
  if (frames.size() == 2 && frames[0] == kEventFrame) {
    return Answer{.is_delta = false, .json = frames[1], .payload = {}, .ids = {}, .logprobs = {}};
  }
  if ((frames.size() == 3 || frames.size() == 4) && frames[0] == kDeltaFrame) {
    return Answer{.is_delta = true,
                  .json = {},
                  .payload = frames[1],
                  .ids = frames[2],
                  .logprobs = frames.size() == 4 ? frames[3] : std::string_view{}};
  }
  return Error::protocol(
      fmt::format("answer of {} frames is neither event + 1 nor delta + 2 or 3", frames.size()));
}

Result<DaemonMessage> parse_daemon_message(FrameViews frames) {
  HEARTH_TRY(check_front(frames, 3));
  HEARTH_ASSIGN_OR_RETURN(const Answer answer, parse_answer(frames.subspan(2)));
  return DaemonMessage{frames[1], answer};
}

void append_answer(std::string& answers, uint64_t number, const Answer& answer) {
  append_u64(answers, number);
  append_u32(answers, answer.is_delta ? 1 : 0);
  const std::string_view first = answer.is_delta ? answer.payload : answer.json;
  for (const std::string_view piece : {first, answer.ids, answer.logprobs}) {
    append_size(answers, piece.size());
  }
  for (const std::string_view piece : {first, answer.ids, answer.logprobs}) answers.append(piece);
}

Result<NumberedAnswer> take_answer(std::string_view* answers) {
  if (answers->size() < kAnswerHeaderBytes) {
    return Error::protocol(fmt::format("answers: met {} bytes after the last", answers->size()));
  }
  const char* header = answers->data();
  NumberedAnswer out;
  out.number = load_u64(header);
  const uint32_t kind = load_u32(header + 8);
  if (out.number == 0 || kind > 1) {
    return Error::protocol(fmt::format("answer: met kind {} for request {}", kind, out.number));
  }
  const size_t first = load_u32(header + 12);
  const size_t ids = load_u32(header + 16), logprobs = load_u32(header + 20);
  const std::string_view rest = answers->substr(kAnswerHeaderBytes);
  const size_t total = first + ids + logprobs;
  if (total > rest.size()) {
    return Error::protocol(fmt::format("answer: met {} bytes, {} are there", total, rest.size()));
  }
  if (kind == 0 && total != first) return Error::protocol("answer: met an event with tokens");
  out.answer.is_delta = kind == 1;
  (kind == 1 ? out.answer.payload : out.answer.json) = rest.substr(0, first);
  out.answer.ids = rest.substr(first, ids);
  out.answer.logprobs = rest.substr(first + ids, logprobs);
  *answers = rest.substr(total);
  return out;
}

std::string encode_delta_payload(const DeltaHeader& header, std::string_view text) {
  std::string out;
  out.reserve(kDeltaHeaderBytes + text.size());
  append_u32(out, header.sample);
  append_u32(out, header.first_index);
  append_u32(out, header.num_tokens);
  append_u32(out, 0);
  out.append(text);
  return out;
}

std::string encode_delta_payload(const DeltaHeader& header, std::span<const DeltaPart> parts) {
  std::string out;
  append_u32(out, header.sample);
  append_u32(out, header.first_index);
  append_u32(out, header.num_tokens);
  append_size(out, parts.size());
  for (const DeltaPart& part : parts) append_part(out, part.channel, part.text);
  return out;
}

std::string text_as_part(std::string_view text) {
  std::string out;
  append_part(out, DeltaChannel::kText, text);
  return out;
}

Result<DeltaHeader> decode_delta_header(std::string_view frame) {
  if (frame.size() < kDeltaHeaderBytes) {
    return Error::protocol(fmt::format("delta payload: met {} bytes, want at least {}",
                                       frame.size(), kDeltaHeaderBytes));
  }
  return DeltaHeader{load_u32(frame.data()), load_u32(frame.data() + 4), load_u32(frame.data() + 8),
                     load_u32(frame.data() + 12)};
}

Result<DeltaPayload> decode_delta_payload(std::string_view frame) {
  HEARTH_ASSIGN_OR_RETURN(const DeltaHeader header, decode_delta_header(frame));
  const std::string_view text = frame.substr(kDeltaHeaderBytes);
  if (header.num_parts == 0 && !is_valid_utf8(text)) {
    return Error::protocol("delta text: met bytes that are not UTF-8");
  }
  return DeltaPayload{header, text};
}

Result<std::vector<DeltaPart>> decode_parts(const DeltaPayload& payload) {
  std::string_view rest = payload.text;
  std::vector<DeltaPart> parts;
  while (!rest.empty()) {
    if (rest.size() < kPartHeaderBytes || parts.size() == payload.header.num_parts) {
      return Error::protocol("delta parts: met bytes after the last of them");
    }
    const uint32_t channel = load_u32(rest.data()), bytes = load_u32(rest.data() + 4);
    rest.remove_prefix(kPartHeaderBytes);
    if (channel >= kNumDeltaChannels) {
      return Error::protocol(
          fmt::format("delta part: met channel {}, want 0 to {}", channel, kNumDeltaChannels - 1));
    }
    if (bytes > rest.size()) {
      return Error::protocol(
          fmt::format("delta part: met {} bytes, {} are there", bytes, rest.size()));
    }
    const std::string_view text = rest.substr(0, bytes);
    if (!is_valid_utf8(text)) return Error::protocol("delta part: met bytes that are not UTF-8");
    parts.push_back({static_cast<DeltaChannel>(channel), std::string(text)});
    rest.remove_prefix(bytes);
  }
  if (parts.size() != payload.header.num_parts) {
    return Error::protocol(fmt::format("delta parts: met {}, want the header's {}", parts.size(),
                                       payload.header.num_parts));
  }
  return parts;
}

std::string_view name(DeltaChannel channel) {
  static constexpr std::array<std::string_view, kNumDeltaChannels> kNames = {"text", "reasoning",
                                                                             "call", "arguments"};
  return kNames[to_underlying(channel)];
}

std::string encode_ids(std::span<const int32_t> ids) {
  std::string out;
  out.reserve(ids.size() * 4);
  for (const int32_t id : ids) append_u32(out, id);
  return out;
}

Result<std::vector<int32_t>> decode_ids(std::string_view frame) {
  if (frame.size() % 4 != 0) {
    return Error::protocol(fmt::format("ids: met {} bytes, want a multiple of 4", frame.size()));
  }
  std::vector<int32_t> ids(frame.size() / 4);
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = load_u32(frame.data() + 4 * i);
  }
  return ids;
}

}  // namespace hearth::ipc
