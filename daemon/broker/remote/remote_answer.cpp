#include "daemon/broker/remote/remote_answer.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "ipc/text/utf8.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/frames.h"
#include "ipc/wire/json.h"
#include "kernels/base/chars.h"
#include "kernels/base/numbers.h"
#include "kernels/base/sizes.h"

namespace hearth::broker {
namespace {

using ipc::Json;

constexpr ipc::JsonLimits kChunkLimits{.max_bytes = RemoteAnswer::kMaxEventBytes,
                                       .max_depth = 16,
                                       .max_value_bytes = 4u << 20,
                                       .last_key_applies = true};
constexpr size_t kMaxNameBytes = 256;

/// A member that is there and not null; null: neither.
const Json* member(const Json& object, std::string_view name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

const std::string* text_member(const Json& object, std::string_view name) {
  const Json* const found = member(object, name);
  return found != nullptr && found->is_string() ? &found->get_ref<const std::string&>() : nullptr;
}

int32_t count_member(const Json* object, std::string_view name) {
  const Json* const found = object == nullptr ? nullptr : member(*object, name);
  if (found == nullptr || !found->is_number_unsigned()) return 0;
  const auto value = found->get<uint64_t>();
  return narrow<int32_t>(std::min<uint64_t>(value, std::numeric_limits<int32_t>::max()));
}

/// It stands between quotes in answers of the APIs.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, [](char c) {
    return is_ascii_alnum(c) || std::string_view("_-.:/").find(c) != std::string_view::npos;
  });
}

Error garbage(std::string what) { return Error::protocol("its answer " + std::move(what)); }

}  // namespace

std::string quote_remote(std::string_view text) {
  constexpr size_t kMaxQuoted = 200;
  std::string out = ipc::to_valid_utf8(text.substr(0, kMaxQuoted));
  std::ranges::replace_if(
      out, [](char c) { return byte_of(c) < 0x20 || c == 0x7F || c == '"'; }, ' ');
  return '"' + out + '"';
}

Result<void> RemoteAnswer::add(std::string_view bytes, std::vector<RemoteText>* out) {
  while (!bytes.empty() && !done_) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    if (line_.size() + end > kMaxEventBytes) {
      return Error::too_large(
          fmt::format("its answer has a line of more than {} bytes", kMaxEventBytes));
    }
    line_ += bytes.substr(0, end);
    if (end == bytes.size()) return {};
    bytes.remove_prefix(end + 1);
    if (line_.ends_with('\r')) line_.pop_back();
    HEARTH_TRY(on_line(line_, out));
    line_.clear();
  }
  return {};
}

Result<void> RemoteAnswer::on_line(std::string_view line, std::vector<RemoteText>* out) {
  if (line.empty()) {
    if (data_.empty()) return {};
    const std::string data = std::exchange(data_, {});
    return on_event(data, out);
  }
  if (line.starts_with(':')) return {};  // a comment, to keep the connection
  const size_t colon = std::min(line.find(':'), line.size());
  const std::string_view field = line.substr(0, colon);
  std::string_view value = line.substr(std::min(colon + 1, line.size()));
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "event" || field == "id" || field == "retry") return {};
  if (field != "data") {
    return garbage(fmt::format("is not server-sent events: met a line that begins with \"{}\"",
                               ipc::printable(line)));
  }
  if (data_.size() + value.size() > kMaxEventBytes) {
    return Error::too_large(
        fmt::format("its answer has an event of more than {} bytes", kMaxEventBytes));
  }
  if (!data_.empty()) data_ += '\n';
  data_ += value;
  return {};
}

Result<void> RemoteAnswer::on_event(std::string_view data, std::vector<RemoteText>* out) {
  if (data == "[DONE]") {
    for (const Sample& sample : samples_) {
      if (sample.reason.empty()) return garbage("ends before its text has");
    }
    done_ = true;
    return {};
  }
  Result<Json> parsed = ipc::parse_json_object(data, kChunkLimits);
  if (!parsed)
    return garbage("has an event that is not JSON as expected: " + parsed.error().message);
  const ipc::LargeJson chunk(std::move(*parsed));
  if (const Json* const error = member(chunk, "error")) {
    const std::string* const message =
        error->is_string() ? &error->get_ref<const std::string&>() : text_member(*error, "message");
    return Error::unavailable(
        fmt::format("it reports an error: {}", message == nullptr ? std::string("without a message")
                                                                  : quote_remote(*message)));
  }
  if (const std::string* const model = text_member(chunk, "model");
      model != nullptr && model_.empty()) {
    model_ = ipc::printable(*model);
  }
  if (const Json* const usage = member(chunk, "usage")) read_usage(*usage);
  const Json* const choices = member(chunk, "choices");
  if (choices == nullptr) return {};
  if (!choices->is_array()) return garbage("has choices that are not a list");
  for (const Json& choice : *choices) HEARTH_TRY(on_choice(choice, out));
  return {};
}

