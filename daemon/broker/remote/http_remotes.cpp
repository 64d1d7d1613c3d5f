#include "daemon/broker/remote/http_remotes.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "daemon/broker/remote/http_posts.h"
#include "ipc/wire/json.h"
#include "kernels/base/check.h"
#include "kernels/base/log.h"

namespace hearth::broker {
namespace {

// Of the body of a refusal.
constexpr size_t kMaxRefusalBytes = 16 << 10;
// How long a remote may take to end the response of a complete answer, after which its connection
// can be used again.
constexpr int64_t kGoodbyeMs = 2'000;

/// The sentence in the body of a refusal: OpenAI's error object, or the beginning of anything else.
std::string reason_of(std::string_view body) {
  constexpr ipc::JsonLimits kLimits{.max_bytes = kMaxRefusalBytes, .max_value_bytes = 1 << 20};
  if (Result<ipc::Json> parsed = ipc::parse_json_object(body, kLimits)) {
    const ipc::LargeJson object(std::move(*parsed));
    const auto error = object.find("error");
    if (error != object.end() && error->is_object()) {
      const auto message = error->find("message");
      if (message != error->end() && message->is_string()) {
        return quote_remote(message->get_ref<const std::string&>());
      }
    }
  }
  return body.empty() ? "without a reason" : quote_remote(body);
}

}  // namespace

struct HttpRemotes::Call {
  std::string host;
  int64_t stall_ms = 0;
  RemoteAnswer answer;
  uint64_t post = 0;
  int64_t last_byte_us = 0;  // or when it began
  std::string refusal{};     // body of a response without an answer
  size_t pieces = 0;         // passed on
  bool finished = false;     // the sink knows its end; the response's own is awaited
};

HttpRemotes::HttpRemotes(boost::asio::io_context& io, const Clock& clock, RemoteSink& sink)
    : clock_(clock), sink_(sink), posts_(HttpPosts::create(io)) {}
HttpRemotes::~HttpRemotes() = default;

Result<void> HttpRemotes::configure(const std::map<std::string, RemoteConfig>& remotes) {
  std::map<std::string, Known> next;
  for (const auto& [role, config] : remotes) {
    HEARTH_TRY(check_remote(role, config));
    Known known;
    HEARTH_ASSIGN_OR_RETURN(const RemoteUrl url, parse_remote_url(config.remote));
    HEARTH_ASSIGN_OR_RETURN(known.remote.rule, parse_remote_rule(config.when));
    known.remote.host = url.host;
    known.remote.model = config.model;
    known.url = fmt::format("{}://{}{}", url.tls ? "https" : "http", url.host, url.path);
    if (!config.key_file.empty()) {
      HEARTH_ASSIGN_OR_RETURN(known.key, read_remote_key(config.key_file));
    }
    if (!config.ca_file.empty()) {
      HEARTH_ASSIGN_OR_RETURN(known.certificates, read_remote_certificates(config.ca_file));
    }
    known.stall_ms = config.stall_timeout_ms;
    next.emplace(role, std::move(known));
  }
  remotes_ = std::move(next);
  return {};
}

const Remote* HttpRemotes::find(const std::string& role) const {
  const auto found = remotes_.find(role);
  return found == remotes_.end() ? nullptr : &found->second.remote;
}

std::vector<std::string> HttpRemotes::roles() const {
  std::vector<std::string> out;
  for (const auto& [role, known] : remotes_) out.push_back(role);
  return out;
}

void HttpRemotes::start(uint64_t number, const std::string& role, RemoteRequest request) {
  const Known& known = remotes_.at(role);
  HEARTH_CHECK(!calls_.contains(number), "request {} is at a remote already", number);
  auto call = std::make_unique<Call>(Call{.host = known.remote.host,
                                          .stall_ms = known.stall_ms,
                                          .answer = RemoteAnswer(request.chat, request.samples),
                                          .last_byte_us = clock_.now_us()});
  HttpPost post{.url = known.url + (request.chat ? "/chat/completions" : "/completions"),
                .key = known.key,
                .certificates = known.certificates,
                .body = std::move(request.body)};
  post.connect_timeout_ms = std::min(post.connect_timeout_ms, known.stall_ms);
  call->post = posts_->start(
      std::move(post),
      {.on_bytes = [this, number](int status,
                                  std::string_view bytes) { on_bytes(number, status, bytes); },
       .on_end = [this, number](int status,
                                const Result<void>& end) { on_end(number, status, end); }});
  calls_.emplace(number, std::move(call));
}

void HttpRemotes::cancel(uint64_t number) {
  const auto found = calls_.find(number);
  if (found != calls_.end() && !found->second->finished) forget(number);
}

void HttpRemotes::forget(uint64_t number) {
  const auto found = calls_.find(number);
  posts_->cancel(found->second->post);
  calls_.erase(found);
}

// The sink may cancel this call.
void HttpRemotes::on_bytes(uint64_t number, int status, std::string_view bytes) {
  const auto find = [this, number]() -> Call* {
    const auto found = calls_.find(number);
    return found == calls_.end() || found->second->finished ? nullptr : found->second.get();
  };
  Call* call = find();
  if (call == nullptr) return;
  call->last_byte_us = clock_.now_us();
  if (status != 200) {
    call->refusal += bytes.substr(0, kMaxRefusalBytes - call->refusal.size());
    if (call->refusal.size() == kMaxRefusalBytes) on_end(number, status, {});
    return;
  }
  std::vector<RemoteText> texts;
  Result<void> read = call->answer.add(bytes, &texts);
  const std::string model = call->answer.model();
  for (const RemoteText& text : texts) {
    call = find();
    if (call == nullptr) return;
    ++call->pieces;
    sink_.on_remote_text(number, model, text);
  }
  call = find();
  if (call == nullptr) return;
  if (!read) return fail(number, read.error().message, "its answer is not as expected");
  if (call->answer.complete()) finish(number);
}

void HttpRemotes::on_end(uint64_t number, int status, const Result<void>& end) {
  const auto found = calls_.find(number);
  if (found == calls_.end()) return;
  Call& call = *found->second;
  if (call.finished) return forget(number);
  if (!end) return fail(number, end.error().message, end.error().message);
  if (status != 200) {
    const bool redirects = status >= 300 && status < 400;
    const std::string message =
        redirects ? fmt::format("it redirects (status {}), which is not followed", status)
                  : fmt::format("it refuses with status {}: {}", status, reason_of(call.refusal));
    return fail(number, message, fmt::format("status {}", status));
  }
  if (Result<void> whole = call.answer.end(); !whole) {
    return fail(number, whole.error().message, "its answer is incomplete");
  }
  finish(number);
  forget(number);
}

// The response is read to its end, so that its connection can be used again.
void HttpRemotes::finish(uint64_t number) {
  Call& call = *calls_.at(number);
  call.finished = true;
  const RemoteAnswer answer = std::move(call.answer);
  sink_.on_remote_done(number, answer.model(), answer.reasons(), answer.usage());
}

// What a remote sends stays out of the log: a refusal may quote the request.
void HttpRemotes::fail(uint64_t number, std::string_view message, std::string_view for_log) {
  const Call& call = *calls_.at(number);
  log_warn("remote_failed", "number={} remote={} pieces={} why=\"{}\"", number, call.host,
           call.pieces, for_log);
  std::string whole = fmt::format("remote {}: {}", call.host, message);
  if (call.pieces > 0) {
    whole += fmt::format("; of its answer, {} bytes of text in {} pieces were received",
                         call.answer.text_bytes(), call.pieces);
  }
  forget(number);
  sink_.on_remote_failed(number, Error::unavailable(std::move(whole)));
}

void HttpRemotes::tick() {
  const int64_t now_us = clock_.now_us();
  std::vector<uint64_t> late;
  for (const auto& [number, call] : calls_) {
    const int64_t most_ms = call->finished ? kGoodbyeMs : call->stall_ms;
    if ((now_us - call->last_byte_us) / 1000 >= most_ms) late.push_back(number);
  }
  for (const uint64_t number : late) {
    const auto found = calls_.find(number);  // an earlier one's end may have ended it
    if (found == calls_.end()) continue;
    if (found->second->finished) {
      forget(number);
    } else {
      const std::string message =
          fmt::format("it has sent nothing for {} ms", found->second->stall_ms);
      fail(number, message, message);
    }
  }
}

}  // namespace hearth::broker
