#include "daemon/broker/config/remote_config.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "kernels/base/chars.h"

namespace hearth::broker {
namespace {

constexpr size_t kMaxKeyBytes = 4096;
constexpr size_t kMaxCertificateBytes = 1 << 20;
constexpr int64_t kMaxQueueMs = 86'400'000;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const size_t begin = std::min(text.find_first_not_of(kSpaces), text.size());
  const size_t end = text.find_last_not_of(kSpaces);
  return end == text.npos ? std::string_view() : text.substr(begin, end + 1 - begin);
}

bool is_visible(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7F; });
}

struct OpenFile {
  int fd = -1;
  ~OpenFile() {
    if (fd >= 0) ::close(fd);
  }
};

/// A whole small file, of which `check` refuses an owner or a mode.
template <class Check>
Result<std::string> read_small_file(const std::filesystem::path& file, size_t max_bytes,
                                    Check check) {
  const auto about = [&](std::string_view why) {
    return fmt::format("{}: {}", file.string(), why);
  };
  const OpenFile open{.fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (open.fd < 0) return Error::io(about("cannot be opened"));
  struct stat info {};
  if (::fstat(open.fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    return Error::invalid(about("is not a file"));
  }
  if (const std::string refused = check(info); !refused.empty()) {
    return Error::forbidden(about(refused));
  }
  std::string text(max_bytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = ::read(open.fd, text.data() + size, text.size() - size);
    if (n < 0) return Error::io(about("cannot be read"));
    if (n == 0) break;
    size += n;
  }
  if (size > max_bytes) {
    return Error::too_large(about(fmt::format("has more than {} bytes", max_bytes)));
  }
  text.resize(size);
  return text;
}

/// A literal address of this machine alone, or "localhost".
bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  if (host.size() < 2 || host.front() != '[') return false;
  const std::string inner = host.substr(1, host.size() - 2);
  return ::inet_pton(AF_INET6, inner.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool is_host(std::string_view host) {
  if (host.starts_with('[')) {
    in6_addr v6{};
    const std::string inner(host.substr(1, host.size() - 2));
    return host.size() > 2 && host.ends_with(']') && ::inet_pton(AF_INET6, inner.c_str(), &v6) == 1;
  }
  return !host.empty() && host.size() <= 253 && std::ranges::all_of(host, [](char c) {
    return is_ascii_alnum(c) || c == '.' || c == '-' || c == '_';
  });
}

bool is_port(std::string_view port) {
  uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  return error == std::errc() && end == port.data() + port.size() && number > 0;
}

bool is_path(std::string_view path) {
  return std::ranges::all_of(path, [](char c) {
    return is_ascii_alnum(c) || std::string_view("/.-_~").find(c) != std::string_view::npos;
  });
}

}  // namespace

Result<RemoteRule> parse_remote_rule(std::string_view text) {
  RemoteRule rule;
  constexpr std::string_view kOr = " or ";
  const auto wrong = [text] {
    return Error::invalid(
        fmt::format("met \"{}\", want \"absent\", \"queue_ms > 5000\" or \"absent or queue_ms > "
                    "5000\", with 0 to {} ms",
                    text, kMaxQueueMs));
  };
  for (std::string_view rest = text;;) {
    const size_t at = rest.find(kOr);
    std::string_view reason = trimmed(rest.substr(0, at));
    constexpr std::string_view kQueue = "queue_ms";
    if (reason == "absent" && !rule.absent) {
      rule.absent = true;
    } else if (reason.starts_with(kQueue) && rule.queue_ms < 0) {
      reason = trimmed(reason.substr(kQueue.size()));
      if (!reason.starts_with('>')) return wrong();
      reason = trimmed(reason.substr(1));
      int64_t ms = -1;
      const auto [end, error] = std::from_chars(reason.data(), reason.data() + reason.size(), ms);
      if (error != std::errc() || end != reason.data() + reason.size()) return wrong();
      if (ms < 0 || ms > kMaxQueueMs) return wrong();
      rule.queue_ms = ms;
    } else {
      return wrong();
    }
    if (at == rest.npos) return rule;
    rest.remove_prefix(at + kOr.size());
  }
}

Result<RemoteUrl> parse_remote_url(std::string_view text) {
  RemoteUrl url;
  const auto wrong = [text](std::string_view why) {
    return Error::invalid(fmt::format("met \"{}\", {}", text, why));
  };
  constexpr std::string_view kWant = "want \"https://host[:port][/path]\"";
  constexpr std::string_view kTls = "https://";
  constexpr std::string_view kPlain = "http://";
  std::string_view rest = text;
  if (rest.starts_with(kTls)) {
    rest.remove_prefix(kTls.size());
  } else if (rest.starts_with(kPlain)) {
    rest.remove_prefix(kPlain.size());
    url.tls = false;
  } else {
    return wrong(kWant);
  }
  const size_t slash = std::min(rest.find('/'), rest.size());
  url.host = rest.substr(0, slash);
  std::string_view path = rest.substr(slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  url.path = path;
  const size_t bracket = url.host.rfind(']');
  const size_t colon = url.host.rfind(':');
  const bool has_port = colon != url.host.npos && (bracket == url.host.npos || colon > bracket);
  const std::string name = has_port ? url.host.substr(0, colon) : url.host;
  if (!is_host(name) || !is_path(url.path)) return wrong(kWant);
  if (has_port && !is_port(std::string_view(url.host).substr(colon + 1))) {
    return wrong("want a port of 1 to 65535");
  }
  if (!url.tls && !is_loopback(name)) {
    return wrong(
        "requests would cross the network in the open; want https://, or an address of "
        "this machine");
  }
  return url;
}

Result<std::string> read_remote_key(const std::filesystem::path& file) {
  HEARTH_ASSIGN_OR_RETURN(
      const std::string text,
      read_small_file(file, kMaxKeyBytes + 2, [](const struct stat& info) -> std::string {
        if (info.st_uid != ::geteuid() && info.st_uid != 0) return "belongs to another user";
        if ((info.st_mode & 027) == 0) return {};
        return fmt::format(
            "has mode {:03o}, want 600 or 640: no other user may read it, and its "
            "group may not write it",
            info.st_mode & 0777);
      }));
  const std::string_view key = trimmed(text);
  if (key.empty() || key.size() > kMaxKeyBytes || !is_visible(key)) {
    return Error::invalid(
        fmt::format("{}: want one line with a key of 1 to {} visible ASCII "
                    "characters",
                    file.string(), kMaxKeyBytes));
  }
  return std::string(key);
}

Result<std::string> read_remote_certificates(const std::filesystem::path& file) {
  HEARTH_ASSIGN_OR_RETURN(std::string text,
                          read_small_file(file, kMaxCertificateBytes,
                                          [](const struct stat&) { return std::string(); }));
  if (text.find("-----BEGIN CERTIFICATE-----") == text.npos) {
    return Error::invalid(fmt::format("{}: want certificates in PEM", file.string()));
  }
  return text;
}

Result<void> check_remote(const std::string& role, const RemoteConfig& remote) {
  const auto in = [&role](std::string_view key, Error error) {
    std::string name = fmt::format("roles.{}.{}", role, key);
    error.message = fmt::format("{}: {}", name, error.message);
    error.field = std::move(name);
    return error;
  };
  if (auto url = parse_remote_url(remote.remote); !url) return in("remote", url.take_error());
  if (auto rule = parse_remote_rule(remote.when); !rule) return in("when", rule.take_error());
  if (remote.model.empty()) {
    return in("model", Error::invalid("absent, want the model's name at the remote"));
  }
  if (!remote.key_file.empty()) {
    if (auto key = read_remote_key(remote.key_file); !key) return in("key_file", key.take_error());
  }
  if (!remote.ca_file.empty()) {
    auto read = read_remote_certificates(remote.ca_file);
    if (!read) return in("ca_file", read.take_error());
  }
  return {};
}

}  // namespace hearth::broker
