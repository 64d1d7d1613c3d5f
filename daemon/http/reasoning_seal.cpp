#include "daemon/http/reasoning_seal.h"

#include <fmt/core.h>
#include <sodium.h>

#include <span>
#include <tuple>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/random.h"

namespace hearth::http {
namespace {

constexpr std::string_view kForm = "hr1_";
constexpr int kBase64 = sodium_base64_VARIANT_URLSAFE_NO_PADDING;
constexpr size_t kNonceBytes = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES;
constexpr size_t kTagBytes = crypto_aead_xchacha20poly1305_ietf_ABYTES;
static_assert(crypto_aead_xchacha20poly1305_ietf_KEYBYTES == std::tuple_size_v<ReasoningSeal::Key>);

// Picks the fastest code for this CPU.
void init_sodium() {
  static const bool ready = sodium_init() >= 0;
  HEARTH_CHECK(ready);
}

unsigned char* raw(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }
const unsigned char* raw(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
const unsigned char* raw(const ReasoningSeal::Key& key) {
  return reinterpret_cast<const unsigned char*>(key.data());
}

// The length of the purpose is part of it, so that no two contexts read alike.
std::string seal_context(std::string_view purpose, uint32_t owner, std::string_view around) {
  return fmt::format("{}{}:{}:{}:{}", kForm, purpose.size(), purpose, owner, around);
}

}  // namespace

bool ReasoningSeal::is_ours(std::string_view text) { return text.starts_with(kForm); }

std::string ReasoningSeal::seal(std::string_view model, std::string_view text) const {
  return close("reasoning", "", model, text);
}

std::optional<ReasoningSeal::Opened> ReasoningSeal::open(std::string_view sealed) const {
  return reopen("reasoning", "", sealed);
}

std::string ReasoningSeal::sign(std::string_view model, std::string_view text) const {
  return close("signature", text, model, "");
}

std::optional<std::string> ReasoningSeal::check(std::string_view signature,
                                                std::string_view text) const {
  std::optional<Opened> opened = reopen("signature", text, signature);
  if (!opened) return std::nullopt;
  return std::move(opened->model);
}

std::string ReasoningSeal::close(std::string_view purpose, std::string_view around,
                                 std::string_view model, std::string_view text) const {
  init_sodium();
  const std::string plain = fmt::format("{}\n{}", model, text);
  const std::string context_text = seal_context(purpose, owner_, around);
  std::string closed(kNonceBytes + plain.size() + kTagBytes, '\0');
  if (!fill_random(std::as_writable_bytes(std::span(closed).first(kNonceBytes)))) return {};
  crypto_aead_xchacha20poly1305_ietf_encrypt(
      raw(closed) + kNonceBytes, nullptr, raw(std::string_view(plain)), plain.size(),
      raw(std::string_view(context_text)), context_text.size(), nullptr, raw(closed), raw(key_));
  std::string out(sodium_base64_encoded_len(closed.size(), kBase64), '\0');
  sodium_bin2base64(out.data(), out.size(), raw(closed), closed.size(), kBase64);
  out.pop_back();  // the zero that ends a C string
  return std::string(kForm) + out;
}

std::optional<ReasoningSeal::Opened> ReasoningSeal::reopen(std::string_view purpose,
                                                           std::string_view around,
                                                           std::string_view sealed) const {
  if (!is_ours(sealed)) return std::nullopt;
  init_sodium();
  sealed.remove_prefix(kForm.size());
  std::string closed(sealed.size(), '\0');
  size_t bytes = 0;
  if (sodium_base642bin(raw(closed), closed.size(), sealed.data(), sealed.size(), nullptr, &bytes,
                        nullptr, kBase64) != 0 ||
      bytes < kNonceBytes + kTagBytes) {
    return std::nullopt;
  }
  const std::string context_text = seal_context(purpose, owner_, around);
  std::string plain(bytes - kNonceBytes - kTagBytes, '\0');
  if (crypto_aead_xchacha20poly1305_ietf_decrypt(
          raw(plain), nullptr, nullptr, raw(closed) + kNonceBytes, bytes - kNonceBytes,
          raw(std::string_view(context_text)), context_text.size(), raw(closed), raw(key_)) != 0) {
    return std::nullopt;
  }
  const size_t end = plain.find('\n');
  if (end == std::string::npos) return std::nullopt;
  Opened out{.model = plain.substr(0, end), .text = {}};
  plain.erase(0, end + 1);
  out.text = std::move(plain);
  return out;
}

}  // namespace hearth::http
