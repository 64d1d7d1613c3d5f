#pragma once
// [roles.NAME] of hearth.toml: a remote endpoint that may answer requests of a role, as plain data,
// and the checks of its parts. docs/remotes.md describes what it does.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "kernels/base/result.h"

namespace hearth::broker {

struct RemoteConfig {
  std::string remote;                ///< "https://gpu.example.com/v1"; "": the role has none
  std::filesystem::path key_file{};  ///< the key that it is shown; "": none
  std::filesystem::path ca_file{};   ///< certificates (PEM) that it is trusted by; "": the system's
  std::string model;                 ///< its name there
  std::string when;                  ///< see RemoteRule
  int64_t stall_timeout_ms = 60'000;  ///< without a byte from it
};

/// When a request leaves: "absent", "queue_ms > N", or both, joined by "or".
struct RemoteRule {
  bool absent = false;    ///< no worker has the role's model in memory, or its file is missing
  int64_t queue_ms = -1;  ///< it has waited and will wait for longer than this; -1: not a reason
};
/// kInvalidArgument shows the forms.
Result<RemoteRule> parse_remote_rule(std::string_view text);

/// The parts of "https://host[:port][/path]".
struct RemoteUrl {
  bool tls = true;
  std::string host;  ///< as written, with the port: how the remote is called in answers and reports
  std::string path;  ///< "" or "/v1", without a slash at its end
};
/// kInvalidArgument: no such address, one with a user, query or fragment, or one without TLS that
/// leaves this machine.
Result<RemoteUrl> parse_remote_url(std::string_view text);

/// The key in a file of one line, 1 to 4096 visible ASCII characters. kForbidden if other users may
/// read the file or it belongs to another user; no error quotes it.
Result<std::string> read_remote_key(const std::filesystem::path& file);
/// The certificates in a file of PEM; kInvalidArgument if it has none.
Result<std::string> read_remote_certificates(const std::filesystem::path& file);

/// All of the above; an error begins with the key, "roles.NAME.when".
Result<void> check_remote(const std::string& role, const RemoteConfig& remote);

}  // namespace hearth::broker
