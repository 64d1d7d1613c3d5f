#include "daemon/http/api_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "ipc/codec.h"
#include "ipc/json.h"

namespace hearth::http {
namespace {

using ipc::describe;
using ipc::Json;

constexpr ipc::JsonLimits kBodyLimits{.max_bytes = ipc::kMaxRequestBytes, .max_depth = 30};

/// The members of a JSON object, each asked for by name; what nobody asked for is refused. After
/// the first error nothing more is noted.
class Members {
 public:
  explicit Members(const Json& object, std::string path = {})
      : object_(object), path_(std::move(path)) {}

  /// Null: absent, or the value null, which these APIs take for absent.
  const Json* take(std::string_view name) {
    known_.emplace_back(name);
    const auto found = object_.find(name);
    if (found == object_.end() || found->is_null()) return nullptr;
    return &*found;
  }
  void fail(std::string_view name, ErrorCode code, std::string_view what) {
    if (error_) return;
    const std::string field = path_ + std::string(name);
    error_ = Error{code, fmt::format("{}: {}", field, what), field};
  }
  void wrong(std::string_view name, const Json& met, std::string_view want) {
    fail(name, ErrorCode::kInvalidArgument, fmt::format("met {}, want {}", describe(met), want));
  }
  void unsupported(std::string_view name, std::string_view what = "is not supported") {
    fail(name, ErrorCode::kUnsupported, what);
  }
  bool flag(std::string_view name, bool otherwise) {
    const Json* value = take(name);
    if (value == nullptr) return otherwise;
    if (value->is_boolean()) return value->get<bool>();
    wrong(name, *value, "true or false");
    return otherwise;
  }
  std::optional<std::string> text(std::string_view name) {
    const Json* value = take(name);
    if (value == nullptr) return std::nullopt;
    if (value->is_string()) return value->get<std::string>();
    wrong(name, *value, "a string");
    return std::nullopt;
  }
  /// Passed on as it is: our own table checks it.
  void copy(std::string_view name, Json& to, std::string_view as) {
    if (const Json* value = take(name)) to[std::string(as)] = *value;
  }
  void copy(std::string_view name, Json& to) { copy(name, to, name); }
  /// A parameter of which only these values mean what happens anyway.
  void only(std::string_view name, const std::vector<Json>& values) {
    const Json* value = take(name);
    if (value == nullptr || std::find(values.begin(), values.end(), *value) != values.end()) return;
    unsupported(name, values.empty() ? "is not supported" : "this value is not supported");
  }
  bool failed() const { return error_.has_value(); }
  void take_error_of(Members& inner) {
    if (!error_) error_ = std::move(inner.error_);
  }
  Result<void> finish() {
    check_unknown();
    if (error_) return std::move(*error_);
    return {};
  }
  void check_unknown() {
    if (error_) return;
    for (const auto& [key, value] : object_.items()) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      const std::string name = ipc::printable(key);
      return fail(name, ErrorCode::kUnknownField, "is not a parameter that hearth knows");
    }
  }

 private:
  const Json& object_;
  std::string path_;
  std::vector<std::string> known_;
  std::optional<Error> error_;
};

// Our own names of parameters that the API calls otherwise, for errors.
struct Renamed {
  std::string_view ours;
  std::string_view theirs;
};

/// A value checked by the table of the socket's protocol.
Result<ipc::GenerateRequest> decode(const Json& request, const std::vector<Renamed>& renamed) {
  Result<ipc::ClientRequest> decoded = ipc::decode_request(ipc::dump_json(request));
  if (decoded) return std::get<ipc::GenerateRequest>(std::move(decoded).value());
  Error error = decoded.take_error();
  for (const Renamed& name : renamed) {
    if (error.field != name.ours) continue;
    const std::string begin = std::string(name.ours) + ": ";
    if (error.message.starts_with(begin)) {
      error.message = fmt::format("{}: {}", name.theirs, error.message.substr(begin.size()));
    }
    error.field = name.theirs;
    break;
  }
  return error;
}

// The defaults of these APIs, where they are not ours.
Json new_request() {
  Json request = Json::object();
  request["verb"] = "generate";
  request["temperature"] = 1;
  request["top_p"] = 1;
  request["top_k"] = 0;
  request["penalty_window"] = -1;
  return request;
}

// To us 0 is "as many as fit"; to these APIs it is nothing.
void take_max_tokens(Members& in, std::string_view name, Json& request) {
  const Json* most = in.take(name);
  if (most == nullptr) return;
  if (*most == 0) return in.wrong(name, *most, "an integer from 1");
  request["max_tokens"] = *most;
}

void take_stop(Members& in, std::string_view name, Json& request) {
  const Json* stop = in.take(name);
  if (stop == nullptr) return;
  request["stop"] = stop->is_string() ? Json::array({*stop}) : *stop;
}

// {"50256":-100} becomes [[50256,-100]].
void take_logit_bias(Members& in, Json& request) {
  const Json* bias = in.take("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) return in.wrong("logit_bias", *bias, "an object of token ids");
  Json pairs = Json::array();
  for (const auto& [key, value] : bias->items()) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc{} || end != key.data() + key.size() || id < 0) {
      return in.fail("logit_bias", ErrorCode::kInvalidArgument,
                     fmt::format("met the key '{}', want token ids", ipc::printable(key)));
    }
    pairs.push_back(Json::array({id, value}));
  }
  request["logit_bias"] = std::move(pairs);
}

