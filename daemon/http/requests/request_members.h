#pragma once
// Reads the JSON of an API's request, member by member, and the parameters that the APIs share.
// Included by this folder's .cpp files only.

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/http/requests/api_request.h"
#include "ipc/schema/requests.h"
#include "ipc/wire/json.h"
#include "ipc/wire/request_json.h"
#include "kernels/base/result.h"

namespace hearth::http {

using ipc::describe;
using ipc::Json;

/// Bounds on a request's body.
inline constexpr ipc::JsonLimits kBodyLimits{.max_bytes = ipc::kMaxRequestBytes,
                                             .max_depth = 30,
                                             .max_value_bytes = ipc::kMaxRequestValueBytes};
/// Memory of the values in the arguments of all calls of one request, which clients send as text.
inline constexpr size_t kMaxArgumentValueBytes = 8u << 20;

/// Parses a body, and frees its text at once: a long one and its values take much memory.
inline Result<Json> parse_body_text(std::string body, size_t* value_bytes = nullptr) {
  auto parsed = ipc::parse_json_object(body, kBodyLimits, value_bytes);
  std::string().swap(body);
  return parsed;
}

/// The members of a JSON object, each taken by name. Members that were not taken are refused,
/// unless they are null, which is absent. After the first error no other is recorded. Texts and
/// passed values are moved out of the object, so that a long one is never held twice.
class Members {
 public:
  explicit Members(Json& object, std::string path = {}) : object_(object), path_(std::move(path)) {}

  /// Null: absent, or the value null, which these APIs treat as absent.
  Json* take(std::string_view name) {
    known_.emplace_back(name);
    const auto found = object_.find(name);
    if (found == object_.end() || found->is_null()) return nullptr;
    return &*found;
  }
  // The first error stays.
  void invalid(std::string_view name, std::string_view what) { fail(Error::invalid, name, what); }
  void too_large(std::string_view name, std::string_view what) {
    fail(Error::too_large, name, what);
  }
  void unsupported(std::string_view name, std::string_view what = "is not supported") {
    fail(Error::unsupported, name, what);
  }
  /// A parameter that has the name `ours` here is refused if it is present.
  void renamed(std::string_view name, std::string_view ours) {
    if (take(name) == nullptr) return;
    fail(Error::unknown_field, name, fmt::format("is not a parameter of this API; use {}", ours));
  }
  void wrong(std::string_view name, const Json& met, std::string_view want) {
    invalid(name, fmt::format("met {}, want {}", describe(met), want));
  }
  bool flag(std::string_view name, bool otherwise) {
    const Json* value = take(name);
    if (value == nullptr) return otherwise;
    if (value->is_boolean()) return value->get<bool>();
    wrong(name, *value, "true or false");
    return otherwise;
  }
  /// Whether the value is false, and not absent.
  bool is_false(std::string_view name) {
    const Json* value = take(name);
    return value != nullptr && *value == false;
  }
  std::optional<std::string> text(std::string_view name) {
    Json* value = take(name);
    if (value == nullptr) return std::nullopt;
    if (value->is_string()) return std::move(value->get_ref<std::string&>());
    wrong(name, *value, "a string");
    return std::nullopt;
  }
  /// Moves the value unchecked; decode() checks it.
  void pass(std::string_view name, Json& to, std::string_view as) {
    if (Json* value = take(name)) to[std::string(as)] = std::move(*value);
  }
  void pass(std::string_view name, Json& to) { pass(name, to, name); }
  /// A parameter whose only accepted values mean the behaviour that applies anyway.
  void only(std::string_view name, const std::vector<Json>& values) {
    const Json* value = take(name);
    if (value == nullptr || std::find(values.begin(), values.end(), *value) != values.end()) return;
    unsupported(name, values.empty() ? "is not supported" : "this value is not supported");
  }
  std::string path_of(std::string_view name) const { return path_ + std::string(name); }
  bool failed() const { return error_.has_value(); }
  /// Takes over the error and the ignored parameters of an object within this one.
  void join(Members& inner) {
    if (!error_) error_ = std::move(inner.error_);
    for (const std::string_view name : inner.ignored_) ignore(name);
    for (const std::string_view name : inner.about_reasoning_) note_reasoning(name);
  }
  /// Records a parameter that changes nothing; `name` is one of field_lists.h.
  void ignore(std::string_view name) {
    if (std::find(ignored_.begin(), ignored_.end(), name) == ignored_.end()) {
      ignored_.push_back(name);
    }
  }
  const std::vector<std::string_view>& ignored() const { return ignored_; }
  /// Records a parameter that asks for reasoning or bounds it; `name` is a literal.
  void note_reasoning(std::string_view name) {
    if (std::find(about_reasoning_.begin(), about_reasoning_.end(), name) ==
        about_reasoning_.end()) {
      about_reasoning_.push_back(name);
    }
  }
  const std::vector<std::string_view>& about_reasoning() const { return about_reasoning_; }
  Result<void> finish() {
    check_unknown();
    if (error_) return std::move(*error_);
    return {};
  }
  void check_unknown() {
    if (error_) return;
    for (const auto& [key, value] : object_.items()) {
      if (value.is_null() || std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      const std::string name = ipc::printable(key);
      return fail(Error::unknown_field, name, "is not a parameter that hearth knows");
    }
  }

 private:
  void fail(Error (*make)(std::string, std::string), std::string_view name, std::string_view what) {
    if (error_) return;
    const std::string field = path_of(name);
    error_ = make(fmt::format("{}: {}", field, what), field);
  }

  Json& object_;
  std::string path_;
  std::vector<std::string> known_;
  std::vector<std::string_view> ignored_;
  std::vector<std::string_view> about_reasoning_;
  std::optional<Error> error_;
};

/// The daemon's name of a parameter that the API names differently, for errors.
struct Renamed {
  std::string_view ours;
  std::string_view theirs;
};

/// Checks the values against the field table of the socket's protocol. Moves texts out of them.
Result<ipc::GenerateRequest> decode(Json& request, const std::vector<Renamed>& renamed);

/// The defaults of these APIs that differ from the daemon's.
Json new_request();
/// What a client's library made of a text next to it, and sends back with it: `parsed` and others.
void take_parsed(Members& in);
/// Whether a value is this negative integer. `==` alone takes 2^64 - 1 for -1.
inline bool is_negative(const Json& value, int64_t wanted) {
  return value.is_number_integer() && !value.is_number_unsigned() && value == wanted;
}
/// Sets the bound; any integer is lowered to the largest bound if the request may be clipped.
void set_max_tokens(const Json& most, Json& request);
/// Refuses 0, which means "as many as fit" to the daemon but nothing to these APIs. -1 is absent.
void take_max_tokens(Members& in, std::string_view name, Json& request);
void take_stop(Members& in, std::string_view name, Json& request);
/// The parameters of embeddings that change nothing (field_lists.h).
void take_ignored_of_embeddings(Members& in);
/// The parameters that the OpenAI completion APIs share, and hearth's extensions.
void take_sampling(Members& in, Json& request);
void take_stream(Members& in, Call& call);

/// How much of a message to keep in the cache, with everything before it, and for how long.
struct Kept {
  int64_t seconds = 0;  ///< 0: no longer than other prompts
  size_t bytes = 0;  ///< of its text; 0: all. Of several marks, the last and the longest time apply

