#pragma once
// The HTTP front door: listeners, connections, and which request goes where. One thread owns it,
// the broker's io thread. What the API means is in api_request and api_answer; here are bytes,
// bounds and deadlines.
//
// A connection carries one request at a time; those sent ahead wait in the socket. Each generation
// is an exchange with a number, by which the broker answers it: what deliver() cannot take (the
// socket is full) stays in the broker's own bounded buffer, where deltas merge.

#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/schema/replies.h"
#include "ipc/schema/requests.h"
#include "ipc/wire/frames.h"
#include "ipc/wire/socket.h"
#include "kernels/base/result.h"

namespace hearth::http {

struct ServerConfig {
  std::filesystem::path socket;     ///< of the Unix listener; "": none
  std::string listen;               ///< "127.0.0.1:8080"; "": no TCP
  std::filesystem::path keys_file;  ///< who may use TCP; "": this process's user alone
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> allowed_origins;
  int64_t max_connections = 256;
  int64_t max_body_bytes = 32 << 20;
  /// Bodies and answers up to here are parsed on the server's own thread.
  size_t inline_bytes = 64 << 10;
  int64_t idle_timeout_ms = 60'000;
  int64_t header_timeout_ms = 10'000;
  int64_t body_timeout_ms = 60'000;
  int64_t write_timeout_ms = 60'000;
  std::string instance;  ///< of the daemon; makes ids of answers unique
};

/// One exchange, and the user who asks.
struct Exchanger {
  uint64_t number = 0;  ///< never used twice
  uint32_t uid = 0;
};

/// What the front door asks of the broker.
class Backend {
 public:
  virtual ~Backend() = default;
  /// Whether a request of so many bytes would be taken now; else why not.
  virtual Result<void> admit(uint32_t uid, size_t bytes) const = 0;
  /// Runs `work` on another thread, users in turn, and `then` on the server's after it. `bytes` of
  /// memory are held for it.
  virtual void run_aside(uint32_t uid, size_t bytes, std::function<void()> work,
                         std::function<void()> then) = 0;
  /// A generate or tokenize request of a user, under the id `id`; answered through
  /// HttpServer::deliver, also before this returns.
  virtual void submit(const Exchanger& from, const std::string& id, ipc::ClientRequest request,
                      size_t bytes) = 0;
  /// Nobody reads the answers to this exchange any more.
  virtual void gone(const Exchanger& from) = 0;
  /// There is room again for what waits for this exchange.
  virtual void writable(const Exchanger& from) = 0;
  /// Bytes that wait for this exchange.
  virtual size_t backlog_bytes(const Exchanger& from) const = 0;
  virtual ipc::ModelsReply models() const = 0;
  virtual ipc::StatsReply stats() const = 0;
  virtual ipc::HealthReply health() const = 0;
};

class HttpServer {
 public:
  /// Binds; errors say why the daemon cannot start.
  static Result<std::unique_ptr<HttpServer>> open(boost::asio::io_context& io,
                                                  const ServerConfig& config, Backend& backend);
  virtual ~HttpServer() = default;

  /// An answer to the exchange of that number. kWouldBlock: keep it, writable() follows;
  /// kUnreachable: nobody is there, or it reads so slowly that it was given up.
  virtual ipc::SendOutcome deliver(uint64_t exchange, const ipc::Answer& answer) = 0;
  /// The TCP port, for a listener that had the system choose.
  virtual uint16_t port() const = 0;
  /// No answer is under way.
  virtual bool idle() const = 0;
};

}  // namespace hearth::http
