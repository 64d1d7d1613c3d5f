#pragma once
// A model file for tests of the daemon: family llama, random weights from a seed, a vocabulary of
// bytes and letters, a long context. Small enough to compute thousands of tokens in a second.

#include <cstdint>
#include <filesystem>
#include <string>

namespace hearth::e2e {

inline constexpr int32_t kTinyContext = 16384;

/// Writes the file; fails the test if that fails.
void write_tiny_model(const std::filesystem::path& path, uint32_t seed,
                      const std::string& chat_template = {}, int32_t context = kTinyContext);

/// Heads for that model, or for one of another width: each drafts by the model's own output.
void write_tiny_heads(const std::filesystem::path& path, bool other_width = false);
/// The same as an EAGLE-3 head with an output of its own.
void write_tiny_eagle3(const std::filesystem::path& path, bool other_width = false);
void write_tiny_dflash(const std::filesystem::path& path, bool other_width = false);

enum class AdapterFlaw { kNone, kOtherWidth, kNan };
/// An adapter for that model which changes its texts, of rank 4, from a seed.
void write_tiny_adapter(const std::filesystem::path& path, uint32_t seed,
                        AdapterFlaw flaw = AdapterFlaw::kNone);

}  // namespace hearth::e2e
