#include "tests/unit/daemon/scripted_server.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <utility>

namespace hearth::tests {
namespace {

constexpr int kPatienceS = 30;

}  // namespace

thread_local ScriptedServer* ScriptedServer::current_ = nullptr;

bool ScriptedPeer::more() {
  char buffer[16384];
  const auto n = tls_ == nullptr ? ::recv(fd_, buffer, sizeof buffer, 0)
                                 : ::SSL_read(static_cast<SSL*>(tls_), buffer, sizeof buffer);
  if (n <= 0) return false;
  bytes_.append(buffer, static_cast<size_t>(n));
  return true;
}

std::string ScriptedPeer::read_request() {
  size_t head = 0;
  while ((head = bytes_.find("\r\n\r\n")) == std::string::npos) {
    if (!more()) return {};
  }
  size_t length = 0;
  const size_t field = bytes_.find("Content-Length: ");
  if (field < head) length = std::stoul(bytes_.substr(field + 16));
  while (bytes_.size() < head + 4 + length) {
    if (!more()) return {};
  }
  std::string request = bytes_.substr(0, head + 4 + length);
  bytes_.erase(0, request.size());
  ScriptedServer& server = *ScriptedServer::current_;
  const std::lock_guard lock(server.mutex_);
  server.requests_.push_back(request);
  return request;
}

bool ScriptedPeer::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto n = tls_ == nullptr ? ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL)
                                   : ::SSL_write(static_cast<SSL*>(tls_), bytes.data(),
                                                 static_cast<int>(bytes.size()));
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool ScriptedPeer::wait_for_close() {
  char byte = 0;
  while (true) {
    const auto n = ::recv(fd_, &byte, 1, 0);
    if (n > 0) continue;
    const bool ended = n == 0 || errno == ECONNRESET;
    if (ended) ++ScriptedServer::current_->closed_;
    return ended;
  }
}

ScriptedServer::ScriptedServer(Script script, const std::filesystem::path& certificate,
                               const std::filesystem::path& key)
    : script_(std::move(script)) {
  std::signal(SIGPIPE, SIG_IGN);
  if (!certificate.empty()) {
    SSL_CTX* const context = ::SSL_CTX_new(::TLS_server_method());
    ::SSL_CTX_use_certificate_chain_file(context, certificate.c_str());
    ::SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM);
    context_ = context;
  }
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ::bind(listener_, reinterpret_cast<const sockaddr*>(&address), size);
  ::listen(listener_, 64);
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { serve(); });
}

ScriptedServer::~ScriptedServer() {
  stopping_ = true;
  thread_.join();
  ::close(listener_);
  if (context_ != nullptr) ::SSL_CTX_free(static_cast<SSL_CTX*>(context_));
}

void ScriptedServer::serve() {
  current_ = this;
  while (!stopping_) {
    pollfd ready{.fd = listener_, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, 20) <= 0) continue;
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    ++connections_;
    serve_one(fd);
    ::close(fd);
  }
}

void ScriptedServer::serve_one(int fd) {
  const timeval patience{.tv_sec = kPatienceS, .tv_usec = 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  SSL* tls = nullptr;
  if (context_ != nullptr) {
    tls = ::SSL_new(static_cast<SSL_CTX*>(context_));
    ::SSL_set_fd(tls, fd);
    if (::SSL_accept(tls) != 1) {
      ::SSL_free(tls);
      return;
    }
  }
  ScriptedPeer peer(fd, tls);
  script_(peer);
  if (tls != nullptr) {
    ::SSL_shutdown(tls);
    ::SSL_free(tls);
  }
}

std::vector<std::string> ScriptedServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

std::string open_response(std::string_view status, std::string_view type, std::string_view body) {
  return fmt::format("HTTP/1.1 {}\r\nContent-Type: {}\r\nConnection: close\r\n\r\n{}", status, type,
                     body);
}

std::string whole_response(std::string_view status, std::string_view type, std::string_view body) {
  return fmt::format("HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n{}", status,
                     type, body.size(), body);
}

std::string chat_event(std::string_view text, std::string_view reason) {
  const std::string quoted = reason.empty() ? "null" : fmt::format("\"{}\"", reason);
  return fmt::format(
      R"(data: {{"id":"c","object":"chat.completion.chunk","model":"far","choices":[{{"index":0,)"
      R"("delta":{{"content":"{}"}},"finish_reason":{}}}],"usage":null}})"
      "\n\n",
      text, quoted);
}

std::string usage_events(int prompt, int output) {
  return fmt::format(
      R"(data: {{"model":"far","choices":[],"usage":{{"prompt_tokens":{},"completion_tokens":{},)"
      R"("total_tokens":{}}}}})"
      "\n\n{}",
      prompt, output, prompt + output, kDoneEvent);
}

}  // namespace hearth::tests
