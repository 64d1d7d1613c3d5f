#pragma once
// Reading the JSON of an API's request: members asked for by name, and what the APIs share.
// Included by this folder's .cpp files only.

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/http/api_request.h"
#include "ipc/schema/requests.h"
#include "ipc/wire/json.h"
#include "kernels/base/result.h"

namespace hearth::http {

using ipc::describe;
using ipc::Json;

/// Of a request's body.
inline constexpr ipc::JsonLimits kBodyLimits{.max_bytes = ipc::kMaxRequestBytes, .max_depth = 30};

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
  std::string path_of(std::string_view name) const { return path_ + std::string(name); }
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

/// Our own name of a parameter that the API calls otherwise, for errors.
struct Renamed {
  std::string_view ours;
  std::string_view theirs;
};

/// A value checked by the table of the socket's protocol.
Result<ipc::GenerateRequest> decode(const Json& request, const std::vector<Renamed>& renamed);

/// The defaults of these APIs, where they are not ours.
Json new_request();
/// To us 0 is "as many as fit"; to these APIs it is nothing.
void take_max_tokens(Members& in, std::string_view name, Json& request);
void take_stop(Members& in, std::string_view name, Json& request);
/// What the OpenAI completion APIs share, and what hearth adds to them.
void take_sampling(Members& in, Json& request);
void take_stream(Members& in, Call& call);

/// How much of a message is to be kept, with all before it, and how long.
struct Kept {
  int64_t seconds = 0;  ///< 0: not more than others
  size_t bytes = 0;     ///< of its text; 0: all. The last mark and the longest time of several hold

  void add(int64_t for_seconds, size_t up_to);
  /// As a mark of the socket's protocol, once the message has its content.
  void write_to(Json& message) const;
};
/// What a `cache_control` says: keep this and all before it so many seconds. 0: absent, or wrong.
int64_t take_cache_control(Members& in);
/// How long the OpenAI APIs keep a prompt.
void take_retention(Members& in, Json& request);

/// The text that `content` is: a string, or a list of parts of text (of these types), whose marks
/// are added to `kept`. Nothing where it is something else; `in` has the error then.
std::optional<std::string> text_of(const Json& content, const std::vector<std::string>& types,
                                   const std::string& path, Members& in, Kept* kept = nullptr);
/// A schema that is to be followed, from `format` ({"type":...}), whose schema is its member
/// json_schema or (of the responses API) its own.
void take_format(Members& in, std::string_view name, const Json& format, bool nested,
                 Json& request);
/// Whose way of saying it.
enum class ToolWords { kChat, kResponses, kMessages };
/// Functions that the model may call, as tools, tool_choice and parallel_tool_calls of ours.
void take_tools(Members& in, ToolWords words, Json& request);
/// A call that the assistant has made, for `tool_calls` of its message.
Json made_call(const std::string& id, const std::string& name, Json arguments);

// One file each.
Result<Call> parse_completions(const Json& body);
Result<Call> parse_chat(const Json& body);
Result<Call> parse_responses(const Json& body);
Result<Call> parse_messages(const Json& body);

}  // namespace hearth::http
