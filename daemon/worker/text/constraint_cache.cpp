#include "daemon/worker/text/constraint_cache.h"

#include <algorithm>
#include <string_view>

#include "engine/grammar/constraint.h"

namespace hearth::worker {
namespace {

constexpr size_t kKept = 4;

// `marks`: control tokens that a grammar may use, each as its own symbol.
std::shared_ptr<const engine::TokenTrie> make_trie(const models::Tokenizer& tokenizer,
                                                   const std::vector<int32_t>& marks) {
  std::vector<std::string> symbols;
  for (size_t i = 0; i < marks.size(); ++i) symbols.push_back(engine::mark_symbol(i));
  std::vector<std::string_view> pieces;
  pieces.reserve(tokenizer.vocab_size());
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const bool text = !tokenizer.is_control(id) && !tokenizer.is_end_of_generation(id);
    pieces.push_back(text ? tokenizer.piece(id) : std::string_view());
  }
  for (size_t i = 0; i < marks.size(); ++i) pieces[marks[i]] = symbols[i];
  return std::make_shared<engine::TokenTrie>(pieces);
}

}  // namespace

std::shared_ptr<engine::Constraint> ConstraintCache::find(const std::string& key) {
  const auto found = std::ranges::find(kept_, key, [](const auto& entry) { return entry.first; });
  if (found != kept_.end() && !found->second->full()) {
    kept_.splice(kept_.begin(), kept_, found);
    return kept_.front().second;
  }
  if (found != kept_.end()) kept_.erase(found);
  return nullptr;
}

std::shared_ptr<engine::Constraint> ConstraintCache::keep(
    std::string key, engine::Grammar grammar, std::shared_ptr<const engine::TokenTrie> trie,
    bool strip_first_space) {
  auto made =
      std::make_shared<engine::Constraint>(std::move(grammar), std::move(trie), strip_first_space);
  // The first mask costs the most, and here no step waits for it.
  made->mask(engine::Constraint::kStart);
  kept_.emplace_front(std::move(key), made);
  if (kept_.size() > kKept) kept_.pop_back();
  return made;
}

Result<std::shared_ptr<engine::Constraint>> ConstraintCache::get(const std::string& json_schema,
                                                                 const std::string& grammar,
                                                                 bool strip_first_space) {
  const bool schema = !json_schema.empty();
  std::string key = schema ? "s" : "g";
  key += strip_first_space ? "1" : "0";
  key += schema ? json_schema : grammar;
  if (auto known = find(key)) return known;
  HEARTH_ASSIGN_OR_RETURN(engine::Grammar compiled, schema
                                                        ? engine::compile_json_schema(json_schema)
                                                        : engine::compile_gbnf(grammar));
  if (trie_ == nullptr) trie_ = make_trie(tokenizer_, {});
  return keep(std::move(key), std::move(compiled), trie_, strip_first_space);
}

Result<std::shared_ptr<engine::Constraint>> ConstraintCache::get(
    const engine::CallGrammar& calls, const std::vector<int32_t>& mark_ids) {
  std::string key = "c";
  key += calls.one_call ? "1" : "0";
  key += calls.reasoning_open ? "1" : "0";
  for (const engine::CallableFunction& function : calls.functions) {
    key += function.name + "\n" + function.schema + "\n";
  }
  if (auto known = find(key)) return known;
  HEARTH_ASSIGN_OR_RETURN(engine::Grammar compiled, engine::compile_call_grammar(calls));
  // The marks depend on the model, not on the functions, but may differ with and without tools.
  if (marked_trie_ == nullptr || marked_ids_ != mark_ids) {
    marked_trie_ = make_trie(tokenizer_, mark_ids);
    marked_ids_ = mark_ids;
  }
  return keep(std::move(key), std::move(compiled), marked_trie_, false);
}

}  // namespace hearth::worker
