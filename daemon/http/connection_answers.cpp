#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "daemon/http/connection.h"
#include "kernels/base/log.h"
#include "kernels/base/wall_clock.h"

namespace hearth::http {
namespace {

// Unsent bytes per slow reader kept here; beyond it answers stay with the broker.
constexpr size_t kOutBytes = 64 << 10;
// The broker's part; a reader with more unread bytes loses its answer. With the spare capacity of
// strings, it has cost less than about a MiB by then (384 KiB: up to 1.06 MiB).
constexpr size_t kBacklogBytes = 256 << 10;
// A longer reply to a tokenize request is refused instead of decoded, because decoded values take
// ten times as much memory.
constexpr size_t kTokenizeReplyBytes = 8 << 20;
// Longer answers are decoded on the side thread, where users take turns. On the server's thread
// they would delay all answers after them: those to a text of 6 KB take 0.3 ms.
constexpr size_t kInlineAnswerBytes = 4 << 10;
// Bytes of a size in hexadecimal and its line end.
constexpr size_t kChunkHead = 2 * sizeof(size_t) + 2;

void write_part(uint32_t sample, const ipc::DeltaPart& part, AnswerWriter& writer,
                std::string* events) {
  switch (part.channel) {
    case ipc::DeltaChannel::kText: return writer.delta(sample, part.text, {}, events);
    case ipc::DeltaChannel::kReasoning: return writer.reasoning(sample, part.text, events);
    case ipc::DeltaChannel::kArguments: return writer.arguments(sample, part.text, events);
    case ipc::DeltaChannel::kCall:
      if (const Result<ipc::ToolCall> call = ipc::decode_tool_call(part.text)) {
        writer.call(sample, *call, events);
      }
      return;
  }
}

void write_delta(const ipc::Answer& answer, AnswerWriter& writer, std::string* events) {
  const Result<ipc::DeltaPayload> payload = ipc::decode_delta_payload(answer.payload);
  if (!payload) return;
  const uint32_t sample = payload->header.sample;
  writer.tokens(sample, payload->header.first_index + payload->header.num_tokens);
  if (payload->header.num_parts == 0) {
    return writer.delta(sample, payload->text, answer.logprobs, events);
  }
  const Result<std::vector<ipc::DeltaPart>> parts = ipc::decode_parts(*payload);
  if (!parts) return;
  // Sent with the tokens, whatever text the tokens became.
  if (!answer.logprobs.empty()) writer.delta(sample, "", answer.logprobs, events);
  for (const ipc::DeltaPart& part : *parts) write_part(sample, part, writer, events);
}

/// As part of a header's value: ASCII alone. The text may name what a schema contains.
std::string field_value(std::string_view text) {
  std::string out(text.substr(0, 100));
  std::ranges::replace_if(
      out, [](char c) { return c < ' ' || c > '~'; }, '?');
  return out;
}

Error error_of(const Refusal& refusal) {
  switch (refusal.status) {
    case 403: return Error::forbidden(refusal.message);
    case 413:
    case 431: return Error::too_large(refusal.message);
    default: return Error::protocol(refusal.message);
  }
}

}  // namespace

void Connection::respond_refusal(Api api, const Refusal& refusal) {
  Response out{.status = refusal.status, .body = {}};
  out.body = error_body(api, refusal.status, error_of(refusal), request_id());
  if (!refusal.allow.empty()) out.fields = fmt::format("Allow: {}\r\n", refusal.allow);
  if (refusal.status == 401) out.fields = "WWW-Authenticate: Bearer\r\n";
  respond(out);
}

std::string Connection::cors() const {
  if (origin_.empty()) return {};
  return fmt::format(
      "Access-Control-Allow-Origin: {}\r\nVary: Origin\r\n"
      "Access-Control-Expose-Headers: x-request-id, request-id, x-hearth-ignored, "
      "x-hearth-max-tokens, x-hearth-relaxed, x-hearth-remote, x-hearth-volatile-lines\r\n",
      origin_);
}

std::string Connection::request_id() const {
  return request_ == 0 ? "" : fmt::format("{}-{}", host_.config().instance, request_);
}

std::string Connection::request_id_line() const {
  if (request_ == 0) return {};
  return fmt::format("{}: {}\r\n", route_.api == Api::kMessages ? "request-id" : "x-request-id",
                     request_id());
}

void Connection::respond(const Response& response) {
  const size_t bytes = response.body.size();
  if (bytes > host_.config().inline_bytes) {
    const size_t charged = answers_charged_ + bytes;
    if (!host_.charge_answers(peer_uid_, answers_charged_, charged)) {
      return respond_error(route_.api,
                           Error::busy("your connections do not read the long answers they have"),
                           kRetryMs);
    }
    answers_charged_ = charged;
  }
  log_debug("http", "connection={} status={}", number_, response.status);
  fmt::format_to(std::back_inserter(out_), "HTTP/1.1 {} {}\r\n", response.status,
                 reason_phrase(response.status));
  if (response.status != 204) {
    fmt::format_to(std::back_inserter(out_), "Content-Type: {}\r\nContent-Length: {}\r\n",
                   response.type, bytes + response.bytes_to_come);
  }
  out_ += "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n";
  out_ += response.fields;
  if (exchange_) out_ += request_fields();
  out_ += request_id_line();
  out_ += cors();
  if (last_) out_ += "Connection: close\r\n";
  out_ += "\r\n";
  if (!head_only_) out_ += response.body;
  flush();
}

void Connection::respond_error(Api api, const Error& error, int64_t retry_ms) {
  const int status = status_of(api, error.code);
  Response response{.status = status, .body = error_body(api, status, error, request_id())};
  if (retry_ms > 0) response.fields = fmt::format("Retry-After: {}\r\n", (retry_ms + 999) / 1000);
  respond(response);
}

void Connection::begin_stream() {
  if (std::exchange(exchange_->begun, true)) return;
  fmt::format_to(std::back_inserter(out_),
                 "HTTP/1.1 200 OK\r\nContent-Type: {}\r\n"
                 "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n",
                 stream_type(exchange_->api));
  out_ += request_fields();
  out_ += request_id_line();
  out_ += cors();
  if (last_) out_ += "Connection: close\r\n";
  out_ += exchange_->chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n";
}

void Connection::send_stream(std::string_view events) {
  std::string& chunk = host_.scratch();
  chunk.assign(kChunkHead, ' ');
  chunk += events;
  send_chunk(chunk);
}

// Events after kChunkHead bytes reserved for the chunk's size.
void Connection::send_chunk(std::string& chunk) {
  begin_stream();
  const size_t bytes = chunk.size() - kChunkHead;
  if (bytes == 0) return flush();  // an empty chunk would end the body
  size_t begin = kChunkHead;
  if (exchange_->chunked) {
    chunk[--begin] = '\n';
    chunk[--begin] = '\r';
    for (size_t left = bytes; left > 0; left >>= 4) chunk[--begin] = "0123456789abcdef"[left & 15];
    chunk += "\r\n";
  }
  write(std::string_view(chunk).substr(begin));
  if (chunk.capacity() > kOutBytes * 2) {
    chunk.clear();
    chunk.shrink_to_fit();
  }
}

void Connection::end_stream() {
  if (exchange_->chunked) out_ += "0\r\n\r\n";
  finish();
}

// The answer is complete, though possibly not written yet.
void Connection::finish() {
  host_.leave(exchange_->number);
  exchange_.reset();
  blocked_ = false;
  flush();
  go_on();  // not here: the broker may be inside the code that produced this answer
}

ipc::SendOutcome Connection::deliver(const ipc::Answer& answer) {
  if (closed_ || !exchange_) return ipc::SendOutcome::kUnreachable;
  if (reading_aside_) {
    blocked_ = true;
    return ipc::SendOutcome::kWouldBlock;
  }
  if (exchange_->begun && unsent() > kOutBytes) {
    if (host_.backend().backlog_bytes(exchanger()) > kBacklogBytes) {
      log_warn("http_slow_reader", "connection={} backlog_bytes={}", number_,
               host_.backend().backlog_bytes(exchanger()));
      close();
      return ipc::SendOutcome::kUnreachable;
    }
    blocked_ = true;
    return ipc::SendOutcome::kWouldBlock;
  }
  if (!answer.is_delta) {
    if (answer.json.size() > std::min(host_.config().inline_bytes, kInlineAnswerBytes)) {
      read_aside(answer.json);
    } else if (const Result<ipc::Event> event = ipc::decode_event(answer.json)) {
      on_event(*event);
    }
    return ipc::SendOutcome::kSent;
  }
  if (!exchange_->writer) return ipc::SendOutcome::kSent;
  std::string& chunk = host_.scratch();
  chunk.assign(kChunkHead, ' ');
  write_delta(answer, *exchange_->writer, &chunk);
  if (chunk.size() > kChunkHead) send_chunk(chunk);
  return ipc::SendOutcome::kSent;
}

// Decodes a long answer on the side thread. If it becomes a whole body, it is formatted there too.
void Connection::read_aside(std::string_view json) {
  const size_t max_bytes = limits().body_bytes;
  const size_t most =
      exchange_->writer || exchange_->embeds ? max_bytes : std::min(max_bytes, kTokenizeReplyBytes);
  if (json.size() > most) {
    return fail(Error::too_large(
        fmt::format("the answer has {} bytes, at most {} are sent over HTTP", json.size(), most)));
  }
  struct Work {
    std::string json;
    TokenAnswer tokens = TokenAnswer::kOurs;
    VectorsAnswer vectors{};
    std::optional<Result<ipc::Event>> event{};
    std::string body{};
  };
  auto work =
      std::make_shared<Work>(Work{std::string(json), exchange_->tokens, exchange_->vectors});
  reading_aside_ = true;
  host_.backend().run_aside(
      uid_, json.size(),
      [work] {
        work->event.emplace(ipc::decode_event(work->json));
        work->json = {};
        if (!work->event->ok()) return;
        const ipc::Event& event = **work->event;
        if (const auto* reply = std::get_if<ipc::TokenizeReply>(&event)) {
          work->body = tokens_body(*reply, work->tokens);
        } else if (const auto* vectors = std::get_if<ipc::EmbedReply>(&event)) {
          Result<std::string> body = vectors_body(*vectors, work->vectors);
          if (!body) {
            work->event->value() = ipc::ErrorEvent{body.take_error()};
            return;
          }
          work->body = std::move(body).value();
        } else {
          return;
        }
        work->event->value() = ipc::Event{};
      },
      [self = shared_from_this(), work, number = exchange_->number] {
        Connection& connection = *self;
        connection.reading_aside_ = false;
        if (connection.closed_ || !connection.exchange_ || connection.exchange_->number != number) {
          return;
        }
        if (!work->body.empty()) return connection.end_reply({.body = std::move(work->body)});
        if (work->event->ok()) connection.on_event(**work->event);
        if (connection.exchange_ && std::exchange(connection.blocked_, false)) {
          connection.host_.backend().writable(connection.exchanger());
        }
      });
}

void Connection::end_reply(const Response& response) {
  respond(response);
  finish();
}

void Connection::end_tokenized(const ipc::TokenizeReply& reply) {
  if (exchange_->loads) {
    return end_reply({.body = ollama_loaded_body(exchange_->api, reply.model, seconds_since_1970()),
                      .type = "application/x-ndjson"});
  }
  end_reply({.body = tokens_body(reply, exchange_->tokens)});
}

void Connection::fail(const Error& error, int64_t retry_ms) {
  if (!exchange_->begun) {
    respond_error(exchange_->api, error, retry_ms);
    return finish();
  }
  std::string out;
  exchange_->writer->failed(error, &out);
  send_stream(out);
  end_stream();
}

std::string Connection::request_fields() const {
  std::string out;
  if (!exchange_->ignored.empty()) {
    out = fmt::format("x-hearth-ignored: {}\r\n", fmt::join(exchange_->ignored, ", "));
  }
  return out + exchange_->fields;
}

void Connection::note_started(const ipc::StartedEvent& started) {
  Exchange& exchange = *exchange_;
  const auto ignore = [&exchange](std::string_view name) {
    if (std::ranges::find(exchange.ignored, name) == exchange.ignored.end()) {
      exchange.ignored.push_back(name);
    }
  };
  for (const std::string& each : started.without_effect) {
    if (each == ipc::kReasoningOf) {
      ignore(exchange.api == Api::kMessages ? "thinking.signature" : "input.encrypted_content");
    } else if (each == "reasoning") {
      for (const std::string_view name : exchange.about_reasoning) ignore(name);
    }
  }
  if (exchange.max_tokens > started.max_tokens && started.max_tokens > 0) {
    exchange.fields += fmt::format("x-hearth-max-tokens: {}\r\n", started.max_tokens);
    exchange.max_tokens = 0;  // once, although a request that is resumed starts again
  }
  // Once, although each of several prompts starts.
  if (started.remote && exchange.fields.find("x-hearth-remote:") == std::string::npos) {
    exchange.fields += fmt::format("x-hearth-remote: {}\r\n", field_value(*started.remote));
  }
  if (started.relaxed.empty() || std::exchange(exchange.relaxed, true)) return;
  std::string names;
  for (const std::string& each : started.relaxed) {
    names += (names.empty() ? "" : "; ") + field_value(each);
  }
  exchange.fields += fmt::format("x-hearth-relaxed: {}\r\n", names);
}

void Connection::on_event(const ipc::Event& event) {
  Exchange& exchange = *exchange_;
  std::string out;
  if (const auto* error = std::get_if<ipc::ErrorEvent>(&event)) {
    return fail(error->error, error->retry_ms);
  }
  if (const auto* reply = std::get_if<ipc::TokenizeReply>(&event)) {
    return end_tokenized(*reply);
  }
  if (const auto* reply = std::get_if<ipc::EmbedReply>(&event)) {
    Result<std::string> body = vectors_body(*reply, exchange.vectors);
    if (!body) return fail(body.error());
    return end_reply({.body = std::move(body).value()});
  }
  if (!exchange.writer) return;
  if (const auto* started = std::get_if<ipc::StartedEvent>(&event)) {
    note_started(*started);
    // A remote's model may have the name of one here.
    exchange.writer->written_by(started->remote ? std::string()
                                                : host_.backend().fingerprint(started->model));
    exchange.writer->started(*started, &out);
    if (exchange.stream) send_stream(out);
  } else if (const auto* prompt = std::get_if<ipc::PromptLogprobsEvent>(&event)) {
    exchange.writer->prompt_logprobs(*prompt, &out);
  } else if (const auto* sample = std::get_if<ipc::SampleDoneEvent>(&event)) {
    exchange.writer->sample_done(*sample, &out);
    if (exchange.stream && !out.empty()) send_stream(out);
  } else if (const auto* done = std::get_if<ipc::DoneEvent>(&event)) {
    if (const char* why = abnormal_end(*done)) {
      const bool late = std::string_view(why).find("deadline") != std::string_view::npos;
      return fail(late ? Error::deadline(why) : Error::cancelled(why));
    }
    if (!exchange.further.empty()) {
      exchange.writer->next_prompt(*done);
      host_.leave(exchange.number);
      // Not here: the broker is inside the code that produced this event.
      return host_.post([self = shared_from_this(), number = exchange.number] {
        const auto& now = self->exchange_;
        if (!self->closed_ && now && now->number == number) self->submit_further();
      });
    }
    exchange.writer->done(*done, &out);
    keep_answer();
    if (exchange.stream) {
      send_stream(out);
      end_stream();
    } else {
      end_reply({.body = std::move(out)});
    }
  }
}

// Writes bytes of another buffer; copies only the part that the socket does not take now.
void Connection::write(std::string_view bytes) {
  if (!closed_ && out_.empty() && writing_.empty()) {
    error_code error;
    const size_t sent = socket_.write_some(boost::asio::buffer(bytes), error);
    if (!error && sent == bytes.size()) return;
    bytes.remove_prefix(error ? 0 : sent);
  }
  out_ += bytes;
  flush();
}

void Connection::flush() {
  if (closed_) return;
  if (!writing_.empty()) return count_unsent();
  if (out_.empty()) {
    write_deadline_ms_ = kNever;
    if (last_ && !busy() && !lingering_) {
      lingering_ = true;
      error_code ignored;
      socket_.shutdown(Socket::shutdown_send, ignored);
      set_deadline();
      read();
    }
    return;
  }
  writing_.swap(out_);
  written_ = 0;
  // Write directly as much as the socket takes: an asynchronous completion costs as much as the
  // write itself.
  error_code error;
  const size_t bytes = socket_.write_some(boost::asio::buffer(writing_), error);
  if (!error || error == boost::asio::error::would_block) return on_written({}, bytes);
  // Not here: the broker may be inside the code that produced these bytes.
  host_.post([self = shared_from_this(), error] { self->on_written(error, 0); });
}

void Connection::on_written(const error_code& error, size_t bytes) {
  if (closed_) return;
  if (error) return exchange_ ? abandon() : close();
  written_ += bytes;
  if (written_ < writing_.size()) {
    write_deadline_ms_ = now_ms() + host_.config().write_timeout_ms;
    socket_.async_write_some(
        boost::asio::buffer(writing_.data() + written_, writing_.size() - written_),
        [self = shared_from_this()](const error_code& e, size_t n) { self->on_written(e, n); });
    return count_unsent();
  }
  writing_.clear();
  written_ = 0;
  if (answers_charged_ > 0 && out_.empty()) {
    host_.charge_answers(peer_uid_, std::exchange(answers_charged_, 0), 0);
  }
  if (writing_.capacity() > kOutBytes * 2) writing_.shrink_to_fit();
  flush();
  count_unsent();
  if (download_ && download_->begun && !download_->asking) ask_piece();
  if (blocked_ && exchange_ && unsent() <= kOutBytes) {
    blocked_ = false;
    host_.backend().writable(exchanger());
  }
}

// Counts the unread answers. A connection that had to wait for its reader goes on.
void Connection::count_unsent() {
  if (const size_t now = unsent(); !closed_ && now != unsent_counted_) {
    host_.count_unsent(peer_uid_, std::exchange(unsent_counted_, now), now);
  }
  if (!behind_ || closed_ || is_behind()) return;
  behind_ = false;
  phase_ = -1;  // what it sent meanwhile was not read, so its deadline begins now
  go_on();
}

bool Connection::is_behind() const {
  return unsent() > kOutBytes || (unsent() > 0 && host_.is_behind(peer_uid_));
}
}  // namespace hearth::http
