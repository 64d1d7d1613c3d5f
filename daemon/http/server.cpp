#include "daemon/http/server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <utility>

#include "daemon/http/api_answer.h"
#include "daemon/http/api_embeddings.h"
#include "daemon/http/metrics.h"
#include "daemon/http/peer.h"
#include "daemon/http/routes.h"
#include "ipc/codec.h"
#include "kernels/base/log.h"

namespace hearth::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Socket = asio::generic::stream_protocol::socket;

// Bytes that wait for a slow reader here; beyond it they stay with the broker.
constexpr size_t kOutBytes = 64 << 10;
// And there; a reader that is further behind has lost its answer. With what strings keep in reserve
// it has cost less than a MiB by then.
constexpr size_t kBacklogBytes = 384 << 10;
// Requests sent ahead of an answer.
constexpr size_t kAheadBytes = 64 << 10;
// After an answer that ends the connection: for the client to read it. Closing at once could
// destroy it on its way, where the client is still sending.
constexpr int64_t kLingerMs = 2'000;
constexpr std::chrono::milliseconds kTick{100};
constexpr int64_t kNever = INT64_MAX;

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t seconds_since_1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

struct Response {
  int status = 200;
  std::string body;
  std::string_view type = "application/json";
  std::string fields{};  ///< more of the head, each with its line's end
};

Response refused(Api api, const Refusal& refusal) {
  Response out{.status = refusal.status, .body = {}};
  ErrorCode code = ErrorCode::kProtocol;
  if (refusal.status == 403) code = ErrorCode::kForbidden;
  if (refusal.status == 413 || refusal.status == 431) code = ErrorCode::kTooLarge;
  out.body = error_body(api, refusal.status, Error{code, refusal.message, ""});
  if (!refusal.allow.empty()) out.fields = fmt::format("Allow: {}\r\n", refusal.allow);
  if (refusal.status == 401) out.fields = "WWW-Authenticate: Bearer\r\n";
  return out;
}

class Server;

/// A generation, or a tokenization, on its way.
struct Exchange {
  std::string identity;
  Api api = Api::kCompletions;
  bool stream = false;
  bool chunked = false;
  bool begun = false;                      ///< the head of a stream was sent
  std::unique_ptr<AnswerWriter> writer{};  ///< null: tokenize, embed
  bool base64 = false;                     ///< embed: vectors are not lists of numbers
  bool counts = false;                     ///< tokenize: the number alone, in Anthropic's shape
};

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Server& server, Socket socket, uint64_t number, Rules rules, uint32_t uid)
      : server_(server),
        socket_(std::move(socket)),
        number_(number),
        rules_(std::move(rules)),
        uid_(uid),
        reader_(limits()) {}

  void start() {
    set_deadline();
    read();
  }
  ipc::SendOutcome deliver(const ipc::Answer& answer);
  void check_deadlines(int64_t now);
  bool idle() const { return !exchange_ && out_.empty() && writing_.empty(); }
  void close();

 private:
  ReaderLimits limits() const;
  void read();
  void on_read(const error_code& error, size_t bytes);
  void process();
  bool admit(const HttpRequest& head);
  void handle(HttpRequest request);
  void begin(Call call, const HttpRequest& request);
  void submit(ipc::ClientRequest request, size_t bytes, Exchange exchange);
  void respond(const Response& response);
  void respond_error(Api api, const Error& error, int64_t retry_ms = 0);
  void on_event(const ipc::Answer& answer);
  void send_stream(std::string_view events);
  void end_stream();
  void finish();
  void flush();
  void on_written(const error_code& error, size_t bytes);
  void set_deadline();
  void abandon();
  std::string cors() const;

  Server& server_;
  Socket socket_;
  const uint64_t number_;
  const Rules rules_;
  const uint32_t uid_;
  RequestReader reader_;
  std::array<char, 16384> in_;
  bool reading_ = false;
  bool closed_ = false;
  bool lingering_ = false;     // all is said; what still comes is thrown away
  bool last_ = false;          // the connection ends with the answer under way
  bool head_checked_ = false;  // of the request that is being read
  Route route_;
  std::string origin_;  // an admitted page's, of the request under way
  std::optional<Exchange> exchange_;
  bool blocked_ = false;  // the broker keeps answers until there is room
  std::string out_;       // to be written next
  std::string writing_;   // being written
  size_t written_ = 0;    // of it
  int phase_ = -1;
  int64_t deadline_ms_ = kNever;
  int64_t write_deadline_ms_ = kNever;
};

