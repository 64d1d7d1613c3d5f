#include "daemon/worker/text/stored_text.h"

#include <utility>

#include "ipc/files/paths.h"
#include "ipc/text/shown_text.h"
#include "kernels/base/split_name.h"
#include "models/gguf/gguf_file.h"

namespace hearth::worker {
namespace fs = std::filesystem;
namespace {

std::unique_ptr<models::Tokenizer> load(const std::vector<fs::path>& dirs,
                                        const std::string& model) {
  // The name comes from a database, so it must not act as a path.
  if (model.empty() || model.find('/') != std::string::npos || model.front() == '.') return nullptr;
  for (const fs::path& dir : dirs) {
    const fs::path path = find_split_model(dir / (model + ".gguf"));
    std::error_code ignored;
    if (!fs::exists(path, ignored)) continue;
    Result<models::GgufFile> file = models::GgufFile::open(path);
    if (!file.ok()) return nullptr;
    Result<std::unique_ptr<models::Tokenizer>> tokenizer = models::load_tokenizer(*file);
    return tokenizer.ok() ? std::move(tokenizer).value() : nullptr;
  }
  return nullptr;
}

}  // namespace

StoredText::StoredText(const std::vector<std::string>& model_dirs)
    : dirs_(model_dirs.begin(), model_dirs.end()) {
  if (!dirs_.empty()) return;
  if (Result<ipc::Paths> paths = ipc::resolve_paths(ipc::Environment::of_process()); paths.ok()) {
    dirs_ = paths->model_dirs;
  }
}

std::string StoredText::of(const std::string& model, std::span<const int32_t> tokens) {
  const auto [at, first] = tokenizers_.try_emplace(model);
  if (first) at->second = load(dirs_, model);
  if (at->second == nullptr) return "?";
  models::StreamingDetokenizer text(*at->second, true);
  std::string out;
  for (const int32_t token : tokens) {
    if (token < 0 || token >= at->second->vocab_size()) return "?";
    out += text.push(token);
  }
  return ipc::one_line(out + text.finish(), 0);
}

}  // namespace hearth::worker
