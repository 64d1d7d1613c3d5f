#pragma once
// Names of the files of a model that is split: NAME-00001-of-00003.gguf to
// NAME-00003-of-00003.gguf.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hearth {

/// Published models have up to 60 parts; each costs descriptors while a model is loaded.
inline constexpr uint32_t kMaxModelParts = 256;

struct SplitName {
  std::string base;    ///< "NAME"
  uint32_t part = 1;   ///< 1 to `parts`
  uint32_t parts = 1;  ///< 1 to kMaxModelParts

  /// "NAME-00002-of-00003"
  std::string stem_of(uint32_t number) const;
};

/// Parses a file name without suffix; nullopt if it does not name a part.
std::optional<SplitName> parse_split_name(std::string_view stem);

/// A file name without suffix, and without the number of a part.
std::string model_stem(std::string_view stem);

/// The files of the model that `file` belongs to, first part first, whether or not they exist:
/// `file` itself, or all parts if it is named as one.
std::vector<std::filesystem::path> parts_of_model(const std::filesystem::path& file);

/// `path` if there is such a file. Else the first part of the split model that lies in the same
/// folder and is called by that name, with or without ".gguf"; `path` if there is none. Of several
/// splits the one with the fewest parts. Reads at most 10,000 entries of the folder.
std::filesystem::path find_split_model(const std::filesystem::path& path);

}  // namespace hearth
