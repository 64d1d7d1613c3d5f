#pragma once
// What `hearth pull` was told to fetch: which address, under which name. Pure functions.

#include <string>
#include <string_view>

#include "kernels/base/result.h"

namespace hearth::cli {

struct PullSource {
  std::string url;
  std::string file_name;     ///< ends in .gguf; no directory, no leading dot
  bool hash_in_tag = false;  ///< the server's (X-Linked-)ETag may be the content's SHA-256
};

/// An address with https (http: `allow_http`, or this machine), or hf:OWNER/REPO/FILE, with
/// @REVISION behind REPO where not main; `hf_endpoint` is that hub's address. kInvalidArgument says
/// what is wanted.
Result<PullSource> parse_source(const std::string& text, const std::string& hf_endpoint,
                                bool allow_http);

/// The last part of a path, percent signs decoded, as the name of a file: letters, digits and
/// "._+-" as they are, all else "_". kInvalidArgument where nothing is left or it does not end in
/// .gguf.
Result<std::string> file_name_of(std::string_view path);

/// Whether bytes may come from there. kForbidden says why not.
Result<void> check_address(const std::string& url, bool allow_http);
/// "https://host:port" of an address, in lower case; empty where it is none.
std::string origin_of(const std::string& url);

}  // namespace hearth::cli