// What the OpenAI completion APIs share, and what hearth adds to them.
void take_sampling(Members& in, Json& request) {
  in.copy("model", request);
  in.copy("n", request);
  in.copy("seed", request);
  in.copy("temperature", request);
  in.copy("top_p", request);
  in.copy("presence_penalty", request);
  in.copy("frequency_penalty", request);
  take_stop(in, "stop", request);
  take_logit_bias(in, request);
  for (const char* ours :
       {"top_k", "min_p", "typical_p", "repetition_penalty", "penalty_window", "min_tokens",
        "stop_ids", "ignore_eos", "priority", "deadline_ms", "speculate", "cache", "grammar"}) {
    in.copy(ours, request);
  }
  in.text("user");  // whom the caller acts for; it changes no answer
}

void take_stream(Members& in, Call& call) {
  call.stream = in.flag("stream", false);
  const Json* options = in.take("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) return in.wrong("stream_options", *options, "an object");
  if (!call.stream) {
    return in.fail("stream_options", ErrorCode::kInvalidArgument, "met it without stream");
  }
  Members inner(*options, "stream_options.");
  call.include_usage = inner.flag("include_usage", false);
  inner.only("include_obfuscation", {Json(false)});
  inner.check_unknown();
  in.take_error_of(inner);
}

/// The text that `content` is: a string, or a list of parts of text (of these types). Nothing where
/// it is something else; `in` has the error then.
std::optional<std::string> text_of(const Json& content, const std::vector<std::string>& types,
                                   const std::string& path, Members& in) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    in.wrong(path, content, "a string or a list of parts");
    return std::nullopt;
  }
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    if (!content[i].is_object()) {
      in.wrong(at, content[i], "an object");
      return std::nullopt;
    }
    Members part(content[i], at + ".");
    const std::string type = part.text("type").value_or("text");
    if (std::find(types.begin(), types.end(), type) == types.end()) {
      part.unsupported("type",
                       fmt::format("'{}' is not supported, only text is", ipc::printable(type)));
    }
    const std::optional<std::string> piece = part.text("text");
    if (!piece) part.fail("text", ErrorCode::kInvalidArgument, "absent, want a string");
    // A mark where a prefix should be kept: every prefix is.
    part.take("cache_control");
    part.only("annotations", {Json::array()});
    part.only("logprobs", {Json::array()});
    part.only("citations", {Json::array()});
    part.check_unknown();
    in.take_error_of(part);
    if (in.failed()) return std::nullopt;
    text += *piece;
  }
  return text;
}

// Templates want the arguments of a call as an object, the API has their text.
Json call_with_object(const Json& call) {
  Json out = call;
  if (!out.is_object() || !out.contains("function") || !out["function"].is_object()) return out;
  Json& function = out["function"];
  const auto arguments = function.find("arguments");
  if (arguments == function.end() || !arguments->is_string()) return out;
  Json parsed = Json::parse(arguments->get_ref<const std::string&>(), nullptr, false);
  if (parsed.is_object()) function["arguments"] = std::move(parsed);
  return out;
}

