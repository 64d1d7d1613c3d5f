#include "daemon/http/tls.h"

#include <fmt/core.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <string>
#include <unordered_map>
#include <utility>

#include "daemon/http/connection.h"
#include "kernels/base/log.h"

namespace hearth::http {
namespace {

namespace asio = boost::asio;

constexpr const char* kCertificateField = "http.tls_certificate_file";
constexpr const char* kKeyField = "http.tls_key_file";
// Of each direction of a socket pair: a slow reader holds little of an answer.
constexpr int kPairBytes = 64 << 10;
// Pieces of each direction before others have their turn.
constexpr int kPieces = 8;
// How long a peer may take to confirm the end of TLS.
constexpr int64_t kGoodbyeMs = 2'000;

struct FreeContext {
  void operator()(SSL_CTX* context) const { ::SSL_CTX_free(context); }
};
struct FreeTls {
  void operator()(SSL* tls) const { ::SSL_free(tls); }
};

class Identity final : public TlsIdentity {
 public:
  const std::unique_ptr<SSL_CTX, FreeContext> context{::SSL_CTX_new(::TLS_server_method())};
};

std::string last_error() {
  const unsigned long code = ::ERR_get_error();
  ::ERR_clear_error();
  const char* const reason = code == 0 ? nullptr : ::ERR_reason_error_string(code);
  return reason == nullptr ? "not valid" : reason;
}

Result<void> check_key_file(const std::filesystem::path& key) {
  const auto about = [&](std::string_view why) {
    return fmt::format("{} {}: {}", kKeyField, key.string(), why);
  };
  struct stat info {};
  if (::stat(key.c_str(), &info) != 0) return Error::io(about("cannot be opened"), kKeyField);
  if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    return Error::forbidden(about("belongs to another user"), kKeyField);
  }
  if ((info.st_mode & 027) != 0) {
    return Error::forbidden(about(fmt::format("has mode {:03o}, want 600 or 640: no other user may "
                                              "read it, and its group may not write it",
                                              info.st_mode & 0777)),
                            kKeyField);
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const TlsIdentity>> TlsIdentity::load(
    const std::filesystem::path& certificate, const std::filesystem::path& key) {
  HEARTH_TRY(check_key_file(key));
  const auto about_certificate = [&](std::string_view why) {
    return Error::invalid(fmt::format("{} {}: {}", kCertificateField, certificate.string(), why),
                          kCertificateField);
  };
  if (::access(certificate.c_str(), R_OK) != 0) {
    return Error::io(
        fmt::format("{} {}: cannot be opened", kCertificateField, certificate.string()),
        kCertificateField);
  }
  auto out = std::make_shared<Identity>();
  SSL_CTX* const context = out->context.get();
  if (context == nullptr) return Error::io("no memory for TLS", kCertificateField);
  ::SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  ::SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  ::ERR_clear_error();
  if (::SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) != 1) {
    return about_certificate("want certificates in PEM: " + last_error());
  }
  if (::SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      ::SSL_CTX_check_private_key(context) != 1) {
    return Error::invalid(fmt::format("{} {}: not the key of {}: {}", kKeyField, key.string(),
                                      certificate.string(), last_error()),
                          kKeyField);
  }
  const X509* const own = ::SSL_CTX_get0_certificate(context);
  if (::X509_cmp_current_time(::X509_get0_notAfter(own)) < 0)
    return about_certificate("has expired");
  if (::X509_cmp_current_time(::X509_get0_notBefore(own)) > 0) {
    return about_certificate("does not hold yet");
  }
  return std::shared_ptr<const TlsIdentity>(std::move(out));
}

namespace {

class Door;

// OpenSSL works on the peer's socket itself; run() moves what it can in both directions and waits
// for what it could not.
class Session final : public std::enable_shared_from_this<Session> {
 public:
  Session(Door& door, uint64_t number, asio::io_context& io, Socket outer,
          std::shared_ptr<const Identity> identity, std::function<void(int)> serve,
          std::function<void()> ended)
      : door_(door),
        number_(number),
        identity_(std::move(identity)),
        io_(io),
        outer_(std::move(outer)),
        inner_(io),
        tls_(::SSL_new(identity_->context.get())),
        serve_(std::move(serve)),
        ended_(std::move(ended)) {}

