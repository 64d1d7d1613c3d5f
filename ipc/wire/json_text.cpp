#include "ipc/wire/json_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "kernels/base/chars.h"

namespace hearth::ipc {
namespace {

constexpr std::string_view kHex = "0123456789abcdef";

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// -1: no hexadecimal digit.
int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

uint32_t hex4(std::string_view digits) {
  uint32_t value = 0;
  for (const char c : digits.substr(0, 4)) value = value << 4 | hex_value(c);
  return value;
}

void append_utf8(uint32_t code, std::string* out) {
  const auto byte = [out](uint32_t value) { *out += static_cast<char>(value); };
  if (code < 0x80) return byte(code);
  if (code < 0x800) {
    byte(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      byte(0xE0 | code >> 12);
    } else {
      byte(0xF0 | code >> 18);
      byte(0x80 | (code >> 12 & 0x3F));
    }
    byte(0x80 | (code >> 6 & 0x3F));
  }
  byte(0x80 | (code & 0x3F));
}

}  // namespace

void append_quoted(std::string_view text, std::string* out) {
  *out += '"';
  size_t plain = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = byte_of(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out->append(text, plain, i - plain);
    plain = i + 1;
    switch (c) {
      case '"': *out += "\\\""; break;
      case '\\': *out += "\\\\"; break;
      case '\b': *out += "\\b"; break;
      case '\f': *out += "\\f"; break;
      case '\n': *out += "\\n"; break;
      case '\r': *out += "\\r"; break;
      case '\t': *out += "\\t"; break;
      default:
        *out += "\\u00";
        *out += kHex[c >> 4];
        *out += kHex[c & 15];
    }
  }
  out->append(text, plain, text.size() - plain);
  *out += '"';
}

bool append_unquoted(std::string_view quoted, std::string* out) {
  bool whole = true;
  const std::string_view text = quoted.substr(1, quoted.size() - 2);
  for (size_t at = 0; at < text.size();) {
    const size_t escape = std::min(text.find('\\', at), text.size());
    out->append(text, at, escape - at);
    if (escape == text.size()) break;
    at = escape + 2;
    switch (text[escape + 1]) {
      case 'b': *out += '\b'; break;
      case 'f': *out += '\f'; break;
      case 'n': *out += '\n'; break;
      case 'r': *out += '\r'; break;
      case 't': *out += '\t'; break;
      case 'u': {
        uint32_t code = hex4(text.substr(at));
        at += 4;
        const bool high = code >= 0xD800 && code < 0xDC00;
        if (high && text.size() >= at + 6 && text[at] == '\\' && text[at + 1] == 'u') {
          const uint32_t low = hex4(text.substr(at + 2));
          if (low >= 0xDC00 && low < 0xE000) {
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            at += 6;
          }
        }
        if (code >= 0xD800 && code < 0xE000) {  // half of a pair
          code = 0xFFFD;
          whole = false;
        }
        append_utf8(code, out);
        break;
      }
      default: *out += text[escape + 1];
    }
  }
  return whole;
}

void append_number(float value, std::string* out) {
  if (!std::isfinite(value)) {
    *out += "null";
    return;
  }
  char text[32];
  out->append(text, std::to_chars(text, text + sizeof text, value).ptr);
}

size_t quoted_bytes(std::string_view json) {
  if (json.empty() || json[0] != '"') return 0;
  for (size_t i = 1; i < json.size(); ++i) {
    const auto c = byte_of(json[i]);
    if (c == '"') return i + 1;
    if (c < 0x20) return 0;
    if (c != '\\') continue;
    if (++i == json.size()) return 0;
    if (json[i] != 'u') {
      if (std::string_view("\"\\/bfnrt").find(json[i]) == std::string_view::npos) return 0;
      continue;
    }
    for (int digit = 0; digit < 4; ++digit) {
      if (++i == json.size() || hex_value(json[i]) < 0) return 0;
    }
  }
  return 0;
}

size_t number_bytes(std::string_view json) {
  size_t at = 0;
  const auto is = [&](char c) { return at < json.size() && json[at] == c; };
  const auto digits = [&] {
    const size_t first = at;
    while (at < json.size() && is_digit(json[at])) ++at;
    return at > first;
  };
  if (is('-')) ++at;
  if (is('0')) {
    ++at;
  } else if (!digits()) {
    return 0;
  }
  if (is('.')) {
    ++at;
    if (!digits()) return 0;
  }
  if (is('e') || is('E')) {
    ++at;
    if (is('+') || is('-')) ++at;
    if (!digits()) return 0;
  }
  return at;
}

}  // namespace hearth::ipc
