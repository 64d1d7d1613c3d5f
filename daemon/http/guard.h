#pragma once
// Access checks: the Host and Origin of a request (against DNS rebinding and cross-site requests by
// web pages), and API keys. Pure except for reading the key file.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::http {

/// A literal address and port, "127.0.0.1:8080" or "[::1]:8080".
struct Endpoint {
  std::string address;  ///< without brackets, in canonical form
  bool v6 = false;
  bool loopback = true;  ///< no other machine reaches it
  uint16_t port = 0;     ///< 0: the system chooses
};
/// kInvalidArgument, naming the setting, if it is not a literal address with a port.
Result<Endpoint> parse_endpoint(std::string_view text, std::string_view setting = "http.listen");

/// The address of a peer in canonical form, an IPv4 address within IPv6 as IPv4; "": neither.
std::string canonical_address(std::string_view text);

/// The host names of a listener. Names are compared whole and case-insensitively.
class HostRules {
 public:
  /// The Unix socket: `localhost` and `hearth`.
  static HostRules of_unix_socket(const std::vector<std::string>& more);
  /// `localhost`, `127.0.0.1` (or the listener's address) and `[::1]` with the port, which may be
  /// omitted if it is 80.
  /// An address that other machines reach has whatever names its network gives it: without `more`
  /// all are allowed. Each request there shows a key, which a page of another site does not know.
  static HostRules of_tcp(const Endpoint& endpoint, const std::vector<std::string>& more);

  bool allows(std::string_view host) const;

 private:
  bool any_ = false;
  std::vector<std::string> names_;
};

/// Without an Origin, the request is not from a browser, or from the page's own origin, which
/// Sec-Fetch-Site confirms if sent. An Origin must equal one of those allowed, byte for byte;
/// "null" is never allowed.
bool origin_allowed(const std::vector<std::string>& origins, std::string_view fetch_site,
                    const std::vector<std::string>& allowed);

/// Headers that a page of an allowed origin may send: those of both APIs' official JavaScript
/// clients (openai 4 to 6, @anthropic-ai/sdk).
inline constexpr std::string_view kAllowedHeaders =
    "authorization, content-type, accept, x-api-key, api-key, anthropic-version, anthropic-beta, "
    "anthropic-dangerous-direct-browser-access, openai-organization, openai-project, openai-beta, "
    "idempotency-key, x-request-id, x-stainless-arch, x-stainless-async, "
    "x-stainless-custom-poll-interval, x-stainless-helper, x-stainless-helper-method, "
    "x-stainless-lang, x-stainless-os, x-stainless-package-version, x-stainless-poll-helper, "
    "x-stainless-read-timeout, x-stainless-retry-count, x-stainless-runtime, "
    "x-stainless-runtime-version, x-stainless-timeout";

enum class Scope { kGenerate, kRead, kMetrics };

/// The owner of what requests with a key make, apart from the users of this machine (whose ids are
/// below 2^31): the same for a name after every restart.
uint32_t key_owner(std::string_view name);

/// Keys from a file, one per line: `NAME SCOPES KEY`. NAME has up to 64 letters, digits, '.', '_'
/// and '-'; SCOPES are generate, read, metrics or all, separated by commas; KEY has 16 to 256
/// visible ASCII characters. `#` begins a comment line.
class Keys {
 public:
  /// kForbidden if other users may read or write the file, or if it belongs to another user;
  /// kInvalidArgument names the line without quoting it.
  static Result<Keys> load(const std::filesystem::path& file);
  static Result<Keys> parse(std::string_view text, std::string_view source);

  enum class Verdict { kAdmitted, kUnknown, kOutOfScope };
  struct Finding {
    Verdict verdict = Verdict::kUnknown;
    uint32_t owner = 0;  ///< of a known key
  };
  /// The time it takes does not depend on how much of the key is correct.
  Finding check(std::string_view key, Scope scope) const;
  size_t size() const { return keys_.size(); }
  /// Owner and name of each key.
  std::map<uint32_t, std::string> owners() const;

 private:
  struct Key {
    std::string name;
    std::string secret;
    uint32_t owner = 0;
    bool scopes[3] = {};
  };
  std::vector<Key> keys_;
};

/// The key of "Bearer KEY", if any.
std::optional<std::string_view> bearer(std::string_view authorization);

}  // namespace hearth::http