// Of the chat API.
void take_chat_messages(Members& in, Json& request) {
  const Json* messages = in.take("messages");
  if (messages == nullptr) {
    return in.fail("messages", ErrorCode::kInvalidArgument, "absent, want a list");
  }
  if (!messages->is_array() || messages->empty()) {
    return in.wrong("messages", *messages, "a list of messages");
  }
  Json out = Json::array();
  for (size_t i = 0; i < messages->size() && !in.failed(); ++i) {
    const Json& from = (*messages)[i];
    const std::string path = fmt::format("messages[{}]", i);
    if (!from.is_object()) return in.wrong(path, from, "an object");
    Members message(from, path + ".");
    Json to = Json::object();
    std::string role = message.text("role").value_or("");
    if (role == "developer") role = "system";
    if (role != "system" && role != "user" && role != "assistant" && role != "tool") {
      message.fail("role", ErrorCode::kInvalidArgument,
                   "want system, developer, user, assistant or tool");
    }
    to["role"] = role;
    const Json* calls = message.take("tool_calls");
    if (const Json* content = message.take("content")) {
      if (const auto text = text_of(*content, {"text", "refusal"}, path + ".content", in)) {
        to["content"] = *text;
      }
    } else if (role == "assistant" && calls != nullptr) {
      to["content"] = "";
    } else {
      message.fail("content", ErrorCode::kInvalidArgument, "absent, want a string");
    }
    if (calls != nullptr) {
      if (role != "assistant" || !calls->is_array()) {
        message.wrong("tool_calls", *calls, "a list, of an assistant's message");
      } else {
        Json list = Json::array();
        for (const Json& call : *calls) list.push_back(call_with_object(call));
        to["tool_calls"] = std::move(list);
      }
    }
    if (const auto id = message.text("tool_call_id")) to["tool_call_id"] = *id;
    if (const auto name = message.text("name")) to["name"] = *name;
    if (const auto reasoning = message.text("reasoning_content")) {
      to["reasoning_content"] = *reasoning;
    }
    message.only("refusal", {});
    message.only("audio", {});
    message.only("annotations", {Json::array()});
    message.check_unknown();
    in.take_error_of(message);
    out.push_back(std::move(to));
  }
  request["messages"] = std::move(out);
}

// A schema that is to be followed, from `format` ({"type":...}), whose schema is its member
// json_schema or (of the responses API) its own.
void take_format(Members& in, std::string_view name, const Json& format, bool nested,
                 Json& request) {
  if (!format.is_object()) return in.wrong(name, format, "an object");
  Members inner(format, std::string(name) + ".");
  const std::string type = inner.text("type").value_or("");
  const Json* holder = nested ? inner.take("json_schema") : &format;
  if (type == "json_object") {
    request["json_schema"] = R"({"type":"object"})";
  } else if (type == "json_schema") {
    if (holder == nullptr || !holder->is_object()) {
      inner.fail("json_schema", ErrorCode::kInvalidArgument, "want an object with a schema");
    } else {
      Members schema(*holder, std::string(name) + (nested ? ".json_schema." : "."));
      if (!nested) schema.take("type");
      schema.text("name");
      schema.text("description");
      schema.flag("strict", true);  // it is followed to the letter either way
      const Json* value = schema.take("schema");
      if (value == nullptr || !value->is_object()) {
        schema.fail("schema", ErrorCode::kInvalidArgument, "absent, want an object");
      } else {
        request["json_schema"] = ipc::dump_json(*value);
      }
      schema.check_unknown();
      in.take_error_of(schema);
    }
  } else if (type != "text") {
    inner.fail("type", ErrorCode::kInvalidArgument, "want text, json_object or json_schema");
  }
  if (nested) inner.check_unknown();
  in.take_error_of(inner);
}

// Functions that the model may call: not yet, unless it may not.
void take_tools(Members& in) {
  const Json* tools = in.take("tools");
  const Json* choice = in.take("tool_choice");
  const bool any = tools != nullptr && !(tools->is_array() && tools->empty());
  const bool none =
      choice != nullptr && (*choice == "none" || (choice->is_object() && choice->contains("type") &&
                                                  (*choice)["type"] == "none"));
  if (any && !none) in.unsupported("tools", "calls of tools are not supported yet");
  if (choice != nullptr && !none && *choice != "auto" &&
      !(choice->is_object() && choice->contains("type") && (*choice)["type"] == "auto")) {
    in.unsupported("tool_choice", "calls of tools are not supported yet");
  }
  in.take("parallel_tool_calls");  // without tools it says nothing
}

Result<Call> completions(const Json& body) {
  Call call{.api = Api::kCompletions};
  Json request = new_request();
  Members in(body);
  request["max_tokens"] = 16;
  const Json* prompt = in.take("prompt");
  if (prompt == nullptr) {
    in.fail("prompt", ErrorCode::kInvalidArgument, "absent, want a string or token ids");
  } else {
    const Json* one = prompt;
    const bool wrapped = prompt->is_array() && !prompt->empty() &&
                         ((*prompt)[0].is_string() || (*prompt)[0].is_array());
    if (wrapped) {
      if (prompt->size() > 1) in.unsupported("prompt", "one prompt a request, not a list of them");
      one = &(*prompt)[0];
    }
    if (!one->is_string() && !one->is_array()) {
      in.wrong("prompt", *one, "a string or token ids");
    } else {
      request[one->is_string() ? "prompt" : "prompt_ids"] = *one;
    }
  }
  take_max_tokens(in, "max_tokens", request);
  in.copy("logprobs", request);
  take_sampling(in, request);
  take_stream(in, call);
  in.copy("raw", request);
  in.copy("parse_special", request);
  in.copy("json_schema", request);
  in.only("echo", {Json(false)});
  in.only("suffix", {});
  const Json* best_of = in.take("best_of");
  if (best_of != nullptr && *best_of != (request.contains("n") ? request["n"] : Json(1))) {
    in.unsupported("best_of", "only the value of n is supported");
  }
  HEARTH_TRY(in.finish());
  HEARTH_ASSIGN_OR_RETURN(call.request, decode(request, {{"prompt_ids", "prompt"}}));
  return call;
}

