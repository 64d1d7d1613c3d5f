// A file in a body of multipart/form-data (RFC 7578), as clients of OpenAI's API send it.

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "daemon/http/batch.h"
#include "ipc/text/utf8.h"
#include "ipc/wire/json.h"
#include "kernels/base/ascii.h"

namespace hearth::http {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr size_t kMaxParts = 8;
constexpr size_t kMaxHeadBytes = 4096;
constexpr size_t kMaxNameBytes = 255;
/// RFC 2046, 5.1.1.
constexpr size_t kMaxBoundaryBytes = 70;

Error no_form(std::string_view why) {
  return Error::protocol(fmt::format("the body is not multipart/form-data: {}", why), "file");
}

/// The parameter `name` of a header's value: a token, or a quoted string.
std::optional<std::string> parameter(std::string_view value, std::string_view name) {
  size_t at = value.find(';');
  while (at < value.size()) {
    std::string_view rest = value.substr(at + 1);
    const size_t equals = rest.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const bool wanted = equal_no_case(trimmed(rest.substr(0, equals)), name);
    std::string text;
    size_t i = equals + 1;
    while (i < rest.size() && (rest[i] == ' ' || rest[i] == '\t')) ++i;
    if (i < rest.size() && rest[i] == '"') {
      for (++i; i < rest.size() && rest[i] != '"'; ++i) {
        if (rest[i] == '\\' && i + 1 < rest.size()) ++i;
        text += rest[i];
      }
      if (i == rest.size()) return std::nullopt;
      i = std::min(rest.find(';', i), rest.size());
    } else {
      const size_t end = std::min(rest.find(';', i), rest.size());
      text = trimmed(rest.substr(i, end - i));
      i = end;
    }
    if (wanted) return text;
    at += 1 + i;
  }
  return std::nullopt;
}

/// The value of the header `name` in a part's head.
std::optional<std::string_view> header(std::string_view head, std::string_view name) {
  while (!head.empty()) {
    const std::string_view line = head.substr(0, head.find(kLineEnd));
    head.remove_prefix(std::min(line.size() + kLineEnd.size(), head.size()));
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    if (equal_no_case(line.substr(0, colon), name)) return trimmed(line.substr(colon + 1));
  }
  return std::nullopt;
}

struct Part {
  std::string name;
  std::string filename;
  std::string_view content;
};

/// The part that begins at the front of `rest`, after its boundary; `rest` then begins after it.
Result<Part> take_part(std::string_view* rest, const std::string& delimiter) {
  const size_t head_end = rest->find("\r\n\r\n");
  if (head_end > kMaxHeadBytes) {  // or there is none
    return no_form("a part has no head");
  }
  const std::string_view head = rest->substr(0, head_end);
  rest->remove_prefix(head_end + 4);
  const size_t end = rest->find(delimiter);
  if (end == std::string_view::npos) return no_form("a part has no end");
  const auto disposition = header(head, "content-disposition");
  const auto name = disposition ? parameter(*disposition, "name") : std::nullopt;
  if (!name) return no_form("a part has no name");
  Part part{.name = *name,
            .filename = parameter(*disposition, "filename").value_or(""),
            .content = rest->substr(0, end)};
  rest->remove_prefix(end + delimiter.size());
  return part;
}

Result<void> take_into(const Part& part, bool* has_file, Upload* upload) {
  if (part.name == "purpose") {
    upload->purpose = std::string(part.content.substr(0, kMaxNameBytes));
    return {};
  }
  if (part.name != "file") {
    const std::string name = ipc::printable(part.name);
    return Error::unknown_field(name + ": is not a part that hearth knows", name);
  }
  if (std::exchange(*has_file, true)) return Error::invalid("file: want one", "file");
  const bool readable = std::ranges::none_of(
      part.filename, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; });
  if (part.filename.empty() || part.filename.size() > kMaxNameBytes || !readable ||
      !ipc::is_valid_utf8(part.filename)) {
    return Error::invalid(fmt::format("file: want a filename of at most {} bytes", kMaxNameBytes),
                          "file");
  }
  upload->name = part.filename;
  upload->content = part.content;
  return {};
}

}  // namespace

std::string form_boundary(std::string_view content_type) {
  const std::string_view type = content_type.substr(0, content_type.find(';'));
  if (!equal_no_case(trimmed(type), "multipart/form-data")) return {};
  const auto boundary = parameter(content_type, "boundary");
  return boundary && boundary->size() <= kMaxBoundaryBytes ? *boundary : "";
}

Result<Upload> parse_upload(std::string_view body, std::string_view boundary) {
  const std::string delimiter = std::string(kLineEnd) + "--" + std::string(boundary);
  const std::string_view first = std::string_view(delimiter).substr(kLineEnd.size());
  if (!body.starts_with(first)) return no_form("it does not begin with its boundary");
  std::string_view rest = body.substr(first.size());
  Upload upload;
  bool has_file = false;
  for (size_t parts = 0; !rest.starts_with("--"); ++parts) {
    if (parts == kMaxParts) return no_form("it has too many parts");
    if (!rest.starts_with(kLineEnd)) return no_form("a boundary has no line end");
    rest.remove_prefix(kLineEnd.size());
    HEARTH_ASSIGN_OR_RETURN(const Part part, take_part(&rest, delimiter));
    HEARTH_TRY(take_into(part, &has_file, &upload));
  }
  if (!has_file) return Error::invalid("file: absent", "file");
  if (upload.purpose != "batch") {
    return Error::unsupported(
        fmt::format("purpose: met '{}', want batch: files are kept for batches alone",
                    ipc::printable(upload.purpose)),
        "purpose");
  }
  return upload;
}

}  // namespace hearth::http
