#pragma once
// Keys for connections over TCP. CURVE (CurveZMQ, ZeroMQ RFC 26) encrypts and authenticates both
// ends. Keys are written in Z85, 40 characters.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "ipc/wire/socket.h"
#include "kernels/base/result.h"

namespace hearth::ipc {

struct CurveKeys {
  std::string public_key;
  std::string secret_key;
};

bool is_curve_key(std::string_view text);
/// The key of 32 raw bytes, as libzmq reports a peer's; "" for any other size.
std::string curve_key_of(std::string_view bytes);

/// kUnsupported if libzmq was built without CURVE.
Result<CurveKeys> make_curve_keys();

/// Writes the secret key to a new file of mode 0600. kInvalidArgument if the file exists, kIo with
/// the system's reason.
Result<void> write_secret_key(const std::filesystem::path& file, const CurveKeys& keys);
/// Reads the secret key and computes the public one. kForbidden: other users may read the file;
/// kCorrupt: it holds no key.
Result<CurveKeys> read_secret_key(const std::filesystem::path& file);

/// Public keys that may connect, and the user of each: lines "KEY USER", where USER is a name or a
/// number; # begins a comment. kCorrupt names the line, kForbidden: other users may write the file.
Result<std::map<std::string, uint32_t>> read_client_keys(const std::filesystem::path& file);

/// Call before bind() of a TCP endpoint: admits only clients that the context's authenticator
/// accepts. Endpoints bound earlier are not affected.
Result<void> serve_curve(const Socket& socket, const CurveKeys& keys);
/// Call before connect().
Result<void> use_curve(const Socket& socket, const std::string& server_key, const CurveKeys& keys);

/// The user id that the authenticator assigned to the connection on which `frame` arrived, if any.
std::optional<uint32_t> authenticated_uid(const Frame& frame);
/// The descriptor of the connection a frame came by, which may be closed by now; -1: not known.
int source_descriptor(const Frame& frame);

}  // namespace hearth::ipc
