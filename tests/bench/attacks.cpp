#include "tests/bench/attacks.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <vector>

#include "ipc/files/paths.h"
#include "kernels/base/check.h"
#include "tests/bench/tls_attacks.h"
#include "tests/other_user.h"

namespace hearth::bench {
namespace {

namespace fs = std::filesystem;

/// -1 if the connection cannot be made: connections are bounded, and an attack continues.
int connect_to(const fs::path& socket) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  HEARTH_CHECK(socket.native().size() < sizeof address.sun_path);
  std::memcpy(address.sun_path, socket.c_str(), socket.native().size());
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
  ::close(fd);
  return -1;
}

/// Bytes to send on a connection repeatedly, as far as it accepts them.
struct Sender {
  int fd = -1;
  std::string first{};  ///< once
  std::string again{};  ///< repeatedly
  bool reads = true;
  size_t most = SIZE_MAX;  ///< of all connections
  size_t sent = 0;
};

bool send_more(Sender& sender) {
  const bool at_first = sender.sent < sender.first.size();
  if (!at_first && (sender.again.empty() || sender.sent >= sender.most)) return true;
  const std::string& bytes = at_first ? sender.first : sender.again;
  const size_t at =
      at_first ? sender.sent : (sender.sent - sender.first.size()) % sender.again.size();
  const ssize_t n =
      ::send(sender.fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n > 0) sender.sent += static_cast<size_t>(n);
  return n > 0 || errno == EAGAIN;
}

/// Keeps `count` connections that send what `make` returns, and reopens those that end.
template <class Make>
[[noreturn]] void keep_sending(const fs::path& socket, size_t count, Make make) {
  std::vector<Sender> senders(count);
  std::vector<pollfd> items(count);
  std::vector<char> sink(1 << 16);
  while (true) {
    for (size_t i = 0; i < count; ++i) {
      if (senders[i].fd < 0) {
        senders[i] = make(i);
        senders[i].fd = connect_to(socket);
      }
      const Sender& sender = senders[i];
      const bool sends =
          sender.sent < sender.first.size() || (!sender.again.empty() && sender.sent < sender.most);
      items[i] = {.fd = sender.fd,
                  .events = static_cast<short>((sends ? POLLOUT : 0) | (sender.reads ? POLLIN : 0)),
                  .revents = 0};
    }
    ::poll(items.data(), items.size(), 20);
    for (size_t i = 0; i < count; ++i) {
      Sender& sender = senders[i];
      if (sender.fd < 0 || items[i].revents == 0) continue;
      bool open = (items[i].revents & POLLERR) == 0 && send_more(sender);
      if (open && sender.reads) {
        ssize_t n;
        while ((n = ::recv(sender.fd, sink.data(), sink.size(), MSG_DONTWAIT)) > 0) {
        }
        open = n < 0 && errno == EAGAIN;
      }
      if (open) continue;
      ::close(sender.fd);
      sender.fd = -1;
    }
  }
}

// ---- ZMTP and HTTP ------------------------------------------------------------------------------

std::string frame(std::string_view body, bool more) {
  std::string out(1, static_cast<char>((more ? 1 : 0) | (body.size() > 255 ? 2 : 0)));
  for (int shift = body.size() > 255 ? 56 : 0; shift >= 0; shift -= 8) {
    out += static_cast<char>(static_cast<uint64_t>(body.size()) >> shift & 0xFF);
  }
  return out + std::string(body);
}

/// Greeting and READY of a socket of that type.
std::string hands(const std::string& type) {
  std::string out(64, '\0');
  out[0] = '\xFF';
  out[9] = '\x7F';
  out[10] = 3;
  out.replace(12, 4, "NULL");
  std::string data = "\5READY\x0bSocket-Type";
  data += std::string(3, '\0') + static_cast<char>(type.size()) + type;
  return out + '\4' + static_cast<char>(data.size()) + data;
}

std::string message(std::string_view json) {
  return frame("HEARTH/1", true) + frame("a", true) + frame(json, false);
}

std::string post(std::string_view path, std::string_view body, size_t length) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      path, length, body);
}

std::string words(size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += "Once upon a time there was a fox. ";
  out.resize(bytes);
  return out;
}

std::string tokenize_json(size_t bytes) {
  return R"({"verb":"tokenize","text":")" + words(bytes) + "\"}";
}

// 1.9 million ids, since requests with more values are refused early.
std::string ids_json(std::string_view begin) {
  std::string out(begin);
  out += "[";
  for (int i = 0; i < 1'900'000; ++i) out += "1234567890,";
  out += "1]}";
  return out;
}

// ---- The attacks --------------------------------------------------------------------------------

void tokenize(const fs::path& runtime) {
  const std::string again = message(tokenize_json(1'500'000));
  keep_sending(ipc::api_socket(runtime), 40,
               [&](size_t) { return Sender{.first = hands("DEALER"), .again = again}; });
}

