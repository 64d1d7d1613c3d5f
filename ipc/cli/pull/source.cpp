#include "ipc/cli/pull/source.h"

#include <curl/curl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "ipc/text/shown_text.h"
#include "kernels/base/chars.h"
#include "kernels/base/split_name.h"

namespace hearth::cli {
namespace {

Error invalid(std::string message) { return Error::invalid(std::move(message), "source"); }

struct Address {
  std::string scheme, host, port, path;
};

Result<Address> split(const std::string& url) {
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> parsed(curl_url(), &curl_url_cleanup);
  const auto part = [&](CURLUPart which, unsigned flags) {
    char* text = nullptr;
    std::string out;
    if (curl_url_get(parsed.get(), which, &text, flags) == CURLUE_OK) out = text;
    curl_free(text);
    return out;
  };
  if (curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) {
    return invalid(fmt::format("{}: no address that can be read", ipc::one_line(url, 200)));
  }
  Address out{part(CURLUPART_SCHEME, 0), part(CURLUPART_HOST, 0),
              part(CURLUPART_PORT, CURLU_DEFAULT_PORT), part(CURLUPART_PATH, 0)};
  std::ranges::transform(out.host, out.host.begin(),
                         [](unsigned char c) { return std::tolower(c); });
  return out;
}

bool is_this_machine(const std::string& host) {
  return host == "localhost" || host == "[::1]" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos);
}

/// A part of an owner's, repository's or file's name that may stand in an address as it is.
bool is_plain(std::string_view text) {
  return !text.empty() && text != "." && text != ".." &&
         std::ranges::all_of(text, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-' || c == '+';
         });
}

Result<std::string> hub_address(std::string_view rest, std::string endpoint) {
  while (endpoint.ends_with('/')) endpoint.pop_back();
  std::vector<std::string_view> parts;
  for (size_t from = 0; from <= rest.size();) {
    const size_t to = std::min(rest.find('/', from), rest.size());
    parts.push_back(rest.substr(from, to - from));
    from = to + 1;
  }
  std::string_view revision = "main";
  if (parts.size() >= 2) {
    const size_t at = parts[1].find('@');
    if (at != std::string_view::npos) {
      revision = parts[1].substr(at + 1);
      parts[1] = parts[1].substr(0, at);
    }
  }
  if (parts.size() < 3 || !is_plain(revision) || !std::ranges::all_of(parts, is_plain)) {
    return invalid(fmt::format("hf:{}: want hf:OWNER/REPO/FILE or hf:OWNER/REPO@REVISION/FILE",
                               ipc::one_line(rest, 200)));
  }
  std::string url = fmt::format("{}/{}/{}/resolve/{}", endpoint, parts[0], parts[1], revision);
  for (size_t i = 2; i < parts.size(); ++i) url += fmt::format("/{}", parts[i]);
  return url;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char low = static_cast<char>(c | 0x20);
  return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

std::string decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
        hex_digit(text[i + 2]) >= 0) {
      out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

Result<std::string> file_name_of(std::string_view path) {
  std::string name = decoded(path.substr(path.rfind('/') + 1));
  // A slash that was written as %2F parts nothing.
  for (char& c : name) {
    const auto byte = byte_of(c);
    const bool kept =
        byte < 128 && (std::isalnum(byte) != 0 || c == '.' || c == '_' || c == '+' || c == '-');
    if (!kept) c = '_';
  }
  name.erase(0, name.find_first_not_of("."));
  constexpr size_t kMaxNameBytes = 200;  // a file system takes 255, and .part is appended
  if (name.size() <= std::string_view(".gguf").size() || !name.ends_with(".gguf") ||
      name.size() > kMaxNameBytes) {
    return invalid(
        fmt::format("{}: no name of a model file; want NAME.gguf, up to {} bytes (--name)",
                    ipc::one_line(path, 200), kMaxNameBytes));
  }
  return name;
}

Result<void> check_address(const std::string& url, bool allow_http) {
  HEARTH_ASSIGN_OR_RETURN(const Address address, split(url));
  if (address.scheme == "https") return {};
  if (address.scheme == "http" && (allow_http || is_this_machine(address.host))) return {};
  return Error::forbidden(
      fmt::format("{}://{}: want https; http from this machine alone, or with --allow-http",
                  ipc::one_line(address.scheme, 20), ipc::one_line(address.host, 100)),
      "source");
}

std::string origin_of(const std::string& url) {
  const Result<Address> address = split(url);
  if (!address.ok()) return "";
  return fmt::format("{}://{}:{}", address->scheme, address->host, address->port);
}

Result<PullSource> parse_source(const std::string& text, const std::string& hf_endpoint,
                                bool allow_http) {
  PullSource out;
  out.url = text;
  if (text.starts_with("hf:")) {
    HEARTH_ASSIGN_OR_RETURN(out.url, hub_address(std::string_view(text).substr(3), hf_endpoint));
    out.hash_in_tag = true;
  } else if (text.find("://") == std::string::npos) {
    return invalid(
        fmt::format("{}: want https://... or hf:OWNER/REPO/FILE", ipc::one_line(text, 200)));
  }
  HEARTH_TRY(check_address(out.url, allow_http));
  HEARTH_ASSIGN_OR_RETURN(const Address address, split(out.url));
  HEARTH_ASSIGN_OR_RETURN(out.file_name, file_name_of(address.path));
  return out;
}

std::vector<PullSource> parts_of_source(const PullSource& source) {
  constexpr std::string_view kSuffix = ".gguf";
  std::vector<PullSource> out = {source};
  const std::string_view url = source.url, path = url.substr(0, url.find_first_of("?#"));
  if (!path.ends_with(kSuffix)) return out;
  const std::string_view stem = path.substr(0, path.size() - kSuffix.size());
  const std::optional<SplitName> split = parse_split_name(stem.substr(stem.rfind('/') + 1));
  if (!split || split->part != 1) return out;
  const size_t base = stem.size() - split->stem_of(1).size();
  const std::string own = model_stem(std::filesystem::path(source.file_name).stem().string());
  for (uint32_t part = 2; part <= split->parts; ++part) {
    PullSource next = source;
    next.url =
        fmt::format("{}{}{}", url.substr(0, base), split->stem_of(part), url.substr(stem.size()));
    next.file_name = SplitName{own, part, split->parts}.stem_of(part) + std::string(kSuffix);
    out.push_back(std::move(next));
  }
  return out;
}

}  // namespace hearth::cli
