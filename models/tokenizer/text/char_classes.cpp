#include "models/tokenizer/text/char_classes.h"

#include <utf8proc.h>

#include <vector>

#include "kernels/base/chars.h"
#include "kernels/base/numbers.h"
#include "models/tokenizer/text/utf8.h"

namespace hearth::models {
namespace {

constexpr uint32_t kNumCodes = 0x110000;
constexpr uint32_t kReplacementCode = 0xFFFD;

// White_Space is a property, not a general category; it has not changed since Unicode 6.3.
bool is_white_space(uint32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

uint8_t classes_of(uint32_t code) {
  if (is_white_space(code)) return kSpace;
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: return kUpper;
    case UTF8PROC_CATEGORY_LL: return kLower;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return kOtherLetter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return kMark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return kNumber;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return kPunctuation;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO: return kSymbol;
    default: return 0;
  }
}

// 1.1 MB, of which a text touches only the pages of its scripts. Filled once, in about 10 ms.
const std::vector<uint8_t>& table() {
  static const std::vector<uint8_t> filled = [] {
    std::vector<uint8_t> classes(kNumCodes);
    for (uint32_t code = 0; code < kNumCodes; ++code) classes[code] = classes_of(code);
    return classes;
  }();
  return filled;
}

uint32_t decode_whole(std::string_view bytes) {
  uint32_t code = byte_of(bytes[0]) & (0xFFU >> (bytes.size() + 1));
  for (const char byte : bytes.substr(1)) code = code << 6 | (byte_of(byte) & 0x3F);
  return code;
}

}  // namespace

uint8_t char_classes(uint32_t code) { return table()[code]; }

Char detail::wide_char_at(std::string_view text, size_t at) {
  const Utf8Char front = front_char(text.substr(at));
  const uint32_t code = front.kind == Utf8Char::Kind::kWhole
                            ? decode_whole(text.substr(at, front.bytes))
                            : kReplacementCode;
  return {code, narrow<uint32_t>(front.bytes), table()[code]};
}

}  // namespace hearth::models
