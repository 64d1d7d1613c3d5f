#include "models/template/text.h"

#include <utf8proc.h>

#include "kernels/base/chars.h"
#include "models/tokenizer/text/utf8.h"

namespace hearth::models::jinja {
namespace {

std::string_view last_char(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
  return text.substr(at);
}

utf8proc_category_t category(uint32_t code) { return utf8proc_category(code); }

bool is_cased(uint32_t code) { return is_upper(code) || is_lower(code); }

void append_upper(std::string& out, uint32_t code) {
  if (code == 0xDF) {  // sharp s: the one common letter whose capital has two characters
    out += "SS";
    return;
  }
  append_char(out, utf8proc_toupper(code));
}
void append_title(std::string& out, uint32_t code) {
  if (code == 0xDF) {
    out += "Ss";
    return;
  }
  append_char(out, utf8proc_totitle(code));
}
void append_lower(std::string& out, uint32_t code) { append_char(out, utf8proc_tolower(code)); }

std::string mapped(std::string_view text, void (*append)(std::string&, uint32_t)) {
  std::string out;
  while (!text.empty()) {
    const Char c = first_char(text);
    append(out, c.code);
    text.remove_prefix(c.bytes);
  }
  return out;
}

}  // namespace

Char first_char(std::string_view text) {
  const auto byte = [text](size_t i) -> uint32_t {
    return i < text.size() ? byte_of(text[i]) : 0u;
  };
  const uint32_t b = byte(0);
  if (b < 0x80) return {b, 1};
  if (b < 0xE0) return {(b & 0x1F) << 6 | (byte(1) & 0x3F), text.size() < 2 ? text.size() : 2};
  if (b < 0xF0) {
    return {(b & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F),
            text.size() < 3 ? text.size() : 3};
  }
  return {(b & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          text.size() < 4 ? text.size() : 4};
}

size_t count_chars(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (c & 0xC0) != 0x80;
  return count;
}

size_t char_offset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += first_char(text.substr(at)).bytes;
  return at;
}

bool is_space(uint32_t code) {
  return (code >= 9 && code <= 13) || (code >= 28 && code <= 32) || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_alpha(uint32_t code) {
  const utf8proc_category_t c = category(code);
  return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}
bool is_digit(uint32_t code) { return category(code) == UTF8PROC_CATEGORY_ND; }
bool is_upper(uint32_t code) { return category(code) == UTF8PROC_CATEGORY_LU; }
bool is_lower(uint32_t code) { return category(code) == UTF8PROC_CATEGORY_LL; }

std::string to_upper(std::string_view text) { return mapped(text, append_upper); }
std::string to_lower(std::string_view text) { return mapped(text, append_lower); }

std::string to_title(std::string_view text) {
  std::string out;
  bool inside = false;
  while (!text.empty()) {
    const Char c = first_char(text);
    inside ? append_lower(out, c.code) : append_title(out, c.code);
    inside = is_cased(c.code);
    text.remove_prefix(c.bytes);
  }
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  if (text.empty()) return out;
  const Char c = first_char(text);
  append_title(out, c.code);
  return out + to_lower(text.substr(c.bytes));
}

std::string_view strip_left(std::string_view text) {
  while (!text.empty()) {
    const Char c = first_char(text);
    if (!is_space(c.code)) break;
    text.remove_prefix(c.bytes);
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    const std::string_view last = last_char(text);
    if (!is_space(first_char(last).code)) break;
    text.remove_suffix(last.size());
  }
  return text;
}

std::string_view strip_left(std::string_view text, std::string_view chars) {
  while (!text.empty()) {
    const size_t bytes = first_char(text).bytes;
    if (chars.find(text.substr(0, bytes)) == std::string_view::npos) break;
    text.remove_prefix(bytes);
  }
  return text;
}

std::string_view strip_right(std::string_view text, std::string_view chars) {
  while (!text.empty()) {
    const std::string_view last = last_char(text);
    if (chars.find(last) == std::string_view::npos) break;
    text.remove_suffix(last.size());
  }
  return text;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out.push_back(c);
    }
  }
  return out;
}

}  // namespace hearth::models::jinja
