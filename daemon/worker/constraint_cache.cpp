#include "daemon/worker/constraint_cache.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "engine/grammar/constraint.h"

namespace hearth::worker {
namespace {

constexpr size_t kKept = 4;

std::shared_ptr<const engine::TokenTrie> make_trie(const models::Tokenizer& tokenizer) {
  std::vector<std::string_view> pieces;
  pieces.reserve(static_cast<size_t>(tokenizer.vocab_size()));
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const bool text = !tokenizer.is_control(id) && !tokenizer.is_end_of_generation(id);
    pieces.push_back(text ? tokenizer.piece(id) : std::string_view());
  }
  return std::make_shared<engine::TokenTrie>(pieces);
}

}  // namespace

Result<std::shared_ptr<engine::Constraint>> ConstraintCache::get(const std::string& json_schema,
                                                                 const std::string& grammar,
                                                                 bool strip_first_space) {
  const bool schema = !json_schema.empty();
  std::string key = schema ? "s" : "g";
  key += strip_first_space ? "1" : "0";
  key += schema ? json_schema : grammar;
  const auto found = std::ranges::find(kept_, key, [](const auto& entry) { return entry.first; });
  if (found != kept_.end() && !found->second->full()) {
    kept_.splice(kept_.begin(), kept_, found);
    return kept_.front().second;
  }
  if (found != kept_.end()) kept_.erase(found);
  HEARTH_ASSIGN_OR_RETURN(engine::Grammar compiled, schema
                                                        ? engine::compile_json_schema(json_schema)
                                                        : engine::compile_gbnf(grammar));
  if (trie_ == nullptr) trie_ = make_trie(tokenizer_);
  auto made = std::make_shared<engine::Constraint>(std::move(compiled), trie_, strip_first_space);
  // The first mask is the dearest, and no step waits for it here.
  made->mask(engine::Constraint::kStart);
  kept_.emplace_front(std::move(key), made);
  if (kept_.size() > kKept) kept_.pop_back();
  return made;
}

}  // namespace hearth::worker
