#pragma once
// Certificates and the client's side of TLS, for tests.

#include <filesystem>
#include <string>
#include <string_view>

namespace hearth::tests {

/// Writes a certificate for "localhost" that its own key signs, and the key with mode 0600. It
/// holds from `from_s` to `to_s`, in seconds from now.
void write_certificate(const std::filesystem::path& certificate, const std::filesystem::path& key,
                       int from_s = -60, int to_s = 3600);

/// A client that trusts one certificate. Blocks.
class TlsClient {
 public:
  /// Takes over the connected socket `fd`. Check ok() before the rest.
  TlsClient(int fd, const std::filesystem::path& trusted);
  ~TlsClient();
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  /// The handshake succeeded, and the peer has a certificate that is trusted.
  bool ok() const { return ok_; }
  bool send(std::string_view bytes);
  /// Up to `most` bytes; empty: the end.
  std::string receive(size_t most = 65536);
  /// Until the peer ends TLS.
  std::string receive_all();
  /// The peer ended TLS before the connection, so nothing was cut off.
  bool ended_well() const;

 private:
  int fd_ = -1;
  void* context_ = nullptr;  // SSL_CTX
  void* tls_ = nullptr;      // SSL
  bool ok_ = false;
};

}  // namespace hearth::tests
