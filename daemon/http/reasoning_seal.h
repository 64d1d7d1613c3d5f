#pragma once
// Reasoning that clients carry: they get it sealed and send it back with the conversation. A seal
// is encrypted and authenticated with a key of the daemon, and bound to the user whose answer it is
// part of and to the model that wrote it. Any thread.
//
// A seal is the text "hr1_" and, in base64url without padding: 24 random bytes (the nonce), then
// the ciphertext and its 16-byte tag by XChaCha20-Poly1305 (RFC 8439 with the nonce of
// draft-irtf-cfrg-xchacha). What is encrypted is the model's fingerprint, a line break and the
// text. Also authenticated are the purpose, the user's id and, for a signature, the text, which it
// does not contain.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hearth::http {

class ReasoningSeal {
 public:
  using Key = std::array<std::byte, 32>;
  struct Opened {
    std::string model;  ///< fingerprint of the model's file
    std::string text;
  };

  /// `owner`: the user whose reasoning it seals and opens.
  ReasoningSeal(const Key& key, uint32_t owner) : key_(key), owner_(owner) {}

  /// `model`: a fingerprint, without line breaks. "": the system provided no random bytes.
  std::string seal(std::string_view model, std::string_view text) const;
  /// Nothing: no seal of this key and owner, or not all of it.
  std::optional<Opened> open(std::string_view sealed) const;

  /// A signature of a text that is sent next to it.
  std::string sign(std::string_view model, std::string_view text) const;
  /// The fingerprint of the model that wrote the text. Nothing: no signature of this key, owner and
  /// text.
  std::optional<std::string> check(std::string_view signature, std::string_view text) const;

  /// Whether a text claims to be a seal or signature of a hearth daemon.
  static bool is_ours(std::string_view text);

 private:
  std::string close(std::string_view purpose, std::string_view around, std::string_view model,
                    std::string_view text) const;
  std::optional<Opened> reopen(std::string_view purpose, std::string_view around,
                               std::string_view sealed) const;

  Key key_;
  uint32_t owner_;
};

}  // namespace hearth::http
