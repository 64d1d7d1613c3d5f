// What inspect shows of a file: sizes, groups, refusals; and that control characters in a file do
// not reach a terminal.

#include "daemon/worker/load/inspection.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "ipc/text/utf8.h"
#include "tests/unit/models/parsed_file.h"
#include "tests/unit/models/tiny_model.h"

namespace hearth::worker {
namespace {

TEST_CASE("a supported model: parameters, types and KV bytes of each group") {
  const models::ParsedFile tiny(models::tiny_model());
  const Inspection found = inspect(tiny.file, "dir/file.gguf");
  CHECK(found.refused == "");
  CHECK(found.architecture == "llama");
  uint64_t parameters = 0, bytes = 0;
  for (const models::GgufTensor& tensor : tiny.file.tensors()) {
    parameters += tensor.num_elements();
    bytes += tensor.bytes.size();
  }
  CHECK(found.parameters == parameters);
  CHECK(found.tensor_bytes == bytes);
  REQUIRE(found.model.has_value());
  REQUIRE(found.model->groups.size() == 1);
  const models::LayerGroup& group = found.model->groups[0];
  // K and V, two bytes each.
  CHECK(kv_bytes_per_token(group, kernels::DType::kF16) ==
        int64_t{2} * 2 * group.num_layers * group.kv.k_width());

  const auto json = nlohmann::json::parse(as_json(found, {}));
  CHECK(json["runs"] == true);
  CHECK(json["parameters"] == parameters);
  CHECK(json["model"]["kv"]["groups"][0]["bytes_per_token_f16"] ==
        kv_bytes_per_token(group, kernels::DType::kF16));
  CHECK(json["model"]["pooling"] == "mean");
  CHECK(json["model"]["pooling_in_file"] == false);
  CHECK(as_text(found, {}).find("mean of the rows, because the file gives no pooling") !=
        std::string::npos);
  CHECK(json["tensors"].size() == tiny.file.tensors().size());
  CHECK(as_text(found, {}).find("runs here          yes") != std::string::npos);
}

TEST_CASE("a sliding group is shown with its window") {
  models::LayerGroup group;
  CHECK(describe(group) == "full");
  group.kind = models::LayerGroup::Kind::kSliding;
  group.window = 1024;
  CHECK(describe(group) == "sliding 1024");
}

TEST_CASE("an unsupported model is shown with the reason and everything else") {
  models::GgufWriter writer;
  writer.set_string("general.architecture", "perceptron");
  writer.set_u32("perceptron.block_count", 7);
  const models::ParsedFile parsed(writer);
  const Inspection found = inspect(parsed.file, "p.gguf");
  CHECK(found.refused.find("perceptron") != std::string::npos);
  CHECK_FALSE(found.model.has_value());
  const std::string text = as_text(found, {});
  CHECK(text.find("perceptron.block_count") != std::string::npos);
  CHECK(text.find("no: ") != std::string::npos);
  const auto json = nlohmann::json::parse(as_json(found, {}));
  CHECK(json["runs"] == false);
  CHECK(json["refused"] == found.refused);
  CHECK(json["metadata"][1]["value"] == 7);
}

TEST_CASE("arrays are shortened unless all elements are requested") {
  models::GgufWriter writer;
  const std::vector<int32_t> numbers = {-1, 2, 3, 4, 5, 6, 7, 8, 9, 1000};
  writer.set_i32s("some.numbers", numbers);
  const models::ParsedFile parsed(writer);
  const Inspection found = inspect(parsed.file, "p.gguf");
  CHECK(as_text(found, {}).find("[-1, 2, 3, 4, 5, 6, 7, 8, …] 10 x i32") != std::string::npos);
  CHECK(as_text(found, {.all = true}).find("8, 9, 1000] 10 x i32") != std::string::npos);
  const auto few = nlohmann::json::parse(as_json(found, {}));
  CHECK(few["metadata"][0]["count"] == 10);
  CHECK(few["metadata"][0]["values"].size() == kShownElements);
  const auto all = nlohmann::json::parse(as_json(found, {.all = true}));
  CHECK(all["metadata"][0]["values"].get<std::vector<int32_t>>() == numbers);
}

TEST_CASE("hostile bytes in names and texts are shown and have no effect") {
  const std::string hostile =
      "\x1b]0;owned\x07\r\n\xC2\x9B"
      "31m\xFF\xFE\xE2\x80\xAEgnp.exe";
  models::GgufWriter writer;
  writer.set_string("general.architecture", hostile);
  writer.set_string("general.name", hostile);
  writer.set_string("key " + hostile, hostile);
  writer.set_string("tokenizer.ggml.model", hostile);
  writer.set_string("tokenizer.chat_template", hostile);
  const std::vector<std::string> entries = {hostile, "b"};
  writer.set_strings("tokenizer.ggml.tokens", entries);
  writer.set_u32("tokenizer.ggml." + hostile + "_token_id", 0);
  writer.set_f32s("infinite", std::vector<float>{HUGE_VALF, -HUGE_VALF, NAN});
  const std::vector<uint64_t> dims = {1};
  writer.add_floats("tensor " + hostile, dims, kernels::DType::kF32, std::vector<float>{1.0f});
  const models::ParsedFile parsed(writer);
  const Inspection found = inspect(parsed.file, "dir/" + hostile);
  for (const bool all : {false, true}) {
    const std::string text = as_text(found, {.all = all});
    CHECK(ipc::is_valid_utf8(text));
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      CHECK((byte == '\n' || (byte >= 0x20 && byte != 0x7F)));
    }
    CHECK(text.find("\xC2\x9B") == std::string::npos);
    CHECK(text.find("\xE2\x80\xAE") == std::string::npos);
    const std::string json = as_json(found, {.all = all});
    CHECK(ipc::is_valid_utf8(json));
    CHECK(json.find('\x1b') == std::string::npos);
    CHECK(nlohmann::json::parse(json)["tensors"].size() == 1);
  }
}

}  // namespace
}  // namespace hearth::worker