class Server final : public HttpServer {
 public:
  Server(asio::io_context& io, const ServerConfig& settings, Backend& broker)
      : io_(io), config(settings), backend(broker), unix_(io), tcp_(io), timer_(io) {}
  ~Server() override {
    timer_.cancel();
    std::error_code ignored;
    if (unix_.is_open()) std::filesystem::remove(config.socket, ignored);
    for (const auto& [number, connection] : std::exchange(connections_, {})) connection->close();
  }

  Result<void> listen();

  ipc::SendOutcome deliver(const std::string& identity, const ipc::Answer& answer) override {
    const auto found = identities_.find(identity);
    if (found == identities_.end()) return ipc::SendOutcome::kUnreachable;
    const std::shared_ptr<Connection> connection = found->second;
    return connection->deliver(answer);
  }
  uint16_t port() const override { return endpoint_ ? endpoint_->port : 0; }
  bool idle() const override {
    for (const auto& [number, connection] : connections_) {
      if (!connection->idle()) return false;
    }
    return true;
  }

  std::string new_identity() {
    return fmt::format("http-{}-{}", config.instance, ++identities_made_);
  }
  void enter(const std::string& identity, std::shared_ptr<Connection> connection) {
    identities_.emplace(identity, std::move(connection));
  }
  void leave(const std::string& identity) { identities_.erase(identity); }
  void forget(uint64_t number) { connections_.erase(number); }
  void post(std::function<void()> work) { asio::post(io_, std::move(work)); }

 private:
  template <class Acceptor>
  void accept(Acceptor& acceptor, bool* accepting);
  void admit(Socket socket, bool tcp);
  void every_tick();
  Result<void> listen_unix();
  Result<void> listen_tcp();

  asio::io_context& io_;

 public:
  const ServerConfig config;
  Backend& backend;

 private:
  std::optional<Endpoint> endpoint_;
  std::optional<Keys> keys_;
  asio::local::stream_protocol::acceptor unix_;
  asio::ip::tcp::acceptor tcp_;
  bool accepting_unix_ = false;
  bool accepting_tcp_ = false;
  asio::steady_timer timer_;
  std::unordered_map<uint64_t, std::shared_ptr<Connection>> connections_;
  std::unordered_map<std::string, std::shared_ptr<Connection>> identities_;
  uint64_t connections_made_ = 0;
  uint64_t identities_made_ = 0;
};

// ---- Connection: in ----------------------------------------------------------------------------

ReaderLimits Connection::limits() const {
  return {.header_bytes = 16 << 10,
          .body_bytes = static_cast<size_t>(server_.config.max_body_bytes)};
}

void Connection::read() {
  if (reading_ || closed_ || (exchange_ && reader_.waiting_bytes() > kAheadBytes)) return;
  reading_ = true;
  socket_.async_read_some(asio::buffer(in_),
                          [self = shared_from_this()](const error_code& error, size_t bytes) {
                            self->reading_ = false;
                            self->on_read(error, bytes);
                          });
}

void Connection::on_read(const error_code& error, size_t bytes) {
  if (closed_) return;
  if (error) {
    // Nobody is there any more, or will say more: what was asked is not wanted.
    if (exchange_) return abandon();
    if (!idle() && !lingering_) {
      last_ = true;  // an answer is still being written
      return;
    }
    return close();
  }
  if (!lingering_) {
    reader_.push(std::string_view(in_.data(), bytes));
    process();
  }
  read();
}

void Connection::process() {
  while (!closed_ && !exchange_ && !last_) {
    const RequestReader::State state = reader_.state();
    if (state == RequestReader::State::kFailed) {
      last_ = true;
      origin_.clear();
      respond(refused(Api::kCompletions, {reader_.status(), reader_.problem()}));
      break;
    }
    if (state == RequestReader::State::kIdle || state == RequestReader::State::kHeader) break;
    if (!head_checked_ && !admit(reader_.head())) {
      // With its body unread, the connection cannot carry another request.
      if (state == RequestReader::State::kBody) break;
      head_checked_ = false;
      reader_.take();
      continue;
    }
    if (state == RequestReader::State::kBody) break;
    head_checked_ = false;
    handle(reader_.take());
  }
  set_deadline();
}

