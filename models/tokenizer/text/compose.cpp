#include "models/tokenizer/text/compose.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/base/chars.h"
#include "kernels/base/check.h"
#include "models/tokenizer/text/char_classes.h"
#include "models/tokenizer/text/utf8.h"

namespace hearth::models {
namespace {

constexpr uint32_t kCodeSpace = 0x110000;
constexpr uint32_t kFirstMark = 0x300;  // all text below it is in NFC
// utf8proc sorts marks by insertion (quadratic), so its input must be bounded.
constexpr size_t kMaxSegmentBytes = 1024;

std::string compose_segment(std::string_view segment) {
  utf8proc_uint8_t* composed = nullptr;
  const auto length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(segment.data()), segment.size(),
                   &composed, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  HEARTH_CHECK(length >= 0, "utf8proc: {}", utf8proc_errmsg(length));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(composed, std::free);
  return std::string(reinterpret_cast<const char*>(composed), length);
}

bool may_change(uint32_t code) {
  const utf8proc_property_t* property = utf8proc_get_property(code);
  if (property->combining_class != 0 || (char_classes(code) & kMark) != 0) return true;
  if (code >= 0x1160 && code <= 0x11FF)
    return true;  // Hangul vowels and finals combine with syllables
  if (property->decomp_type != 0 || property->decomp_seqindex == UINT16_MAX) return false;
  std::string alone;
  append_char(alone, code);
  return compose_segment(alone) != alone;
}

// Code points that NFC may replace, move, or join to the character before them.
const std::vector<bool>& changing_codes() {
  static const std::vector<bool> filled = [] {
    std::vector<bool> changing(kCodeSpace);
    for (uint32_t code = kFirstMark; code < kCodeSpace; ++code) {
      const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
      changing[code] = !is_surrogate && may_change(code);
    }
    return changing;
  }();
  return filled;
}

bool is_ascii(std::string_view text) {
  for (const char c : text) {
    if (byte_of(c) >= 0x80) return false;
  }
  return true;
}

}  // namespace

std::string compose(std::string_view text) {
  if (is_ascii(text)) return std::string(text);
  const std::vector<bool>& changing = changing_codes();
  std::string out;
  out.reserve(text.size());
  size_t done = 0;    // how much of `text` is in `out`
  size_t anchor = 0;  // the last character that is independent of the text before it
  for (size_t at = 0; at < text.size();) {
    const Char c = char_at(text, at);
    if (!changing[c.code]) {
      // A U+FFFD that replaces invalid bytes separates the marks after it like a real one, but the
      // bytes must not be passed to compose_segment.
      const bool is_broken = c.code == 0xFFFD && text.substr(at, c.bytes) != "\xEF\xBF\xBD";
      at += c.bytes;
      anchor = is_broken ? at : at - c.bytes;
      continue;
    }
    size_t end = at;
    for (Char next = c; next.bytes != 0 && changing[next.code] && end - anchor < kMaxSegmentBytes;
         next = char_at(text, end)) {
      end += next.bytes;
    }
    out += text.substr(done, anchor - done);
    out += compose_segment(text.substr(anchor, end - anchor));
    done = anchor = at = end;
  }
  out += text.substr(done);
  return out;
}

}  // namespace hearth::models
