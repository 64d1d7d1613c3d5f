// tokenizer_ids FILE: the token ids of texts, with the vocabulary of a GGUF file or of a
// tokenizer.json. Texts come on standard input, each after its length in 4 bytes, little-endian;
// the ids of each go to standard output in one line. No BOS is added, and control tokens are text.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/convert/tokenizer_keys.h"
#include "models/gguf/gguf_file.h"
#include "models/tokenizer/tokenizer.h"

namespace {

namespace fs = std::filesystem;
using namespace hearth;
using namespace hearth::models;

// More rows than any tokenizer.json of the tests has tokens.
constexpr uint64_t kRows = 4096;

Result<std::unique_ptr<Tokenizer>> load(const fs::path& path) {
  if (path.extension() != ".json") {
    HEARTH_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(path));
    return load_tokenizer(file);
  }
  GgufWriter writer;
  HEARTH_TRY(add_tokenizer(path.parent_path(), Json::object(), kRows, writer));
  const std::vector<std::byte> bytes = writer.bytes();
  HEARTH_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::parse(bytes, path.string()));
  return load_tokenizer(file);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: tokenizer_ids FILE.gguf | FOLDER/tokenizer.json <TEXTS\n");
    return 2;
  }
  const auto tokenizer = load(argv[1]);
  if (!tokenizer.ok()) {
    fmt::print(stderr, "{}: {}\n", argv[1], tokenizer.error().message);
    return 1;
  }
  unsigned char length[4];
  while (std::fread(length, 1, 4, stdin) == 4) {
    std::string text(length[0] | length[1] << 8 | length[2] << 16 | size_t{length[3]} << 24, '\0');
    if (std::fread(text.data(), 1, text.size(), stdin) != text.size()) {
      fmt::print(stderr, "a text of {} bytes ends early\n", text.size());
      return 1;
    }
    fmt::print("{}\n", fmt::join((*tokenizer)->encode(text, {.add_bos = false}), " "));
    std::fflush(stdout);
  }
  return 0;
}
