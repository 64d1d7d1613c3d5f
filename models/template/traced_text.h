#pragma once
// A text that records which of its bytes are data: the words of users, tools and documents, in
// contrast to the template's own. Only the template's own may become control tokens.

#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizer/vocabulary/byte_span.h"

namespace hearth::models {

struct TracedText {
  std::string text;
  std::vector<ByteSpan> data;  ///< ascending, disjoint, not adjacent

  void add_data(std::string_view bytes) {
    add_span(text.size(), text.size() + bytes.size());
    text += bytes;
  }
  void add(const TracedText& more) {
    for (const ByteSpan& span : more.data)
      add_span(text.size() + span.begin, text.size() + span.end);
    text += more.text;
  }
  /// Records that the bytes from `begin` to before `end` are data; no data follows `begin`.
  void add_span(size_t begin, size_t end) {
    if (begin == end) return;
    if (!data.empty() && data.back().end == begin) {
      data.back().end = end;
    } else {
      data.push_back({begin, end});
    }
  }
};

}  // namespace hearth::models