  void start(int64_t deadline_ms);
  bool is_late(int64_t now) const { return now >= deadline_ms_; }
  bool idle() const;
  void close();

 private:
  // Bytes on their way.
  struct Piece {
    size_t at = 0;
    size_t end = 0;
    std::array<char, 16384> bytes;
    bool empty() const { return at == end; }
  };
  enum Wait { kOuterRead, kOuterWrite, kInnerRead, kInnerWrite };

  void run();
  bool shake_hands();
  bool move_in();
  bool move_out();
  void say_goodbye();
  bool wait_for_tls(int result);
  template <class AnySocket>
  void wait(AnySocket& socket, Wait which);

  Door& door_;
  const uint64_t number_;
  const std::shared_ptr<const Identity> identity_;
  asio::io_context& io_;
  Socket outer_;
  asio::local::stream_protocol::socket inner_;
  const std::unique_ptr<SSL, FreeTls> tls_;
  std::function<void(int)> serve_;  // null: served
  std::function<void()> ended_;
  int64_t deadline_ms_ = kNever;
  std::array<bool, 4> waits_{};  // by Wait
  bool in_ended_ = false;        // the peer sends no more, or the server reads no more
  bool out_ended_ = false;       // the server has closed its end: the answer is complete
  bool closed_ = false;
  Piece in_;
  Piece out_;
};

class Door final : public TlsDoor {
 public:
  Door(asio::io_context& io, Deadlines deadlines) : io_(io), deadlines_(deadlines) {}
  ~Door() override {
    for (const auto& [number, session] : std::exchange(sessions_, {})) session->close();
  }

  void begin(int fd, std::shared_ptr<const TlsIdentity> identity, std::function<void(int)> serve,
             std::function<void()> ended) override {
    Socket socket(io_);
    error_code error;
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
    const int protocol = address.ss_family == AF_UNIX ? 0 : IPPROTO_TCP;
    socket.assign(asio::generic::stream_protocol(address.ss_family, protocol), fd, error);
    if (error) {
      ::close(fd);
      return ended();
    }
    socket.non_blocking(true, error);
    const uint64_t number = ++sessions_made_;
    auto session =
        std::make_shared<Session>(*this, number, io_, std::move(socket),
                                  std::static_pointer_cast<const Identity>(std::move(identity)),
                                  std::move(serve), std::move(ended));
    sessions_.emplace(number, session);
    session->start(now_ms() + deadlines_.handshake_ms);
  }
  void tick(int64_t now) override {
    std::vector<std::shared_ptr<Session>> late;
    for (const auto& [number, session] : sessions_) {
      if (session->is_late(now)) late.push_back(session);
    }
    for (const auto& session : late) session->close();
  }
  size_t size() const override { return sessions_.size(); }
  bool idle() const override {
    return std::ranges::all_of(sessions_, [](const auto& each) { return each.second->idle(); });
  }

  void forget(uint64_t number) { sessions_.erase(number); }
  const Deadlines& deadlines() const { return deadlines_; }

