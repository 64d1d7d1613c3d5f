#include "tests/bench/tls_attacks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <string_view>
#include <thread>

#include "kernels/base/check.h"
#include "tests/unit/daemon/tls_peer.h"

namespace hearth::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAttackersKey = "0123456789abcdef-attacker";
constexpr size_t kConnections = 120;

fs::path port_file(const fs::path& runtime) { return runtime.parent_path() / "tls_port"; }

/// -1 if the connection cannot be made.
int connect_to(uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval patience{.tv_sec = 5, .tv_usec = 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  ::close(fd);
  return -1;
}

bool has_ended(int fd) {
  char byte = 0;
  const ssize_t n = ::recv(fd, &byte, 1, MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN);
}

/// A connection after its handshake; null: it failed.
SSL* shake_hands(SSL_CTX* context, uint16_t port) {
  const int fd = connect_to(port);
  if (fd < 0) return nullptr;
  SSL* const tls = ::SSL_new(context);
  ::SSL_set_fd(tls, fd);
  if (::SSL_connect(tls) == 1) return tls;
  ::SSL_free(tls);
  ::close(fd);
  return nullptr;
}

void drop(SSL* tls) {
  const int fd = ::SSL_get_fd(tls);
  ::SSL_free(tls);
  ::close(fd);
}

}  // namespace

std::vector<std::string> write_tls_door(const fs::path& runtime, uint16_t port) {
  const fs::path folder = runtime.parent_path();
  const fs::path keys = folder / "tls_keys", certificate = folder / "tls.pem",
                 key = folder / "tls.key";
  tests::write_certificate(certificate, key);
  std::ofstream(keys) << "attacker all " << kAttackersKey << "\n";
  HEARTH_CHECK(::chmod(keys.c_str(), 0600) == 0);
  std::ofstream(port_file(runtime)) << port;
  HEARTH_CHECK(::chmod(port_file(runtime).c_str(), 0644) == 0);
  return {fmt::format("http.listen=127.0.0.1:{}", port), "http.keys_file=" + keys.string(),
          "http.tls_certificate_file=" + certificate.string(), "http.tls_key_file=" + key.string()};
}

uint16_t tls_port(const fs::path& runtime) {
  uint16_t port = 0;
  std::ifstream(port_file(runtime)) >> port;
  return port;
}

// Each sends a byte of a record that is 512 bytes long, now and then.
void half_handshakes(const fs::path& runtime) {
  const uint16_t port = tls_port(runtime);
  constexpr std::string_view kRecord("\x16\x03\x01\x02\x00\x01", 6);
  std::vector<int> open(kConnections, -1);
  std::vector<size_t> sent(kConnections, 0);
  while (true) {
    for (size_t i = 0; i < open.size(); ++i) {
      if (open[i] >= 0 && has_ended(open[i])) {
        ::close(open[i]);
        open[i] = -1;
      }
      if (open[i] < 0) {
        open[i] = connect_to(port);
        sent[i] = 0;
      }
      if (open[i] < 0) continue;
      const char byte = sent[i] < kRecord.size() ? kRecord[sent[i]] : '\0';
      if (::send(open[i], &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1) ++sent[i];
    }
    ::usleep(10'000);
  }
}

void handshakes(const fs::path& runtime) {
  const uint16_t port = tls_port(runtime);
  const auto flood = [port] {
    SSL_CTX* const context = ::SSL_CTX_new(::TLS_client_method());
    while (true) {
      if (SSL* const tls = shake_hands(context, port)) {
        drop(tls);
      } else {
        ::usleep(1'000);  // refused
      }
    }
  };
  for (int i = 0; i < 7; ++i) std::thread(flood).detach();
  flood();
  ::_exit(1);  // not reached
}

void unread_tls(const fs::path& runtime) {
  std::signal(SIGPIPE, SIG_IGN);
  const uint16_t port = tls_port(runtime);
  SSL_CTX* const context = ::SSL_CTX_new(::TLS_client_method());
  ::SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  const std::string body = R"({"text":")" + std::string(6'000, 'a') + "\"}";
  const std::string request = fmt::format(
      "POST /tokenize HTTP/1.1\r\nHost: localhost:{}\r\nAuthorization: Bearer {}\r\n"
      "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
      port, kAttackersKey, body.size(), body);
  std::vector<SSL*> open(kConnections / 2, nullptr);
  std::vector<size_t> at(open.size(), 0);
  while (true) {
    for (size_t i = 0; i < open.size(); ++i) {
      if (open[i] == nullptr) {
        open[i] = shake_hands(context, port);
        at[i] = 0;
        if (open[i] == nullptr) continue;
        const int fd = ::SSL_get_fd(open[i]);
        ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
      }
      const int n =
          ::SSL_write(open[i], request.data() + at[i], static_cast<int>(request.size() - at[i]));
      if (n > 0) {
        at[i] = (at[i] + static_cast<size_t>(n)) % request.size();
      } else if (::SSL_get_error(open[i], n) != SSL_ERROR_WANT_WRITE) {
        drop(open[i]);
        open[i] = nullptr;
      }
    }
    ::usleep(1'000);
  }
}

}  // namespace hearth::bench
