// Requests: every value against the field table.

#include <fmt/format.h>

#include <algorithm>

#include "ipc/schema/field_table.h"
#include "ipc/text/utf8.h"
#include "ipc/wire/codec.h"
#include "ipc/wire/convert.h"
#include "ipc/wire/request_json.h"
#include "ipc/wire/worker_codec.h"
#include "kernels/base/chars.h"
#include "kernels/base/numbers.h"

namespace hearth::ipc {
namespace {

// The schemas of tools are nested deeply.
constexpr int kRequestDepth = 32;
constexpr JsonLimits kRequestLimits{.max_bytes = kMaxRequestBytes,
                                    .max_depth = kRequestDepth,
                                    .max_value_bytes = kMaxRequestValueBytes};
// The broker's envelope: the request once more, and the tokens already sent.
constexpr JsonLimits kWorkerLimits{.max_bytes = 4 * kMaxRequestBytes,
                                   .max_depth = kRequestDepth + 1,
                                   .max_value_bytes = 512u << 20};

/// In all lists of a kIdLists field together.
constexpr size_t kMaxListedIds = 1'048'576;

Error invalid(const Field& field, std::string_view met, std::string_view want) {
  return Error::invalid(fmt::format("{}: met {}, want {}", field.name, met, want),
                        std::string(field.name));
}

/// `number` as the table means it: integers without a point.
std::string range(const Field& field) { return fmt::format("{} to {}", field.min, field.max); }

bool in_range(const Field& field, double number) {
  return number >= field.min && number <= field.max;  // false for NaN
}

bool has_control_character(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = byte_of(c);
    return byte < 0x20 || byte == 0x7F;
  });
}

bool is_choice(const Field& field, std::string_view text) {
  return std::ranges::find(field.choices, text) != field.choices.end();
}

Result<void> check_integer(const Field& field, const Json& value, std::string_view where) {
  // 1e3 and 5.0 are refused too: what a client writes as a fraction it may have computed as one.
  const bool integral = value.is_number_integer() || value.is_number_unsigned();
  if (integral && in_range(field, value.get<double>())) return {};
  return invalid(field, fmt::format("{}{}", where, describe(value)),
                 fmt::format("an integer {}", range(field)));
}

Result<void> check_text(const Field& field, const Json& value, std::string_view where) {
  const std::string want = fmt::format("a string of {} bytes", range(field));
  if (!value.is_string()) return invalid(field, fmt::format("{}{}", where, describe(value)), want);
  const std::string& text = value.get_ref<const std::string&>();
  if (!in_range(field, as_double(text.size()))) {
    Error error = invalid(field, fmt::format("{}{}", where, describe(value)), want);
    if (as_double(text.size()) > field.max) error.code = ErrorCode::kTooLarge;
    return error;
  }
  return {};
}

Result<void> check_list(const Field& field, const Json& value, std::string_view items) {
  if (value.is_array() && value.size() >= field.min_items && value.size() <= field.max_items) {
    return {};
  }
  Error error =
      invalid(field, describe(value),
              fmt::format("a list of {} to {} {}", field.min_items, field.max_items, items));
  if (value.is_array() && value.size() > field.max_items) error.code = ErrorCode::kTooLarge;
  return error;
}

std::string item(size_t index) { return fmt::format("at [{}] ", index); }