  void add(int64_t for_seconds, size_t up_to);
  /// Adds it to `message` as a mark of the socket's protocol. Call it once the message has its
  /// content.
  void write_to(Json& message) const;
};
/// The seconds for which a `cache_control` asks to keep the prompt up to here. 0: absent or
/// invalid.
int64_t take_cache_control(Members& in);
/// A `cache_control` of the whole request.
void take_kept_prompt(Members& in, Json& request);
/// How long the OpenAI APIs ask to keep a prompt.
void take_retention(Members& in, Json& request);

/// The text of `content`: a string, or a list of text parts (of these types), whose cache marks are
/// added to `kept`. Nothing if it is anything else; `in` then has the error.
std::optional<std::string> text_of(Json& content, const std::vector<std::string>& types,
                                   const std::string& path, Members& in, Kept* kept = nullptr);
/// The schema for the output, from `format` ({"type":...}): its member json_schema, as some servers
/// have it its member schema or, in the responses API, `format` itself.
void take_format(Members& in, std::string_view name, Json& format, bool nested, Json& request);
/// Whether the model should reason: `reasoning_effort`, `reasoning`, `thinking`, `enable_thinking`.
/// Call it once `request` has the template's variables.
void take_reasoning(Members& in, Json& request);
/// Passes an effort to the template, unless the request's own variables have one.
void pass_effort(std::string_view effort, Json& request);
/// An effort, and the bound on reasoning that it means; 0: none. docs/http.md lists them.
struct Effort {
  std::string_view name;
  int32_t budget = 0;
};
std::span<const Effort> efforts();
bool is_effort(std::string_view effort);
/// Ollama's `think`: true, false or an effort.
void take_think(Members& in, Json& request);
/// Ollama's `keep_alive`, in ms. Below 0: as long as it may be; nothing: it is absent.
std::optional<int64_t> take_keep_alive(Members& in);
/// The messages of a chat, in the daemon's form. Ollama's have some members of their own.
void take_chat_messages(Members& in, Api api, Json& request);
/// The names under which other servers take a schema or a grammar: `json_schema`, as an object or
/// its text, and `structured_outputs`.
void take_guides(Members& in, Json& request);
/// The API whose tool format is parsed.
enum class ToolWords { kChat, kResponses, kMessages };
/// Functions that the model may call, converted to the daemon's tools, tool_choice and
/// parallel_tool_calls. Custom tools become functions of one text, kCustomParameter, and are
/// named in `custom`; null: there are none in this API.
void take_tools(Members& in, ToolWords words, Json& request, std::vector<CustomTool>* custom);
/// A call made by the assistant, for the `tool_calls` of its message. `arguments` is the member
/// `field` of `in`: an object or its text. `value_bytes` sums over the request's calls.
Json made_call(Members& in, std::string_view field, const std::string& id, const std::string& name,
               Json arguments, size_t* value_bytes);

// Each is defined in a file of its own.
Result<Call> parse_completions(Json& body);
Result<Call> parse_chat(Json& body, const PromptRules& rules);
/// `earlier`: items that precede the request's own; null: none.
Result<Call> parse_responses(Json& body, const PromptRules& rules, Json* earlier);
Result<Call> parse_messages(Json& body, const PromptRules& rules);
Result<Call> parse_ollama(Api api, Json& body, const PromptRules& rules);

}  // namespace hearth::http
