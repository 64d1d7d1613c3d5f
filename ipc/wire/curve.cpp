#include "ipc/wire/curve.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

namespace hearth::ipc {
namespace fs = std::filesystem;
namespace {

constexpr size_t kKeyChars = 40;
constexpr size_t kKeyBytes = 32;

using KeyText = std::array<char, kKeyChars + 1>;

Error io_error(const fs::path& file, const char* what) {
  const int number = errno;
  std::string text = fmt::format("{}: {}: {}", file.string(), what, std::strerror(number));
  return number == ENOENT ? Error::not_found(std::move(text)) : Error::io(std::move(text));
}

Result<void> set_text(const Socket& socket, int option, const std::string& text) {
  if (zmq_setsockopt(socket.handle(), option, text.c_str(), text.size()) == 0) return {};
  return Error::unsupported(fmt::format("CURVE: {}", zmq_strerror(zmq_errno())));
}

std::optional<uint32_t> user_id(const std::string& user) {
  uint32_t uid = 0;
  const auto [end, problem] = std::from_chars(user.data(), user.data() + user.size(), uid);
  if (problem == std::errc{} && end == user.data() + user.size()) return uid;
  const passwd* entry = ::getpwnam(user.c_str());  // at start and reload, on the only thread
  if (entry == nullptr) return std::nullopt;
  return entry->pw_uid;
}

/// kForbidden if the file's mode has one of the bits `refused`.
Result<void> check_mode(const fs::path& file, mode_t refused, std::string_view why) {
  struct stat found {};
  if (::stat(file.c_str(), &found) != 0) return io_error(file, "stat");
  if ((found.st_mode & refused) == 0) return {};
  return Error::forbidden(
      fmt::format("{}: mode {:04o}{}", file.string(), found.st_mode & 07777, why));
}

}  // namespace

bool is_curve_key(std::string_view text) {
  std::array<uint8_t, kKeyBytes> bytes{};
  return text.size() == kKeyChars && text.find_first_of(" \t\n") == text.npos &&
         zmq_z85_decode(bytes.data(), std::string(text).c_str()) != nullptr;
}

std::string curve_key_of(std::string_view bytes) {
  KeyText text{};
  if (bytes.size() != kKeyBytes) return "";
  zmq_z85_encode(text.data(), reinterpret_cast<const uint8_t*>(bytes.data()), kKeyBytes);
  return text.data();
}

Result<CurveKeys> make_curve_keys() {
  KeyText public_key{}, secret_key{};
  if (zmq_curve_keypair(public_key.data(), secret_key.data()) != 0) {
    return Error::unsupported(fmt::format("CURVE: {}", zmq_strerror(zmq_errno())));
  }
  return CurveKeys{public_key.data(), secret_key.data()};
}

Result<void> write_secret_key(const fs::path& file, const CurveKeys& keys) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 && errno == EEXIST) {
    return Error::invalid(
        fmt::format("{}: is there already, and keys are not written over", file.string()));
  }
  if (fd < 0) return io_error(file, "open");
  const std::string text = keys.secret_key + "\n";
  const bool written =
      std::cmp_equal(::write(fd, text.data(), text.size()), text.size()) && ::fsync(fd) == 0;
  if (!written) {
    Error error = io_error(file, "write");
    ::close(fd);
    ::unlink(file.c_str());
    return error;
  }
  ::close(fd);
  return {};
}

Result<CurveKeys> read_secret_key(const fs::path& file) {
  HEARTH_TRY(check_mode(file, 077, ", want 0600: others could read the key"));
  std::ifstream in(file);
  CurveKeys keys;
  in >> keys.secret_key;
  KeyText public_key{};
  if (!is_curve_key(keys.secret_key) ||
      zmq_curve_public(public_key.data(), keys.secret_key.c_str()) != 0) {
    return Error::corrupt(fmt::format("{}: no key of 40 characters", file.string()));
  }
  keys.public_key = public_key.data();
  return keys;
}

Result<std::map<std::string, uint32_t>> read_client_keys(const fs::path& file) {
  HEARTH_TRY(check_mode(file, 022, ": others could let themselves in"));
  std::ifstream in(file);
  std::map<std::string, uint32_t> keys;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    const auto wrong = [&](std::string_view what) {
      return Error::corrupt(fmt::format("{}:{}: {}", file.string(), number, what));
    };
    std::istringstream words(line);  // a key may contain or begin with #, so check the key first
    std::string key, user, more;
    words >> key;
    if (key.empty() || (key.front() == '#' && !is_curve_key(key))) continue;
    words >> user >> more;
    if (!is_curve_key(key)) return wrong("want a public key of 40 characters");
    const std::optional<uint32_t> uid = user.empty() ? std::nullopt : user_id(user);
    if (!uid) return wrong("want a user's name or number after the key");
    if (!more.empty() && more.front() != '#') return wrong("want nothing after the user");
    if (!keys.emplace(key, *uid).second) return wrong("the same key twice");
  }
  if (in.bad()) return io_error(file, "read");
  return keys;
}

Result<void> serve_curve(const Socket& socket, const CurveKeys& keys) {
  const int yes = 1;
  if (zmq_setsockopt(socket.handle(), ZMQ_CURVE_SERVER, &yes, sizeof yes) != 0) {
    return Error::unsupported(fmt::format("CURVE: {}", zmq_strerror(zmq_errno())));
  }
  HEARTH_TRY(set_text(socket, ZMQ_CURVE_SECRETKEY, keys.secret_key));
  return set_text(socket, ZMQ_ZAP_DOMAIN, "hearth");
}

Result<void> use_curve(const Socket& socket, const std::string& server_key, const CurveKeys& keys) {
  HEARTH_TRY(set_text(socket, ZMQ_CURVE_SERVERKEY, server_key));
  HEARTH_TRY(set_text(socket, ZMQ_CURVE_PUBLICKEY, keys.public_key));
  return set_text(socket, ZMQ_CURVE_SECRETKEY, keys.secret_key);
}

int source_descriptor(const Frame& frame) { return zmq_msg_get(frame.handle(), ZMQ_SRCFD); }

std::optional<uint32_t> authenticated_uid(const Frame& frame) {
  const char* text = zmq_msg_gets(frame.handle(), "User-Id");
  if (text == nullptr) return std::nullopt;
  const std::string_view digits = text;
  uint32_t uid = 0;
  const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), uid);
  if (problem != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return uid;
}

}  // namespace hearth::ipc