Result<void> check_value(const Field& field, const Json& value) {
  switch (field.type) {
    case FieldType::kBool:
      if (!value.is_boolean()) return invalid(field, describe(value), "true or false");
      return {};
    case FieldType::kInteger: return check_integer(field, value, "");
    case FieldType::kSeed:
      if (value.is_number_unsigned()) return {};
      return invalid(field, describe(value), "an integer 0 to 18446744073709551615");
    case FieldType::kNumber:
      if (value.is_number() && in_range(field, value.get<double>())) return {};
      return invalid(field, describe(value), fmt::format("a number {}", range(field)));
    case FieldType::kText: return check_text(field, value, "");
    case FieldType::kName:
      HEARTH_TRY(check_text(field, value, ""));
      if (has_control_character(value.get_ref<const std::string&>())) {
        return invalid(field, "a control character", "a name without any");
      }
      return {};
    case FieldType::kChoice: {
      if (value.is_string() && is_choice(field, value.get_ref<const std::string&>())) return {};
      const std::string want = fmt::format("one of {}", fmt::join(field.choices, ", "));
      return invalid(field, describe(value), want);
    }
    case FieldType::kTextList: {
      HEARTH_TRY(check_list(field, value, "strings"));
      size_t index = 0;
      for (const Json& text : value) HEARTH_TRY(check_text(field, text, item(index++)));
      return {};
    }
    case FieldType::kIdList: {
      HEARTH_TRY(check_list(field, value, "token ids"));
      size_t index = 0;
      for (const Json& id : value) HEARTH_TRY(check_integer(field, id, item(index++)));
      return {};
    }
    case FieldType::kIdLists: {
      HEARTH_TRY(check_list(field, value, "lists of token ids"));
      size_t total = 0;
      for (size_t i = 0; i < value.size(); ++i) {
        const Json& list = value[i];
        if (!list.is_array() || list.empty()) {
          return invalid(field, item(i) + describe(list), "a list of token ids");
        }
        total += list.size();
        for (const Json& id : list) HEARTH_TRY(check_integer(field, id, item(i)));
      }
      if (total > kMaxListedIds) {
        Error error = invalid(field, fmt::format("{} ids", total),
                              fmt::format("at most {} in all", kMaxListedIds));
        error.code = ErrorCode::kTooLarge;
        return error;
      }
      return {};
    }
    case FieldType::kLogitBias: {
      HEARTH_TRY(check_list(field, value, "pairs"));
      size_t index = 0;
      for (const Json& pair : value) {
        const std::string where = item(index++);
        if (!pair.is_array() || pair.size() != 2) {
          return invalid(field, where + describe(pair), "a pair [token id, number]");
        }
        const Json& id = pair[0];
        if (!id.is_number_unsigned() || id.get<uint64_t>() > uint64_t{kMaxTokenId}) {
          return invalid(field, where + describe(id),
                         fmt::format("a token id 0 to {}", kMaxTokenId));
        }
        if (!pair[1].is_number() || !in_range(field, pair[1].get<double>())) {
          return invalid(field, where + describe(pair[1]),
                         fmt::format("a number {}", range(field)));
        }
      }
      return {};
    }
    case FieldType::kObjects: {
      HEARTH_TRY(check_list(field, value, "objects"));
      size_t index = 0;
      for (const Json& object : value) {
        const std::string where = item(index++);
        if (!object.is_object()) return invalid(field, where + describe(object), "an object");
      }
      return {};
    }
    case FieldType::kObject:
      if (!value.is_object()) return invalid(field, describe(value), "an object");
      return {};
  }
  return {};
}

Error required(std::string_view field, std::string_view want) {
  return Error::invalid(fmt::format("{}: absent, want {}", field, want), std::string(field));
}

