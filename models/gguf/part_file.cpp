#include "models/gguf/part_file.h"

#include <unistd.h>

#include <cerrno>

#include "models/gguf/file_mapping.h"

namespace hearth::models {

Result<PartFile> PartFile::create(const std::filesystem::path& path) {
  const std::filesystem::path part = path.string() + ".part";
  std::FILE* file = std::fopen(part.c_str(), "wbe");
  if (file == nullptr) return system_error(part, "open", errno);
  return PartFile(path, file);
}

PartFile::~PartFile() {
  if (file_ == nullptr) return;
  ::unlink(part().c_str());
}

Result<void> PartFile::append(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size()) return {};
  return system_error(path_, "write", errno);
}

Result<void> PartFile::finish() {
  // Sync before renaming, so that the name never refers to incomplete data.
  const bool synced = std::fflush(file_.get()) == 0 && ::fsync(::fileno(file_.get())) == 0;
  if (!synced || std::rename(part().c_str(), path_.c_str()) != 0) {
    return system_error(path_, "write", errno);
  }
  file_.reset();
  return {};
}

}  // namespace hearth::models