// Before the body is read: whoever may not ask shall not make us keep it.
bool Connection::admit(const HttpRequest& head) {
  head_checked_ = true;
  route_ = {};
  origin_.clear();
  const std::optional<Refusal> refusal = route(rules_, head, &route_);
  if (!head.origins.empty() && origin_allowed(head.origins, "", rules_.origins)) {
    origin_ = head.origins.front();
  }
  if (refusal) {
    last_ = reader_.state() == RequestReader::State::kBody || !head.keep_alive;
    respond(refused(route_.api, *refusal));
    return false;
  }
  if (reader_.state() == RequestReader::State::kBody && !head.expectations.empty()) {
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    flush();
  }
  return true;
}

void Connection::handle(HttpRequest request) {
  last_ = !request.keep_alive;
  phase_ = -1;  // whatever follows has its own time
  switch (route_.action) {
    case Action::kGenerate: {
      Result<Call> call = parse_call(route_.api, request.body);
      if (!call) return respond_error(route_.api, call.error());
      return begin(std::move(call).value(), request);
    }
    case Action::kTokenize: {
      Result<ipc::TokenizeRequest> tokenize = parse_tokenize(request.body);
      if (!tokenize) return respond_error(route_.api, tokenize.error());
      return submit(std::move(tokenize).value(), request.body.size(),
                    Exchange{.identity = server_.new_identity()});
    }
    case Action::kModels: return respond({.body = models_body(server_.backend.models())});
    case Action::kModel: {
      std::string body = model_body(server_.backend.models(), route_.model);
      if (!body.empty()) return respond({.body = std::move(body)});
      return respond_error(route_.api,
                           Error{ErrorCode::kNotFound, "there is no model of this name", "model"});
    }
    case Action::kHealth: {
      const ipc::HealthReply health = server_.backend.health();
      return respond(
          {.status = health.status == "draining" ? 503 : 200, .body = health_body(health)});
    }
    case Action::kMetrics:
      return respond({.body = metrics_text(server_.backend.stats()),
                      .type = "text/plain; version=0.0.4; charset=utf-8"});
    case Action::kEmbeddings: {
      Result<EmbeddingsCall> call = parse_embeddings(request.body);
      if (!call) return respond_error(route_.api, call.error());
      return submit(std::move(call->request), request.body.size(),
                    Exchange{.identity = server_.new_identity(), .base64 = call->base64});
    }
    case Action::kCountTokens: {
      Result<ipc::TokenizeRequest> count = parse_count_tokens(request.body);
      if (!count) return respond_error(route_.api, count.error());
      return submit(
          std::move(count).value(), request.body.size(),
          Exchange{.identity = server_.new_identity(), .api = route_.api, .counts = true});
    }
    case Action::kPreflight:
      return respond({.status = 204,
                      .body = {},
                      .fields = "Access-Control-Allow-Methods: GET, POST\r\n"
                                "Access-Control-Allow-Headers: authorization, content-type, "
                                "x-api-key, anthropic-version\r\n"
                                "Access-Control-Max-Age: 600\r\n"});
  }
}

void Connection::begin(Call call, const HttpRequest& request) {
  Exchange exchange{.identity = server_.new_identity(),
                    .api = call.api,
                    .stream = call.stream,
                    .chunked = request.may_chunk};
  // What stands before the instance tells nobody anything.
  exchange.writer =
      make_answer_writer(call, std::string_view(exchange.identity).substr(5), seconds_since_1970());
  if (call.stream && !request.may_chunk) last_ = true;
  submit(std::move(call.request), request.body.size(), std::move(exchange));
}

void Connection::submit(ipc::ClientRequest request, size_t bytes, Exchange exchange) {
  const std::string identity = exchange.identity;
  exchange_ = std::move(exchange);
  server_.enter(identity, shared_from_this());
  server_.backend.submit(identity, identity, uid_, std::move(request), bytes);
}

// ---- Connection: out ---------------------------------------------------------------------------

std::string Connection::cors() const {
  if (origin_.empty()) return {};
  return fmt::format("Access-Control-Allow-Origin: {}\r\nVary: Origin\r\n", origin_);
}

void Connection::respond(const Response& response) {
  log_debug("http", "connection={} status={}", number_, response.status);
  fmt::format_to(std::back_inserter(out_), "HTTP/1.1 {} {}\r\n", response.status,
                 reason_phrase(response.status));
  if (response.status != 204) {
    fmt::format_to(std::back_inserter(out_), "Content-Type: {}\r\nContent-Length: {}\r\n",
                   response.type, response.body.size());
  }
  out_ += "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n";
  out_ += response.fields;
  out_ += cors();
  if (last_) out_ += "Connection: close\r\n";
  out_ += "\r\n";
  out_ += response.body;
  flush();
}

