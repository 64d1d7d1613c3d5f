#include "models/gguf/file_mapping.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace hearth::models {

Error system_error(const std::filesystem::path& path, const char* what, int number) {
  std::string text = fmt::format("{}: {}: {}", path.string(), what, std::strerror(number));
  switch (number) {
    case ENOENT:
    case ENOTDIR: return Error::not_found(std::move(text));
    case EACCES:
    case EPERM: return Error::forbidden(std::move(text));
    default: return Error::io(std::move(text));
  }
}

// ---- ReadableFile ---------------------------------------------------------------------------

Result<ReadableFile> ReadableFile::open(const std::filesystem::path& path) {
  ReadableFile file;
  file.path_ = path;
  // O_NONBLOCK: a FIFO in a model directory must not hang the opener; fstat then refuses it.
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd_ < 0) return system_error(path, "open", errno);
  struct stat status {};
  if (::fstat(file.fd_, &status) != 0) return system_error(path, "stat", errno);
  if (!S_ISREG(status.st_mode)) {
    return Error::invalid(fmt::format("{}: not a regular file", path.string()));
  }
  file.size_bytes_ = status.st_size;
  return file;
}

ReadableFile::~ReadableFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<ReadableFile> ReadableFile::duplicate() const {
  ReadableFile copy;
  copy.path_ = path_;
  copy.size_bytes_ = size_bytes_;
  copy.fd_ = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (copy.fd_ < 0) return system_error(path_, "duplicate", errno);
  return copy;
}

ReadableFile::ReadableFile(ReadableFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_bytes_(other.size_bytes_) {}

ReadableFile& ReadableFile::operator=(ReadableFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

// ---- FileMapping ----------------------------------------------------------------------------

Result<FileMapping> FileMapping::open(const std::filesystem::path& path) {
  HEARTH_ASSIGN_OR_RETURN(ReadableFile opened, ReadableFile::open(path));
  FileMapping mapping(std::move(opened));
  const ReadableFile& file = mapping.file_;
  if (file.size_bytes() == 0) return mapping;
  void* memory = ::mmap(nullptr, file.size_bytes(), PROT_READ, MAP_SHARED, file.fd(), 0);
  if (memory == MAP_FAILED) return system_error(path, "map", errno);
  mapping.bytes_ = {static_cast<const std::byte*>(memory), file.size_bytes()};
  // Weights are read once, front to back: read far ahead. Only advice, so a refusal changes
  // nothing.
  ::madvise(memory, file.size_bytes(), MADV_SEQUENTIAL);
  return mapping;
}

FileMapping::~FileMapping() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

FileMapping::FileMapping(FileMapping&& other) noexcept
    : file_(std::move(other.file_)), bytes_(std::exchange(other.bytes_, {})) {}

FileMapping& FileMapping::operator=(FileMapping&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

bool FileMapping::contains(std::span<const std::byte> part) const {
  const auto first = reinterpret_cast<uintptr_t>(part.data());
  const auto begin = reinterpret_cast<uintptr_t>(bytes_.data());
  return !bytes_.empty() && first >= begin && first + part.size() <= begin + bytes_.size();
}

// Reads a sample without waiting. mincore would not do: it answers truthfully only if the process
// may write the file, and otherwise always "resident".
bool FileMapping::in_page_cache(std::span<const std::byte> part) const {
  constexpr size_t kSampleEvery = 256 << 10;
  if (!contains(part)) return false;
  const size_t begin = part.data() - bytes_.data();
  for (size_t at = begin; at < begin + part.size(); at += kSampleEvery) {
    std::byte byte;
    const iovec into{&byte, 1};
    if (::preadv2(file_.fd(), &into, 1, at, RWF_NOWAIT) != 1) return false;
  }
  return true;
}

void FileMapping::drop_pages(std::span<const std::byte> part) const {
  const uintptr_t page = ::sysconf(_SC_PAGESIZE);
  const auto first = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t last = first + part.size();
  if (!contains(part)) return;
  const uintptr_t from = (first + page - 1) / page * page;
  const uintptr_t to = last / page * page;
  if (from < to) ::madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
}

}  // namespace hearth::models
