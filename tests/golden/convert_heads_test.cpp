// Published heads that draft, converted: the same values, loaded with a model, and what is refused.

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "models/convert/convert.h"
#include "models/gguf/gguf_file.h"
#include "models/model.h"
#include "tests/golden/family_model.h"
#include "tests/golden/published_folder.h"
#include "tests/golden/random_llama.h"
#include "tests/temp_dir.h"

namespace hearth::golden {
namespace {

using nlohmann::json;
using tests::TempDir;

/// Published heads for a model of width 64 and 96 tokens.
json heads_folder(int heads, int blocks, const std::string& prefix) {
  json out = {{"config",
               {{"medusa_num_heads", heads},
                {"medusa_num_layers", blocks},
                {"base_model_name_or_path", "somewhere/llama-64"}}},
              {"seed", 5},
              {"tensors", json::array()}};
  for (int k = 0; k < heads; ++k) {
    const std::string head = fmt::format("{}{}.", prefix, k);
    for (int i = 0; i < blocks; ++i) {
      out["tensors"].push_back({fmt::format("{}{}.linear.weight", head, i), {64, 64}, 0.0, 0.2});
      out["tensors"].push_back({fmt::format("{}{}.linear.bias", head, i), {64}, 0.0, 0.2});
    }
    out["tensors"].push_back({fmt::format("{}{}.weight", head, blocks), {96, 64}, 0.0, 0.2});
  }
  return out;
}

TEST_CASE(
    "convert: heads that draft are written as they are, and load with a model of their sizes") {
  const LlamaShape shape = llama_shapes().front();
  const OwnedFile model(RandomLlama(shape, 3).file_bytes(kernels::DType::kF32));
  for (const std::string prefix : {"", "medusa_head."}) {
    for (const int blocks : {0, 1, 2}) {
      INFO(prefix << blocks);
      const json folder = heads_folder(3, blocks, prefix);
      const TempDir dir;
      make_folder(dir.path(), folder);
      const auto report = models::convert_folder(dir.path(), dir.path() / "out.gguf", {}, nullptr);
      REQUIRE_MESSAGE(report.ok(), report.error().message);
      CHECK(report->architecture == "medusa");
      CHECK(report->num_tensors == static_cast<uint64_t>(3 * (2 * blocks + 1)));
      const models::GgufFile file = open_file(dir.path() / "out.gguf");
      CHECK(*file.get<std::string_view>("general.base_model.0.name") == "llama-64");
      for (const json& entry : folder.at("tensors")) {
        std::string name = entry.at(0).get<std::string>().substr(prefix.size());
        const bool output = name.find("linear") == std::string::npos;
        name = "head." + name;
        name.replace(7, output ? 1 : 8, output ? "output" : fmt::format("block.{}", name[7]));
        INFO(name);
        const models::GgufTensor* tensor = file.find_tensor(name);
        REQUIRE(tensor != nullptr);
        const FamilyTensor from{entry.at(0), entry.at(1), entry.at(2), entry.at(3)};
        const std::vector<float> want = family_values(from, 5);
        REQUIRE(tensor->bytes.size() == want.size() * sizeof(float));
        CHECK(std::memcmp(tensor->bytes.data(), want.data(), tensor->bytes.size()) == 0);
      }
      const auto loaded =
          models::load_model(model.file, kernels::reference_ops(), nullptr, {.heads = &file});
      REQUIRE_MESSAGE(loaded.ok(), loaded.error().message);
      CHECK((*loaded)->info().draft_heads == 3);
    }
  }
}

TEST_CASE("convert: heads of another form are refused by name") {
  const std::vector<Refusal> refusals = {
      {"no heads", [](json& r) { r["config"]["medusa_num_heads"] = 0; }, ErrorCode::kCorrupt,
       "medusa_num_heads: 0, want 1 to 16"},
      {"too many", [](json& r) { r["config"]["medusa_num_heads"] = 17; }, ErrorCode::kCorrupt,
       "medusa_num_heads: 17"},
      {"no blocks given", [](json& r) { r["config"].erase("medusa_num_layers"); },
       ErrorCode::kCorrupt, "medusa_num_layers"},
      {"a head more than there is", [](json& r) { r["config"]["medusa_num_heads"] = 3; },
       ErrorCode::kCorrupt, "2.0.linear.weight: missing"},
      {"a head too many", [](json& r) { r["config"]["medusa_num_heads"] = 1; },
       ErrorCode::kUnsupported, "1.0.linear.bias: not a tensor of 1 heads"},
      {"another width",
       [](json& r) {
         r["tensors"][0][1] = {64, 32};
       },
       ErrorCode::kCorrupt, "0.0.linear.weight: shape [64,32], want [64,64]"},
      {"another vocabulary",
       [](json& r) {
         r["tensors"][5][1] = {97, 64};
       },
       ErrorCode::kCorrupt, "1.1.weight: shape [97,64], want [96,64]"},
      {"an output without columns", [](json& r) { r["tensors"][2][1] = {96 * 64}; },
       ErrorCode::kCorrupt, "0.1.weight: want a matrix"},
  };
  check_refusals(heads_folder(2, 1, ""), refusals);
}

TEST_CASE("convert: pickled weights are refused by the name of their file") {
  const TempDir dir;
  write(dir.path() / "config.json", heads_folder(1, 1, "").at("config").dump());
  write(dir.path() / "medusa_lm_head.pt", "PK");
  const auto report = models::convert_folder(dir.path(), dir.path() / "out.gguf", {}, nullptr);
  REQUIRE_FALSE(report.ok());
  CHECK(report.error().code == ErrorCode::kUnsupported);
  CHECK(report.error().message.find("medusa_lm_head.pt") != std::string::npos);
}

}  // namespace
}  // namespace hearth::golden
