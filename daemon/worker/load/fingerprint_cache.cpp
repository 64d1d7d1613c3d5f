#include "daemon/worker/load/fingerprint_cache.h"

#include <fmt/core.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "models/gguf/fingerprint.h"
#include "models/gguf/weight_check.h"

namespace hearth::worker {
namespace fs = std::filesystem;
namespace {

constexpr size_t kDigestChars = 32;

// A line for each file. The first names its entry by device and inode.
std::string head_of(std::span<const models::FileIdentity> files) {
  std::string out;
  for (const models::FileIdentity& file : files) {
    if (!out.empty()) out += fmt::format("device {} inode {} ", file.device, file.inode);
    out += fmt::format("finite size {} mtime_ns {} ctime_ns {}\n", file.size_bytes, file.mtime_ns,
                       file.ctime_ns);
  }
  return out;
}

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

// Renamed into place, so that readers never see a partial file. Best effort: it only saves time.
void write(const fs::path& path, const std::string& text) {
  const fs::path part = path.string() + fmt::format(".{}", ::getpid());
  std::error_code ignored;
  {
    std::ofstream out(part, std::ios::binary);
    out << text;
    out.flush();
    if (!out) {
      fs::remove(part, ignored);
      return;
    }
  }
  fs::rename(part, path, ignored);
}

Result<std::string> read_and_check(std::span<const models::ReadableFile> files,
                                   const models::GgufFile& weights) {
  models::WeightCheck check(weights);
  HEARTH_ASSIGN_OR_RETURN(std::string digest, models::fingerprint_files(files, &check));
  HEARTH_TRY(check.finish());
  return digest;
}

}  // namespace

Result<std::string> cached_fingerprint(std::span<const models::ReadableFile> files,
                                       const models::GgufFile& weights, const fs::path& folder) {
  if (folder.empty() || files.empty()) return read_and_check(files, weights);
  HEARTH_ASSIGN_OR_RETURN(const auto before, models::identities_of(files));
  const fs::path entry = folder / fmt::format("{}-{}", before.front().device, before.front().inode);
  const std::string head = head_of(before);
  const std::string kept = read(entry);
  const bool whole = kept.size() == head.size() + kDigestChars && kept.starts_with(head) &&
                     kept.find_first_not_of("0123456789abcdef", head.size()) == kept.npos;
  if (whole) return kept.substr(head.size());
  HEARTH_ASSIGN_OR_RETURN(std::string digest, read_and_check(files, weights));
  // The digest of files that changed while they were read is not stored.
  const auto after = models::identities_of(files);
  if (after.ok() && *after == before) write(entry, head + digest);
  return digest;
}

Result<std::string> computed_fingerprint(const models::GgufFile& weights) {
  HEARTH_ASSIGN_OR_RETURN(const auto files, weights.duplicate_files());
  return cached_fingerprint(files, weights, {});
}

}  // namespace hearth::worker
