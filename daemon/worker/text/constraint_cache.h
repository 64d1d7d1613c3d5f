#pragma once
// Schemas and grammars compiled for one model's vocabulary. The most recent ones are kept, so that
// masks computed for one request serve the next.

#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/call_grammar.h"
#include "engine/grammar/token_trie.h"
#include "engine/request.h"
#include "ipc/schema/requests.h"
#include "kernels/base/result.h"
#include "models/tokenizer/tokenizer.h"

namespace hearth::worker {

struct CompiledConstraint {
  std::shared_ptr<engine::Constraint> constraint;
  std::vector<std::string> relaxed{};  ///< what schemas lost, in words
};

/// What a request asks its text to follow.
struct TextRule {
  enum class Kind : char { kSchema = 's', kGrammar = 'g', kRegex = 'r' };
  Kind kind = Kind::kSchema;
  std::string_view text;  ///< lives as long as the request
};
/// Nothing: any text will do.
std::optional<TextRule> text_rule(const ipc::GenerateRequest& request);

/// Owned by the preparing thread. Once returned, a constraint belongs to the engine; the cache
/// holds it but does not access it.
class ConstraintCache {
 public:
  explicit ConstraintCache(const models::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// `strip_first_space`: the text drops a leading space of its first token. `relax`: a schema may
  /// lose what cannot be promised. Errors name json_schema, grammar or regex.
  Result<CompiledConstraint> get(const TextRule& rule, bool strip_first_space, bool relax);
  /// For calls. `mark_ids`: the tokens of its control marks, in order. Schemas of functions that
  /// are not strict may lose something if the model is free to call none, or if `relax` is set.
  Result<CompiledConstraint> get(const engine::CallGrammar& calls,
                                 const std::vector<int32_t>& mark_ids, bool relax);

 private:
  const CompiledConstraint* find(const std::string& key);
  const CompiledConstraint& keep(std::string key, engine::Grammar grammar,
                                 std::shared_ptr<const engine::TokenTrie> trie,
                                 bool strip_first_space, std::vector<std::string> relaxed);

  const models::Tokenizer& tokenizer_;
  std::shared_ptr<const engine::TokenTrie> trie_;         ///< created on first use
  std::shared_ptr<const engine::TokenTrie> marked_trie_;  ///< the same with these mark tokens
  std::vector<int32_t> marked_ids_;
  std::list<std::pair<std::string, CompiledConstraint>> kept_;  ///< newest first
};

}  // namespace hearth::worker
