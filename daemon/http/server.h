#pragma once
// The HTTP front door: listeners, connections, and routing of requests. The broker's io thread owns
// it. It handles bytes, bounds and deadlines; api_request and api_answer implement the APIs.
//
// A connection carries one request at a time; pipelined ones wait in the socket. Each generation is
// an exchange, with a number by which the broker answers it. If the socket is full, deliver()
// refuses and the broker keeps the answer in its own bounded buffer, where deltas merge. Users take
// turns: received bytes are handled when their user's turn has come. A connection that does not
// read its answers is given no further work.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/http/batch.h"
#include "daemon/http/kept_response.h"
#include "daemon/http/model_traffic.h"
#include "daemon/http/reasoning_seal.h"
#include "ipc/schema/replies.h"
#include "ipc/schema/requests.h"
#include "ipc/wire/frames.h"
#include "ipc/wire/socket.h"
#include "kernels/base/result.h"

namespace hearth::http {

struct ServerConfig {
  std::filesystem::path socket;                ///< of the Unix listener; "": none
  std::string listen;                          ///< "127.0.0.1:8080"; "": no TCP
  std::filesystem::path keys_file;             ///< keys for TCP; "": only this process's user
  std::filesystem::path tls_certificate_file;  ///< of TCP (tls.h); "": no TLS
  std::filesystem::path tls_key_file;
  std::vector<std::string> trusted_proxy;  ///< the only addresses that TCP serves; empty: all
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> allowed_origins;
  std::vector<std::string> volatile_lines;  ///< patterns of lines that system prompts lose
  int64_t max_connections = 256;
  int64_t max_body_bytes = 32 << 20;
  /// Bodies up to this size, and answers up to a few KiB of it, are parsed on the server's own
  /// thread.
  size_t inline_bytes = 64 << 10;
  int64_t idle_timeout_ms = 60'000;
  int64_t header_timeout_ms = 10'000;
  int64_t body_timeout_ms = 60'000;
  int64_t write_timeout_ms = 60'000;
  std::string instance;                ///< of the daemon; makes the ids of answers unique
  ReasoningSeal::Key reasoning_key{};  ///< seals reasoning that clients carry
};

/// One exchange and its user.
struct Exchanger {
  uint64_t number = 0;  ///< never reused
  uint32_t uid = 0;
};

/// Determines the user at the other end of a connection (peer.h); may run on another thread.
using NameUser = std::optional<uint32_t> (*)(int fd);
/// A new connection, which does not block, is closed on exec, and is the callee's to close; and its
/// user, if the kernel names one.
using OnConnection = std::function<void(int fd, std::optional<uint32_t> uid)>;

/// The broker, as the front door sees it.
class Backend {
 public:
  virtual ~Backend() = default;
  /// Runs `work` soon, from the loop, users in turn.
  virtual void take_turn(uint32_t uid, std::function<void()> work) = 0;
  /// Calls `on_connection` from the loop for each connection of `listener`, a socket that listens
  /// and belongs to the broker from here on, except those of users that open too many. Returns a
  /// number for accept_no_more(), after which no call follows.
  virtual uint64_t accept_from(int listener, NameUser name_user, OnConnection on_connection) = 0;
  virtual void accept_no_more(uint64_t number) = 0;
  /// Whether a request of `bytes` would be admitted now, or the reason it would not.
  virtual Result<void> admit(uint32_t uid, size_t bytes) const = 0;
  /// Runs `work` on another thread, users in turn, then `then` on the server's thread. `bytes` is
  /// the memory held for it.
  virtual void run_aside(uint32_t uid, size_t bytes, std::function<void()> work,
                         std::function<void()> then) = 0;
  /// A generate or tokenize request of a user, with the id `id`. Answered through
  /// HttpServer::deliver, possibly before this returns.
  virtual void submit(const Exchanger& from, const std::string& id, ipc::ComputeRequest request,
                      size_t bytes) = 0;
  /// The prompt of the request `id`, which is submitted next, lacks lines that its system prompt
  /// has.
  virtual void note_left_out(uint32_t uid, const std::string& id, int32_t lines) = 0;
  /// This user asks a model to stay in memory for `ms` after its last request; below 0: as long as
  /// it may. False: that changes nothing.
  virtual bool keep_alive(uint32_t uid, const std::string& model, int64_t ms) = 0;
  /// The same for leaving it at once. An error gives the reason why it stays.
  virtual Result<void> release(uint32_t uid, const std::string& model) = 0;
  /// The fingerprint of a loaded model's file; "": none of this name is.
  virtual std::string fingerprint(const std::string& model) const = 0;
  /// Ends the reasoning of a live request of this user, by the id of its answer or its own.
  virtual Result<void> end_reasoning(uint32_t uid, const std::string& id) = 0;
  /// Whether answers to this user's requests are kept unless a request declines it.
  virtual bool keeps_responses(uint32_t uid) const = 0;
  /// Keeps an answer. A later question of the same user finds it; a failure is not reported here.
  virtual void keep_response(uint32_t uid, KeptResponse response) = 0;
  /// Calls `then` from the loop, with kNotFound if the user has no such answer.
  virtual void ask_kept(uint32_t uid, KeptQuery query,
                        std::function<void(Result<std::string>)> then) = 0;
  virtual KeptStats kept_stats() const = 0;
  /// Whether this user may have files and batches.
  virtual bool keeps_batches(uint32_t uid) const = 0;
  /// Calls `then` from the loop. kNotFound if the user has no such file or batch.
  virtual void ask_batches(uint32_t uid, BatchQuery query,
                           std::function<void(Result<BatchReply>)> then) = 0;
  virtual BatchStats batch_stats() const = 0;
  /// The client of this exchange has disconnected.
  virtual void gone(const Exchanger& from) = 0;
  /// There is room again for this exchange's answers.
  virtual void writable(const Exchanger& from) = 0;
  /// Unsent bytes of this exchange.
  virtual size_t backlog_bytes(const Exchanger& from) const = 0;
  virtual ipc::ModelsReply models() const = 0;
  virtual ipc::StatsReply stats() const = 0;
  virtual ipc::HealthReply health() const = 0;
  /// Whether a request of this user for some model would be accepted now, or the reason it would
  /// not.
  virtual Result<void> ready(uint32_t uid) const = 0;
  virtual ModelTraffics traffic() const = 0;
};

class HttpServer {
 public:
  /// Binds; an error is the reason why the daemon cannot start.
  static Result<std::unique_ptr<HttpServer>> open(boost::asio::io_context& io,
                                                  const ServerConfig& config, Backend& backend);
  virtual ~HttpServer() = default;

  /// An answer to exchange `exchange`. kWouldBlock: keep it, writable() follows; kUnreachable: the
  /// client has disconnected, or was dropped for reading too slowly.
  virtual ipc::SendOutcome deliver(uint64_t exchange, const ipc::Answer& answer) = 0;
  /// Serves `fd`, the daemon's own connection on behalf of a user: its requests are of class batch,
  /// and it does not keep the daemon from stopping.
  virtual void serve_own(int fd, uint32_t uid) = 0;
  /// The TCP port, for a listener whose port the system chose.
  virtual uint16_t port() const = 0;
  /// No response is in progress.
  virtual bool idle() const = 0;
  /// Ends connections whose deadline has passed; called some ten times a second.
  virtual void tick() = 0;
  /// Reads the files of keys, certificate and key anew, for the requests and connections that
  /// follow. An error changes nothing.
  virtual Result<void> reload() = 0;
  /// The owners of requests other than users of this machine: those of keys, and their names.
  virtual std::map<uint32_t, std::string> key_owners() const = 0;
};

}  // namespace hearth::http
