#include "models/convert/checkpoint.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "models/gguf/gguf_file.h"

namespace hearth::models {
namespace fs = std::filesystem;
namespace {

/// In files of models that also read images or sound: what the text model's names begin with, and
/// what they begin with in a file of text alone. The longer ones come first.
constexpr std::pair<std::string_view, std::string_view> kTextPrefixes[] = {
    {"model.language_model.", "model."},
    {"language_model.model.", "model."},
    {"language_model.lm_head.", "lm_head."},
};
constexpr std::string_view kOtherParts[] = {
    "model.visual.",
    "visual.",
    "model.vision_tower.",
    "vision_tower.",
    "model.audio_tower.",
    "audio_tower.",
    "model.embed_vision.",
    "model.embed_audio.",
    "vision_encoder.",
    "patch_merger.",
    "vision_language_adapter.",
    "pre_mm_projector_norm.",
    "model.multi_modal_projector.",
    "multi_modal_projector.",
};

/// Puts text_config in the place of the file; whether there was one.
bool take_text_config(Json& config) {
  const Json* found = find(config, "text_config");
  if (found == nullptr || !found->is_object()) return false;
  Json text = *found;
  for (const char* key : {"tie_word_embeddings", "quantization_config", "bos_token_id",
                          "eos_token_id", "pad_token_id"}) {
    const Json* outer = find(config, key);
    if (outer != nullptr && find(text, key) == nullptr) text[key] = *outer;
  }
  config = std::move(text);
  return true;
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const fs::path& folder) {
  Checkpoint out;
  out.folder_ = folder;
  HEARTH_ASSIGN_OR_RETURN(out.config_, read_json_file(folder / "config.json"));
  std::vector<fs::path> paths;
  fs::path pickled;
  std::error_code problem;
  for (fs::directory_iterator it(folder, problem), end; !problem && it != end;
       it.increment(problem)) {
    const fs::path extension = it->path().extension();
    if (extension == ".safetensors") paths.push_back(it->path());
    if (extension == ".pt" || extension == ".bin" || extension == ".pth") pickled = it->path();
  }
  if (problem) return Error::io(fmt::format("{}: {}", folder.string(), problem.message()));
  if (paths.empty() && !pickled.empty()) {
    return Error::unsupported(
        fmt::format("{}: a pickled file, which is a program; want .safetensors", pickled.string()));
  }
  if (paths.empty()) {
    return Error::not_found(fmt::format("{}: no .safetensors file", folder.string()));
  }
  std::ranges::sort(paths);
  for (const fs::path& path : paths) {
    HEARTH_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(path));
    out.files_.push_back(std::move(file));
  }
  const bool within = take_text_config(out.config_);
  for (const SafetensorsFile& file : out.files_) {
    for (const auto& [name, tensor] : file.tensors()) HEARTH_TRY(out.add(tensor, within));
  }
  HEARTH_ASSIGN_OR_RETURN(const auto format, packed_format(out.config_));
  if (format != nullptr) HEARTH_TRY(out.add_packed(*format));
  return out;
}

// Puts each matrix in the place of its parts.
Result<void> Checkpoint::add_packed(const PackedFormat& format) {
  outliers_from_ = format.outliers_from();
  std::set<std::string> bases;
  for (const auto& [name, tensor] : tensors_) bases.insert(name.substr(0, name.rfind('.')));
  const auto find_tensor = [this](const std::string& name) { return tensor(name); };
  for (const std::string& base : bases) {
    HEARTH_ASSIGN_OR_RETURN(auto made, format.make(base, find_tensor));
    if (!made) continue;
    for (const std::string& name : made->used) tensors_.erase(name);
    SafeTensor& stands = made_.emplace_back();
    stands.name = base + ".weight";
    stands.type = "F32";
    stands.shape.assign(made->shape.begin(), made->shape.end());
    packed_.emplace(&stands, std::move(made->matrix));
    if (!tensors_.emplace(stands.name, &stands).second) {
      return Error::corrupt(
          fmt::format("{}: there are also packed numbers of that name", printable(stands.name)));
    }
  }
  return {};
}

const PackedMatrix* Checkpoint::packed(const SafeTensor& tensor) const {
  const auto found = packed_.find(&tensor);
  return found == packed_.end() ? nullptr : found->second.get();
}

Result<void> Checkpoint::add(const SafeTensor& tensor, bool within) {
  std::string_view name = tensor.name;
  std::string own(name);
  if (within) {
    const auto is_other = [name](std::string_view prefix) { return name.starts_with(prefix); };
    if (std::ranges::any_of(kOtherParts, is_other)) {
      ++num_left_out_;
      return {};
    }
    for (const auto& [prefix, text] : kTextPrefixes) {
      if (!name.starts_with(prefix)) continue;
      own = std::string(text) + std::string(name.substr(prefix.size()));
      break;
    }
  }
  if (tensors_.emplace(own, &tensor).second) return {};
  return Error::corrupt(
      fmt::format("{}: two files have a tensor {}", folder_.string(), printable(own)));
}

const SafeTensor* Checkpoint::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second;
}

void Checkpoint::drop_pages(const SafeTensor& tensor) const {
  for (const SafetensorsFile& file : files_) file.drop_pages(tensor.bytes);
}

}  // namespace hearth::models
