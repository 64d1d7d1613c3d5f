#pragma once
// Folders of published weights for tests of the converter: config.json and model.safetensors as a
// recording describes them.

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/base/result.h"
#include "models/gguf/gguf_file.h"

namespace hearth::golden {

void write(const std::filesystem::path& path, const std::string& text);
/// The tensor file whose values are hashes of the tensors' names, in F32, or in the entry's type:
/// F16, bytes of U8, I8, I32 or F8_E4M3, or the listed I64.
std::string safetensors_of(const nlohmann::json& recording);
void make_folder(const std::filesystem::path& folder, const nlohmann::json& recording);
models::GgufFile open_file(const std::filesystem::path& path);

struct Refusal {
  const char* what;
  std::function<void(nlohmann::json&)> change;
  ErrorCode code;
  const char* names;  // is in the message
};
/// Each change makes the folder one that is refused, and no file is left.
void check_refusals(const nlohmann::json& good, const std::vector<Refusal>& refusals);

}  // namespace hearth::golden