Result<Call> chat(const Json& body) {
  Call call{.api = Api::kChat};
  Json request = new_request();
  Members in(body);
  take_chat_messages(in, request);
  request["max_tokens"] = 0;
  const bool old_name = in.take("max_tokens") != nullptr;
  if (old_name && in.take("max_completion_tokens") != nullptr) {
    in.fail("max_tokens", ErrorCode::kInvalidArgument,
            "met both it and max_completion_tokens, want one");
  }
  const std::string_view most_name = old_name ? "max_tokens" : "max_completion_tokens";
  take_max_tokens(in, "max_tokens", request);
  take_max_tokens(in, "max_completion_tokens", request);
  take_sampling(in, request);
  take_stream(in, call);
  const Json* alternatives = in.take("top_logprobs");
  if (in.flag("logprobs", false)) {
    request["logprobs"] = alternatives == nullptr ? Json(0) : *alternatives;
  } else if (alternatives != nullptr) {
    in.fail("top_logprobs", ErrorCode::kInvalidArgument, "met it without logprobs");
  }
  if (const Json* format = in.take("response_format")) {
    take_format(in, "response_format", *format, true, request);
  }
  take_tools(in);
  in.copy("chat_template_kwargs", request, "template_kwargs");
  in.only("store", {Json(false)});
  in.only("modalities", {Json::array({"text"})});
  in.only("service_tier", {"auto", "default"});
  in.only("metadata", {Json::object()});
  HEARTH_TRY(in.finish());
  HEARTH_ASSIGN_OR_RETURN(call.request,
                          decode(request, {{"max_tokens", most_name},
                                           {"logprobs", "top_logprobs"},
                                           {"json_schema", "response_format"},
                                           {"template_kwargs", "chat_template_kwargs"}}));
  return call;
}

void take_input(Members& in, Json& messages) {
  const Json* input = in.take("input");
  if (input == nullptr) {
    return in.fail("input", ErrorCode::kInvalidArgument, "absent, want a string or a list");
  }
  if (input->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *input}});
    return;
  }
  if (!input->is_array() || input->empty()) return in.wrong("input", *input, "a string or a list");
  for (size_t i = 0; i < input->size() && !in.failed(); ++i) {
    const std::string path = fmt::format("input[{}]", i);
    if (!(*input)[i].is_object()) return in.wrong(path, (*input)[i], "an object");
    Members item((*input)[i], path + ".");
    if (item.text("type").value_or("message") != "message") {
      item.unsupported("type", "only messages are supported");
    }
    std::string role = item.text("role").value_or("");
    if (role == "developer") role = "system";
    if (role != "system" && role != "user" && role != "assistant") {
      item.fail("role", ErrorCode::kInvalidArgument, "want system, developer, user or assistant");
    }
    std::optional<std::string> text;
    if (const Json* content = item.take("content")) {
      text = text_of(*content, {"input_text", "output_text", "text"}, path + ".content", in);
    } else {
      item.fail("content", ErrorCode::kInvalidArgument, "absent, want a string");
    }
    item.text("id");
    item.text("status");
    item.check_unknown();
    in.take_error_of(item);
    messages.push_back({{"role", role}, {"content", text.value_or("")}});
  }
}

