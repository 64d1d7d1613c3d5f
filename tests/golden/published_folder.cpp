#include "tests/golden/published_folder.h"

#include <doctest/doctest.h>

#include <fstream>

#include "kernels/ops/half.h"
#include "models/convert/convert.h"
#include "tests/golden/family_model.h"
#include "tests/temp_dir.h"

namespace hearth::golden {

namespace fs = std::filesystem;
using nlohmann::json;
using tests::TempDir;

void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

namespace {

/// The bytes of a tensor of the recording: hashes of its name, or what it lists.
std::string bytes_of(const json& entry, uint32_t seed) {
  const std::string type = entry.size() > 4 ? entry.at(4).get<std::string>() : "F32";
  std::string out;
  const auto put = [&out](const auto& value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  if (type == "I64") {
    for (const json& value : entry.at(5)) put(value.get<int64_t>());
    return out;
  }
  FamilyTensor tensor{entry.at(0), entry.at(1), entry.at(2), entry.at(3)};
  if (type == "I32") tensor.dims.push_back(4);  // bytes
  for (const float value : family_values(tensor, seed)) {
    if (type == "F32") {
      put(value);
    } else if (type == "F16") {
      put(kernels::f16_from_f32(value));
    } else {
      const auto byte = static_cast<uint8_t>(value);
      put(static_cast<uint8_t>(type == "F8_E4M3" ? byte & 0xBF : byte));  // no NaN
    }
  }
  return out;
}

}  // namespace

std::string safetensors_of(const json& recording) {
  json header;
  std::string data;
  for (const json& entry : recording.at("tensors")) {
    const size_t begin = data.size();
    data += bytes_of(entry, recording.at("seed"));
    header[entry.at(0).get<std::string>()] = {
        {"dtype", entry.size() > 4 ? entry.at(4).get<std::string>() : "F32"},
        {"shape", entry.at(1)},
        {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  std::string out;
  for (int shift = 0; shift < 64; shift += 8) {
    out += static_cast<char>(static_cast<uint64_t>(text.size()) >> shift & 0xFF);
  }
  return out + text + data;
}

void make_folder(const fs::path& folder, const json& recording) {
  write(folder / "config.json", recording.at("config").dump());
  write(folder / "model.safetensors", safetensors_of(recording));
}

models::GgufFile open_file(const fs::path& path) {
  auto file = models::GgufFile::open(path);
  REQUIRE_MESSAGE(file.ok(), file.error().message);
  return std::move(*file);
}

void check_refusals(const json& good, const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    INFO(refusal.what);
    json recording = good;
    refusal.change(recording);
    const TempDir dir;
    make_folder(dir.path(), recording);
    const auto report = models::convert_folder(dir.path(), dir.path() / "out.gguf",
                                               {.type = {}, .without_tokenizer = true}, nullptr);
    REQUIRE_FALSE(report.ok());
    CHECK(report.error().code == refusal.code);
    CHECK_MESSAGE(report.error().message.find(refusal.names) != std::string::npos,
                  report.error().message);
    CHECK_FALSE(fs::exists(dir.path() / "out.gguf"));
    CHECK_FALSE(fs::exists(dir.path() / "out.gguf.part"));
  }
}

}  // namespace hearth::golden
