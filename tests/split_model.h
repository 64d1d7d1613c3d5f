#pragma once
// Splits a model file at the borders of its tensors, as gguf-split does.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "kernels/base/split_name.h"
#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_writer.h"

namespace hearth::tests {

/// Adds the three keys of part `number`, from 0, in the types in which gguf-split writes them.
inline void add_split_keys(models::GgufWriter* out, uint16_t number, uint16_t count,
                           int32_t tensors) {
  using models::GgufType;
  const auto add = [out](std::string_view key, GgufType type, const auto& value) {
    out->copy({.key = key,
               .type = type,
               .element_type = type,
               .payload = std::as_bytes(std::span(&value, 1))});
  };
  add("split.no", GgufType::kU16, number);
  add("split.count", GgufType::kU16, count);
  add("split.tensors.count", GgufType::kI32, tensors);
}

/// The parts of `file`, about as many tensors in each; the first has the metadata.
inline std::vector<models::GgufWriter> split_model(const models::GgufFile& file, uint16_t count) {
  std::vector<models::GgufWriter> parts(count);
  for (const models::GgufEntry& entry : file.metadata()) parts[0].copy(entry);
  const size_t tensors = file.tensors().size();
  for (uint16_t i = 0; i < count; ++i) {
    add_split_keys(&parts[i], i, count, static_cast<int32_t>(tensors));
  }
  for (size_t i = 0; i < tensors; ++i) {
    const models::GgufTensor& tensor = file.tensors()[i];
    parts[i * count / tensors].add_tensor(
        tensor.name, std::span(tensor.dims).first(tensor.num_dims), *tensor.dtype,
        {tensor.bytes.begin(), tensor.bytes.end()});
  }
  return parts;
}

/// Writes FOLDER/NAME-0000k-of-0000N.gguf and returns their paths, first part first; none on
/// failure.
inline std::vector<std::filesystem::path> write_split_model(const std::filesystem::path& whole,
                                                            const std::filesystem::path& folder,
                                                            const std::string& name,
                                                            uint16_t count) {
  const auto file = models::GgufFile::open(whole);
  if (!file.ok()) return {};
  std::vector<std::filesystem::path> out;
  const SplitName names{.base = name, .parts = count};
  for (const models::GgufWriter& part : split_model(*file, count)) {
    out.push_back(folder / (names.stem_of(static_cast<uint32_t>(out.size()) + 1) + ".gguf"));
    if (!part.write(out.back()).ok()) return {};
  }
  return out;
}

}  // namespace hearth::tests
