// TCP for other machines: TLS, keys as owners, trusted proxies.

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/e2e/command.h"
#include "tests/e2e/daemon.h"
#include "tests/e2e/tiny_model.h"
#include "tests/unit/daemon/tls_peer.h"

namespace hearth::e2e {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kAda = "0123456789abcdef-ada";
constexpr std::string_view kBen = "0123456789abcdef-ben";

uint16_t tcp_port(const Sandbox& sandbox) {
  const std::string log = text_of(sandbox.path() / "log");
  const size_t at = log.rfind("tcp_port=");
  REQUIRE(at != std::string::npos);
  return static_cast<uint16_t>(std::stoi(log.substr(at + 9)));
}

int connect_to(uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

void write_keys(const fs::path& file, const std::string& text) {
  std::ofstream(file) << text;
  REQUIRE(::chmod(file.c_str(), 0600) == 0);
}

struct Answer {
  int status = 0;  ///< 0: no TLS, or no answer
  std::string body;
};

/// One request over a connection of its own.
Answer ask(uint16_t port, const fs::path& trusted, std::string_view key, const std::string& method,
           const std::string& path, const std::string& body = {}) {
  tests::TlsClient client(connect_to(port), trusted);
  if (!client.ok()) return {};
  client.send(
      fmt::format("{} {} HTTP/1.1\r\nHost: box.example\r\nAuthorization: Bearer {}\r\n"
                  "Content-Type: application/json\r\nContent-Length: {}\r\n"
                  "Connection: close\r\n\r\n{}",
                  method, path, key, body.size(), body));
  const std::string answer = client.receive_all();
  CHECK(client.ended_well());
  const size_t head = answer.find("\r\n\r\n");
  if (head == std::string::npos) return {};
  return {std::stoi(answer.substr(9, 3)), answer.substr(head + 4)};
}

std::string completion(int tokens, bool stream = false) {
  return fmt::format(R"({{"model":"tiny","prompt":"a","max_tokens":{},"seed":5,"stream":{}}})",
                     tokens, stream);
}

TEST_CASE("over TLS each key is an owner of its own, and a reload exchanges keys and certificate") {
  std::signal(SIGPIPE, SIG_IGN);
  const Sandbox sandbox;
  const fs::path keys = sandbox.path() / "keys", certificate = sandbox.path() / "certificate.pem",
                 key = sandbox.path() / "certificate.key";
  write_keys(keys, fmt::format("ada all {}\nben all {}\n", kAda, kBen));
  tests::write_certificate(certificate, key);
  write_tiny_model(sandbox.models() / "tiny.gguf", 1,
                   "{% for m in messages %}{{ m.content }}{% endfor %}");
  const Daemon daemon(
      sandbox,
      {"http.listen=127.0.0.1:0", "http.allowed_hosts=[\"box.example\"]",
       "http.keys_file=" + keys.string(), "http.tls_certificate_file=" + certificate.string(),
       "http.tls_key_file=" + key.string(), "owners.\"key:ben\".max_output_tokens=5"},
      Company::kAlone);
  const uint16_t port = tcp_port(sandbox);
  const auto as = [&](std::string_view shown, const std::string& method, const std::string& path,
                      const std::string& body = {}) {
    return ask(port, certificate, shown, method, path, body);
  };

  const Answer whole = as(kAda, "POST", "/v1/completions", completion(6));
  REQUIRE(whole.status == 200);
  const std::string text = json::parse(whole.body)["choices"][0]["text"];
  CHECK_FALSE(text.empty());
  std::string streamed;
  const Answer events = as(kAda, "POST", "/v1/completions", completion(6, true));
  for (size_t at = 0; (at = events.body.find("data: {", at)) != std::string::npos;) {
    const size_t end = events.body.find('\n', at);
    streamed += json::parse(events.body.substr(at + 6, end - at - 6))["choices"][0]["text"];
    at = end;
  }
  CHECK(streamed == text);
  CHECK(as(kBen, "POST", "/v1/completions", completion(5)).status == 200);
  const Answer greedy = as(kBen, "POST", "/v1/completions", completion(6));
  CHECK(greedy.status >= 400);
  CHECK(greedy.body.find("limit 5") != std::string::npos);
  CHECK(as("0123456789abcdef-none", "GET", "/v1/models").status == 401);

  const Answer kept =
      as(kAda, "POST", "/v1/responses", R"({"model":"tiny","input":"a","max_output_tokens":3})");
  REQUIRE_MESSAGE(kept.status == 200, kept.body);
  const std::string path = "/v1/responses/" + json::parse(kept.body)["id"].get<std::string>();
  CHECK(eventually([&] { return as(kAda, "GET", path).status == 200; }));
  CHECK(as(kBen, "GET", path).status == 404);

  const fs::path old = sandbox.path() / "old.pem";
  fs::copy_file(certificate, old);
  write_keys(keys, "not a key\n");
  daemon.signal(SIGHUP);
  CHECK(eventually(
      [&] { return text_of(sandbox.path() / "log").find("not_reloaded") != std::string::npos; }));
  CHECK(as(kBen, "GET", "/v1/models").status == 200);
  write_keys(keys, fmt::format("ada all {}\n", kAda));
  tests::write_certificate(certificate, key);
  daemon.signal(SIGHUP);
  CHECK(eventually([&] { return as(kBen, "GET", "/v1/models").status == 401; }));
  CHECK(as(kAda, "GET", path).status == 200);
  CHECK(ask(port, old, kAda, "GET", "/v1/models").status == 0);
}

TEST_CASE("only a trusted proxy may connect, if one is named") {
  const Sandbox sandbox;
  const fs::path keys = sandbox.path() / "keys";
  write_keys(keys, fmt::format("ada all {}\n", kAda));
  for (const auto& [proxy, served] : {std::pair("192.0.2.1", false), {"127.0.0.1", true}}) {
    const Daemon daemon(sandbox,
                        {"http.listen=127.0.0.1:0", "http.keys_file=" + keys.string(),
                         fmt::format("http.trusted_proxy=[\"{}\"]", proxy)},
                        Company::kAlone);
    const uint16_t port = tcp_port(sandbox);
    const int fd = connect_to(port);
    const std::string request = fmt::format(
        "GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nx-api-key: {}\r\n\r\n", port, kAda);
    [[maybe_unused]] const ssize_t sent = ::send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    char status[12] = {};
    const bool answered = ::recv(fd, status, sizeof status, MSG_WAITALL) == sizeof status;
    CHECK(answered == served);
    if (answered) CHECK(std::string_view(status, sizeof status) == "HTTP/1.1 200");
    ::close(fd);
  }
}

}  // namespace
}  // namespace hearth::e2e
