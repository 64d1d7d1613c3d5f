#include "tests/unit/ipc/http_server.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

namespace hearth::tests {
namespace {

std::string header_of(const std::string& request, const std::string& name) {
  const size_t at = request.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  const size_t from = at + name.size() + 4;
  return request.substr(from, request.find("\r\n", from) - from);
}

}  // namespace

std::string http_head(const std::string& status, std::optional<size_t> length,
                      const std::string& lines) {
  std::string out = "HTTP/1.1 " + status + "\r\nConnection: close\r\n" + lines;
  if (length) out += fmt::format("Content-Length: {}\r\n", *length);
  return out + "\r\n";
}

HttpServer::HttpServer(Handler handler) : handler_(std::move(handler)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  REQUIRE(::bind(listener_, any, size) == 0);
  REQUIRE(::listen(listener_, 8) == 0);
  REQUIRE(::getsockname(listener_, any, &size) == 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { serve(); });
}

HttpServer::~HttpServer() {
  stopping_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  thread_.join();
  ::close(listener_);
}

std::string HttpServer::url(const std::string& path) const {
  return fmt::format("http://127.0.0.1:{}{}", port_, path);
}

std::vector<HttpRequest> HttpServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void HttpServer::serve() {
  while (!stopping_) {
    const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    answer(connection);
    ::close(connection);
  }
}

void HttpServer::answer(int connection) {
  std::string text;
  char buffer[4096];
  while (text.find("\r\n\r\n") == std::string::npos) {
    const ssize_t n = ::recv(connection, buffer, sizeof buffer, 0);
    if (n <= 0) return;
    text.append(buffer, static_cast<size_t>(n));
  }
  HttpRequest request;
  const size_t from = text.find(' ') + 1;
  request.method = text.substr(0, from - 1);
  request.path = text.substr(from, text.find(' ', from) - from);
  request.if_range = header_of(text, "If-Range");
  request.authorization = header_of(text, "Authorization");
  const std::string range = header_of(text, "Range");
  if (range.starts_with("bytes=")) request.range_from = std::stoull(range.substr(6));
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
  }
  const HttpAnswer answer = handler_(request);
  const std::string all = answer.head + answer.body;
  for (size_t done = 0; done < all.size();) {
    const ssize_t n = ::send(connection, all.data() + done, all.size() - done, MSG_NOSIGNAL);
    if (n <= 0) return;
    done += static_cast<size_t>(n);
  }
  if (!answer.reset) return;
  // Waits a moment so that the sent bytes are read, because a reset overtakes them otherwise. If
  // they are lost all the same, the test sees one more try.
  pollfd quiet{connection, POLLIN, 0};
  ::poll(&quiet, 1, 20);
  const linger hard{1, 0};
  ::setsockopt(connection, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
}

}  // namespace hearth::tests
