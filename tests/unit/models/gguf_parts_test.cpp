// A model in several files: read as one, or refused with the file that does not fit.

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>

#include "models/gguf/fingerprint.h"
#include "models/gguf/weight_check.h"
#include "tests/paths.h"
#include "tests/split_model.h"
#include "tests/temp_dir.h"

namespace hearth::models {
namespace {

namespace fs = std::filesystem;
using tests::add_split_keys;

const std::string kTales = hearth::tests::source_path("models/demo/tales.gguf");

std::string all_of(const GgufFile& file) {
  std::string out = fmt::format("{} {}\n", file.version(), file.alignment());
  for (const GgufEntry& entry : file.metadata()) {
    out += fmt::format("{} {} {}\n", entry.key, name(entry.type), as_text(entry.payload));
  }
  for (const GgufTensor& tensor : file.tensors()) {
    out += fmt::format("{} {} {} {}\n", tensor.name, tensor.shape(), tensor.type_name(),
                       as_text(tensor.bytes));
  }
  return out;
}

TEST_CASE("a split model reads as the whole one, by any of its names") {
  const auto whole = GgufFile::open(kTales);
  REQUIRE(whole.ok());
  for (const uint16_t count : {1, 2, 3, 7}) {
    const tests::TempDir temp;
    const auto files = tests::write_split_model(kTales, temp.path(), "parted.Q8", count);
    REQUIRE(files.size() == count);
    uint64_t bytes = 0;
    std::string content;
    for (const fs::path& file : files) bytes += fs::file_size(file);
    for (const fs::path& name :
         {files.front(), files.back(), temp.path() / "parted.Q8", temp.path() / "parted.Q8.gguf"}) {
      CAPTURE(name.string());
      const auto file = GgufFile::open(name);
      REQUIRE_MESSAGE(file.ok(), (file.ok() ? "" : file.error().message));
      CHECK(file->name() == "parted.Q8");
      CHECK(file->file_bytes() == bytes);
      CHECK(file->parts().size() == count);
      if (count > 1) CHECK(all_of(*file) == all_of(*whole));
      CHECK(file->find_tensor("output_norm.weight") != nullptr);
      CHECK(file->duplicate_files()->size() == count);
      for (const GgufTensor& tensor : file->tensors()) {
        const GgufPart& part = file->part_of(tensor.bytes);
        CHECK(tensor.bytes.data() >= part.content.data());
        CHECK(tensor.bytes.data() + tensor.bytes.size() <=
              part.content.data() + part.content.size());
        CHECK(file->keep_mapped(tensor.bytes) != nullptr);
        CHECK(file->is_cached(tensor.bytes));
        file->drop_pages(tensor.bytes);
      }
      if (count > 1) CHECK(all_of(*file) == all_of(*whole));
    }
  }
}

TEST_CASE("missing parts are named, and a part that cannot be read is") {
  const tests::TempDir temp;
  const auto files = tests::write_split_model(kTales, temp.path(), "m", 4);
  REQUIRE(files.size() == 4);
  fs::remove(files[0]);
  fs::remove(files[2]);
  for (const fs::path& name : {files[1], files[0], temp.path() / "m"}) {
    const auto file = GgufFile::open(name);
    REQUIRE_FALSE(file.ok());
    CHECK(file.error().code == ErrorCode::kNotFound);
    CHECK(file.error().message.find(
              "missing: m-00001-of-00004.gguf, m-00003-of-00004.gguf; all 4") != std::string::npos);
  }
  fs::create_directory(files[0]);
  CHECK(GgufFile::open(files[1]).error().code == ErrorCode::kInvalidArgument);

  // Not more names than fit into a line.
  std::ofstream(temp.path() / "many-00001-of-00200.gguf") << "x";
  const auto many = GgufFile::open(temp.path() / "many");
  REQUIRE_FALSE(many.ok());
  CHECK(many.error().message.find("many-00009-of-00200.gguf and 191 more;") != std::string::npos);
}

TEST_CASE("a truncated part is an unfinished download of that file") {
  const tests::TempDir temp;
  const auto files = tests::write_split_model(kTales, temp.path(), "m", 3);
  REQUIRE(files.size() == 3);
  fs::resize_file(files[1], fs::file_size(files[1]) - 1);
  const auto file = GgufFile::open(files[0]);
  REQUIRE_FALSE(file.ok());
  CHECK(file.error().code == ErrorCode::kCorrupt);
  CHECK(file.error().message.starts_with("m-00002-of-00003.gguf: "));
  CHECK(file.error().message.find("an unfinished download?") != std::string::npos);
  fs::resize_file(files[1], 0);
  CHECK(GgufFile::open(files[0]).error().message.starts_with("m-00002-of-00003.gguf: no GGUF"));
}

TEST_CASE("a part under another name is refused with the name that it wants") {
  const tests::TempDir temp;
  const auto files = tests::write_split_model(kTales, temp.path(), "m", 3);
  REQUIRE(files.size() == 3);
  fs::rename(files[1], temp.path() / "renamed.gguf");
  const auto alone = GgufFile::open(temp.path() / "renamed.gguf");
  REQUIRE_FALSE(alone.ok());
  CHECK(alone.error().code == ErrorCode::kUnsupported);
  CHECK(alone.error().message ==
        "this is part 2 of 3 of a model, want it under the name renamed-00002-of-00003.gguf, next "
        "to the other parts; at most 256 parts are read");
}

// ---- Parts that do not fit ------------------------------------------------------------------

struct Parts {
  std::vector<std::vector<std::byte>> bytes;

