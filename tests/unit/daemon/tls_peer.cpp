#include "tests/unit/daemon/tls_peer.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "kernels/base/check.h"

namespace hearth::tests {
namespace {

SSL* tls_of(void* tls) { return static_cast<SSL*>(tls); }

template <class Write>
void write_pem(const std::filesystem::path& path, mode_t mode, Write write) {
  FILE* const file = std::fopen(path.c_str(), "w");
  HEARTH_CHECK(file != nullptr);
  HEARTH_CHECK(::fchmod(::fileno(file), mode) == 0);
  HEARTH_CHECK(write(file) == 1);
  std::fclose(file);
}

}  // namespace

void write_certificate(const std::filesystem::path& certificate, const std::filesystem::path& key,
                       int from_s, int to_s) {
  const std::unique_ptr<EVP_PKEY, decltype(&::EVP_PKEY_free)> pair(::EVP_EC_gen("P-256"),
                                                                   &::EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&::X509_free)> x509(::X509_new(), &::X509_free);
  HEARTH_CHECK(pair != nullptr);
  ::X509_set_version(x509.get(), 2);
  ::ASN1_INTEGER_set(::X509_get_serialNumber(x509.get()), 7);
  ::X509_gmtime_adj(::X509_getm_notBefore(x509.get()), from_s);
  ::X509_gmtime_adj(::X509_getm_notAfter(x509.get()), to_s);
  ::X509_set_pubkey(x509.get(), pair.get());
  X509_NAME* const name = ::X509_get_subject_name(x509.get());
  const unsigned char kName[] = "localhost";
  ::X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, kName, -1, -1, 0);
  ::X509_set_issuer_name(x509.get(), name);
  HEARTH_CHECK(::X509_sign(x509.get(), pair.get(), ::EVP_sha256()) > 0);
  write_pem(certificate, 0644, [&](FILE* file) { return ::PEM_write_X509(file, x509.get()); });
  write_pem(key, 0600, [&](FILE* file) {
    return ::PEM_write_PrivateKey(file, pair.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
}

TlsClient::TlsClient(int fd, const std::filesystem::path& trusted) : fd_(fd) {
  SSL_CTX* const context = ::SSL_CTX_new(::TLS_client_method());
  context_ = context;
  ::SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  ::SSL_CTX_load_verify_locations(context, trusted.c_str(), nullptr);
  SSL* const tls = ::SSL_new(context);
  tls_ = tls;
  ::SSL_set_fd(tls, fd);
  ok_ = ::SSL_connect(tls) == 1;
}

TlsClient::~TlsClient() {
  ::SSL_free(tls_of(tls_));
  ::SSL_CTX_free(static_cast<SSL_CTX*>(context_));
  ::close(fd_);
}

bool TlsClient::send(std::string_view bytes) {
  size_t sent = 0;
  return ::SSL_write_ex(tls_of(tls_), bytes.data(), bytes.size(), &sent) == 1 &&
         sent == bytes.size();
}

std::string TlsClient::receive(size_t most) {
  std::string out(most, '\0');
  size_t got = 0;
  if (::SSL_read_ex(tls_of(tls_), out.data(), out.size(), &got) != 1) got = 0;
  out.resize(got);
  return out;
}

std::string TlsClient::receive_all() {
  std::string out;
  for (std::string some = receive(); !some.empty(); some = receive()) out += some;
  return out;
}

bool TlsClient::ended_well() const {
  return (::SSL_get_shutdown(tls_of(tls_)) & SSL_RECEIVED_SHUTDOWN) != 0;
}

}  // namespace hearth::tests
