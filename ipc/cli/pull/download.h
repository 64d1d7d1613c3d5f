#pragma once
// One file over HTTP, in as many connections as it takes. It grows as NAME.part beside its name,
// is hashed while it is written, and gets its name when it is whole and right. What came before an
// interruption stays: the next try, of this process or a later one, asks for the rest.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "kernels/base/result.h"

namespace hearth::cli {

struct DownloadOptions {
  std::string url;
  std::filesystem::path target;
  std::string sha256;        ///< wanted, 64 hex digits; empty: what the server says, if anything
  bool hash_in_tag = false;  ///< an (X-Linked-)ETag of 64 hex digits is the content's SHA-256
  std::string token;         ///< sent as bearer, to the first host alone
  bool allow_http = false;   ///< plain http from other machines
  int max_failures = 5;      ///< in a row, without a byte between them
  int64_t pause_ms = 500;    ///< after the first failure; doubles, 15 s at most
  int64_t stall_s = 30;      ///< without a byte is a failure
};

struct DownloadProgress {
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;  ///< 0: not known
  uint64_t bytes_kept = 0;   ///< of an earlier try
  std::string trouble;       ///< why it is being tried again; empty while bytes come
};
/// False: stop, and keep what came.
using DownloadWatch = std::function<bool(const DownloadProgress&)>;

struct Downloaded {
  uint64_t bytes = 0;
  uint64_t bytes_kept = 0;  ///< of that, from an earlier try
  std::string sha256;       ///< of the content
  bool verified = false;    ///< against what the caller or the server said
};

/// Errors: kForbidden (address, redirect, refused by the server), kNotFound, kBusy (somebody else
/// pulls it), kCorrupt (another hash; no GGUF file; nothing is kept then), kOutOfMemory (no room on
/// the disk), kIo, kCancelled.
Result<Downloaded> download(const DownloadOptions& options, const DownloadWatch& watch);

}  // namespace hearth::cli
