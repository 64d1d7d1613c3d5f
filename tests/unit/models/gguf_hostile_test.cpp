// A whole small model file, damaged in every way that is cheap to enumerate. Each damaged file is
// refused with a message, or read to its last byte; nothing crashes (run under the sanitizers).

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "models/gguf/byte_cursor.h"
#include "tests/skip.h"
#include "tests/split_model.h"
#include "tests/unit/models/exercise.h"
#include "tests/unit/models/tiny_model.h"

namespace hearth::models {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::string_view kText = "the abc <|end|> \xE2\x82\xAC\xFF<tool>";

/// A number in the file: its position and width.
struct Field {
  uint64_t offset;
  uint32_t width;
};

// Parses a valid file independently: every count, length, type, dimension and offset.
class FieldFinder {
 public:
  explicit FieldFinder(const Bytes& bytes) : cursor_(bytes) {}

  std::vector<Field> find() {
    number<uint32_t>();
    number<uint32_t>();
    const auto tensors = number<uint64_t>();
    const auto entries = number<uint64_t>();
    for (uint64_t i = 0; i < entries; ++i) {
      text();
      value(number<uint32_t>());
    }
    for (uint64_t i = 0; i < tensors; ++i) {
      text();
      const auto dims = number<uint32_t>();
      for (uint32_t d = 0; d < dims; ++d) number<uint64_t>();
      number<uint32_t>();
      number<uint64_t>();
    }
    return fields_;
  }

 private:
  template <typename T>
  T number() {
    T value{};
    fields_.push_back({cursor_.offset(), sizeof(T)});
    REQUIRE(cursor_.read(&value));
    return value;
  }
  void skip(uint64_t count) {
    std::span<const std::byte> ignored;
    REQUIRE(cursor_.take(count, &ignored));
  }
  void text() { skip(number<uint64_t>()); }
  void value(uint32_t type) {
    const auto kind = static_cast<GgufType>(type);
    if (kind == GgufType::kString) return text();
    if (kind != GgufType::kArray) {
      if (fixed_bytes(kind) == 4) {
        number<uint32_t>();
      } else {
        skip(fixed_bytes(kind));
      }
      return;
    }
    const auto element = number<uint32_t>();
    const auto count = number<uint64_t>();
    const auto width = fixed_bytes(static_cast<GgufType>(element));
    if (width != 0) return skip(count * width);
    for (uint64_t i = 0; i < count; ++i) text();
  }

  ByteCursor cursor_;
  std::vector<Field> fields_;
};

Bytes with_field(const Bytes& bytes, const Field& field, uint64_t value) {
  Bytes changed = bytes;
  std::memcpy(changed.data() + field.offset, &value, field.width);
  return changed;
}

TEST_CASE("the unchanged file is valid") {
  const Bytes bytes = tiny_model().bytes();
  REQUIRE(bytes.size() > 4096);
  REQUIRE(exercise(bytes, kText));
  const auto file = GgufFile::parse(bytes, "tiny");
  CHECK(load_model(file.value(), kernels::reference_ops(), nullptr).ok());
  CHECK(load_tokenizer(file.value()).ok());
}

TEST_CASE("a file truncated at any byte is refused with a message") {
  const Bytes bytes = tiny_model().bytes();
  for (size_t size = 0; size < bytes.size(); size += size < 4096 ? 1 : 97) {
    // A copy, so that the sanitizer sees a read past the end.
    const Bytes cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
    const auto file = GgufFile::parse(cut, "cut");
    REQUIRE_FALSE(file.ok());
    REQUIRE(file.error().message.size() > 10);
  }
}

TEST_CASE("every count, length, type, dimension and offset at its extremes") {
  const Bytes bytes = tiny_model().bytes();
  const std::vector<Field> fields = FieldFinder(bytes).find();
  REQUIRE(fields.size() > 400);
  size_t refused = 0;
  for (const Field& field : fields) {
    const uint64_t size = bytes.size();
    for (const uint64_t value :
         {uint64_t{0}, uint64_t{1}, UINT64_MAX, UINT64_MAX / size, UINT64_MAX / 8, UINT64_MAX / 34,
          uint64_t{INT64_MAX}, uint64_t{1} << 32, uint64_t{UINT32_MAX}, uint64_t{INT32_MAX}, size,
          size - field.offset, size - 1}) {
      refused += !exercise(with_field(bytes, field, value), kText);
    }
  }
  CHECK(refused > 1000);  // the damage reaches the reader
}

TEST_CASE("flipped bits and overwritten stretches") {
  const Bytes bytes = tiny_model().bytes();
  std::mt19937 random(11);
  const int rounds = tests::full_counts() ? 100000 : 5000;
  for (int round = 0; round < rounds; ++round) {
    Bytes changed = bytes;
    const int flips = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < flips; ++i) {
      // Most of the damage goes where the structure is.
      const size_t at = random() % (random() % 4 == 0 ? bytes.size() : 1500);
      changed[at] ^= static_cast<std::byte>(1u << (random() % 8));
    }
    if (round % 5 == 0) {
      const size_t at = random() % bytes.size();
      const size_t count = std::min<size_t>(random() % 16, bytes.size() - at);
      std::fill_n(changed.begin() + static_cast<ptrdiff_t>(at), count,
                  static_cast<std::byte>(random()));
    }
    exercise(changed, kText);
  }
}

