// Answers, and the messages between broker and worker about the worker.

#include <fmt/core.h>

#include <array>

#include "ipc/text/utf8.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/convert.h"
#include "ipc/wire/json_text.h"
#include "ipc/wire/worker_codec.h"
#include "kernels/base/numbers.h"

namespace hearth::ipc {
namespace {

// As deep as a request, which a `recorded` event holds, and one level around it.
constexpr JsonLimits kEventLimits{
    .max_bytes = 256u << 20, .max_depth = 33, .max_value_bytes = 256u << 20};

/// Name and kind of each alternative of Event: {"event": name, ...}, or for the replies, which
/// differ by the verb that they answer, {"event": "reply", "verb": name, ...}.
struct EventName {
  std::string_view name;
  EventKind kind;

  bool reply() const { return kind == EventKind::kReply; }
};
constexpr auto kEventNames = std::to_array<EventName>({
    {"queued", EventKind::kQueued},
    {"progress", EventKind::kProgress},
    {"started", EventKind::kStarted},
    {"prompt_logprobs", EventKind::kPromptLogprobs},
    {"sample_done", EventKind::kSampleDone},
    {"done", EventKind::kDone},
    {"error", EventKind::kError},
    {"ping", EventKind::kReply},
    {"tokenize", EventKind::kReply},
    {"cancel", EventKind::kReply},
    {"models", EventKind::kReply},
    {"ps", EventKind::kReply},
    {"stats", EventKind::kReply},
    {"health", EventKind::kReply},
    {"loading", EventKind::kLoading},
    {"load", EventKind::kReply},
    {"unload", EventKind::kReply},
    {"swap", EventKind::kReply},
    {"cache", EventKind::kReply},
    {"attached", EventKind::kAttached},
    {"embed", EventKind::kReply},
    {"recording", EventKind::kRecord},
    {"recorded", EventKind::kRecord},
});
static_assert(kEventNames.size() == std::variant_size_v<Event>);

constexpr std::array<std::string_view, std::variant_size_v<WorkerEvent>> kWorkerEventNames = {
    "hello", "load_progress", "ready", "failed", "heartbeat", "stopped", "plan", "asleep"};

constexpr std::array<std::string_view, 7> kControlNames = {
    "cancel", "end_reasoning", "drain", "stop", "kv_bound", "sleep", "wake"};

std::string_view text_of(const Json& object, std::string_view key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return {};
  return found->get_ref<const std::string&>();
}

Error unknown(std::string_view what, std::string_view met) {
  return Error::unsupported(
      fmt::format("{}: met '{}', which is unknown here", what, printable(met)), std::string(what));
}

/// Reads alternative `index` of `Variant`.
template <class Variant, size_t I = 0>
Result<Variant> read_alternative(size_t index, Json& object) {
  if constexpr (I == std::variant_size_v<Variant>) {
    return Error::internal("no such alternative");
  } else {
    if (index != I) return read_alternative<Variant, I + 1>(index, object);
    using T = std::variant_alternative_t<I, Variant>;
    HEARTH_ASSIGN_OR_RETURN(T value, read_members<T>(object));
    Variant out(std::in_place_index<I>, std::move(value));
    return out;
  }
}

}  // namespace

Result<Event> decode_event(std::string_view json) {
  HEARTH_ASSIGN_OR_RETURN(LargeJson object, parse_json_object(json, kEventLimits));
  const std::string_view event = text_of(object, "event");
  if (event.empty()) {
    return Error::protocol("event: absent, want its name", "event");
  }
  const bool reply = event == "reply";
  const std::string_view met = reply ? text_of(object, "verb") : event;
  for (size_t i = 0; i < kEventNames.size(); ++i) {
    if (kEventNames[i].reply() == reply && kEventNames[i].name == met) {
      return read_alternative<Event>(i, object);
    }
  }
  return unknown(reply ? "verb" : "event", met);
}

std::string encode_event(const Event& event) {
  const EventName& name = kEventNames[event.index()];
  const auto begin = [&name](JsonWriter& writer) {
    writer("event", name.reply() ? std::string_view("reply") : name.name);
    if (name.reply()) writer("verb", name.name);
  };
  return std::visit([&begin](const auto& each) { return encode_members(each, begin); }, event);
}

EventKind kind_of(const Event& event) { return kEventNames[event.index()].kind; }

std::optional<EventKind> event_kind(std::string_view json) {
  constexpr std::string_view kBegins = R"({"event":")";
  if (!json.starts_with(kBegins)) return std::nullopt;
  json.remove_prefix(kBegins.size());
  const std::string_view met = json.substr(0, json.find('"'));
  if (met == "reply") return EventKind::kReply;
  for (const EventName& known : kEventNames) {
    if (!known.reply() && known.name == met) return known.kind;
  }
  return std::nullopt;
}

std::vector<int32_t> tokens_of_embed_reply(std::string_view json) {
  const size_t vectors = json.find(R"(,"vectors":)");
  if (vectors == std::string_view::npos) return {};
  const Result<EmbedReply> reply =
      decode_members<EmbedReply>(std::string(json.substr(0, vectors)) + "}", kEventLimits);
  return reply.ok() ? reply->prompt_tokens : std::vector<int32_t>();
}

