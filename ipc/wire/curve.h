#pragma once
// Keys of connections over TCP: CURVE (CurveZMQ, ZeroMQ RFC 26), which encrypts and tells both ends
// whom they speak with. Keys are written in Z85, 40 characters.

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
/// Of 32 bytes, as libzmq hands out a peer's; "" for any other size.
std::string curve_key_of(std::string_view bytes);

/// kUnsupported where libzmq was built without it.
Result<CurveKeys> make_curve_keys();

/// Writes the secret key into a new file of mode 0600. kInvalidArgument where the file is there
/// already, kIo with the system's reason.
Result<void> write_secret_key(const std::filesystem::path& file, const CurveKeys& keys);
/// Reads it, and computes the public one. kForbidden: others may read the file; kCorrupt: no key.
Result<CurveKeys> read_secret_key(const std::filesystem::path& file);

/// Public keys that may connect, and as which user: lines "KEY USER", a name or a number; what
/// follows a # is a comment. kCorrupt names the line, kForbidden: others may write the file.
Result<std::map<std::string, uint32_t>> read_client_keys(const std::filesystem::path& file);

/// Before bind() of a tcp endpoint: only clients that the context's authenticator accepts. What was
/// bound before stays as it is.
Result<void> serve_curve(const Socket& socket, const CurveKeys& keys);
/// Before connect().
Result<void> use_curve(const Socket& socket, const std::string& server_key, const CurveKeys& keys);

/// The user id that the authenticator gave to the connection a frame came by; nothing where there
/// was none.
std::optional<uint32_t> authenticated_uid(const Frame& frame);

}  // namespace hearth::ipc
