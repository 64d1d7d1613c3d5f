#pragma once
// The tokenizer of a file that exists only in memory.

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_writer.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::models {

/// The file is closed when this returns: a tokenizer owns what it needs.
inline Result<std::unique_ptr<Tokenizer>> load_vocabulary(const GgufWriter& writer) {
  const std::vector<std::byte> bytes = writer.bytes();
  const auto file = GgufFile::parse(bytes, "vocab");
  REQUIRE(file.ok());
  return load_tokenizer(file.value());
}

/// Loading fails with this code and a message that contains `named`.
inline void check_refused(const GgufWriter& writer, ErrorCode code, const std::string& named) {
  const auto loaded = load_vocabulary(writer);
  REQUIRE_FALSE(loaded.ok());
  CHECK(loaded.error().code == code);
  INFO(loaded.error().message);
  CHECK(loaded.error().message.find(named) != std::string::npos);
}

}  // namespace hearth::models
