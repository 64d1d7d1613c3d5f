#include "ipc/cli/pull/pull_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

#include "ipc/cli/pull/sha256.h"
#include "ipc/cli/pull/source.h"
#include "ipc/text/shown_text.h"
#include "kernels/base/chars.h"
#include "kernels/base/numbers.h"

namespace hearth::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kFailuresBeforeNext = 2;

std::string shown(const fs::path& path) { return ipc::one_line(path.string(), 0); }

Result<std::string> sha256_of(const fs::path& path, const DownloadWatch& watch) {
  std::ifstream in(path, std::ios::binary);
  DownloadProgress progress;
  std::error_code ignored;
  progress.bytes_total = fs::file_size(path, ignored);
  Sha256 hash;
  std::vector<char> buffer(1 << 20);
  while (in.read(buffer.data(), narrow<std::streamsize>(buffer.size())) || in.gcount() > 0) {
    const auto got = narrow<size_t>(in.gcount());
    hash.update(std::as_bytes(std::span(buffer).first(got)));
    progress.bytes_done += got;
    if (watch && !watch(progress)) return Error::cancelled("interrupted");
  }
  if (!in.eof()) return Error::io(fmt::format("{}: {}", shown(path), std::strerror(errno)));
  return hash.finish();
}

Error is_there(const fs::path& target, const std::string& more) {
  return Error::invalid(fmt::format("{} is there already{} (--force, --name)", shown(target), more),
                        "name");
}

/// The file that is there, if it is the one that is wanted.
Result<Pulled> adopt(const FilePull& pull, const DownloadWatch& watch) {
  const DownloadOptions& source = pull.sources.front();
  const fs::path& target = source.target;
  std::error_code ignored;
  Pulled out;
  out.was_there = true;
  out.file.bytes = fs::file_size(target, ignored);
  std::string wanted = source.sha256;
  std::ranges::transform(wanted, wanted.begin(), ascii_lower);
  SourceFacts facts;
  if (wanted.empty() && (source.hash_in_tag || pull.part_of_set)) {
    HEARTH_ASSIGN_OR_RETURN(facts, look_at_source(source));
    wanted = facts.sha256;
  }
  if (!wanted.empty()) {
    HEARTH_ASSIGN_OR_RETURN(out.file.sha256, sha256_of(target, watch));
    out.file.verified = out.file.sha256 == wanted;
    if (out.file.verified) return out;
    return is_there(target, fmt::format(", its SHA-256 is {}, want {}", out.file.sha256, wanted));
  }
  if (!pull.part_of_set) return is_there(target, "");
  if (facts.bytes == out.file.bytes) return out;
  return is_there(target, fmt::format(" with {} bytes, its source has {}", out.file.bytes,
                                      facts.bytes ? std::to_string(*facts.bytes) : "not its size"));
}

/// Another source may do better.
bool may_go_on(ErrorCode code) {
  return code == ErrorCode::kIo || code == ErrorCode::kNotFound || code == ErrorCode::kForbidden ||
         code == ErrorCode::kCorrupt;
}

}  // namespace

Result<Pulled> pull_file(const FilePull& pull, const DownloadWatch& watch,
                         const std::function<void(const std::string&)>& report) {
  const bool several = pull.sources.size() > 1;
  if (several && pull.sources.front().sha256.empty()) {
    return Error::invalid("--mirror: want --sha256, too, so that all sources mean the same content",
                          "sha256");
  }
  const fs::path& target = pull.sources.front().target;
  std::error_code ignored;
  if (!pull.force && fs::exists(target, ignored)) return adopt(pull, watch);
  for (size_t i = 0;; ++i) {
    DownloadOptions source = pull.sources[i];
    const bool last = i + 1 == pull.sources.size();
    source.any_source = several;
    if (!last) source.max_failures = std::min(source.max_failures, kFailuresBeforeNext);
    const bool continued = several && fs::exists(target.string() + ".part", ignored);
    Result<Downloaded> done = download(source, watch);
    // Bytes of an earlier source may have been others: once more, of this one alone.
    if (!done.ok() && done.error().code == ErrorCode::kCorrupt && continued) {
      done = download(source, watch);
    }
    if (done.ok()) return Pulled{std::move(done).value(), false};
    if (last || !may_go_on(done.error().code)) return done.take_error();
    report(fmt::format("{}: {}; going on with {}", origin_of(source.url), done.error().message,
                       origin_of(pull.sources[i + 1].url)));
  }
}

}  // namespace hearth::cli