/// Checks rules that concern several fields.
Result<void> check_together(const Json& object, const GenerateRequest& request) {
  const bool text = object.contains("prompt");
  const bool ids = object.contains("prompt_ids");
  const bool messages = object.contains("messages");
  if (!text && !ids && !messages) return required("prompt", "it, prompt_ids or messages");
  if (text && ids) {
    return Error::invalid("prompt_ids: met both it and prompt, want one", "prompt_ids");
  }
  if (!request.json_schema.empty() && !request.grammar.empty()) {
    return Error::invalid("grammar: met both it and json_schema, want one", "grammar");
  }
  if (!request.regex.empty() && (!request.json_schema.empty() || !request.grammar.empty())) {
    return Error::invalid("regex: met it and a schema or grammar, want one", "regex");
  }
  if (messages && (text || ids)) {
    return Error::invalid(
        fmt::format("messages: met both it and {}, want one", text ? "prompt" : "prompt_ids"),
        "messages");
  }
  for (const auto& [given, name] : {std::pair(!request.tools.empty(), "tools"),
                                    std::pair(!request.template_kwargs.empty(), "template_kwargs"),
                                    std::pair(request.tool_choice != "auto", "tool_choice"),
                                    std::pair(!request.parallel_tool_calls, "parallel_tool_calls"),
                                    std::pair(request.reasoning_budget > 0, "reasoning_budget")}) {
    if (!given || messages) continue;
    return Error::invalid(fmt::format("{}: met it without messages, want both", name), name);
  }
  if (request.max_tokens > 0 && request.min_tokens > request.max_tokens) {
    return Error::invalid(fmt::format("min_tokens: met {}, want at most max_tokens, {}",
                                      request.min_tokens, request.max_tokens),
                          "min_tokens");
  }
  return {};
}
Result<void> check_together(const Json& object, const TokenizeRequest& request) {
  const bool messages = object.contains("messages");
  const bool ids = object.contains("ids");
  if (!object.contains("text") && !messages && !ids) return required("text", "it, messages or ids");
  if (messages && (object.contains("text") || ids)) {
    return Error::invalid("messages: met it and text or ids, want one", "messages");
  }
  if (ids && object.contains("text")) {
    return Error::invalid("ids: met both it and text, want one", "ids");
  }
  for (const auto& [given, name] : {std::pair(!request.tools.empty(), "tools"),
                                    std::pair(!request.template_kwargs.empty(), "template_kwargs"),
                                    std::pair(request.reasoning != "auto", "reasoning")}) {
    if (!given || messages) continue;
    return Error::invalid(fmt::format("{}: met it without messages, want both", name), name);
  }
  return {};
}
Result<void> check_together(const Json& object, const EmbedRequest&) {
  const bool texts = object.contains("texts");
  if (!texts && !object.contains("ids")) return required("texts", "it or ids");
  if (texts && object.contains("ids")) {
    return Error::invalid("ids: met both it and texts, want one", "ids");
  }
  return {};
}
Result<void> check_together(const Json& object, const SwapRequest&) {
  if (!object.contains("model")) return required("model", "a model's name");
  return {};
}
/// Requests about another request.
template <class T>
requires std::same_as<T, AttachRequest> || std::same_as<T, ForkRequest> ||
    std::same_as<T, CancelRequest>
        Result<void> check_together(const Json& object, const T&) {
  if (!object.contains("id")) return required("id", "a request id");
  return {};
}
template <class T>
Result<void> check_together(const Json&, const T&) {
  return {};
}

template <class T>
Result<ClientRequest> read_request(Json& object) {
  HEARTH_ASSIGN_OR_RETURN(T request, read_members<T>(object));
  HEARTH_TRY(check_together(object, request));
  return ClientRequest(std::move(request));
}

template <size_t... Verbs>
Result<ClientRequest> read_verb(Verb verb, Json& object, std::index_sequence<Verbs...>) {
  using Reader = Result<ClientRequest> (*)(Json&);
  constexpr Reader kReaders[] = {read_request<std::variant_alternative_t<Verbs, ClientRequest>>...};
  return kReaders[to_underlying(verb)](object);
}

template <class R, size_t I = 0>
constexpr Verb verb_of_type() {
  if constexpr (std::is_same_v<R, std::variant_alternative_t<I, ClientRequest>>) {
    return static_cast<Verb>(I);
  } else {
    return verb_of_type<R, I + 1>();
  }
}

/// The text of which an absent and an empty value differ; null: the verb has none.
const std::string* main_text(const GenerateRequest& request) { return &request.prompt; }
const std::string* main_text(const TokenizeRequest& request) { return &request.text; }
template <class R>
const std::string* main_text(const R&) {
  return nullptr;
}
bool gives_main_text(const GenerateRequest& request) {
  return request.prompt_ids.empty() && request.messages.empty();
}
bool gives_main_text(const TokenizeRequest& request) {
  return request.messages.empty() && request.ids.empty();
}
template <class R>
bool gives_main_text(const R&) {
  return false;
}

template <class R>
void write_request(JsonWriter& writer, const R& request) {
  writer("verb", name(verb_of_type<R>()));
  const auto write = [&](std::string_view field, const auto& value) {
    if constexpr (std::is_same_v<decltype(value), const std::string&>) {
      if (&value == main_text(request)) {
        if (gives_main_text(request)) writer.member(field, value);
        return;
      }
    }
    writer(field, value);
  };
  bind(write, request);
}

/// For the string that the request is written to: growing would hold a long text twice.
template <class R>
size_t about_bytes(const R& request) {
  JsonMeasure measure;
  bind(measure, request);
  return measure.bytes();
}

/// The same request among those that a worker computes; nothing for any other.
std::optional<ComputeRequest> as_compute_request(ClientRequest request) {
  return std::visit(
      [](auto& each) -> std::optional<ComputeRequest> {
        if constexpr (kIsAlternative<std::decay_t<decltype(each)>, ComputeRequest>) {
          return std::move(each);
        } else {
          return std::nullopt;
        }
      },
      request);
}

}  // namespace

