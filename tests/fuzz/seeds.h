#pragma once
// The folders of seeds, and the makers of those with a file of their own.

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::fuzz {

class Folder {
 public:
  Folder(const std::filesystem::path& path) : path_(path) {
    std::filesystem::create_directories(path_);
  }  // NOLINT(implicit)
  void add(std::string_view bytes) {
    std::ofstream out(path_ / ("seed-" + std::to_string(count_++)), std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  void add(const std::vector<std::byte>& bytes) {
    add({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }

 private:
  std::filesystem::path path_;
  int count_ = 0;
};

/// Connections, bodies and key files; see http_fuzz.
void http_seeds(Folder out);
/// Streams of remotes, conversations for them, addresses and rules; see remote_fuzz.
void remote_seeds(Folder out);
/// Schemas, grammars, expressions and calls, and bytes for a walk; see grammar_fuzz.
void grammar_seeds(Folder out);
/// Answers of each format, and templates' ways of writing calls; see answer_fuzz.
void answer_seeds(Folder out);

}  // namespace hearth::fuzz