void Connection::respond_error(Api api, const Error& error, int64_t retry_ms) {
  const int status = status_of(api, error.code);
  Response response{.status = status, .body = error_body(api, status, error)};
  if (retry_ms > 0) response.fields = fmt::format("Retry-After: {}\r\n", (retry_ms + 999) / 1000);
  respond(response);
}

void Connection::send_stream(std::string_view events) {
  if (!exchange_->begun) {
    exchange_->begun = true;
    out_ +=
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n";
    out_ += cors();
    if (last_) out_ += "Connection: close\r\n";
    out_ += exchange_->chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n";
  }
  if (!events.empty()) {  // an empty chunk would be the last
    if (exchange_->chunked) {
      fmt::format_to(std::back_inserter(out_), "{:x}\r\n", events.size());
      out_ += events;
      out_ += "\r\n";
    } else {
      out_ += events;
    }
  }
  flush();
}

void Connection::end_stream() {
  if (exchange_->chunked) out_ += "0\r\n\r\n";
  finish();
}

// The answer is whole, if not yet written.
void Connection::finish() {
  server_.leave(exchange_->identity);
  exchange_.reset();
  blocked_ = false;
  flush();
  // Not here: the broker may be in the middle of what made this answer.
  server_.post([self = shared_from_this()] {
    if (self->closed_) return;
    self->process();
    self->read();
  });
}

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
  if (answer.logprobs.empty()) {
    const Result<ipc::DeltaPayload> payload = ipc::decode_delta_payload(answer.payload);
    if (payload && payload->header.num_parts == 0) {
      return writer.delta(payload->header.sample, payload->text, {}, events);
    }
  }
  const Result<ipc::Delta> delta = ipc::decode_delta(answer);
  if (!delta) return;
  const uint32_t sample = delta->header.sample;
  if (delta->parts.empty()) return writer.delta(sample, delta->text, delta->logprobs, events);
  // These go with the tokens, whatever the tokens became.
  if (!delta->logprobs.empty()) writer.delta(sample, "", delta->logprobs, events);
  for (const ipc::DeltaPart& part : delta->parts) write_part(sample, part, writer, events);
}

ipc::SendOutcome Connection::deliver(const ipc::Answer& answer) {
  if (closed_ || !exchange_) return ipc::SendOutcome::kUnreachable;
  if (exchange_->begun && out_.size() + writing_.size() - written_ > kOutBytes) {
    if (server_.backend.backlog_bytes(exchange_->identity) > kBacklogBytes) {
      log_warn("http_slow_reader", "connection={} backlog_bytes={}", number_,
               server_.backend.backlog_bytes(exchange_->identity));
      close();
      return ipc::SendOutcome::kUnreachable;
    }
    blocked_ = true;
    return ipc::SendOutcome::kWouldBlock;
  }
  if (!answer.is_delta) {
    on_event(answer);
    return ipc::SendOutcome::kSent;
  }
  if (!exchange_->writer) return ipc::SendOutcome::kSent;
  std::string events;
  write_delta(answer, *exchange_->writer, &events);
  if (!events.empty()) send_stream(events);
  return ipc::SendOutcome::kSent;
}

void Connection::on_event(const ipc::Answer& answer) {
  const Result<ipc::Event> event = ipc::decode_event(answer.json);
  if (!event) return;
  Exchange& exchange = *exchange_;
  std::string out;
  const auto fail = [&](const Error& error, int64_t retry_ms) {
    if (!exchange.begun) {
      respond_error(exchange.api, error, retry_ms);
      return finish();
    }
    exchange.writer->failed(error, &out);
    send_stream(out);
    end_stream();
  };
  if (const auto* error = std::get_if<ipc::ErrorEvent>(&*event)) {
    return fail(error->error, error->retry_ms);
  }
  if (const auto* reply = std::get_if<ipc::TokenizeReply>(&*event)) {
    respond({.body = exchange.counts ? count_tokens_body(*reply) : tokenize_body(*reply)});
    return finish();
  }
  if (const auto* reply = std::get_if<ipc::EmbedReply>(&*event)) {
    respond({.body = embeddings_body(*reply, exchange.base64)});
    return finish();
  }
  if (!exchange.writer) return;
  if (const auto* started = std::get_if<ipc::StartedEvent>(&*event)) {
    exchange.writer->started(*started, &out);
    if (exchange.stream) send_stream(out);
  } else if (const auto* prompt = std::get_if<ipc::PromptLogprobsEvent>(&*event)) {
    exchange.writer->prompt_logprobs(*prompt, &out);
  } else if (const auto* sample = std::get_if<ipc::SampleDoneEvent>(&*event)) {
    exchange.writer->sample_done(*sample, &out);
    if (exchange.stream && !out.empty()) send_stream(out);
  } else if (const auto* done = std::get_if<ipc::DoneEvent>(&*event)) {
    if (const char* why = abnormal_end(*done)) {
      const bool late = std::string_view(why).find("deadline") != std::string_view::npos;
      return fail(Error{late ? ErrorCode::kDeadline : ErrorCode::kCancelled, why, ""}, 0);
    }
    exchange.writer->done(*done, &out);
    if (exchange.stream) {
      send_stream(out);
      end_stream();
    } else {
      respond({.body = std::move(out)});
      finish();
    }
  }
}

