#include "daemon/worker/load/model_source.h"

#include <fmt/core.h>

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
  HEARTH_ASSIGN_OR_RETURN(models::ReadableFile ours, file.source()->duplicate());
  HEARTH_ASSIGN_OR_RETURN(const models::FileIdentity identity, models::FileIdentity::of(ours));
  const int64_t age_ns = wall_ns() - identity.ctime_ns;
  if (age_ns >= 0 && age_ns < kTickNs) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(kTickNs - age_ns));
  }
  ModelSource source(std::move(ours), identity);
  HEARTH_ASSIGN_OR_RETURN(source.digest_, cached_fingerprint(source.file_, file, digests));
  HEARTH_ASSIGN_OR_RETURN(const models::FileIdentity after, models::FileIdentity::of(source.file_));
  if (after != identity) return changed(source.file_);
  return source;
}

Result<void> ModelSource::check() {
  HEARTH_ASSIGN_OR_RETURN(models::FileIdentity now, models::FileIdentity::of(file_));
  if (now == identity_) return {};
  if (now.size_bytes != identity_.size_bytes) return changed(file_);
  // The content may be unchanged: renaming another file over its name, a new mode or a touch also
  // change the times.
  HEARTH_ASSIGN_OR_RETURN(const std::string digest, models::fingerprint_file(file_));
  HEARTH_ASSIGN_OR_RETURN(const models::FileIdentity after, models::FileIdentity::of(file_));
  if (digest != digest_ || after != now) return changed(file_);
  log_info("model_file_unchanged", "file={} why=\"renamed, linked or changed in mode\"",
           file_.path().string());
  identity_ = now;
  return {};
}

}  // namespace hearth::worker