Result<void> RemoteAnswer::on_choice(const Json& choice, std::vector<RemoteText>* out) {
  if (!choice.is_object()) return garbage("has a choice that is not an object");
  const Json* const index = member(choice, "index");
  if (index != nullptr && !index->is_number_unsigned()) {
    return garbage("has a choice whose index is not a number");
  }
  const uint64_t at = index == nullptr ? 0 : index->get<uint64_t>();
  if (at >= samples_.size()) {
    return garbage(fmt::format("has choice {}, want 0 to {}", at, samples_.size() - 1));
  }
  Sample& sample = samples_[at];
  std::vector<ipc::DeltaPart> parts;
  HEARTH_TRY(take_parts(choice, sample, &parts));
  if (!parts.empty() && !sample.reason.empty()) return garbage("goes on after its end");
  for (const ipc::DeltaPart& part : parts) text_bytes_ += part.text.size();
  if (text_bytes_ > kMaxTextBytes) {
    return Error::too_large(fmt::format("its answer has more than {} bytes", kMaxTextBytes));
  }
  if (!parts.empty()) {
    const bool plain = parts.size() == 1 && parts[0].channel == ipc::DeltaChannel::kText;
    const ipc::DeltaHeader header{.sample = narrow<uint32_t>(at)};
    out->push_back({.sample = header.sample,
                    .payload = plain ? ipc::encode_delta_payload(header, parts[0].text)
                                     : ipc::encode_delta_payload(header, parts)});
  }
  const Json* const reason = member(choice, "finish_reason");
  if (reason == nullptr) return {};
  if (!reason->is_string()) return garbage("has a finish_reason that is not a string");
  const auto& name = reason->get_ref<const std::string&>();
  if (name != "stop" && name != "length" && name != "tool_calls") {
    return Error::unavailable(fmt::format("it ended its answer with {}", quote_remote(name)));
  }
  if (sample.reason.empty()) {
    sample.reason = name == "stop" && sample.num_calls > 0 ? "tool_calls" : name;
  }
  return {};
}

Result<void> RemoteAnswer::take_parts(const Json& choice, Sample& sample,
                                      std::vector<ipc::DeltaPart>* parts) {
  const auto add = [parts](const std::string* text, ipc::DeltaChannel channel) {
    if (text != nullptr && !text->empty()) parts->push_back({.channel = channel, .text = *text});
  };
  if (!chat_) {
    add(text_member(choice, "text"), ipc::DeltaChannel::kText);
    return {};
  }
  const Json* const delta = member(choice, "delta");
  if (delta == nullptr) return {};
  const std::string* const reasoning = text_member(*delta, "reasoning_content");
  add(reasoning != nullptr ? reasoning : text_member(*delta, "reasoning"),
      ipc::DeltaChannel::kReasoning);
  add(text_member(*delta, "content"), ipc::DeltaChannel::kText);
  add(text_member(*delta, "refusal"), ipc::DeltaChannel::kText);
  const Json* const calls = member(*delta, "tool_calls");
  return calls == nullptr ? Result<void>() : add_calls(*calls, sample, parts);
}

Result<void> RemoteAnswer::add_calls(const Json& calls, Sample& sample,
                                     std::vector<ipc::DeltaPart>* parts) {
  if (!calls.is_array()) return garbage("has tool_calls that are not a list");
  for (const Json& call : calls) {
    const Json* const function = member(call, "function");
    const Json* const index = member(call, "index");
    if (index == nullptr || !index->is_number_unsigned())
      return garbage("has a call without index");
    const auto at = index->get<uint64_t>();
    const auto open = narrow<uint64_t>(sample.num_calls);
    if (at == open) {  // another call begins
      const std::string* const name =
          function == nullptr ? nullptr : text_member(*function, "name");
      if (name == nullptr || !is_plain_name(*name)) {
        return garbage("has a call of a function without a valid name");
      }
      const std::string* const id = text_member(call, "id");
      if (id != nullptr && !is_plain_name(*id)) return garbage("has a call without a valid id");
      ipc::ToolCall begun{.index = sample.num_calls++, .id = {}, .name = *name};
      begun.id = id == nullptr ? fmt::format("{:09}", sample.num_calls) : *id;
      parts->push_back({.channel = ipc::DeltaChannel::kCall, .text = ipc::encode_tool_call(begun)});
    } else if (at + 1 != open) {
      return garbage(fmt::format("has call {} after call {}", at, sample.num_calls - 1));
    }
    const std::string* const arguments =
        function == nullptr ? nullptr : text_member(*function, "arguments");
    if (arguments == nullptr || arguments->empty()) continue;
    parts->push_back({.channel = ipc::DeltaChannel::kArguments, .text = *arguments});
  }
  return {};
}

void RemoteAnswer::read_usage(const Json& usage) {
  usage_.prompt_tokens = count_member(&usage, "prompt_tokens");
  usage_.output_tokens = count_member(&usage, "completion_tokens");
  usage_.cached_tokens = count_member(member(usage, "prompt_tokens_details"), "cached_tokens");
  usage_.reasoning_tokens =
      count_member(member(usage, "completion_tokens_details"), "reasoning_tokens");
}

// A stream that ends without [DONE] is whole if all of its samples are.
Result<void> RemoteAnswer::end() {
  if (done_) return {};
  if (!line_.empty() || !data_.empty()) return garbage("ends in the middle of an event");
  for (const Sample& sample : samples_) {
    if (sample.reason.empty()) return garbage("ends before its text has");
  }
  done_ = true;
  return {};
}

std::vector<std::string> RemoteAnswer::reasons() const {
  std::vector<std::string> out;
  for (const Sample& sample : samples_) out.push_back(sample.reason);
  return out;
}

}  // namespace hearth::broker
