#include "daemon/http/answers/api_answer.h"

#include <fmt/core.h>

#include <utility>

#include "daemon/http/answers/answer_parts.h"

namespace hearth::http {
namespace {

std::string id_of(Api api, std::string_view id) {
  switch (api) {
    case Api::kCompletions: return fmt::format("cmpl-{}", id);
    case Api::kChat: return fmt::format("chatcmpl-{}", id);
    case Api::kResponses: return fmt::format("resp_{}", id);
    case Api::kMessages: return fmt::format("msg_{}", id);
    case Api::kOllamaGenerate:
    case Api::kOllamaChat: break;
  }
  return std::string(id);
}

std::unique_ptr<AnswerWriter> make_one(const Call& call, std::string_view id, int64_t created_s) {
  Head head{.id = id_of(call.api, id), .created_s = created_s, .model = {}};
  if (is_ollama(call.api)) return make_ollama_answer(call, std::move(head));
  if (!call.stream) return make_whole_answer(call, std::move(head));
  switch (call.api) {
    case Api::kCompletions:
    case Api::kChat:
    case Api::kOllamaGenerate:
    case Api::kOllamaChat: break;
    case Api::kResponses: return make_response_stream(call, std::move(head));
    case Api::kMessages: return make_anthropic_stream(call, std::move(head));
  }
  return make_chunk_stream(call, std::move(head));
}

}  // namespace

std::unique_ptr<AnswerWriter> make_answer_writer(const Call& call, std::string_view id,
                                                 int64_t created_s) {
  std::unique_ptr<AnswerWriter> out = make_one(call, id, created_s);
  return call.further.empty() ? std::move(out) : make_joined_answer(std::move(out), call.request.n);
}

std::string_view stream_type(Api api) {
  return is_ollama(api) ? "application/x-ndjson" : "text/event-stream; charset=utf-8";
}

const char* abnormal_end(const ipc::DoneEvent& done) {
  for (const std::string& reason : done.finish_reasons) {
    if (reason == "cancelled") return "the request was cancelled";
    if (reason == "deadline") return "the request's own deadline has passed";
  }
  return nullptr;
}

}  // namespace hearth::http
