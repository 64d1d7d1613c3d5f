#include "daemon/http/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "daemon/http/answers/metrics.h"
#include "daemon/http/parsed_body.h"
#include "daemon/http/requests/api_rerank.h"
#include "ipc/wire/json.h"
#include "kernels/base/log.h"
#include "kernels/base/match.h"
#include "kernels/base/numbers.h"
#include "kernels/base/wall_clock.h"

namespace hearth::http {
namespace {

// Bound on pipelined bytes.
constexpr size_t kAheadBytes = 64 << 10;
// How long to wait, after an answer that ends the connection, for the client to read it. Closing at
// once could discard the answer if the client is still sending.
constexpr int64_t kLingerMs = 2'000;

}  // namespace

namespace {

std::string volatile_lines_field(int32_t lines) {
  return lines > 0 ? fmt::format("x-hearth-volatile-lines: {}\r\n", lines) : std::string();
}

// Pure; any thread.
ParsedBody parse_body(const Route& route, HttpRequest request, const PromptRules& rules) {
  ParsedBody out{route, request.may_chunk, request.body.size(), Error{}};
  const auto take = [&out](auto parsed) {
    if (parsed.ok()) {
      out.asked = ParsedBody::Asked(std::move(parsed).value());
    } else {
      out.asked = parsed.take_error();
    }
  };
  if (route.action == Action::kTokenize) {
    take(parse_tokenize(std::move(request.body)));
  } else if (route.action == Action::kDetokenize) {
    take(parse_detokenize(std::move(request.body)));
  } else if (route.action == Action::kCountTokens) {
    take(parse_count_tokens(std::move(request.body), rules));
  } else if (route.action == Action::kEmbeddings) {
    take(parse_embeddings(std::move(request.body)));
  } else if (route.action == Action::kRerank) {
    take(parse_rerank(std::move(request.body)));
  } else if (route.action == Action::kOllamaEmbed || route.action == Action::kOllamaEmbeddings) {
    take(parse_ollama_embed(route.action == Action::kOllamaEmbeddings, std::move(request.body)));
  } else {
    take(parse_call(route.api, std::move(request.body), rules));
  }
  return out;
}

}  // namespace

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Connection::Connection(ConnectionHost& host, Socket socket, uint64_t number, Rules rules,
                       uint32_t uid, uint32_t peer_uid)
    : host_(host),
      socket_(std::move(socket)),
      number_(number),
      rules_(std::move(rules)),
      uid_(uid),
      peer_uid_(peer_uid),
      reader_(limits()) {}

void Connection::start() {
  set_deadline();
  read();
}

ReaderLimits Connection::limits() const {
  return {.header_bytes = 16 << 10,
          .body_bytes = static_cast<size_t>(host_.config().max_body_bytes)};
}

void Connection::read() {
  if (reading_ || closed_ || (waits_for_share_ && !lingering_)) return;
  if (busy() && reader_.waiting_bytes() > kAheadBytes) return;
  if (behind_ && reader_.held_bytes() > kAheadBytes) return;
  reading_ = true;
  socket_.async_read_some(boost::asio::buffer(in_),
                          [self = shared_from_this()](const error_code& error, size_t bytes) {
                            self->on_read(error, bytes);
                          });
}

void Connection::on_read(const error_code& error, size_t bytes) {
  if (closed_) return;
  if (!error) {
    host_.take_turn(peer_uid_, [self = shared_from_this(), bytes] { self->on_turn(bytes); });
    return;
  }
  reading_ = false;
  // The client has closed the connection or its sending side, so the request is abandoned.
  if (exchange_) return abandon();
  if (!idle() && !lingering_ && parsing_bytes_ == 0) {
    last_ = true;  // an answer is still being written
    return;
  }
  close();
}

// No read is started before this point, because in_ holds the received bytes.
void Connection::on_turn(size_t bytes) {
  if (closed_) return;
  reading_ = false;
  if (!lingering_ && !last_) {
    reader_.push(std::string_view(in_.data(), bytes));
    process();
  }
  read();
}

// Handles what was received, and reads on, when the user's turn has come.
void Connection::go_on() {
  if (std::exchange(going_on_, true)) return;
  host_.take_turn(peer_uid_, [self = shared_from_this()] {
    self->going_on_ = false;
    if (self->closed_) return;
    self->process();
    self->read();
  });
}

// Handles one request at most; a further one takes another turn.
void Connection::process() {
  if (!closed_ && !busy() && !last_) {
    behind_ = is_behind();
    if (!behind_ && handle_next()) go_on();
  }
  if (closed_ || charge()) return set_deadline();
  if (busy()) return exchange_ ? abandon() : close();
  last_ = true;
  respond_refusal(route_.api, {429, "your requests that are coming in hold too many bytes"});
  set_deadline();
}

// Handles the next request, if it is complete. True: another one follows.
bool Connection::handle_next() {
  using State = RequestReader::State;
  const State state = reader_.state();
  if (state == State::kFailed) {
    last_ = true;
    origin_.clear();
    request_ = 0;
    respond_refusal(Api::kCompletions, {reader_.status(), reader_.problem()});
    return false;
  }
  if (state == State::kIdle || state == State::kHeader) return false;
  const bool admitted = head_checked_ || admit(reader_.head());
  // If it is refused with its body unread, the connection cannot carry another request.
  if (state == State::kBody) return false;
  head_checked_ = false;
  HttpRequest request = reader_.take();
  if (admitted) handle(std::move(request));
  const State next = reader_.state();
  return !closed_ && !busy() && !last_ && next != State::kIdle && next != State::kHeader;
}

// Charges the memory of a partly received request to its user, all of a long body at once. False:
// the share is used up.
bool Connection::charge() {
  const size_t held = reader_.held_bytes() + parsing_bytes_;
  const size_t declared = last_ ? 0 : reader_.declared_bytes();  // no more is read after the last
  const size_t bytes = std::max(held, declared);
  if (bytes == charged_) return true;
  if (declared > 0) {
    waits_for_share_ = !host_.claim(peer_uid_, charged_, bytes, number_);
    if (waits_for_share_) return true;
  } else if (!host_.charge(peer_uid_, charged_, bytes)) {
    return false;
  }
  charged_ = bytes;
  return true;
}

void Connection::retry_claim() {
  if (!std::exchange(waits_for_share_, false)) return;
  process();
  read();
}

// Runs before the body is read, so that refused requests take no memory.
bool Connection::admit(const HttpRequest& head) {
  head_checked_ = true;
  route_ = {};
  request_ = host_.new_exchange();
  origin_.clear();
  head_only_ = head.method == "HEAD";
  const bool shows_key =
      rules_.keys != nullptr && head.authorizations.size() + head.api_keys.size() > 0;
  std::optional<Refusal> refusal;
  if (shows_key && host_.key_wait_ms(peer_uid_) > 0) {
    refusal = Refusal{429, "too many wrong keys; wait a moment"};
  } else {
    refusal = route(rules_, head, &route_);
    if (shows_key && refusal && refusal->status == 401) host_.wrong_key(peer_uid_);
  }
  if (route_.owner) uid_ = *route_.owner;
  if (!head.origins.empty() && origin_allowed(head.origins, "", rules_.origins)) {
    origin_ = head.origins.front();
  }
  if (refusal) {
    last_ = reader_.state() == RequestReader::State::kBody || !head.keep_alive;
    respond_refusal(route_.api, *refusal);
    return false;
  }
  if (!head.session.empty()) {
    log_info("http_session", "id={} owner={} session=\"{}\"", submitted_id(request_), uid_,
             ipc::printable(head.session));
  }
  if (reader_.state() == RequestReader::State::kBody && !head.expectations.empty()) {
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
    flush();
  }
  return true;
}

void Connection::handle(HttpRequest request) {
  last_ = !request.keep_alive;
  phase_ = -1;  // the next phase gets its own deadline
  switch (route_.action) {
    case Action::kGenerate:
    case Action::kTokenize:
    case Action::kDetokenize:
    case Action::kEmbeddings:
    case Action::kRerank:
    case Action::kOllamaEmbed:
    case Action::kOllamaEmbeddings:
    case Action::kCountTokens: return parse(std::move(request));
    case Action::kTokenizerInfo:
      return begin({route_, request.may_chunk, 0, ParsedBody::Asked(tokenizer_info())});
    case Action::kOllamaVersion:
      return respond({.body = fmt::format(R"({{"version":{}}})",
                                          ipc::json_quote(host_.backend().stats().version))});
    case Action::kOllamaTags: return respond({.body = ollama_tags_body(host_.backend().models())});
    case Action::kOllamaPs:
      return respond({.body = ollama_ps_body(host_.backend().models(), seconds_since_1970())});
    case Action::kOllamaShow: return show_model(std::move(request.body));
    case Action::kGreeting:
      return respond({.body = "hearth is running\n", .type = "text/plain; charset=utf-8"});
    case Action::kModels: return respond({.body = models_body(host_.backend().models())});
    case Action::kModel: {
      std::string body = model_body(host_.backend().models(), route_.name);
      if (!body.empty()) return respond({.body = std::move(body)});
      return respond_error(route_.api, Error::not_found("no model has this name", "model"));
    }
    case Action::kResponse:
    case Action::kResponseInput:
    case Action::kRemoveResponse: return ask_kept();
    case Action::kUploadFile:
    case Action::kFiles:
    case Action::kFile:
    case Action::kRemoveFile:
    case Action::kCreateBatch:
    case Action::kBatches:
    case Action::kBatch:
    case Action::kCancelBatch: return ask_batches(std::move(request));
    case Action::kFileContent: {
      download_ = Download{.id = route_.name};
      return ask_piece();
    }
    case Action::kEndReasoning: {
      const Result<void> ended = host_.backend().end_reasoning(uid_, route_.name);
      if (!ended) return respond_error(route_.api, ended.error());
      return respond({.body = fmt::format(R"({{"id":{}}})", ipc::json_quote(route_.name))});
    }
    case Action::kHealth:
    case Action::kReady:
    case Action::kMetrics: return respond_observed();
    case Action::kPreflight:
      return respond({.status = 204,
                      .body = {},
                      .fields = "Access-Control-Allow-Methods: GET, POST, DELETE\r\n"
                                "Access-Control-Allow-Headers: " +
                                std::string(kAllowedHeaders) +
                                "\r\n"
                                "Access-Control-Max-Age: 600\r\n"});
  }
}

// What monitoring and routers ask for.
void Connection::respond_observed() {
  const Backend& backend = host_.backend();
  if (route_.action == Action::kHealth) {
    const ipc::HealthReply health = backend.health();
    return respond(
        {.status = health.status == "draining" ? 503 : 200, .body = health_body(health)});
  }
  if (route_.action == Action::kReady) {
    const Result<void> ready = backend.ready(uid_);
    return respond({.status = ready ? 200 : 503, .body = ready_body(ready)});
  }
  respond({.body = metrics_text(backend.stats(), backend.kept_stats(), backend.batch_stats(),
                                backend.traffic()),
           .type = "text/plain; version=0.0.4; charset=utf-8"});
}

void Connection::show_model(std::string body) {
  if (body.size() > host_.config().inline_bytes) {
    return respond_error(route_.api, Error::too_large("the body is longer than a model's name"));
  }
  const Result<std::string> name = parse_ollama_name(std::move(body));
  if (!name) return respond_error(route_.api, name.error());
  std::string shown = ollama_show_body(host_.backend().models(), *name);
  if (!shown.empty()) return respond({.body = std::move(shown)});
  respond_error(
      route_.api,
      Error::not_found(fmt::format("model '{}' not found", ipc::printable(*name)), "model"));
}

void Connection::release_model(const Call& call) {
  const std::string& model = call.request.model;
  if (const Result<void> left = host_.backend().release(uid_, model); !left) {
    return respond_error(call.api, left.error());
  }
  respond({.body = ollama_loaded_body(call.api, model, seconds_since_1970(), "unload"),
           .type = "application/x-ndjson"});
}

void Connection::keep_alive(const std::string& model, std::optional<int64_t> ms,
                            Exchange& exchange) {
  if (ms && !host_.backend().keep_alive(uid_, model, *ms)) exchange.ignored.push_back("keep_alive");
}

PromptRules Connection::prompt_rules() const {
  return {.volatile_lines = host_.config().volatile_lines,
          .keeps_answers = route_.api == Api::kResponses && host_.backend().keeps_responses(uid_),
          .seal = ReasoningSeal(host_.config().reasoning_key, uid_)};
}

void Connection::parse(HttpRequest request) {
  const size_t bytes = request.body.size();
  if (bytes <= host_.config().inline_bytes) {
    return begin(parse_body(route_, std::move(request), prompt_rules()));
  }
  if (const Result<void> room = host_.backend().admit(uid_, bytes); !room) {
    return respond_error(route_.api, room.error(), kRetryMs);
  }
  parsing_bytes_ = bytes;
  struct Work {
    Route route;
    HttpRequest request;
    PromptRules rules;
    std::optional<ParsedBody> parsed{};
  };
  auto work = std::make_shared<Work>(Work{route_, std::move(request), prompt_rules()});
  host_.backend().run_aside(
      uid_, bytes,
      [work] { work->parsed = parse_body(work->route, std::move(work->request), work->rules); },
      [self = shared_from_this(), work] { self->on_parsed(std::move(*work->parsed)); });
}

void Connection::on_parsed(ParsedBody body) {
  if (closed_) return;
  parsing_bytes_ = 0;
  begin(std::move(body));
  if (!closed_) go_on();
}

void Connection::begin(ParsedBody body) {
  const Api api = body.route.api;
  if (!body.asked) return respond_error(api, body.asked.error());
  if (const auto* call = std::get_if<Call>(&*body.asked); call != nullptr && call->unread) {
    return read_conversation(std::move(body));
  }
  if (const auto* call = std::get_if<Call>(&*body.asked); call != nullptr && call->releases()) {
    return release_model(*call);
  }
  Exchange exchange;
  exchange.number = request_;
  exchange.api = api;
  ipc::ComputeRequest request = match(
      *body.asked,
      [&](TokenCall& tokens) -> ipc::ComputeRequest {
        exchange.tokens = tokens.answer;
        exchange.ignored = std::move(tokens.ignored);
        exchange.fields = volatile_lines_field(tokens.volatile_lines);
        return std::move(tokens.request);
      },
      [&](EmbeddingsCall& embeddings) -> ipc::ComputeRequest {
        exchange.embeds = true;
        exchange.vectors = std::move(embeddings.answer);
        exchange.ignored = std::move(embeddings.ignored);
        keep_alive(embeddings.request.model, embeddings.keep_alive_ms, exchange);
        return std::move(embeddings.request);
      },
      [&](Call& call) -> ipc::ComputeRequest {
        exchange.api = call.api;
        exchange.stream = call.stream;
        if (rules_.own) call.request.priority = "batch";
        exchange.chunked = body.may_chunk;
        exchange.max_tokens = call.request.max_tokens;
        exchange.ignored = call.ignored;
        keep_alive(call.request.model, call.keep_alive_ms, exchange);
        exchange.about_reasoning = call.about_reasoning;
        exchange.fields = volatile_lines_field(call.volatile_lines);
        if (call.volatile_lines > 0) {
          host_.backend().note_left_out(uid_, submitted_id(request_), call.volatile_lines);
        }
        if (call.loads) {
          exchange.loads = true;
          return ipc::TokenizeRequest{.model = std::move(call.request.model), .text = " "};
        }
        exchange.stores = call.store;
        exchange.kept_input = std::exchange(call.kept_input, {});
        exchange.writer =
            make_answer_writer(call, fmt::format("{}-{}", host_.config().instance, exchange.number),
                               seconds_since_1970());
        if (call.stream && !body.may_chunk) last_ = true;
        if (!call.further.empty()) {
          exchange.further.assign(std::move_iterator(call.further.begin()),
                                  std::move_iterator(call.further.end()));
          ipc::GenerateRequest whole = std::move(call.request);
          std::string text = std::exchange(whole.prompt, {});
          std::vector<int32_t> ids = std::exchange(whole.prompt_ids, {});
          exchange.like = whole;
          whole.prompt = std::move(text);
          whole.prompt_ids = std::move(ids);
          return whole;
        }
        return std::move(call.request);
      });
  submit(std::move(request), body.bytes, std::move(exchange));
}

std::string Connection::submitted_id(uint64_t number) const {
  return fmt::format("http-{}-{}", host_.config().instance, number);
}

void Connection::submit(ipc::ComputeRequest request, size_t bytes, Exchange exchange) {
  exchange_ = std::move(exchange);
  const Exchanger from = exchanger();
  host_.enter(from.number, shared_from_this());
  host_.backend().submit(from, submitted_id(from.number), std::move(request), bytes);
}

// The next of several prompts, under a number of its own.
void Connection::submit_further() {
  FurtherPrompt next = std::move(exchange_->further.front());
  exchange_->further.pop_front();
  ipc::GenerateRequest request = exchange_->like;
  const size_t bytes = next.text.size() + next.ids.size() * sizeof(int32_t);
  request.prompt = std::move(next.text);
  request.prompt_ids = std::move(next.ids);
  exchange_->number = host_.new_exchange();
  submit(std::move(request), bytes, std::move(*exchange_));
}

// ---- Connection: time and end ------------------------------------------------------------------

void Connection::set_deadline() {
  const ServerConfig& config = host_.config();
  int64_t ms = config.idle_timeout_ms;
  if (lingering_) {
    ms = kLingerMs;
  } else if (busy()) {
    deadline_ms_ = kNever;
    return;
  } else if (reader_.state() == RequestReader::State::kHeader) {
    ms = config.header_timeout_ms;
  } else if (reader_.state() == RequestReader::State::kBody) {
    ms = config.body_timeout_ms;
  }
  // A client that sends slowly gains no time: only a new phase sets a new deadline.
  const int phase = lingering_ ? 9 : to_underlying(reader_.state());
  if (phase == phase_ && deadline_ms_ != kNever && phase != 0) return;
  phase_ = phase;
  deadline_ms_ = now_ms() + ms;
}

void Connection::check_deadlines(int64_t now) {
  if (now >= write_deadline_ms_) {
    log_info("http_write_timeout", "connection={}", number_);
    return exchange_ ? abandon() : close();
  }
  if (now < deadline_ms_ || busy() || !writing_.empty()) return;
  const RequestReader::State state = reader_.state();
  const bool midway = !lingering_ && (state == RequestReader::State::kHeader ||
                                      state == RequestReader::State::kBody);
  if (!midway || last_) return close();
  last_ = true;
  respond_refusal(api_of(""), {408, "the request took too long to come"});
}

// The client has disconnected, so its request is cancelled.
void Connection::abandon() {
  const Exchanger from = exchanger();
  close();
  host_.backend().gone(from);
}

void Connection::close() {
  if (closed_) return;
  closed_ = true;
  const auto self = shared_from_this();  // the server's tables may hold the last reference
  if (exchange_) host_.leave(exchange_->number);
  exchange_.reset();
  download_.reset();
  host_.charge(peer_uid_, std::exchange(charged_, 0), 0);
  host_.charge_answers(peer_uid_, std::exchange(answers_charged_, 0), 0);
  host_.count_unsent(peer_uid_, std::exchange(unsent_counted_, 0), 0);
  error_code ignored;
  socket_.close(ignored);
  host_.forget(number_);
}
}  // namespace hearth::http
