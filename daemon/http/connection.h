#pragma once
// One HTTP connection. It reads requests one after the other and answers each before it parses the
// next, one per turn of its user. connection.cpp has input and deadlines, connection_answers.cpp
// output, connection_responses.cpp kept answers,
// connection_batches.cpp files and batches.

#include <array>
#include <boost/asio/generic/stream_protocol.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/http/answers/api_answer.h"
#include "daemon/http/request_reader.h"
#include "daemon/http/requests/api_embeddings.h"
#include "daemon/http/requests/api_request.h"
#include "daemon/http/requests/token_request.h"
#include "daemon/http/routes.h"
#include "daemon/http/server.h"
#include "ipc/wire/codec.h"

namespace hearth::http {

using boost::system::error_code;
using Socket = boost::asio::generic::stream_protocol::socket;

/// A deadline that never expires, in ms of the steady clock.
constexpr int64_t kNever = INT64_MAX;
/// Delay before retrying when other requests or unread answers take all the room.
constexpr int64_t kRetryMs = 1'000;
int64_t now_ms();

class Connection;

/// The server that accepted a connection, as the connection sees it. Outlives it.
class ConnectionHost {
 public:
  virtual ~ConnectionHost() = default;
  virtual const ServerConfig& config() const = 0;
  virtual Backend& backend() = 0;
  /// A new number for one exchange with the broker.
  virtual uint64_t new_exchange() = 0;
  /// Routes the broker's answers to `exchange` to this connection.
  virtual void enter(uint64_t exchange, std::shared_ptr<Connection> connection) = 0;
  virtual void leave(uint64_t exchange) = 0;
  /// A buffer in which to build one event. It is shared, so that it stays in the CPU caches, which
  /// buffers per connection would not. A user must be done with it before returning.
  virtual std::string& scratch() = 0;
  /// The connection is closed.
  virtual void forget(uint64_t number) = 0;
  /// Changes this connection's part of the user's share of incoming bytes from `before` to `bytes`.
  /// False, without a change: the share is used up.
  virtual bool charge(uint32_t peer_uid, size_t before, size_t bytes) = 0;
  /// The same for a long body that is about to be received. False: retry_claim() of connection
  /// `number` follows.
  virtual bool claim(uint32_t peer_uid, size_t before, size_t bytes, uint64_t number) = 0;
  /// The same for long answers that wait to be written.
  virtual bool charge_answers(uint32_t peer_uid, size_t before, size_t bytes) = 0;
  /// Changes this connection's part of all answers that wait to be written.
  virtual void count_unsent(uint32_t peer_uid, size_t before, size_t bytes) = 0;
  /// The user's connections have too many unread answers.
  virtual bool is_behind(uint32_t peer_uid) = 0;
  /// Records that the peer sent an invalid key.
  virtual void wrong_key(uint32_t peer_uid) = 0;
  virtual int64_t key_wait_ms(uint32_t peer_uid) = 0;
  /// Runs `work` soon, from the loop.
  virtual void post(std::function<void()> work) = 0;
  /// The same, users in turn.
  virtual void take_turn(uint32_t peer_uid, std::function<void()> work) = 0;
};

struct Response {
  int status = 200;
  std::string body;
  std::string_view type = "application/json";
  std::string fields{};      ///< additional header lines, each with its line end
  size_t bytes_to_come = 0;  ///< of the body, after `body`
};

/// A file whose content is being sent.
struct Download {
  std::string id;
  int64_t at = 0;     ///< bytes sent
  int64_t bytes = 0;  ///< of all
  bool begun = false;
  bool asking = false;  ///< for the next piece
};

struct ParsedBody;

/// A request in progress.
struct Exchange {
  uint64_t number = 0;
  Api api = Api::kCompletions;
  bool stream = false;
  bool chunked = false;
  bool begun = false;                      ///< the header of a stream was sent
  std::unique_ptr<AnswerWriter> writer{};  ///< null: tokenize or embed
  bool loads = false;                      ///< Ollama: a request without a prompt
  bool embeds = false;
  VectorsAnswer vectors{};                  ///< embed
  TokenAnswer tokens = TokenAnswer::kOurs;  ///< tokenize
  /// Prompts that are answered after the current one, and a request like it without its prompt.
  std::deque<FurtherPrompt> further{};
  ipc::GenerateRequest like{};
  std::vector<std::string_view> ignored{};          ///< parameters that change nothing
  std::vector<std::string_view> about_reasoning{};  ///< they do so with a model that has none
  bool relaxed = false;                             ///< `fields` names what a schema lost
  int32_t max_tokens = 0;                           ///< that the client wants; 0: as many as fit
  std::string fields{};      ///< other header lines of the answer about its request
  bool stores = false;       ///< the answer is kept, with:
  std::string kept_input{};  ///< JSON list of its request's items
};

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  /// `uid`: the owner of requests that show no key; `peer_uid`: the user whose share holds the
  /// connection's memory.
  Connection(ConnectionHost& host, Socket socket, uint64_t number, Rules rules, uint32_t uid,
             uint32_t peer_uid);

