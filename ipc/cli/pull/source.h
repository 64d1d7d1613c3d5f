#pragma once
// The source of `hearth pull`: its address and the file's name. Pure functions.

#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/result.h"

namespace hearth::cli {

struct PullSource {
  std::string url;
  std::string file_name;     ///< ends in .gguf; no directory, no leading dot
  bool hash_in_tag = false;  ///< the server's (X-Linked-)ETag may be the content's SHA-256
};

/// Parses an https address (http: with `allow_http`, or on this machine), or
/// hf:OWNER/REPO[@REVISION]/FILE (default revision: main); `hf_endpoint` is that hub's address.
/// kInvalidArgument describes valid sources.
Result<PullSource> parse_source(const std::string& text, const std::string& hf_endpoint,
                                bool allow_http);

/// The addresses of all parts of a split model if `source` is its first part
/// (NAME-00001-of-0000N.gguf); else `source` alone.
std::vector<PullSource> parts_of_source(const PullSource& source);

/// The last part of a path as a file name: percent-decoded; characters other than letters, digits
/// and "._+-" become "_". kInvalidArgument if it is empty or does not end in .gguf.
Result<std::string> file_name_of(std::string_view path);

/// Checks that a download may use this address. kForbidden with the reason.
Result<void> check_address(const std::string& url, bool allow_http);
/// "https://host:port" of an address, in lower case; empty if it is not an address.
std::string origin_of(const std::string& url);

}  // namespace hearth::cli
