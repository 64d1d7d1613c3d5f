#pragma once
// A file in memory and its parsed form.

#include <vector>

#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_writer.h"

namespace hearth::models {

struct ParsedFile {
  explicit ParsedFile(const GgufWriter& writer)
      : bytes(writer.bytes()), file(GgufFile::parse(bytes, "file").value()) {
    file.set_fingerprint("-");
  }
  std::vector<std::byte> bytes;
  GgufFile file;
};

}  // namespace hearth::models
