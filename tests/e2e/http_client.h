#pragma once
// HTTP by hand, over the daemon's socket: sends any bytes and reads answers.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "tests/e2e/daemon.h"

namespace hearth::e2e {

struct HttpAnswer {
  int status = 0;
  std::map<std::string, std::string> fields;  ///< names in lower case
  std::string body;                           ///< chunks put together
};

class HttpClient {
 public:
  /// http.sock of this daemon.
  explicit HttpClient(const Daemon& daemon, int receive_buffer = 0);
  /// A Unix socket.
  explicit HttpClient(const std::filesystem::path& socket, int receive_buffer = 0);
  /// 127.0.0.1
  explicit HttpClient(uint16_t port);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// How long it waits for more of an answer.
  void set_patience_ms(int patience_ms) { patience_ms_ = patience_ms; }
  void send(std::string_view bytes);
  /// The next answer; nothing if the connection ends before it is complete.
  std::optional<HttpAnswer> receive();
  /// One answer to a request that is valid except for these parts.
  HttpAnswer ask(const std::string& method, const std::string& path, const std::string& body = {},
                 const std::string& fields = "Host: localhost\r\n");
  /// Received bytes, until there are this many or the connection has ended.
  std::string read(size_t bytes);
  bool ended() { return read(1).empty(); }

 private:
  bool more();

  int fd_ = -1;
  int patience_ms_ = kPatienceMs;
  std::string bytes_;
};

std::string post(const std::string& path, const std::string& body,
                 const std::string& fields = "Host: localhost\r\n");

}  // namespace hearth::e2e
