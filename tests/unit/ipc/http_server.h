#pragma once
// A server on this machine that answers as a test sets it: one thread, one request per connection.

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace hearth::tests {

struct HttpRequest {
  std::string method;
  std::string path;
  std::optional<uint64_t> range_from;  ///< "Range: bytes=N-"
  std::string if_range;
  std::string authorization;
};

struct HttpAnswer {
  std::string head;  ///< from "HTTP/1.1 ..." to the empty line
  std::string body;
  bool reset = false;  ///< end the connection with a reset instead of a close
};

class HttpServer {
 public:
  using Handler = std::function<HttpAnswer(const HttpRequest&)>;
  explicit HttpServer(Handler handler);
  ~HttpServer();
  std::string url(const std::string& path) const;
  std::vector<HttpRequest> requests() const;

 private:
  void serve();
  void answer(int connection);

  Handler handler_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> stopping_ = false;
  mutable std::mutex mutex_;
  std::vector<HttpRequest> requests_;
  std::thread thread_;
};

/// "HTTP/1.1 STATUS", the lines, and the announced length of the body.
std::string http_head(const std::string& status, std::optional<size_t> length,
                      const std::string& lines = "");

}  // namespace hearth::tests
