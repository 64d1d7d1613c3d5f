#include "daemon/worker/load/model_source.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "daemon/worker/load/fingerprint_cache.h"
#include "kernels/base/log.h"

namespace hearth::worker {
namespace {

/// File systems stamp changes with a clock that ticks every 1 to 10 ms: a second change within a
/// tick leaves the stamp unchanged.
constexpr int64_t kTickNs = 20'000'000;

int64_t wall_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Error changed(const models::ReadableFile& file) {
  return Error::corrupt(
      fmt::format("{}: the file changed while the model was loaded from it; the model is loaded "
                  "anew, ask again (replace a model file by renaming another over it)",
                  file.path().filename().string()));
}

}  // namespace

Result<ModelSource> ModelSource::open(const models::GgufFile& file,
                                      const std::filesystem::path& digests) {
  ModelSource source;
  HEARTH_ASSIGN_OR_RETURN(source.files_, file.duplicate_files());
  HEARTH_ASSIGN_OR_RETURN(source.identities_, models::identities_of(source.files_));
  int64_t age_ns = kTickNs;
  const int64_t now_ns = wall_ns();
  for (const models::FileIdentity& each : source.identities_) {
    if (now_ns >= each.ctime_ns) age_ns = std::min(age_ns, now_ns - each.ctime_ns);
  }
  if (age_ns < kTickNs) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(kTickNs - age_ns));
  }
  HEARTH_ASSIGN_OR_RETURN(source.digest_, cached_fingerprint(source.files_, file, digests));
  HEARTH_ASSIGN_OR_RETURN(const auto after, models::identities_of(source.files_));
  if (const auto at = source.changed_since(after)) return changed(source.files_[*at]);
  return source;
}

std::optional<size_t> ModelSource::changed_since(std::span<const models::FileIdentity> now) const {
  const auto differs = std::ranges::mismatch(identities_, now);
  if (differs.in1 == identities_.end()) return std::nullopt;
  return differs.in1 - identities_.begin();
}

Result<void> ModelSource::check() {
  HEARTH_ASSIGN_OR_RETURN(auto now, models::identities_of(files_));
  const auto at = changed_since(now);
  if (!at) return {};
  const models::ReadableFile& file = files_[*at];
  if (now[*at].size_bytes != identities_[*at].size_bytes) return changed(file);
  // The content may be unchanged: renaming another file over its name, a new mode or a touch also
  // change the times.
  HEARTH_ASSIGN_OR_RETURN(const std::string digest, models::fingerprint_files(files_));
  HEARTH_ASSIGN_OR_RETURN(const auto after, models::identities_of(files_));
  if (digest != digest_ || after != now) return changed(file);
  log_info("model_file_unchanged", "file={} why=\"renamed, linked or changed in mode\"",
           file.path().string());
  identities_ = std::move(now);
  return {};
}

}  // namespace hearth::worker
