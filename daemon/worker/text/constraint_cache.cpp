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
    // A byte of no character, with which the symbols of marks begin.
    if (pieces.back().find('\xFF') != std::string_view::npos) pieces.back() = {};
  }
  for (size_t i = 0; i < marks.size(); ++i) pieces[marks[i]] = symbols[i];
  return std::make_shared<engine::TokenTrie>(pieces);
}

}  // namespace

const CompiledConstraint* ConstraintCache::find(const std::string& key) {
  const auto found = std::ranges::find(kept_, key, [](const auto& entry) { return entry.first; });
  if (found != kept_.end() && !found->second.constraint->full()) {
    kept_.splice(kept_.begin(), kept_, found);
    return &kept_.front().second;
  }
  if (found != kept_.end()) kept_.erase(found);
  return nullptr;
}

const CompiledConstraint& ConstraintCache::keep(std::string key, engine::Grammar grammar,
                                                std::shared_ptr<const engine::TokenTrie> trie,
                                                bool strip_first_space,
                                                std::vector<std::string> relaxed) {
  auto made =
      std::make_shared<engine::Constraint>(std::move(grammar), std::move(trie), strip_first_space);
  // The first mask costs the most, and here no step waits for it.
  made->mask(engine::Constraint::kStart);
  kept_.emplace_front(std::move(key), CompiledConstraint{std::move(made), std::move(relaxed)});
  if (kept_.size() > kKept) kept_.pop_back();
  return kept_.front().second;
}

Result<CompiledConstraint> ConstraintCache::get(const std::string& json_schema,
                                                const std::string& grammar, bool strip_first_space,
                                                bool relax) {
  const bool schema = !json_schema.empty();
  std::string key = schema ? "s" : "g";
  key += strip_first_space ? "1" : "0";
  key += relax ? "1" : "0";
  key += schema ? json_schema : grammar;
  if (const CompiledConstraint* known = find(key)) return *known;
  std::vector<std::string> relaxed;
  HEARTH_ASSIGN_OR_RETURN(engine::Grammar compiled,
                          schema
                              ? engine::compile_json_schema(json_schema, relax ? &relaxed : nullptr)
                              : engine::compile_gbnf(grammar));
  if (trie_ == nullptr) trie_ = make_trie(tokenizer_, {});
  return keep(std::move(key), std::move(compiled), trie_, strip_first_space, std::move(relaxed));
}

Result<CompiledConstraint> ConstraintCache::get(const engine::CallGrammar& calls,
                                                const std::vector<int32_t>& mark_ids, bool relax) {
  std::string key = "c";
  for (const bool each : {calls.among_text, calls.one_call, calls.reasoning_open, relax}) {
    key += each ? "1" : "0";
  }
  for (const engine::CallableFunction& function : calls.functions) {
    key += function.name + (function.strict ? "!\n" : "\n") + function.schema + "\n";
  }
  if (const CompiledConstraint* known = find(key)) return *known;
  std::vector<std::string> relaxed;
  HEARTH_ASSIGN_OR_RETURN(
      engine::Grammar compiled,
      engine::compile_call_grammar(calls, relax || calls.among_text ? &relaxed : nullptr));
  // The marks depend on the model, not on the functions, but may differ with and without tools.
  if (marked_trie_ == nullptr || marked_ids_ != mark_ids) {
    marked_trie_ = make_trie(tokenizer_, mark_ids);
    marked_ids_ = mark_ids;
  }
  return keep(std::move(key), std::move(compiled), marked_trie_, false, std::move(relaxed));
}

}  // namespace hearth::worker