  void start();
  ipc::SendOutcome deliver(const ipc::Answer& answer);
  /// A deadline has passed, which may not apply now: check_deadlines() decides.
  bool is_late(int64_t now) const { return now >= write_deadline_ms_ || now >= deadline_ms_; }
  void check_deadlines(int64_t now);
  void retry_claim();
  bool idle() const { return !busy() && out_.empty() && writing_.empty(); }
  /// The connection is the daemon's own.
  bool is_own() const { return rules_.own; }
  void close();

 private:
  ReaderLimits limits() const;
  void read();
  void on_read(const error_code& error, size_t bytes);
  void on_turn(size_t bytes);
  void go_on();
  void process();
  bool handle_next();
  bool charge();
  bool admit(const HttpRequest& head);
  void handle(HttpRequest request);
  void parse(HttpRequest request);
  void begin(ParsedBody body);
  void on_parsed(ParsedBody body);
  PromptRules prompt_rules() const;
  void read_conversation(ParsedBody body);
  void on_conversation(ParsedBody body, Result<std::string> items);
  void ask_kept();
  void list_items(std::string kept, ItemPage page);
  void end_ask(const Result<std::string>& body);
  void keep_answer();
  void ask_batches(HttpRequest request);
  Result<BatchQuery> batch_query(HttpRequest& request) const;
  void ask_piece();
  void send_piece(Result<BatchReply> piece);
  void submit(ipc::ComputeRequest request, size_t bytes, Exchange exchange);
  void submit_further();
  /// The broker's id of an exchange's request.
  std::string submitted_id(uint64_t number) const;
  void respond(const Response& response);
  void respond_refusal(Api api, const Refusal& refusal);
  void respond_error(Api api, const Error& error, int64_t retry_ms = 0);
  void on_event(const ipc::Event& event);
  void read_aside(std::string_view json);
  void fail(const Error& error, int64_t retry_ms = 0);
  void end_reply(const Response& response);
  void end_tokenized(const ipc::TokenizeReply& reply);
  void respond_observed();
  void show_model(std::string body);
  void release_model(const Call& call);
  void keep_alive(const std::string& model, std::optional<int64_t> ms, Exchange& exchange);
  /// A request is being parsed or answered; the next one waits.
  bool busy() const { return parsing_bytes_ > 0 || exchange_ || download_; }
  void begin_stream();
  void send_stream(std::string_view events);
  void send_chunk(std::string& chunk);
  void end_stream();
  void finish();
  void write(std::string_view bytes);
  void flush();
  void on_written(const error_code& error, size_t bytes);
  size_t unsent() const { return out_.size() + writing_.size() - written_; }
  void count_unsent();
  bool is_behind() const;
  void set_deadline();
  void abandon();
  Exchanger exchanger() const { return {.number = exchange_->number, .uid = uid_}; }
  std::string cors() const;
  /// Header lines about the current request.
  std::string request_fields() const;
  /// Adds to them what the worker made of the request.
  void note_started(const ipc::StartedEvent& started);
  /// The current request's id, and the header line with it; "": its header was not understood.
  std::string request_id() const;
  std::string request_id_line() const;

  // What each event of a stream needs comes first.
  ConnectionHost& host_;
  Socket socket_;
  bool closed_ = false;
  bool blocked_ = false;        // the broker keeps answers until there is room
  bool reading_aside_ = false;  // the side thread decodes an answer; later ones wait
  std::string out_;             // to be written next
  std::string writing_;         // being written
  size_t written_ = 0;          // bytes of writing_ already written
  std::optional<Exchange> exchange_;

  const uint64_t number_;
  const Rules rules_;
  uint32_t uid_;  // with keys: of the current request
  const uint32_t peer_uid_;
  size_t charged_ = 0;          // bytes of an incoming request
  size_t answers_charged_ = 0;  // bytes of a long answer in out_ or writing_
  size_t unsent_counted_ = 0;   // bytes of all answers there
  // Of a body that another thread parses or reads the conversation for; of a kept answer that is
  // asked for. 0: none.
  size_t parsing_bytes_ = 0;
  RequestReader reader_;
  bool reading_ = false;          // in_ is being filled, or waits for the user's turn
  bool going_on_ = false;         // go_on() waits for the user's turn
  bool waits_for_share_ = false;  // a long body waits until its user's other requests are in
  bool behind_ = false;           // the next request waits until answers are read
  bool lingering_ = false;        // the answer is complete; further input is discarded
  bool last_ = false;             // the connection ends after the current answer
  bool head_only_ = false;        // HEAD: the current answer has no body
  bool head_checked_ = false;     // for the request being read
  Route route_;
  uint64_t request_ = 0;  // number of the current request; 0: its header was not understood
  std::string origin_;    // origin of the page that sent the current request, if admitted
  std::optional<Download> download_;
  int phase_ = -1;
  int64_t deadline_ms_ = kNever;
  int64_t write_deadline_ms_ = kNever;
  std::array<char, 16384> in_;
};

}  // namespace hearth::http
