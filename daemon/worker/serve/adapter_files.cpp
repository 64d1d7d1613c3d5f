#include "daemon/worker/serve/adapter_files.h"

#include <algorithm>
#include <utility>

#include "daemon/worker/load/model_source.h"
#include "models/gguf/gguf_file.h"

namespace hearth::worker {
namespace {

class OpenAdapter final : public engine::AdapterFile {
 public:
  OpenAdapter(models::GgufFile file, ModelSource source)
      : file_(std::move(file)), source_(std::move(source)) {
    file_.set_fingerprint(source_.digest());
  }
  const models::GgufFile& file() const override { return file_; }
  Result<void> check() override { return source_.check(); }

 private:
  models::GgufFile file_;
  ModelSource source_;
};

}  // namespace

Result<std::shared_ptr<engine::AdapterFile>> AdapterFiles::open(const std::filesystem::path& path) {
  HEARTH_ASSIGN_OR_RETURN(const auto identity, models::FileIdentity::of(path));
  const auto known = std::ranges::find(entries_, path, &Entry::path);
  if (known != entries_.end() && known->identity == identity) {
    entries_.splice(entries_.begin(), entries_, known);
    return entries_.front().file;
  }
  if (known != entries_.end()) entries_.erase(known);
  HEARTH_ASSIGN_OR_RETURN(models::GgufFile file, models::GgufFile::open(path));
  HEARTH_ASSIGN_OR_RETURN(ModelSource source, ModelSource::open(file, digests_));
  entries_.push_front(
      {path, identity, std::make_shared<OpenAdapter>(std::move(file), std::move(source))});
  if (entries_.size() > kMostOpen) entries_.pop_back();
  return entries_.front().file;
}

}  // namespace hearth::worker
