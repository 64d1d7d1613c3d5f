#include "tests/golden/family_model.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#include "models/gguf/gguf_writer.h"
#include "tests/paths.h"
#include "tests/skip.h"

namespace hearth::golden {
namespace {

/// In the source tree, or next to a program that was carried elsewhere (tests/cuda/carry.sh).
std::filesystem::path folder(const std::string& name = "families") {
  const auto in_tree = std::filesystem::path(hearth::tests::source_dir()) / "tests/golden" / name;
  return std::filesystem::exists(in_tree) ? in_tree : tests::test_data(name);
}

nlohmann::json read_json(const std::filesystem::path& file) {
  std::ifstream in(file);
  REQUIRE_MESSAGE(in.good(), file.string());
  return nlohmann::json::parse(in);
}

/// FNV-1a of the seed's four bytes and the name.
uint64_t hash_name(const std::string& name, uint32_t seed) {
  uint64_t state = 0xCBF29CE484222325u;
  const auto add = [&state](uint8_t byte) { state = (state ^ byte) * 0x100000001B3u; };
  for (int shift = 0; shift < 32; shift += 8) add(static_cast<uint8_t>(seed >> shift));
  for (const char c : name) add(static_cast<uint8_t>(c));
  return state;
}

/// Of flags, whole numbers or floats; null is -infinity, which JSON lacks.
void set_array(models::GgufWriter* w, const std::string& key, const nlohmann::json& values) {
  if (values.front().is_boolean()) return w->set_bools(key, values.get<std::vector<bool>>());
  if (values.front().is_number_integer()) {
    return w->set_i32s(key, values.get<std::vector<int32_t>>());
  }
  std::vector<float> floats;
  for (const nlohmann::json& value : values) {
    floats.push_back(value.is_null() ? -std::numeric_limits<float>::infinity()
                                     : value.get<float>());
  }
  w->set_f32s(key, floats);
}

void set(models::GgufWriter* w, const std::string& key, const nlohmann::json& value) {
  if (value.is_boolean()) {
    w->set_bool(key, value.get<bool>());
  } else if (value.is_number_integer()) {
    w->set_u32(key, value.get<uint32_t>());
  } else if (value.is_number_float()) {
    w->set_f32(key, value.get<float>());
  } else if (value.is_array()) {
    set_array(w, key, value);
  } else {
    w->set_string(key, value.get<std::string>());
  }
}

}  // namespace

/// As tiny_models.py computes them: SplitMix64 (Steele, Lea and Flood 2014) over the index, of
/// which the top byte chooses an odd multiple of amplitude / 256.
std::vector<float> family_values(const FamilyTensor& tensor, uint32_t seed) {
  uint64_t count = 1;
  for (const uint64_t dim : tensor.dims) count *= dim;
  std::vector<float> values(count);
  const uint64_t start = hash_name(tensor.name, seed);
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t z = start + (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    const auto odd = 2 * static_cast<int32_t>(z >> 56) - 255;
    values[i] = static_cast<float>(tensor.mean + odd * (tensor.amplitude / 256));
  }
  return values;
}

std::vector<int32_t> FamilyModel::all_tokens() const {
  std::vector<int32_t> tokens = prompt;
  tokens.insert(tokens.end(), greedy.begin(), greedy.end());
  return tokens;
}
std::vector<int32_t> FamilyModel::all_but_last() const {
  std::vector<int32_t> tokens = all_tokens();
  tokens.pop_back();
  return tokens;
}

void FamilyModel::describe(models::GgufWriter* file) const {
  file->set_string("general.architecture", architecture);
  for (const auto& [key, value] : metadata.items()) set(file, key, value);
}

void FamilyModel::add_tensors(models::GgufWriter* file, kernels::DType matrix_type) const {
  for (const FamilyTensor& tensor : tensors) {
    const bool vector = tensor.dims.size() == 1 || tensor.name.ends_with(".bias") ||
                        tensor.name.ends_with("norm.weight") ||
                        tensor.name.ends_with("lerp_fused.weight");
    // Rows of a few values, as those of AltUp's coefficients, are in no file quantized.
    const bool whole_blocks = tensor.dims.front() % kernels::info(matrix_type).block_elements == 0;
    file->add_floats(tensor.name, tensor.dims,
                     vector || !whole_blocks ? kernels::DType::kF32 : matrix_type,
                     family_values(tensor, seed));
  }
}

std::vector<std::byte> FamilyModel::file_bytes(kernels::DType matrix_type) const {
  models::GgufWriter w;
  describe(&w);
  add_tensors(&w, matrix_type);
  return w.bytes();
}

std::vector<std::byte> FamilyModel::drafting_file_bytes() const {
  models::GgufWriter w;
  describe(&w);
  for (const FamilyTensor& tensor : tensors) {
    const auto is = [&](const char* part) { return tensor.name.find(part) != std::string::npos; };
    if (is("nextn.embed_tokens") || is("nextn.shared_head_head")) continue;
    std::vector<float> values = family_values(tensor, seed);
    const bool adds = is("attn_output") || is("ssm_out") || is("ffn_down");
    // With a head of their own, tokens are closer to each other.
    const bool tied = architecture.starts_with("qwen");
    const float noise = tied ? 0.5f : 0.0625f;
    for (float& value : values)
      value *= adds ? (tied ? 0.125f : 0.03125f) : is("eh_proj") ? noise : 1.0f;
    const size_t width = tensor.dims.front() / 2;
    for (size_t i = 0; is("eh_proj") && i < width; ++i) values[i * 2 * width + i] += 1;
    w.add_floats(tensor.name, tensor.dims, kernels::DType::kF32, values);
  }
  return w.bytes();
}

namespace {

/// How the file is made, and the drafts.
FamilyModel read_model(const nlohmann::json& root) {
  FamilyModel m;
  root.at("name").get_to(m.name);
  root.at("architecture").get_to(m.architecture);
  root.at("context").get_to(m.context);
  root.at("seed").get_to(m.seed);
  m.metadata = root.at("metadata");
  for (const auto& entry : root.at("tensors")) {
    m.tensors.push_back({entry.at(0), entry.at(1), entry.at(2), entry.at(3)});
  }
  if (const auto drafts = root.find("drafts"); drafts != root.end()) {
    for (const auto& [size, recorded] : drafts->items()) {
      m.drafts[std::stoul(size)] = {recorded.at(0).get<std::vector<int32_t>>(),
                                    recorded.at(1).get<std::vector<std::vector<double>>>()};
    }
  }
  if (const auto drafts = root.find("llama_cpp_drafts"); drafts != root.end()) {
    for (const auto& [size, tokens] : drafts->items()) {
      m.llama_cpp_drafts[std::stoul(size)] = tokens.get<std::vector<int32_t>>();
    }
  }
  return m;
}

std::vector<std::string> names_in(const std::filesystem::path& recordings) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(recordings)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

FamilyModel read_family(const std::string& name) {
  const nlohmann::json root = read_json(folder() / (name + ".json"));
  FamilyModel m = read_model(root);
  root.at("prompt").get_to(m.prompt);
  root.at("greedy").get_to(m.greedy);
  root.at("margins").get_to(m.margins);
  for (const auto& [row, logits] : root.at("logits").items()) {
    m.logits[std::stoul(row)] = logits.get<std::vector<double>>();
  }
  if (const auto other = root.find("llama_cpp"); other != root.end()) {
    other->at("greedy").get_to(m.llama_cpp);
    other->at("steps").get_to(m.llama_cpp_steps);
  }
  REQUIRE(m.greedy.size() == m.margins.size());
  REQUIRE((m.llama_cpp_steps.empty() || m.greedy.size() == m.llama_cpp_steps.size()));
  return m;
}

std::vector<std::byte> DrafterModel::file_bytes(kernels::DType matrix_type) const {
  models::GgufWriter w;
  model.describe(&w);
  model.add_tensors(&w, matrix_type);
  if (!tokens.empty()) add_draft_tokens(&w, {tokens.begin(), tokens.end()});
  return w.bytes();
}

void add_draft_tokens(models::GgufWriter* file, const std::vector<int64_t>& tokens) {
  const auto bytes = std::as_bytes(std::span(tokens));
  const uint64_t count = tokens.size();
  file->add_tensor("d2t", {&count, 1}, kernels::DType::kI64, {bytes.begin(), bytes.end()});
}

std::vector<DrafterModel> read_drafters(const std::string& recordings) {
  std::vector<DrafterModel> out;
  for (const std::string& name : names_in(folder(recordings))) {
    const nlohmann::json root = read_json(folder(recordings) / (name + ".json"));
    out.push_back({read_model(root), root.at("target"), root.at("tokens")});
  }
  REQUIRE(out.size() >= 3);
  return out;
}

std::vector<std::string> family_names() { return names_in(folder()); }

std::vector<std::string> drafting_family_names() {
  std::vector<std::string> names = family_names();
  std::erase_if(names, [](const std::string& name) { return !name.ends_with("_nextn"); });
  REQUIRE(names.size() >= 5);
  return names;
}

}  // namespace hearth::golden
