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

std::string first_line(const models::FileIdentity& file) {
  return fmt::format("finite size {} mtime_ns {} ctime_ns {}", file.size_bytes, file.mtime_ns,
                     file.ctime_ns);
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

Result<std::string> read_and_check(const models::ReadableFile& file,
                                   const models::GgufFile& weights) {
  models::WeightCheck check(weights);
  HEARTH_ASSIGN_OR_RETURN(std::string digest, models::fingerprint_file(file, &check));
  HEARTH_TRY(check.finish());
  return digest;
}

}  // namespace

Result<std::string> cached_fingerprint(const models::ReadableFile& file,
                                       const models::GgufFile& weights, const fs::path& folder) {
  if (folder.empty()) return read_and_check(file, weights);
  HEARTH_ASSIGN_OR_RETURN(const models::FileIdentity before, models::FileIdentity::of(file));
  const fs::path entry = folder / fmt::format("{}-{}", before.device, before.inode);
  const std::string head = first_line(before) + "\n";
  const std::string kept = read(entry);
  const bool whole = kept.size() == head.size() + kDigestChars && kept.starts_with(head) &&
                     kept.find_first_not_of("0123456789abcdef", head.size()) == kept.npos;
  if (whole) return kept.substr(head.size());
  HEARTH_ASSIGN_OR_RETURN(std::string digest, read_and_check(file, weights));
  // The digest of a file that changed while it was read is not stored.
  const Result<models::FileIdentity> after = models::FileIdentity::of(file);
  if (after.ok() && *after == before) write(entry, head + digest);
  return digest;
}

}  // namespace hearth::worker
