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

std::optional<TextRule> text_rule(const ipc::GenerateRequest& request) {
  using Kind = TextRule::Kind;
  for (const auto& [kind, text] : {std::pair(Kind::kSchema, std::string_view(request.json_schema)),
                                   {Kind::kGrammar, request.grammar},
                                   {Kind::kRegex, request.regex}}) {
    if (!text.empty()) return TextRule{kind, text};
  }
  return std::nullopt;
}

Result<CompiledConstraint> ConstraintCache::get(const TextRule& rule, bool strip_first_space,
                                                bool relax) {
  std::string key(1, to_underlying(rule.kind));
  key += strip_first_space ? "1" : "0";
  key += relax ? "1" : "0";
  key += rule.text;
  if (const CompiledConstraint* known = find(key)) return *known;
  std::vector<std::string> relaxed;
  const auto compile = [&]() -> Result<engine::Grammar> {
    switch (rule.kind) {
      case TextRule::Kind::kGrammar: return engine::compile_gbnf(rule.text);
      case TextRule::Kind::kRegex: return engine::compile_regex(rule.text);
      case TextRule::Kind::kSchema: break;
    }
    return engine::compile_json_schema(rule.text, relax ? &relaxed : nullptr);
  };
  HEARTH_ASSIGN_OR_RETURN(engine::Grammar compiled, compile());
  if (trie_ == nullptr) trie_ = make_trie(tokenizer_, {});
  return keep(std::move(key), std::move(compiled), trie_, strip_first_space, std::move(relaxed));
}

Result<CompiledConstraint> ConstraintCache::get(const engine::CallGrammar& calls,
                                                const std::vector<int32_t>& mark_ids, bool relax) {
  std::string key = "c";
  for (const bool each : {calls.among_text, calls.one_call, calls.reasoning_open, relax}) {
    key += each ? "1" : "0";
  }
  key += calls.relax_answer ? "1" : "0";
  key += calls.answer_schema + "\n";
  for (const engine::CallableFunction& function : calls.functions) {
    key += function.name + (function.strict ? "!\n" : "\n") + function.schema + "\n";
  }
  if (const CompiledConstraint* known = find(key)) return *known;
  std::vector<std::string> relaxed;
  const bool free = calls.among_text || !calls.answer_schema.empty();  // to call or not
  HEARTH_ASSIGN_OR_RETURN(engine::Grammar compiled,
                          engine::compile_call_grammar(calls, relax || free ? &relaxed : nullptr));
  // The marks depend on the model, not on the functions, but may differ with and without tools.
  if (marked_trie_ == nullptr || marked_ids_ != mark_ids) {
    marked_trie_ = make_trie(tokenizer_, mark_ids);
    marked_ids_ = mark_ids;
  }
  return keep(std::move(key), std::move(compiled), marked_trie_, false, std::move(relaxed));
}

}  // namespace hearth::worker