void Connection::flush() {
  if (closed_ || !writing_.empty()) return;
  if (out_.empty()) {
    write_deadline_ms_ = kNever;
    if (last_ && !exchange_ && !lingering_) {
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
  on_written({}, 0);
}

void Connection::on_written(const error_code& error, size_t bytes) {
  if (closed_) return;
  if (error) return exchange_ ? abandon() : close();
  written_ += bytes;
  if (written_ < writing_.size()) {
    write_deadline_ms_ = now_ms() + server_.config.write_timeout_ms;
    socket_.async_write_some(
        asio::buffer(writing_.data() + written_, writing_.size() - written_),
        [self = shared_from_this()](const error_code& e, size_t n) { self->on_written(e, n); });
    return;
  }
  writing_.clear();
  written_ = 0;
  if (writing_.capacity() > kOutBytes * 2) writing_.shrink_to_fit();
  flush();
  if (blocked_ && exchange_ && out_.size() + writing_.size() - written_ <= kOutBytes) {
    blocked_ = false;
    const std::string identity = exchange_->identity;
    server_.backend.writable(identity);
  }
}

// ---- Connection: time and end ------------------------------------------------------------------

void Connection::set_deadline() {
  const ServerConfig& config = server_.config;
  int64_t ms = config.idle_timeout_ms;
  if (lingering_) {
    ms = kLingerMs;
  } else if (exchange_) {
    deadline_ms_ = kNever;
    return;
  } else if (reader_.state() == RequestReader::State::kHeader) {
    ms = config.header_timeout_ms;
  } else if (reader_.state() == RequestReader::State::kBody) {
    ms = config.body_timeout_ms;
  }
  // A sender that trickles gains no time by it: only another phase has another deadline.
  const int phase = lingering_ ? 9 : static_cast<int>(reader_.state());
  if (phase == phase_ && deadline_ms_ != kNever && phase != 0) return;
  phase_ = phase;
  deadline_ms_ = now_ms() + ms;
}

void Connection::check_deadlines(int64_t now) {
  if (now >= write_deadline_ms_) {
    log_info("http_write_timeout", "connection={}", number_);
    return exchange_ ? abandon() : close();
  }
  if (now < deadline_ms_ || exchange_ || !writing_.empty()) return;
  const RequestReader::State state = reader_.state();
  const bool midway = !lingering_ && (state == RequestReader::State::kHeader ||
                                      state == RequestReader::State::kBody);
  if (!midway || last_) return close();
  last_ = true;
  respond(refused(api_of(""), {408, "the request took too long to come"}));
}

// The client is gone and so is its request.
void Connection::abandon() {
  const std::string identity = exchange_->identity;
  close();
  server_.backend.gone(identity);
}

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  const auto self = shared_from_this();  // the server's tables may hold the last reference
  if (exchange_) server_.leave(exchange_->identity);
  exchange_.reset();
  error_code ignored;
  socket_.close(ignored);
  server_.forget(number_);
}

// ---- Server ------------------------------------------------------------------------------------

Error cannot(std::string_view what, const error_code& error) {
  return Error{ErrorCode::kIo, fmt::format("{}: {}", what, error.message()), ""};
}

Result<void> Server::listen_unix() {
  if (config.socket.native().size() > 107) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: a socket's path has at most 107 bytes", config.socket.string()),
                 ""};
  }
  // The runtime directory is locked by this daemon: what lies there is left from another.
  std::error_code ignored;
  std::filesystem::remove(config.socket, ignored);
  error_code error;
  unix_.open(asio::local::stream_protocol(), error);
  if (!error) unix_.bind(asio::local::stream_protocol::endpoint(config.socket.string()), error);
  if (!error) unix_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return cannot(config.socket.string(), error);
  if (::chmod(config.socket.c_str(), 0660) != 0) {
    return Error{ErrorCode::kIo, fmt::format("chmod {}", config.socket.string()), ""};
  }
  return {};
}