  /// Two parts with two tensors each, changed by `change`.
  explicit Parts(const std::function<void(int, GgufWriter*)>& change = {}, int32_t tensors = 4) {
    for (const uint16_t part : {0, 1}) {
      GgufWriter out;
      if (part == 0) out.set_string("general.architecture", "llama");
      add_split_keys(&out, part, 2, tensors);
      for (const char* name : {"a", "b"}) add(&out, fmt::format("{}{}", name, part));
      if (change) change(part, &out);
      bytes.push_back(out.bytes());
    }
  }
  static void add(GgufWriter* out, const std::string& name) {
    const uint64_t dims[] = {2};
    const std::vector<float> values = {1, 2};
    out->add_floats(name, dims, kernels::DType::kF32, values);
  }
  Result<GgufFile> parse() const {
    const std::vector<std::span<const std::byte>> views(bytes.begin(), bytes.end());
    return GgufFile::parse_parts(views, "m");
  }
  std::string error() const {
    const auto file = parse();
    REQUIRE_FALSE(file.ok());
    CHECK(file.error().code == ErrorCode::kCorrupt);
    return file.error().message;
  }
};

/// A part with these keys and no tensors.
std::vector<std::byte> empty_part(uint16_t number, uint16_t count, int32_t tensors) {
  GgufWriter out;
  add_split_keys(&out, number, count, tensors);
  return out.bytes();
}

TEST_CASE("parts that disagree are refused with file, key or tensor") {
  Parts parts;
  const auto good = parts.parse();
  REQUIRE_MESSAGE(good.ok(), (good.ok() ? "" : good.error().message));
  CHECK(good->tensors().size() == 4);
  CHECK(good->metadata().size() == 1);
  CHECK_FALSE(good->has("split.no"));
  CHECK(good->get<std::string_view>("general.architecture").value() == "llama");

  parts.bytes[1] = empty_part(1, 3, 4);
  CHECK(parts.error() == "m-00002-of-00002: split.count: 3, want 2");
  parts.bytes[1] = empty_part(0, 2, 4);
  CHECK(parts.error() == "m-00002-of-00002: split.no: 0, want 1");
  parts.bytes[1] = empty_part(1, 2, 5);
  CHECK(
      parts.error() ==
      "m-00002-of-00002: split.tensors.count: 5, want 4 as in m-00001-of-00002: a part of another "
      "model?");
  parts.bytes[1] = empty_part(1, 2, -1);
  CHECK(parts.error() == "m-00002-of-00002: split.tensors.count: -1, want 0 to 4294967295");
  parts.bytes[1] = GgufWriter().bytes();
  CHECK(parts.error() == "m-00002-of-00002: split.count: missing");
  parts.bytes[1] = empty_part(1, 2, 4);
  CHECK(parts.error() ==
        "m-00001-of-00002: split.tensors.count: 4, want 2, the number in all 2 parts");
  parts.bytes[1] = {};
  CHECK(parts.error().starts_with("m-00002-of-00002: no GGUF"));
  std::swap(parts.bytes[0], parts.bytes[1]);
  CHECK(parts.error().starts_with("m-00001-of-00002: no GGUF"));

  CHECK(Parts([](int part, GgufWriter* out) {
          if (part == 1) Parts::add(out, "b0");
        }).error() == "m-00002-of-00002: b0: the tensor is in m-00001-of-00002, too");
  CHECK(Parts([](int part, GgufWriter* out) {
          if (part == 1) Parts::add(out, "c");
        }).error() ==
        "m-00002-of-00002: c: one tensor more than split.tensors.count: 4 and the bound of 65536");
  CHECK(Parts([](int part, GgufWriter* out) {
          if (part == 1) out->set_string("general.architecture", "qwen3");
        }).error() ==
        "m-00002-of-00002: general.architecture: qwen3, want llama as in m-00001-of-00002: a part "
        "of another model?");
  CHECK(Parts([](int part, GgufWriter* out) {
          if (part == 1) out->set_string("general.architecture", "llama");
        })
            .parse()
            .ok());
  CHECK(Parts({}, 3).error().find("one tensor more than split.tensors.count: 3") !=
        std::string::npos);
}

TEST_CASE("a first part may have no tensors, and later ones an alignment of their own") {
  Parts parts;
  GgufWriter first, second;
  first.set_u32("general.alignment", 64);
  first.set_string("general.architecture", "llama");
  add_split_keys(&first, 0, 2, 2);
  add_split_keys(&second, 1, 2, 2);
  Parts::add(&second, "a");
  Parts::add(&second, "b");
  parts.bytes = {first.bytes(), second.bytes()};
  const auto file = parts.parse();
  REQUIRE_MESSAGE(file.ok(), (file.ok() ? "" : file.error().message));
  CHECK(file->tensors().size() == 2);
  CHECK(file->alignment() == 64);
}

TEST_CASE("the fingerprint and the check of weights cover all parts") {
  const tests::TempDir temp;
  const auto files = tests::write_split_model(kTales, temp.path(), "m", 3);
  REQUIRE(files.size() == 3);
  const auto digest = [&]() -> Result<std::string> {
    const auto file = GgufFile::open(files[0]);
    REQUIRE(file.ok());
    WeightCheck check(*file);
    auto met = fingerprint_files(file->duplicate_files().value(), &check);
    if (const Result<void> fine = check.finish(); !fine.ok()) return fine.error();
    CHECK(met.value() == fingerprint(*file));
    return met;
  };
  const auto before = digest();
  REQUIRE(before.ok());
  // A bit in the data of the last part, and then a NaN.
  const auto file = GgufFile::open(files[0]);
  const GgufTensor* norm = file->find_tensor("output_norm.weight");
  REQUIRE(norm != nullptr);
  const GgufPart& part = file->part_of(norm->bytes);
  CHECK(part.name == "m-00003-of-00003.gguf");
  const auto put = [&](float value) {
    std::fstream out(files[2], std::ios::in | std::ios::out | std::ios::binary);
    out.seekp(norm->bytes.data() - part.content.data() + 4);
    out.write(reinterpret_cast<const char*>(&value), sizeof value);
  };
  put(2.5f);
  const auto after = digest();
  REQUIRE(after.ok());
  CHECK(*after != *before);
  put(std::numeric_limits<float>::quiet_NaN());
  const auto bad = digest();
  REQUIRE_FALSE(bad.ok());
  CHECK(bad.error().message.starts_with(
      "m-00003-of-00003.gguf: the weights are damaged: output_norm.weight"));
}

}  // namespace
}  // namespace hearth::models
