#include "tests/e2e/http_client.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace hearth::e2e {

HttpClient::HttpClient(const Daemon& daemon, int receive_buffer)
    : HttpClient(daemon.runtime() / "http.sock", receive_buffer) {}

HttpClient::HttpClient(const std::filesystem::path& socket, int receive_buffer) {
  fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(fd_ >= 0);
  if (receive_buffer > 0) {
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = socket.string();
  REQUIRE(path.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  REQUIRE(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
}

HttpClient::HttpClient(uint16_t port) {
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(fd_ >= 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
}

HttpClient::~HttpClient() { ::close(fd_); }

void HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;  // refused in the middle: the answer gives the reason
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

bool HttpClient::more() {
  pollfd item{.fd = fd_, .events = POLLIN, .revents = 0};
  REQUIRE_MESSAGE(::poll(&item, 1, patience_ms_) == 1, "no answer");
  char buffer[16384];
  const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
  if (n <= 0) return false;
  bytes_.append(buffer, static_cast<size_t>(n));
  return true;
}

std::string HttpClient::read(size_t bytes) {
  while (bytes_.size() < bytes && more()) {
  }
  const std::string out = bytes_.substr(0, bytes);
  bytes_.erase(0, out.size());
  return out;
}

std::optional<HttpAnswer> HttpClient::receive() {
  const auto line = [&]() -> std::optional<std::string> {
    size_t end = 0;
    while ((end = bytes_.find("\r\n")) == std::string::npos) {
      if (!more()) return std::nullopt;
    }
    std::string out = bytes_.substr(0, end);
    bytes_.erase(0, end + 2);
    return out;
  };
  HttpAnswer answer;
  const auto first = line();
  if (!first || first->size() < 12 || !first->starts_with("HTTP/1.1 ")) return std::nullopt;
  answer.status = std::stoi(first->substr(9, 3));
  while (true) {
    const auto field = line();
    if (!field) return std::nullopt;
    if (field->empty()) break;
    const size_t colon = field->find(": ");
    REQUIRE(colon != std::string::npos);
    std::string name = field->substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    answer.fields[name] = field->substr(colon + 2);
  }
  if (answer.fields.contains("transfer-encoding")) {
    while (true) {
      const auto size_line = line();
      if (!size_line) return std::nullopt;
      const size_t size = std::stoul(*size_line, nullptr, 16);
      const std::string chunk = read(size);
      if (chunk.size() != size || line() != "") return std::nullopt;
      if (size == 0) return answer;
      answer.body += chunk;
    }
  }
  const auto length = answer.fields.find("content-length");
  if (length == answer.fields.end()) return answer;
  const size_t size = std::stoul(length->second);
  answer.body = read(size);
  if (answer.body.size() != size) return std::nullopt;
  return answer;
}

HttpAnswer HttpClient::ask(const std::string& method, const std::string& path,
                           const std::string& body, const std::string& fields) {
  if (method == "POST") {
    send(post(path, body, fields));
  } else {
    send(fmt::format("{} {} HTTP/1.1\r\n{}\r\n", method, path, fields));
  }
  const std::optional<HttpAnswer> answer = receive();
  REQUIRE(answer.has_value());
  return *answer;
}

std::string post(const std::string& path, const std::string& body, const std::string& fields) {
  return fmt::format(
      "POST {} HTTP/1.1\r\n{}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}", path,
      fields, body.size(), body);
}

}  // namespace hearth::e2e