Result<void> Server::listen_tcp() {
  HEARTH_ASSIGN_OR_RETURN(endpoint_, parse_endpoint(config.listen));
  if (!config.keys_file.empty()) {
    HEARTH_ASSIGN_OR_RETURN(keys_, Keys::load(config.keys_file));
  }
  error_code error;
  const auto address = asio::ip::make_address(endpoint_->address, error);
  const asio::ip::tcp::endpoint endpoint(address, endpoint_->port);
  if (!error) tcp_.open(endpoint.protocol(), error);
  if (!error) tcp_.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) tcp_.bind(endpoint, error);
  if (!error) tcp_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return cannot(fmt::format("http.listen {}", config.listen), error);
  endpoint_->port = tcp_.local_endpoint(error).port();
  return {};
}

// Asio does not: a worker that is started later would hold the connection open.
void close_on_exec(int fd) { ::fcntl(fd, F_SETFD, FD_CLOEXEC); }

Result<void> Server::listen() {
  if (!config.socket.empty()) HEARTH_TRY(listen_unix());
  if (!config.listen.empty()) HEARTH_TRY(listen_tcp());
  if (unix_.is_open()) close_on_exec(unix_.native_handle());
  if (tcp_.is_open()) close_on_exec(tcp_.native_handle());
  log_info("http_listening", "socket={} tcp_port={} keys={}", config.socket.string(), port(),
           keys_ ? keys_->size() : 0);
  every_tick();
  return {};
}

template <class Acceptor>
void Server::accept(Acceptor& acceptor, bool* accepting) {
  if (*accepting || !acceptor.is_open()) return;
  *accepting = true;
  acceptor.async_accept([this, &acceptor, accepting](const error_code& error, auto socket) {
    if (error == asio::error::operation_aborted) return;
    *accepting = false;
    if (error) {  // out of descriptors, say: the next tick tries again
      log_warn("http_accept", "error=\"{}\"", error.message());
      return;
    }
    constexpr bool tcp = std::is_same_v<Acceptor, asio::ip::tcp::acceptor>;
    if constexpr (tcp) {
      error_code ignored;
      socket.set_option(asio::ip::tcp::no_delay(true), ignored);
    }
    admit(Socket(std::move(socket)), tcp);
    accept(acceptor, accepting);
  });
}

void Server::admit(Socket socket, bool tcp) {
  close_on_exec(socket.native_handle());
  error_code ignored;
  socket.non_blocking(true, ignored);
  if (connections_.size() >= static_cast<size_t>(config.max_connections)) {
    constexpr std::string_view kFull =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\n"
        "Connection: close\r\n\r\n";
    [[maybe_unused]] const ssize_t n =
        ::send(socket.native_handle(), kFull.data(), kFull.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return;
  }
  Rules rules{.hosts = tcp ? HostRules::of_tcp(*endpoint_, config.allowed_hosts)
                           : HostRules::of_unix_socket(config.allowed_hosts),
              .origins = config.allowed_origins,
              .keys = tcp && keys_ ? &*keys_ : nullptr};
  uint32_t uid = ::geteuid();
  if (!tcp) {
    const std::optional<uint32_t> peer = unix_peer_uid(socket.native_handle());
    if (!peer) return;
    uid = *peer;
  } else if (!keys_) {
    rules.other_user = tcp_peer_uid(socket.native_handle()) != std::optional<uint32_t>(uid);
  }
  const uint64_t number = ++connections_made_;
  auto connection =
      std::make_shared<Connection>(*this, std::move(socket), number, std::move(rules), uid);
  connections_.emplace(number, connection);
  connection->start();
}

void Server::every_tick() {
  accept(unix_, &accepting_unix_);
  accept(tcp_, &accepting_tcp_);
  const int64_t now = now_ms();
  std::vector<std::shared_ptr<Connection>> all;
  for (const auto& [number, connection] : connections_) all.push_back(connection);
  for (const auto& connection : all) connection->check_deadlines(now);
  timer_.expires_after(kTick);
  timer_.async_wait([this](const error_code& error) {
    if (!error) every_tick();
  });
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::open(asio::io_context& io,
                                                     const ServerConfig& config, Backend& backend) {
  auto server = std::make_unique<Server>(io, config, backend);
  HEARTH_TRY(server->listen());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace hearth::http
