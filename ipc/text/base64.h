#pragma once
// RFC 4648 section 4, with padding.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::ipc {

std::string base64_encode(std::span<const std::byte> bytes);
/// Nothing where it is not base64 to the letter: other characters, missing padding, stray bits.
std::optional<std::vector<std::byte>> base64_decode(std::string_view text);

/// f32, little endian, as EmbedReply holds them.
std::string base64_of_floats(std::span<const float> values);
std::optional<std::vector<float>> floats_of_base64(std::string_view text);

}  // namespace hearth::ipc