TEST_CASE("flipped bits in the parts of a split model") {
  const Bytes whole = tiny_model().bytes();
  std::vector<Bytes> parts;
  for (const GgufWriter& part : tests::split_model(GgufFile::parse(whole, "m").value(), 3)) {
    parts.push_back(part.bytes());
  }
  const auto parse = [](const std::vector<Bytes>& from) {
    const std::vector<std::span<const std::byte>> views(from.begin(), from.end());
    return GgufFile::parse_parts(views, "m");
  };
  REQUIRE(exercise(parse(parts), kText));
  std::mt19937 random(12);
  int refused = 0;
  const int rounds = tests::full_counts() ? 50000 : 2000;
  for (int round = 0; round < rounds; ++round) {
    std::vector<Bytes> changed = parts;
    Bytes& part = changed[random() % changed.size()];
    const size_t at = random() % (random() % 4 == 0 ? part.size() : 800);
    part[at] ^= static_cast<std::byte>(1u << (random() % 8));
    if (round % 7 == 0) std::swap(changed[random() % 3], changed[random() % 3]);
    if (round % 11 == 0) part.resize(random() % part.size());
    const auto file = parse(changed);
    exercise(file, kText);
    refused += !file.ok();
  }
  CHECK(refused > rounds / 10);
}

TEST_CASE("an adapter truncated at every byte, and with flipped bits") {
  const Bytes bytes = tiny_adapter().bytes();
  const auto parsed = [](const Bytes& from) { return GgufFile::parse(from, "adapter"); };
  const auto whole = parsed(bytes);
  REQUIRE(whole.ok());
  CHECK(exercise_adapter(*whole));
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto file = parsed(Bytes(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size)));
    if (file.ok()) CHECK_FALSE(exercise_adapter(*file));
  }
  std::mt19937 random(13);
  const int rounds = tests::full_counts() ? 100000 : 5000;
  int refused = 0;
  for (int round = 0; round < rounds; ++round) {
    Bytes changed = bytes;
    const int flips = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < flips; ++i) {
      changed[random() % 700] ^= static_cast<std::byte>(1u << (random() % 8));
    }
    const auto file = parsed(changed);
    refused += !file.ok() || !exercise_adapter(*file);
  }
  CHECK(refused > rounds / 10);
}

TEST_CASE("a real model's file truncated at every byte of its first 4 KiB") {
  const auto path = tests::test_data("models/stories260K-f32.gguf");
  if (path.empty()) HEARTH_SKIP("no HEARTH_TEST_DATA/models/stories260K-f32.gguf");
  const auto whole = GgufFile::open(path);
  REQUIRE(whole.ok());
  for (size_t size = 0; size <= 4096; ++size) {
    const Bytes cut(whole.value().parts()[0].content.begin(),
                    whole.value().parts()[0].content.begin() + static_cast<ptrdiff_t>(size));
    const auto file = GgufFile::parse(cut, "cut");
    REQUIRE_FALSE(file.ok());
  }
}

}  // namespace
}  // namespace hearth::models
