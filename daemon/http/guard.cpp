#include "daemon/http/guard.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "kernels/base/chars.h"
#include "kernels/base/numbers.h"

namespace hearth::http {
namespace {

constexpr size_t kMaxKeyFileBytes = 1 << 20;
constexpr size_t kMinKeyBytes = 16;
constexpr size_t kMaxKeyBytes = 256;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = ascii_lower(c);
  return out;
}

bool visible(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

// Neither branches nor loop bounds depend on the bytes of `secret`.
bool equal_secret(std::string_view given, std::string_view secret) {
  unsigned difference = given.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    difference |= byte_of(given[i]) ^ byte_of(secret[i % secret.size()]);
  }
  return difference == 0;
}

bool is_key_name(std::string_view name) {
  return name.size() <= 64 && std::ranges::all_of(name, [](char c) {
           return is_ascii_alnum(c) || c == '.' || c == '_' || c == '-';
         });
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (true) {
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return words;
    line.remove_prefix(begin);
    const size_t end = std::min(line.find_first_of(" \t\r"), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
}

}  // namespace

Result<Endpoint> parse_endpoint(std::string_view text, std::string_view setting) {
  const auto wrong = [&](std::string_view why) {
    return Error::invalid(fmt::format("{} is \"{}\": {}", setting, text, why),
                          std::string(setting));
  };
  constexpr std::string_view kWant = "want ADDRESS:PORT, as 127.0.0.1:8080 or [::1]:8080";
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return wrong(kWant);
  Endpoint out;
  std::string_view address = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), out.port);
  if (error != std::errc{} || end != port.data() + port.size()) return wrong(kWant);
  if (address.size() > 2 && address.front() == '[' && address.back() == ']') {
    address = address.substr(1, address.size() - 2);
    out.v6 = true;
  }
  if (address.find('\0') != std::string_view::npos) return wrong(kWant);  // inet_pton stops there
  out.address = address;
  in6_addr v6{};
  in_addr v4{};
  const int known = out.v6 ? ::inet_pton(AF_INET6, out.address.c_str(), &v6)
                           : ::inet_pton(AF_INET, out.address.c_str(), &v4);
  if (known != 1) return wrong(kWant);
  out.loopback = out.v6 ? IN6_IS_ADDR_LOOPBACK(&v6) : ntohl(v4.s_addr) >> 24 == 127;
  char text_of[INET6_ADDRSTRLEN] = {};
  if (out.v6) out.address = ::inet_ntop(AF_INET6, &v6, text_of, sizeof text_of);
  return out;
}

std::string canonical_address(std::string_view text) {
  std::string address(text);
  char out[INET6_ADDRSTRLEN] = {};
  in_addr v4{};
  in6_addr v6{};
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1) return address;
  if (::inet_pton(AF_INET6, address.c_str(), &v6) != 1) return "";
  if (IN6_IS_ADDR_V4MAPPED(&v6)) return ::inet_ntop(AF_INET, &v6.s6_addr[12], out, sizeof out);
  return ::inet_ntop(AF_INET6, &v6, out, sizeof out);
}

// FNV-1a; the upper half of the numbers, and not the last one, which stands for no user.
uint32_t key_owner(std::string_view name) {
  uint32_t hash = 2166136261U;
  for (const char c : name) hash = (hash ^ byte_of(c)) * 16777619U;
  return std::min((hash >> 1) | 0x8000'0000U, UINT32_MAX - 1);
}

HostRules HostRules::of_unix_socket(const std::vector<std::string>& more) {
  HostRules rules;
  rules.names_ = {"localhost", "hearth"};
  for (const std::string& name : more) rules.names_.push_back(lower(name));
  return rules;
}

HostRules HostRules::of_tcp(const Endpoint& endpoint, const std::vector<std::string>& more) {
  HostRules rules;
  rules.any_ = !endpoint.loopback && more.empty();
  std::vector<std::string> addresses = {"localhost", "127.0.0.1", "[::1]"};
  if (!endpoint.v6) addresses.push_back(endpoint.address);
  for (const std::string& address : addresses) {
    rules.names_.push_back(fmt::format("{}:{}", address, endpoint.port));
    if (endpoint.port == 80) rules.names_.push_back(address);
  }
  for (const std::string& name : more) rules.names_.push_back(lower(name));
  return rules;
}

bool HostRules::allows(std::string_view host) const {
  return any_ || std::find(names_.begin(), names_.end(), lower(host)) != names_.end();
}

bool origin_allowed(const std::vector<std::string>& origins, std::string_view fetch_site,
                    const std::vector<std::string>& allowed) {
  if (origins.empty()) {
    return fetch_site.empty() || fetch_site == "none" || fetch_site == "same-origin";
  }
  return origins.size() == 1 && origins.front() != "null" &&
         std::find(allowed.begin(), allowed.end(), origins.front()) != allowed.end();
}

Result<Keys> Keys::load(const std::filesystem::path& file) {
  constexpr const char* kField = "http.keys_file";
  const auto about = [&](std::string_view why) {
    return fmt::format("{} {}: {}", kField, file.string(), why);
  };
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return Error::io(about("cannot be opened"), kField);
  std::string text;
  struct stat info {};
  Error error;
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    error = Error::invalid(about("is not a file"), kField);
  } else if (info.st_uid != ::geteuid() && info.st_uid != 0) {
    error = Error::forbidden(about("belongs to another user"), kField);
  } else if ((info.st_mode & 077) != 0) {
    error = Error::forbidden(
        about(fmt::format("has mode {:03o}, want 600: no other user may read or write it",
                          info.st_mode & 0777)),
        kField);
  } else if (std::cmp_greater(info.st_size, kMaxKeyFileBytes)) {
    error = Error::too_large(about("has more than 1 MiB"), kField);
  } else {
    text.resize(info.st_size);
    const ssize_t n = ::read(fd, text.data(), text.size());
    if (n != info.st_size) error = Error::io(about("cannot be read"), kField);
  }
  ::close(fd);
  if (!error.message.empty()) return error;
  return parse(text, file.string());
}

