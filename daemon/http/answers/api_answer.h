#pragma once
// Converts the daemon's events to answers of the OpenAI, Anthropic and Ollama APIs: one JSON body,
// or server-sent events or lines of JSON as they arrive. Pure: events in, bytes out, without
// sockets or chunked coding.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "daemon/http/item_page.h"
#include "daemon/http/kept_response.h"
#include "daemon/http/requests/api_request.h"
#include "ipc/schema/deltas.h"
#include "ipc/schema/events.h"
#include "ipc/schema/replies.h"
#include "kernels/base/result.h"

namespace hearth::http {

/// The status of an error that ends a request before its answer has begun.
int status_of(Api api, ErrorCode code);
/// The error in the API's own format. Anthropic's contains the request's id; "": it has none.
std::string error_body(Api api, int status, const Error& error, std::string_view request_id = {});

/// The content type of a stream.
std::string_view stream_type(Api api);

/// Writes one answer. Each call appends the bytes to send to `out`. If the answer is one body, only
/// done() appends.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;
  /// The fingerprint of the model's file; before started().
  virtual void written_by(std::string_view) {}
  virtual void started(const ipc::StartedEvent& event, std::string* out) = 0;
  /// Log probabilities of the prompt, if requested; before the first delta.
  virtual void prompt_logprobs(const ipc::PromptLogprobsEvent&, std::string*) {}
  /// The tokens of a sample so far, of which the following deltas bring the last.
  virtual void tokens(uint32_t, uint32_t) {}
  /// New text of a sample, and its tokens' log probabilities if requested: the frame of a delta
  /// (ipc::encode_logprobs), or empty.
  virtual void delta(uint32_t sample, std::string_view text, std::string_view logprobs,
                     std::string* out) = 0;
  /// Of a conversation's answer: the text that its template marks as reasoning, the beginning of a
  /// call, and further arguments of that call.
  virtual void reasoning(uint32_t, std::string_view, std::string*) {}
  virtual void call(uint32_t, const ipc::ToolCall&, std::string*) {}
  virtual void arguments(uint32_t, std::string_view, std::string*) {}
  virtual void sample_done(const ipc::SampleDoneEvent& event, std::string* out) = 0;
  /// In place of done(), if further prompts of the request are answered next.
  virtual void next_prompt(const ipc::DoneEvent&) {}
  virtual void done(const ipc::DoneEvent& event, std::string* out) = 0;
  /// After done(): the answer of a request with `store`, to be kept with its input.
  virtual KeptResponse take_kept() { return {}; }
  /// An error after a stream has begun; ends it.
  virtual void failed(const Error& error, std::string* out) = 0;
};

/// `id`: the request's unique id; `created_s`: seconds since 1970.
std::unique_ptr<AnswerWriter> make_answer_writer(const Call& call, std::string_view id,
                                                 int64_t created_s);

/// The error text for a request that ended in a way these APIs cannot express (cancelled,
/// deadline); null for `stop` and `length`.
const char* abnormal_end(const ipc::DoneEvent& done);

/// OpenAI's list of models, with the roles: all names that a request may use.
std::string models_body(const ipc::ModelsReply& reply);
/// One entry of that list; empty: no such name.
std::string model_body(const ipc::ModelsReply& reply, std::string_view name);
std::string health_body(const ipc::HealthReply& reply);
/// {"ready":true}, or {"ready":false,"reason":"..."}
std::string ready_body(const Result<void>& ready);

/// Which items of a kept answer's input to list, from the query of its address, which has no pages
/// unless it `lists` its input. An error names the parameter.
Result<ItemPage> parse_item_page(std::string_view query, bool lists);
/// OpenAI's list of the items in `kept` ({"items":[...]}), the input of the answer `response_id`.
/// Items without an id get one that is the same in each call.
Result<std::string> input_items_body(std::string kept, std::string_view response_id,
                                     const ItemPage& page);
std::string removed_response_body(std::string_view response_id);

// Ollama's API. Its lists of models; empty: no such name.
std::string ollama_tags_body(const ipc::ModelsReply& reply);
std::string ollama_ps_body(const ipc::ModelsReply& reply, int64_t now_s);
std::string ollama_show_body(const ipc::ModelsReply& reply, std::string_view name);
/// To a request without a prompt, which loads a model ("load") or lets it leave ("unload").
std::string ollama_loaded_body(Api api, std::string_view model, int64_t created_s,
                               std::string_view reason = "load");

}  // namespace hearth::http
