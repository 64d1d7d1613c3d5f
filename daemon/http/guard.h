#pragma once
// Who may ask: the Host and Origin that a request names (against pages that a browser loaded from
// elsewhere: DNS rebinding, cross-site requests), and API keys. Pure but for reading the file.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::http {

/// A literal loopback address and port, "127.0.0.1:8080" or "[::1]:8080".
struct Endpoint {
  std::string address;  ///< without brackets
  bool v6 = false;
  uint16_t port = 0;  ///< 0: the system chooses
};
/// kInvalidArgument for what is not a literal address with a port, and for an address beyond this
/// machine: 127.0.0.0/8 and ::1 alone are listened on.
Result<Endpoint> parse_endpoint(std::string_view text);

/// What a listener is called. Names are compared whole and without regard to case.
class HostRules {
 public:
  /// The Unix socket: `localhost` and `hearth`.
  static HostRules of_unix_socket(std::vector<std::string> more);
  /// `localhost`, `127.0.0.1` (or the address listened on) and `[::1]` with the port, which may be
  /// left out where it is 80.
  static HostRules of_tcp(const Endpoint& endpoint, std::vector<std::string> more);

  bool allows(std::string_view host) const;

 private:
  std::vector<std::string> names_;
};

/// No Origin: no browser, or a page's own request, as Sec-Fetch-Site says where it is sent. An
/// Origin must be one of those allowed, byte for byte; "null" never is.
bool origin_allowed(const std::vector<std::string>& origins, std::string_view fetch_site,
                    const std::vector<std::string>& allowed);

/// Headers that a page of an allowed origin may send: what the official JavaScript clients of both
/// APIs do (openai 4 to 6, @anthropic-ai/sdk).
inline constexpr std::string_view kAllowedHeaders =
    "authorization, content-type, accept, x-api-key, api-key, anthropic-version, anthropic-beta, "
    "anthropic-dangerous-direct-browser-access, openai-organization, openai-project, openai-beta, "
    "idempotency-key, x-request-id, x-stainless-arch, x-stainless-async, "
    "x-stainless-custom-poll-interval, x-stainless-helper, x-stainless-helper-method, "
    "x-stainless-lang, x-stainless-os, x-stainless-package-version, x-stainless-poll-helper, "
    "x-stainless-read-timeout, x-stainless-retry-count, x-stainless-runtime, "
    "x-stainless-runtime-version, x-stainless-timeout";

enum class Scope { kGenerate, kRead, kMetrics };

/// Keys from a file: one a line, `NAME SCOPES KEY`; SCOPES are generate, read, metrics or all, with
/// commas; KEY has 16 to 256 visible ASCII characters. `#` begins a comment line.
class Keys {
 public:
  /// kForbidden when others than its owner may read or write the file, or it belongs to somebody
  /// else; kInvalidArgument names the line, and quotes nothing of it.
  static Result<Keys> load(const std::filesystem::path& file);
  static Result<Keys> parse(std::string_view text, std::string_view source);

  enum class Verdict { kAdmitted, kUnknown, kOutOfScope };
  /// In a time that does not depend on how much of the key was right.
  Verdict check(std::string_view key, Scope scope) const;
  size_t size() const { return keys_.size(); }

 private:
  struct Key {
    std::string name;
    std::string secret;
    bool scopes[3] = {};
  };
  std::vector<Key> keys_;
};

/// The key of "Bearer KEY", or nothing.
std::optional<std::string_view> bearer(std::string_view authorization);

}  // namespace hearth::http