Result<Delta> decode_delta(const Answer& answer) {
  HEARTH_ASSIGN_OR_RETURN(const DeltaPayload payload, decode_delta_payload(answer.payload));
  HEARTH_ASSIGN_OR_RETURN(std::vector<int32_t> ids, decode_ids(answer.ids));
  if (ids.size() != payload.header.num_tokens) {
    return Error::protocol(fmt::format("delta: met {} ids, want the header's {}", ids.size(),
                                       payload.header.num_tokens));
  }
  Delta delta{payload.header, std::string(payload.text), std::move(ids), {}, {}};
  if (payload.header.num_parts > 0) {
    HEARTH_ASSIGN_OR_RETURN(delta.parts, decode_parts(payload));
    delta.text.clear();
    for (const DeltaPart& part : delta.parts) {
      if (part.channel == DeltaChannel::kText) delta.text += part.text;
    }
  }
  if (!answer.logprobs.empty()) {
    // parse_json_object wants an object; the frame is a list.
    const std::string wrapped = fmt::format("{{\"logprobs\":{}}}", answer.logprobs);
    HEARTH_ASSIGN_OR_RETURN(Json object, parse_json_object(wrapped, kEventLimits));
    JsonReader reader(object);
    reader("logprobs", delta.logprobs);
    HEARTH_TRY(std::move(reader).result());
    if (delta.logprobs.size() != delta.ids.size()) {
      return Error::protocol(
          fmt::format("delta: met {} logprobs, want {}", delta.logprobs.size(), delta.ids.size()));
    }
  }
  return delta;
}

Result<ToolCall> decode_tool_call(std::string_view json) {
  return decode_members<ToolCall>(json, kEventLimits);
}

std::string encode_tool_call(const ToolCall& call) { return encode_members(call); }

std::string encode_logprobs(std::span<const TokenLogprobs> logprobs) {
  std::string out = "[";
  const auto quote = [&out](const std::string& text) {
    is_valid_utf8(text) ? append_quoted(text, &out) : append_quoted(to_valid_utf8(text), &out);
  };
  for (const TokenLogprobs& token : logprobs) {
    if (out.size() > 1) out += ',';
    out += R"({"logprob":)";
    append_number(token.logprob, &out);
    out += R"(,"top":[)";
    for (const TopLogprob& top : token.top) {
      if (out.back() != '[') out += ',';
      out += R"({"token":)";
      out += std::to_string(top.token);
      out += R"(,"logprob":)";
      append_number(top.logprob, &out);
      out += R"(,"text":)";
      quote(top.text);
      out += '}';
    }
    out += R"(],"text":)";
    quote(token.text);
    out += '}';
  }
  out += ']';
  return out;
}

std::string delta_as_json(const Delta& delta) {
  std::string out;
  JsonWriter writer(out, /*skip_empty=*/false);
  writer("event", std::string_view("delta"));
  writer("sample", delta.header.sample);
  writer("first_index", delta.header.first_index);
  writer("text", delta.text);
  if (!delta.parts.empty()) writer("parts", delta.parts);
  writer("ids", delta.ids);
  if (!delta.logprobs.empty()) writer("logprobs", delta.logprobs);
  writer.end();
  return out;
}

std::string json_quote(std::string_view text) {
  std::string out;
  append_text(text, &out);
  return out;
}

Result<WorkerControl> decode_worker_control(std::string_view json) {
  HEARTH_ASSIGN_OR_RETURN(const Json object, parse_json_object(json, kEventLimits));
  const std::string_view control = text_of(object, "control");
  for (size_t i = 0; i < kControlNames.size(); ++i) {
    if (kControlNames[i] == control) return static_cast<WorkerControl>(i);
  }
  return unknown("control", control);
}

std::string encode_worker_control(WorkerControl control) {
  Json object = Json::object();
  object["control"] = std::string(kControlNames[to_underlying(control)]);
  return dump_json(object);
}

Result<WorkerEvent> decode_worker_event(std::string_view json) {
  HEARTH_ASSIGN_OR_RETURN(Json object, parse_json_object(json, kEventLimits));
  const std::string_view event = text_of(object, "event");
  for (size_t i = 0; i < kWorkerEventNames.size(); ++i) {
    if (kWorkerEventNames[i] == event) return read_alternative<WorkerEvent>(i, object);
  }
  return unknown("event", event);
}

std::string encode_worker_event(const WorkerEvent& event) {
  const auto begin = [&event](JsonWriter& writer) {
    writer("event", kWorkerEventNames[event.index()]);
  };
  return std::visit([&begin](const auto& each) { return encode_members(each, begin); }, event);
}

Result<FileFacts> decode_file_facts(std::string_view json) {
  return decode_members<FileFacts>(json, kEventLimits);
}

std::string encode_file_facts(const FileFacts& facts) { return encode_members(facts); }

}  // namespace hearth::ipc
