#include "models/random_model.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "kernels/ops.h"
#include "models/gguf/gguf_file.h"
#include "models/gguf/part_file.h"
#include "models/model.h"
#include "models/tokenizer/tokenizer.h"
#include "tests/temp_dir.h"

namespace hearth::models {
namespace {

namespace fs = std::filesystem;

std::string bytes_of_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

RandomModel tiny(kernels::DType type, uint64_t seed) {
  auto shape = find_shape("tiny");
  REQUIRE(shape.ok());
  auto model = RandomModel::create(shape.value(), type, seed);
  REQUIRE(model.ok());
  return std::move(model).value();
}

TEST_CASE("a random model is a file that loads, with its vocabulary, in every type") {
  const tests::TempDir temp;
  CHECK(weight_types().size() >= 16);
  for (const kernels::DType type : weight_types()) {
    CAPTURE(kernels::info(type).name);
    const RandomModel model = tiny(type, 1);
    const fs::path path = temp.path() / "tiny.gguf";
    const Result<void> written = write_random_model(model, path, 2, nullptr);
    REQUIRE_MESSAGE(written.ok(), (written.ok() ? "" : written.error().message));
    CHECK(fs::file_size(path) == model.file_bytes());
    const auto file = GgufFile::open(path);
    REQUIRE_MESSAGE(file.ok(), (file.ok() ? "" : file.error().message));
    const auto loaded = load_model(*file, kernels::reference_ops(), nullptr);
    REQUIRE_MESSAGE(loaded.ok(), (loaded.ok() ? "" : loaded.error().message));
    CHECK(loaded.value()->info().num_parameters == model.parameters());
    const auto tokenizer = load_tokenizer(*file);
    REQUIRE(tokenizer.ok());
    CHECK(tokenizer.value()->vocab_size() == 512);
    std::string text;
    for (const int32_t id : tokenizer.value()->encode("the fox", {})) {
      text += tokenizer.value()->piece(id);
    }
    CHECK(text == " the fox");
  }
}

TEST_CASE("shapes with experts or states are files that load: MXFP4 for experts alone, and a mix") {
  for (const char* name :
       {"gpt-oss-tiny", "deepseek-tiny", "qwen3.5-tiny", "llada-tiny", "rwkv7-tiny"}) {
    const auto shape = find_shape(name);
    REQUIRE(shape.ok());
    for (const char* type : {"MXFP4", "Q4_K_M", "Q8_0"}) {
      CAPTURE(name);
      CAPTURE(type);
      const auto model = RandomModel::create(*shape, type, 1);
      REQUIRE(model.ok());
      const tests::TempDir temp;
      const fs::path path = temp.path() / "model.gguf";
      REQUIRE(write_random_model(*model, path, 2, nullptr).ok());
      const auto file = GgufFile::open(path);
      REQUIRE_MESSAGE(file.ok(), (file.ok() ? "" : file.error().message));
      const auto loaded = load_model(*file, kernels::reference_ops(), nullptr);
      REQUIRE_MESSAGE(loaded.ok(), (loaded.ok() ? "" : loaded.error().message));
      CHECK(loaded.value()->info().num_parameters == model->parameters());
      if (std::string_view(type) != "MXFP4" || shape->experts == 0) continue;
      CHECK(model->find("blk.1.ffn_up_exps.weight")->dtype == kernels::DType::kMXFP4);
      CHECK(model->find("blk.1.attn_q.weight")->dtype == kernels::DType::kQ8_0);
    }
  }
}

TEST_CASE("the same seed gives the same file, with any threads; another seed gives another") {
  const tests::TempDir temp;
  const auto write = [&](const char* name, uint64_t seed, int32_t threads) {
    const fs::path path = temp.path() / name;
    REQUIRE(write_random_model(tiny(kernels::DType::kQ8_0, seed), path, threads, nullptr).ok());
    return bytes_of_file(path);
  };
  const std::string one = write("one", 1, 1);
  CHECK(one == write("two", 1, 3));
  CHECK(one != write("three", 2, 1));
}

TEST_CASE("rows are the same however calls split them, and differ from each other") {
  for (const kernels::DType type : {kernels::DType::kQ8_0, kernels::DType::kQ4_K}) {
    CAPTURE(kernels::info(type).name);
    const RandomModel model = tiny(type, 9);
    const RandomModel::Tensor* tensor = model.find("blk.1.ffn_down.weight");
    REQUIRE(tensor != nullptr);
    std::vector<std::byte> whole(tensor->bytes), parts(tensor->bytes);
    model.fill(*tensor, 0, tensor->rows, whole);
    const size_t row_bytes = tensor->bytes / static_cast<size_t>(tensor->rows);
    for (int64_t row = 0; row < tensor->rows; ++row) {
      model.fill(*tensor, row, 1,
                 std::span(parts).subspan(static_cast<size_t>(row) * row_bytes, row_bytes));
    }
    CHECK(whole == parts);
    const auto row = [&](size_t i) { return std::span(whole).subspan(i * row_bytes, row_bytes); };
    CHECK_FALSE(std::ranges::equal(row(0), row(1)));
    std::vector<std::byte> other(tensor->bytes);
    tiny(type, 10).fill(*tensor, 0, tensor->rows, other);
    CHECK(whole != other);
  }
}

TEST_CASE("a mix gives each tensor its type, by the rules of quantizing a file") {
  const auto shape = find_shape("M");
  REQUIRE(shape.ok());
  const auto model = RandomModel::create(*shape, "Q4_K_M", 1);
  REQUIRE(model.ok());
  const auto type_of = [&](const char* name) { return model->find(name)->dtype; };
  CHECK(type_of("output.weight") == kernels::DType::kQ6_K);
  CHECK(type_of("token_embd.weight") == kernels::DType::kQ4_K);
  CHECK(type_of("blk.0.ffn_down.weight") == kernels::DType::kQ6_K);
  CHECK(type_of("blk.5.ffn_down.weight") == kernels::DType::kQ4_K);
  CHECK(type_of("blk.0.attn_norm.weight") == kernels::DType::kF32);
  CHECK(model->file_bytes() / 100'000'000 == 49);  // as that of Llama 3.1 8B
  const auto uniform = RandomModel::create(*shape, "Q4_K", 1);
  REQUIRE(uniform.ok());
  CHECK(uniform->find("output.weight")->dtype == kernels::DType::kQ4_K);
  CHECK(RandomModel::create(*shape, "Q9_9", 1).error().code == ErrorCode::kUnsupported);
}

TEST_CASE("an interrupted write leaves no file") {
  const tests::TempDir temp;
  const fs::path path = temp.path() / "tiny.gguf";
  int calls = 0;
  const auto written = write_random_model(tiny(kernels::DType::kF16, 1), path, 1,
                                          [&](uint64_t, uint64_t) { return ++calls < 4; });
  REQUIRE_FALSE(written.ok());
  CHECK(written.error().code == ErrorCode::kCancelled);
  CHECK(fs::is_empty(temp.path()));
}

TEST_CASE("what cannot be written is named") {
  const tests::TempDir temp;
  const auto written = write_random_model(tiny(kernels::DType::kF16, 1),
                                          temp.path() / "absent" / "tiny.gguf", 1, nullptr);
  REQUIRE_FALSE(written.ok());
  CHECK(written.error().code == ErrorCode::kNotFound);
  const auto shape = find_shape("enormous");
  REQUIRE_FALSE(shape.ok());
  CHECK(shape.error().message.find("tiny, 0.1B, 0.5B, S, M") != std::string::npos);
  const auto type = parse_weight_type("Q9_9");
  REQUIRE_FALSE(type.ok());
  CHECK(type.error().message.find("Q8_0") != std::string::npos);
  ModelShape odd{.name = "odd"};
  odd.width = 72;
  CHECK(RandomModel::create(odd, kernels::DType::kQ8_0, 1).error().code == ErrorCode::kUnsupported);
}

TEST_CASE("a file gets its name when it is complete, and not before") {
  const tests::TempDir temp;
  const fs::path path = temp.path() / "file";
  const std::string text = "content";
  {
    auto part = PartFile::create(path);
    REQUIRE(part.ok());
    REQUIRE(part.value().append(std::as_bytes(std::span(text))).ok());
    CHECK_FALSE(fs::exists(path));
    REQUIRE(part.value().finish().ok());
    CHECK(bytes_of_file(path) == text);
  }
  CHECK(bytes_of_file(path) == text);
  { auto abandoned = PartFile::create(path); }
  CHECK(bytes_of_file(path) == text);
  CHECK_FALSE(fs::exists(path.string() + ".part"));
}

}  // namespace
}  // namespace hearth::models