Result<ClientRequest> request_from_json(Json& object) {
  const auto verb_value = object.find("verb");
  if (verb_value == object.end()) return required("verb", "ping, generate, ...");
  std::optional<Verb> verb;
  if (verb_value->is_string()) verb = verb_from_name(verb_value->get_ref<const std::string&>());
  if (!verb) {
    const bool text = verb_value->is_string();
    return Error::protocol(
        fmt::format(
            "verb: met '{}', want ping, generate, tokenize, cancel, models, ps, "
            "stats, health, load, unload, swap, cache, attach, fork, embed or record",
            text ? printable(verb_value->get_ref<const std::string&>()) : describe(*verb_value)),
        "verb");
  }
  for (const auto& [key, value] : object.items()) {
    if (key == "verb") continue;
    const Field* field = find_field(*verb, key);
    if (field == nullptr) {
      return Error::unknown_field(fmt::format("{}: no field of {}", printable(key), name(*verb)),
                                  printable(key));
    }
    HEARTH_TRY(check_value(*field, value));
  }
  return read_verb(*verb, object, std::make_index_sequence<kNumVerbs>());
}

Result<ClientRequest> decode_request(std::string_view json) {
  HEARTH_ASSIGN_OR_RETURN(LargeJson object, parse_json_object(json, kRequestLimits));
  return request_from_json(object);
}

Result<ClientRequest> take_request(std::string json) {
  HEARTH_ASSIGN_OR_RETURN(LargeJson object, parse_json_object(json, kRequestLimits));
  std::string().swap(json);
  return request_from_json(object);
}

std::string encode_request(const ClientRequest& request) {
  return std::visit(
      [](const auto& each) {
        std::string out;
        out.reserve(about_bytes(each));
        JsonWriter writer(out, /*skip_empty=*/true);
        write_request(writer, each);
        writer.end();
        return out;
      },
      request);
}

Result<WorkerRequest> decode_worker_request(uint64_t id, std::string_view json) {
  HEARTH_ASSIGN_OR_RETURN(LargeJson object, parse_json_object(json, kWorkerLimits));
  WorkerRequest out;
  JsonReader reader(object);
  bind(reader, static_cast<WorkerEnvelope&>(out));
  HEARTH_TRY(std::move(reader).result());
  out.id = id;
  const auto inner = object.find("request");
  if (inner == object.end() || !inner->is_object()) return required("request", "an object");
  HEARTH_ASSIGN_OR_RETURN(ClientRequest request, request_from_json(*inner));
  const Verb verb = verb_of(request);
  std::optional<ComputeRequest> task = as_compute_request(std::move(request));
  if (!task) {
    return Error::protocol(
        fmt::format("verb: met {}, want generate, tokenize or embed", name(verb)), "verb");
  }
  out.task = *std::move(task);
  return out;
}

std::string_view owner_of_worker_request(std::string_view json) {
  constexpr std::string_view kBegin = R"({"owner":")";
  if (!json.starts_with(kBegin)) return {};
  json.remove_prefix(kBegin.size());
  const size_t end = json.find('"');
  return end == std::string_view::npos ? std::string_view() : json.substr(0, end);
}

bool asks_for_tokens(std::string_view json) {
  // The envelope is short and comes first; no text of a client is in it.
  constexpr size_t kEnvelope = 1 << 10;
  return json.substr(0, kEnvelope).find(R"("request":{"verb":"tokenize")") !=
         std::string_view::npos;
}

std::string encode_worker_request(const WorkerEnvelope& envelope, const ComputeRequest& request) {
  std::string out;
  out.reserve(about_bytes(envelope) +
              std::visit([](const auto& each) { return about_bytes(each); }, request));
  JsonWriter writer(out, /*skip_empty=*/true);
  bind(writer, envelope);
  std::visit(
      [&writer](const auto& each) {
        writer.object("request", [&each](JsonWriter& inner) { write_request(inner, each); });
      },
      request);
  writer.end();
  return out;
}

Result<ServeSettings> decode_serve_settings(std::string_view json) {
  return decode_members<ServeSettings>(json, kRequestLimits);
}

std::string encode_serve_settings(const ServeSettings& settings) {
  return encode_members(settings);
}

}  // namespace hearth::ipc