Result<Call> responses(const Json& body) {
  Call call{.api = Api::kResponses};
  Json request = new_request();
  Members in(body);
  Json messages = Json::array();
  if (const auto instructions = in.text("instructions")) {
    messages.push_back({{"role", "system"}, {"content", *instructions}});
  }
  take_input(in, messages);
  request["messages"] = std::move(messages);
  request["max_tokens"] = 0;
  in.copy("model", request);
  take_max_tokens(in, "max_output_tokens", request);
  in.copy("temperature", request);
  in.copy("top_p", request);
  call.stream = in.flag("stream", false);
  if (const Json* text = in.take("text")) {
    if (!text->is_object()) {
      in.wrong("text", *text, "an object");
    } else {
      Members inner(*text, "text.");
      if (const Json* format = inner.take("format")) {
        take_format(in, "text.format", *format, false, request);
      }
      inner.only("verbosity", {"medium"});
      inner.check_unknown();
      in.take_error_of(inner);
    }
  }
  take_tools(in);
  in.text("user");
  in.text("safety_identifier");
  in.text("prompt_cache_key");
  in.only("store", {Json(false)});
  in.only("background", {Json(false)});
  in.only("truncation", {"disabled"});
  in.only("include", {Json::array()});
  in.only("metadata", {Json::object()});
  in.only("service_tier", {"auto", "default"});
  in.only("top_logprobs", {Json(0)});
  HEARTH_TRY(in.finish());
  HEARTH_ASSIGN_OR_RETURN(call.request, decode(request, {{"max_tokens", "max_output_tokens"},
                                                         {"messages", "input"},
                                                         {"json_schema", "text"}}));
  return call;
}

Result<Call> anthropic(const Json& body) {
  Call call{.api = Api::kMessages};
  Json request = new_request();
  Members in(body);
  Json messages = Json::array();
  if (const Json* system = in.take("system")) {
    if (const auto text = text_of(*system, {"text"}, "system", in)) {
      messages.push_back({{"role", "system"}, {"content", *text}});
    }
  }
  const Json* list = in.take("messages");
  if (list == nullptr || !list->is_array() || list->empty()) {
    in.wrong("messages", list == nullptr ? Json() : *list, "a list of messages");
  } else {
    for (size_t i = 0; i < list->size() && !in.failed(); ++i) {
      const std::string path = fmt::format("messages[{}]", i);
      if (!(*list)[i].is_object()) {
        in.wrong(path, (*list)[i], "an object");
        break;
      }
      Members message((*list)[i], path + ".");
      const std::string role = message.text("role").value_or("");
      if (role != "user" && role != "assistant") {
        message.fail("role", ErrorCode::kInvalidArgument, "want user or assistant");
      }
      std::optional<std::string> text;
      if (const Json* content = message.take("content")) {
        text = text_of(*content, {"text"}, path + ".content", in);
      } else {
        message.fail("content", ErrorCode::kInvalidArgument, "absent, want a string");
      }
      message.check_unknown();
      in.take_error_of(message);
      messages.push_back({{"role", role}, {"content", text.value_or("")}});
      if (i + 1 == list->size() && role == "assistant") {
        in.unsupported("messages",
                       "the last is the assistant's; going on from it is not "
                       "supported");
      }
    }
  }
  request["messages"] = std::move(messages);
  in.copy("model", request);
  take_max_tokens(in, "max_tokens", request);
  if (!request.contains("max_tokens")) {
    in.fail("max_tokens", ErrorCode::kInvalidArgument, "absent, want an integer");
  }
  in.copy("temperature", request);
  in.copy("top_p", request);
  in.copy("top_k", request);
  take_stop(in, "stop_sequences", request);
  call.stream = in.flag("stream", false);
  take_tools(in);
  in.take("metadata");  // whom the caller acts for
  in.only("service_tier", {"auto", "standard_only"});
  in.only("thinking", {Json::parse(R"({"type":"disabled"})")});
  HEARTH_TRY(in.finish());
  HEARTH_ASSIGN_OR_RETURN(call.request, decode(request, {{"stop", "stop_sequences"}}));
  return call;
}

}  // namespace

Result<Call> parse_call(Api api, std::string_view body) {
  HEARTH_ASSIGN_OR_RETURN(const Json object, ipc::parse_json_object(body, kBodyLimits));
  switch (api) {
    case Api::kCompletions: return completions(object);
    case Api::kChat: return chat(object);
    case Api::kResponses: return responses(object);
    case Api::kMessages: return anthropic(object);
  }
  return Error{ErrorCode::kInternal, "an API without a case", ""};
}

Result<ipc::TokenizeRequest> parse_tokenize(std::string_view body) {
  HEARTH_ASSIGN_OR_RETURN(const Json object, ipc::parse_json_object(body, kBodyLimits));
  Json request = object;
  if (request.contains("verb")) {
    return Error{ErrorCode::kUnknownField, "verb: is not a parameter that hearth knows", "verb"};
  }
  request["verb"] = "tokenize";
  HEARTH_ASSIGN_OR_RETURN(ipc::ClientRequest decoded, ipc::decode_request(ipc::dump_json(request)));
  return std::get<ipc::TokenizeRequest>(std::move(decoded));
}

}  // namespace hearth::http