 private:
  asio::io_context& io_;
  const Deadlines deadlines_;
  std::unordered_map<uint64_t, std::shared_ptr<Session>> sessions_;
  uint64_t sessions_made_ = 0;
};

void Session::start(int64_t deadline_ms) {
  deadline_ms_ = deadline_ms;
  if (tls_ == nullptr || ::SSL_set_fd(tls_.get(), outer_.native_handle()) != 1) return close();
  ::SSL_set_accept_state(tls_.get());
  run();
}

void Session::run() {
  if (closed_ || (serve_ && !shake_hands())) return;
  for (int i = 0; i < kPieces && !closed_; ++i) {
    const bool came = move_in();
    const bool went = !closed_ && move_out();
    if (!came && !went) return;
  }
  if (!closed_) asio::post(io_, [self = shared_from_this()] { self->run(); });
}

bool Session::shake_hands() {
  ::ERR_clear_error();
  if (const int result = ::SSL_do_handshake(tls_.get()); result != 1) {
    if (!wait_for_tls(result)) close();
    return false;
  }
  deadline_ms_ = kNever;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    close();
    return false;
  }
  for (const int end : ends) {
    ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &kPairBytes, sizeof kPairBytes);
  }
  error_code error;
  inner_.assign(asio::local::stream_protocol(), ends[0], error);
  if (error) {
    ::close(ends[0]);
    ::close(ends[1]);
    close();
    return false;
  }
  inner_.non_blocking(true, error);
  std::exchange(serve_, nullptr)(ends[1]);
  return !closed_;
}

// What the peer sends. False: nothing was moved.
bool Session::move_in() {
  if (in_ended_) return false;
  if (in_.empty()) {
    ::ERR_clear_error();
    const int result = ::SSL_read_ex(tls_.get(), in_.bytes.data(), in_.bytes.size(), &in_.end);
    if (result != 1) {
      in_.end = 0;
      in_.at = 0;
      if (wait_for_tls(result)) return false;
      // Only with TLS's own ending were its bytes whole; answers to them still go out.
      if (out_ended_ || ::SSL_get_error(tls_.get(), result) != SSL_ERROR_ZERO_RETURN) {
        close();
        return false;
      }
      in_ended_ = true;
      error_code ignored;
      inner_.shutdown(asio::socket_base::shutdown_send, ignored);
      return false;
    }
    in_.at = 0;
  }
  error_code error;
  in_.at += inner_.write_some(asio::buffer(in_.bytes.data() + in_.at, in_.end - in_.at), error);
  if (error == asio::error::would_block) {
    wait(inner_, kInnerWrite);
    return false;
  }
  in_ended_ = error.failed();
  return !in_ended_;
}

// What the server answers. False: nothing was moved.
bool Session::move_out() {
  if (out_ended_) return false;
  if (out_.empty()) {
    error_code error;
    const size_t bytes = inner_.read_some(asio::buffer(out_.bytes), error);
    if (error == asio::error::would_block) {
      wait(inner_, kInnerRead);
      return false;
    }
    if (error) {
      say_goodbye();
      return false;
    }
    out_.at = 0;
    out_.end = bytes;
    deadline_ms_ = now_ms() + door_.deadlines().write_ms;
  }
  ::ERR_clear_error();
  size_t bytes = 0;
  const int result =
      ::SSL_write_ex(tls_.get(), out_.bytes.data() + out_.at, out_.end - out_.at, &bytes);
  if (result != 1) {
    if (!wait_for_tls(result)) close();
    return false;
  }
  out_.at += bytes;
  if (out_.empty()) deadline_ms_ = kNever;
  return true;
}

// The peer confirms the end, or closes, which move_in() meets; or its time passes.
void Session::say_goodbye() {
  out_ended_ = true;
  deadline_ms_ = now_ms() + kGoodbyeMs;
  ::ERR_clear_error();
  if (::SSL_shutdown(tls_.get()) != 0 || in_ended_) close();
}

bool Session::idle() const {
  error_code error;
  return !inner_.is_open() || (out_.empty() && inner_.available(error) == 0);
}

// True: the operation goes on when the socket is ready, and run() is called then.
bool Session::wait_for_tls(int result) {
  switch (::SSL_get_error(tls_.get(), result)) {
    case SSL_ERROR_WANT_READ: wait(outer_, kOuterRead); return true;
    case SSL_ERROR_WANT_WRITE: wait(outer_, kOuterWrite); return true;
    default: return false;
  }
}

template <class AnySocket>
void Session::wait(AnySocket& socket, Wait which) {
  if (std::exchange(waits_[which], true)) return;
  const bool reads = which == kOuterRead || which == kInnerRead;
  socket.async_wait(reads ? asio::socket_base::wait_read : asio::socket_base::wait_write,
                    [self = shared_from_this(), which](const error_code& error) {
                      self->waits_[which] = false;
                      if (!error) self->run();
                    });
}

void Session::close() {
  if (std::exchange(closed_, true)) return;
  const auto self = shared_from_this();  // the door may hold the last reference
  error_code ignored;
  outer_.close(ignored);
  inner_.close(ignored);
  door_.forget(number_);
  if (ended_) std::exchange(ended_, nullptr)();
}

}  // namespace

bool HandshakeRate::take(int64_t now_ms) {
  const int64_t next = std::max(paid_ms_, now_ms) + kEachMs;
  if (next > now_ms + kAtOnce * kEachMs) return false;
  paid_ms_ = next;
  return true;
}

std::unique_ptr<TlsDoor> TlsDoor::create(asio::io_context& io, Deadlines deadlines) {
  return std::make_unique<Door>(io, deadlines);
}

}  // namespace hearth::http