// As long as a text may be for a model with a short context, so that it is tokenized.
void short_tokenize(const fs::path& runtime) {
  const std::string again = message(tokenize_json(6'000));
  keep_sending(ipc::api_socket(runtime), 40,
               [&](size_t) { return Sender{.first = hands("DEALER"), .again = again}; });
}

void large_json(const fs::path& runtime) {
  const std::string again = message(ids_json(R"({"verb":"generate","prompt_ids":)"));
  keep_sending(ipc::api_socket(runtime), 4,
               [&](size_t) { return Sender{.first = hands("DEALER"), .again = again}; });
}

// As above, over HTTP.
void short_bodies(const fs::path& runtime) {
  const std::string body = R"({"text":")" + words(6'000) + "\"}";
  const std::string again = post("/tokenize", body, body.size());
  keep_sending(runtime / "http.sock", 60, [&](size_t) { return Sender{.again = again}; });
}

void large_bodies(const fs::path& runtime) {
  const std::string body = ids_json(R"({"model":"tales","prompt":)");
  const std::string again = post("/v1/completions", body, body.size());
  keep_sending(runtime / "http.sock", 4, [&](size_t) { return Sender{.again = again}; });
}

void half_bodies(const fs::path& runtime) {
  keep_sending(runtime / "http.sock", 60, [&](size_t) {
    return Sender{.first = post("/v1/completions", "", 31 << 20),
                  .again = std::string(1 << 16, ' '),
                  .most = 30 << 20};
  });
}

void endless_message(const fs::path& runtime) {
  const std::string again = frame(std::string(250, 'x'), true);
  std::string many;
  for (int i = 0; i < 1000; ++i) many += again;
  keep_sending(ipc::api_socket(runtime), 8,
               [&](size_t) { return Sender{.first = hands("DEALER"), .again = many}; });
}

void tiny_frames(const fs::path& runtime) {
  std::string many;
  for (int i = 0; i < 10'000; ++i) many += frame("ab", true);
  keep_sending(ipc::api_socket(runtime), 8,
               [&](size_t) { return Sender{.first = hands("DEALER"), .again = many}; });
}

void connections(const fs::path& runtime) {
  const std::array sockets = {ipc::api_socket(runtime), ipc::events_socket(runtime),
                              runtime / "http.sock"};
  std::vector<int> open;
  while (true) {
    const size_t before = open.size();
    for (int i = 0; i < 100; ++i) {
      for (const fs::path& socket : sockets) {
        if (const int fd = connect_to(socket); fd >= 0) open.push_back(fd);
      }
    }
    if (open.size() == before) ::usleep(10'000);  // without a daemon
    if (open.size() < 600) continue;
    for (const int fd : open) ::close(fd);
    open.clear();
  }
}

void subscriptions(const fs::path& runtime) {
  int made = 0;
  keep_sending(ipc::events_socket(runtime), 16, [&](size_t) {
    std::string topics;
    for (int i = 0; i < 20'000; ++i) {
      const std::string topic = fmt::format("uid:65534/{}", made++);
      topics += std::string("\4") + static_cast<char>(10 + topic.size()) + "\x09SUBSCRIBE" + topic;
    }
    return Sender{.first = hands("SUB"), .again = topics};
  });
}

void unread_answers(const fs::path& runtime) {
  const std::string again = message(tokenize_json(4'000));
  keep_sending(ipc::api_socket(runtime), 40, [&](size_t) {
    return Sender{.first = hands("DEALER"), .again = again, .reads = false};
  });
}

void unread_http(const fs::path& runtime) {
  const std::string body = R"({"text":")" + words(4'000) + "\"}";
  const std::string again = post("/tokenize", body, body.size());
  keep_sending(runtime / "http.sock", 60,
               [&](size_t) { return Sender{.again = again, .reads = false}; });
}

// Long requests of short prompts: the description in their schema is kept while they wait.
void waiting(const fs::path& runtime) {
  const std::string again =
      message(R"({"verb":"generate","prompt":"Once upon a time","max_tokens":100,)"
              R"("json_schema":"{\"type\":\"string\",\"description\":\")" +
              words(500'000) + R"(\"}"})");
  keep_sending(ipc::api_socket(runtime), 120,
               [&](size_t) { return Sender{.first = hands("DEALER"), .again = again}; });
}

// No attack on the daemon: what a busy process costs another user on the same cores.
[[noreturn]] void compute(const fs::path&) {
  std::atomic<uint64_t> count = 0;
  while (true) count.fetch_add(1, std::memory_order_relaxed);
}

constexpr Attack kAttacks[] = {
    {"computes", "a process computes and touches no socket, for comparison", compute},
    {"tokenize", "40 connections send texts of 1.5 MB to be tokenized", tokenize},
    {"short texts", "40 connections send texts of 6 KB to be tokenized", short_tokenize},
    {"short bodies", "60 HTTP connections send texts of 6 KB to be tokenized", short_bodies},
    {"large JSON", "4 connections send requests of 21 MB", large_json},
    {"large bodies", "4 connections send HTTP bodies of 21 MB", large_bodies},
    {"half bodies", "60 HTTP bodies of 31 MiB stop before their end", half_bodies},
    {"endless", "8 connections send messages that do not end", endless_message},
    {"tiny frames", "8 connections send messages of frames of 2 bytes", tiny_frames},
    {"connections", "connections are opened and closed as fast as it goes", connections},
    {"subscriptions", "16 listeners subscribe to 20,000 topics each, again and again",
     subscriptions},
    {"unread", "40 connections ask and do not read the answers", unread_answers},
    {"unread HTTP", "60 HTTP connections ask and do not read the answers", unread_http},
    {"waiting", "120 connections send requests of 500 KB that wait for their turn", waiting},
    {"half handshakes", "120 connections begin TLS and send a byte now and then", half_handshakes,
     true},
    {"handshakes", "8 threads shake hands for TLS and leave, as fast as it goes", handshakes, true},
    {"unread TLS", "60 connections over TLS ask and do not read the answers", unread_tls, true},
};

}  // namespace

std::span<const Attack> attacks() { return kAttacks; }

Attacker::Attacker(const Attack& attack, const fs::path& runtime) {
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ != 0) return;
  if (!tests::become_other_user(parent)) ::_exit(9);
  attack.run(runtime);
  ::_exit(0);
}

Attacker::~Attacker() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

}  // namespace hearth::bench
