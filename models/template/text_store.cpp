#include "models/template/text_store.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

namespace hearth::models::jinja {
namespace {

constexpr size_t kChunkBytes = 128 << 10;
/// A text of at least this many bytes becomes a chunk of its own, without a copy.
constexpr size_t kLongBytes = 32 << 10;

const char* address_of(const TracedText* chunk) { return chunk->text.data(); }

/// The first span that ends after `begin`.
auto span_after(const TracedText& chunk, size_t begin) {
  return std::ranges::upper_bound(chunk.data, begin, {}, &ByteSpan::end);
}

}  // namespace

TextStore::Chunk& TextStore::add(Chunk chunk) {
  Chunk& added = chunks_.emplace_back(std::move(chunk));
  by_address_.insert(std::ranges::upper_bound(by_address_, added.text.data(), {}, address_of),
                     &added);
  return added;
}

const TextStore::Chunk* TextStore::find(std::string_view text) const {
  if (text.empty()) return nullptr;
  const auto after = std::ranges::upper_bound(by_address_, text.data(), {}, address_of);
  if (after == by_address_.begin()) return nullptr;
  const Chunk& chunk = **std::prev(after);
  const bool inside = std::less<>()(text.data(), chunk.text.data() + chunk.text.size());
  return inside ? &chunk : nullptr;
}

std::string_view TextStore::keep(TracedText text) {
  if (text.text.empty()) return {};
  if (text.text.size() >= kLongBytes) return add(std::move(text)).text;
  if (open_ == nullptr || open_->text.capacity() - open_->text.size() < text.text.size()) {
    Chunk chunk;
    chunk.text.reserve(kChunkBytes);
    open_ = &add(std::move(chunk));
  }
  const size_t begin = open_->text.size();
  open_->text += text.text;
  for (const ByteSpan& span : text.data) open_->add_span(begin + span.begin, begin + span.end);
  return std::string_view(open_->text).substr(begin);
}

void TextStore::append(TracedText& to, std::string_view text) const {
  const size_t at = to.text.size();
  to.text += text;
  const TracedText* const chunk = find(text);
  if (chunk == nullptr) return;
  const size_t begin = text.data() - chunk->text.data(), end = begin + text.size();
  for (auto span = span_after(*chunk, begin); span != chunk->data.end() && span->begin < end;
       ++span) {
    to.add_span(at + std::max(span->begin, begin) - begin, at + std::min(span->end, end) - begin);
  }
}

bool TextStore::has_data(std::string_view text) const {
  const TracedText* const chunk = find(text);
  if (chunk == nullptr) return false;
  const size_t begin = text.data() - chunk->text.data();
  const auto span = span_after(*chunk, begin);
  return span != chunk->data.end() && span->begin < begin + text.size();
}

}  // namespace hearth::models::jinja
