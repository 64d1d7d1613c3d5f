#pragma once
// The texts of one rendering, and which of their bytes are data.
//
// Values refer to texts by views, and slicing makes more views of the same bytes. So the origin of
// a text is looked up by the address of its bytes: a view into this store has the origin that the
// bytes were stored with, and every other view (a literal of the template) is the template's own.

#include <deque>
#include <string_view>
#include <vector>

#include "models/template/traced_text.h"

namespace hearth::models::jinja {

class TextStore {
 public:
  /// Stores a text; the view is valid as long as the store.
  std::string_view keep(TracedText text);

  /// Appends `text` and its origin.
  void append(TracedText& to, std::string_view text) const;
  /// Whether any byte of `text` is data.
  bool has_data(std::string_view text) const;

 private:
  /// A long text, or many short ones. None grows beyond its capacity, so views stay valid.
  using Chunk = TracedText;

  Chunk& add(Chunk chunk);
  /// The chunk that holds these bytes; null: none.
  const Chunk* find(std::string_view text) const;

  std::deque<Chunk> chunks_;
  std::vector<const Chunk*> by_address_;  ///< ascending
  Chunk* open_ = nullptr;                 ///< takes further short texts
};

}  // namespace hearth::models::jinja
