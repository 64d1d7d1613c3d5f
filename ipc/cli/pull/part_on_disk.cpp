#include "ipc/cli/pull/part_on_disk.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "ipc/text/shown_text.h"

namespace hearth::cli {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr size_t kMaxTagBytes = 1024;

Error system_error(const std::filesystem::path& path, int number) {
  std::string text = fmt::format("{}: {}", ipc::one_line(path.string(), 0), std::strerror(number));
  switch (number) {
    case EACCES:
    case EPERM: return Error::forbidden(std::move(text));
    case ENOSPC:
    case EDQUOT: return Error::out_of_memory(std::move(text));
    default: return Error::io(std::move(text));
  }
}

}  // namespace

Result<PartOnDisk> PartOnDisk::open(const std::filesystem::path& target) {
  PartOnDisk out(target);
  const std::string part = out.part();
  out.fd_ = ::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (out.fd_ < 0) return system_error(part, errno);
  // Locked, and still the file of that name: the process that had the lock may have finished just
  // now.
  struct stat opened {
  }, named{};
  const bool locked = ::flock(out.fd_, LOCK_EX | LOCK_NB) == 0 && ::fstat(out.fd_, &opened) == 0 &&
                      ::stat(part.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
                      opened.st_dev == named.st_dev;
  if (!locked) {
    ::close(std::exchange(out.fd_, -1));
    return Error::busy(fmt::format("{}: another process is pulling it", ipc::one_line(part, 0)));
  }
  HEARTH_TRY(out.hash_what_is_there());
  std::ifstream tag(out.tag_file(), std::ios::binary);
  if (tag && out.size_bytes_ > 0) std::getline(tag, out.tag_);
  if (out.tag_.size() > kMaxTagBytes) out.tag_.clear();
  return out;
}

PartOnDisk::PartOnDisk(PartOnDisk&& other) noexcept
    : target_(std::move(other.target_)),
      fd_(std::exchange(other.fd_, -1)),
      size_bytes_(other.size_bytes_),
      head_(std::move(other.head_)),
      tag_(std::move(other.tag_)),
      hash_(other.hash_) {}

PartOnDisk::~PartOnDisk() {
  if (fd_ < 0) return;
  // Nothing came: nothing to go on from.
  if (size_bytes_ == 0) discard();
  ::close(fd_);
}

Result<void> PartOnDisk::hash_what_is_there() {
  std::vector<std::byte> buffer(1 << 20);
  while (true) {
    const ssize_t n = ::read(fd_, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(part(), errno);
    if (n == 0) break;
    const size_t count = n;
    for (size_t i = 0; i < count && head_.size() < kMagic.size(); ++i) {
      head_ += std::to_integer<char>(buffer[i]);
    }
    hash_.update(std::span(buffer).first(count));
    size_bytes_ += count;
  }
  // Of something else that left its file here.
  if (!kMagic.starts_with(head_)) return restart();
  return {};
}

Result<void> PartOnDisk::set_tag(const std::string& tag) {
  if (tag == tag_) return {};
  tag_ = tag.size() <= kMaxTagBytes ? tag : "";
  std::ofstream out(tag_file(), std::ios::binary | std::ios::trunc);
  out << tag_ << "\n";
  out.flush();
  if (out) return {};
  return system_error(tag_file(), errno != 0 ? errno : EIO);
}

Result<void> PartOnDisk::append(std::span<const std::byte> bytes) {
  for (size_t i = 0; i < bytes.size() && head_.size() < kMagic.size(); ++i) {
    head_ += std::to_integer<char>(bytes[i]);
  }
  if (!kMagic.starts_with(head_)) {
    return Error::corrupt("what the server sends is not a GGUF file (it begins differently)");
  }
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(fd_, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return system_error(part(), n < 0 ? errno : EIO);
    done += n;
    size_bytes_ += n;
    hash_.update(bytes.subspan(done - n, n));
  }
  return {};
}

Result<void> PartOnDisk::restart() {
  if (::ftruncate(fd_, 0) != 0 || ::lseek(fd_, 0, SEEK_SET) != 0) {
    return system_error(part(), errno);
  }
  size_bytes_ = 0;
  head_.clear();
  tag_.clear();
  ::unlink(tag_file().c_str());
  hash_ = Sha256();
  return {};
}

Result<void> PartOnDisk::check_room(uint64_t more_bytes) const {
  struct statvfs disk {};
  if (::fstatvfs(fd_, &disk) != 0) return {};
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (more_bytes <= free) return {};
  return Error::out_of_memory(fmt::format("{}: {} more are to come, the disk has {} free",
                                          ipc::one_line(target_.parent_path().string(), 0),
                                          ipc::human_bytes(more_bytes), ipc::human_bytes(free)));
}

Result<void> PartOnDisk::commit() {
  // Sync first, so that the final name never refers to incomplete data.
  if (::fsync(fd_) != 0 || ::rename(part().c_str(), target_.c_str()) != 0) {
    return system_error(target_, errno);
  }
  ::unlink(tag_file().c_str());
  ::close(std::exchange(fd_, -1));
  const std::filesystem::path parent = target_.parent_path();
  const int directory =
      ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    ::fsync(directory);
    ::close(directory);
  }
  return {};
}

void PartOnDisk::discard() {
  ::unlink(part().c_str());
  ::unlink(tag_file().c_str());
}

}  // namespace hearth::cli
