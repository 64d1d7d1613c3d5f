#pragma once
// Downloads one file over HTTP, in as many connections as needed. It grows as NAME.part, is hashed
// while it is written, and is renamed when it is complete and its hash is right. After an
// interruption the next attempt, of this process or a later one, requests the rest.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "kernels/base/result.h"

namespace hearth::cli {

struct DownloadOptions {
  std::string url;
  std::filesystem::path target;
  std::string sha256;        ///< expected, 64 hex digits; empty: the server's, if it names one
  bool hash_in_tag = false;  ///< an (X-Linked-)ETag of 64 hex digits is the content's SHA-256
  std::string token;         ///< bearer token, sent only to the first host
  bool allow_http = false;   ///< plain http from other machines
  /// What an earlier attempt left may come from another server: it is continued whatever its tag
  /// is. Wants `sha256`, which decides in the end.
  bool any_source = false;
  int max_failures = 5;    ///< in a row, without a byte received between them
  int64_t pause_ms = 500;  ///< after the first failure; doubles, 15 s at most
  int64_t stall_s = 30;    ///< seconds without a byte that count as a failure
};

struct DownloadProgress {
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;  ///< 0: not known
  uint64_t bytes_kept = 0;   ///< from an earlier attempt
  std::string trouble;       ///< why it is being retried; empty while bytes arrive
};
/// Returns false to stop and keep what was received.
using DownloadWatch = std::function<bool(const DownloadProgress&)>;

struct Downloaded {
  uint64_t bytes = 0;
  uint64_t bytes_kept = 0;  ///< of these, from an earlier attempt
  std::string sha256;       ///< of the content
  bool verified = false;    ///< against the hash from the caller or the server
};

/// What a server reports about a file without sending it.
struct SourceFacts {
  std::optional<uint64_t> bytes;
  std::string sha256;  ///< 64 hex digits; empty: not known
};
/// Uses url, hash_in_tag, token and allow_http of `options`; one try. kForbidden, kNotFound, kIo.
Result<SourceFacts> look_at_source(const DownloadOptions& options);

/// Errors: kForbidden (address, redirect, refused by the server), kNotFound, kBusy (another process
/// downloads it), kCorrupt (wrong hash or not a GGUF file; nothing is kept), kOutOfMemory (the disk
/// is full), kIo, kCancelled.
Result<Downloaded> download(const DownloadOptions& options, const DownloadWatch& watch);

}  // namespace hearth::cli