Result<Keys> Keys::parse(std::string_view text, std::string_view source) {
  Keys keys;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::vector<std::string_view> words = words_of(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (words.empty() || words.front().front() == '#') continue;
    const auto wrong = [&](std::string_view why) {
      return Error::invalid(fmt::format("{}:{}: {}", source, number, why), "http.keys_file");
    };
    if (words.size() != 3) return wrong("want NAME SCOPES KEY");
    Key key{.name = std::string(words[0]),
            .secret = std::string(words[2]),
            .owner = key_owner(words[0])};
    if (!is_key_name(key.name)) {
      return wrong("want a name of at most 64 letters, digits, '.', '_' and '-'");
    }
    if (key.secret.size() < kMinKeyBytes || key.secret.size() > kMaxKeyBytes ||
        !visible(key.secret)) {
      return wrong("want a key of 16 to 256 visible ASCII characters");
    }
    std::string_view scopes = words[1];
    while (!scopes.empty()) {
      const size_t comma = std::min(scopes.find(','), scopes.size());
      const std::string_view scope = scopes.substr(0, comma);
      scopes.remove_prefix(std::min(comma + 1, scopes.size()));
      const bool all = scope == "all";
      if (!all && scope != "generate" && scope != "read" && scope != "metrics") {
        return wrong("want scopes of generate, read, metrics, all");
      }
      if (all || scope == "generate") key.scopes[to_underlying(Scope::kGenerate)] = true;
      if (all || scope == "read") key.scopes[to_underlying(Scope::kRead)] = true;
      if (all || scope == "metrics") key.scopes[to_underlying(Scope::kMetrics)] = true;
    }
    for (const Key& other : keys.keys_) {
      if (other.name == key.name) return wrong("a key of this name stands above");
      if (other.owner == key.owner) {
        return wrong(fmt::format("the names {} and {} have the same number; change one", other.name,
                                 key.name));
      }
      if (other.secret == key.secret) return wrong("this key stands above, under another name");
    }
    keys.keys_.push_back(std::move(key));
  }
  if (keys.keys_.empty()) {
    return Error::invalid(fmt::format("{}: no key in it", source), "http.keys_file");
  }
  return keys;
}

Keys::Finding Keys::check(std::string_view key, Scope scope) const {
  Finding found;
  for (const Key& known : keys_) {  // compare all keys, for constant time
    if (!equal_secret(key, known.secret)) continue;
    const bool may = known.scopes[to_underlying(scope)];
    found = {may ? Verdict::kAdmitted : Verdict::kOutOfScope, known.owner};
  }
  return found;
}

std::map<uint32_t, std::string> Keys::owners() const {
  std::map<uint32_t, std::string> out;
  for (const Key& key : keys_) out[key.owner] = key.name;
  return out;
}

std::optional<std::string_view> bearer(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() <= kScheme.size() ||
      lower(authorization.substr(0, kScheme.size())) != kScheme) {
    return std::nullopt;
  }
  authorization.remove_prefix(kScheme.size());
  const size_t begin = std::min(authorization.find_first_not_of(' '), authorization.size());
  return authorization.substr(begin);
}

}  // namespace hearth::http
