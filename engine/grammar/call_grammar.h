#pragma once
// The grammar of an answer that has to call a function: the marks of the model's format, the name
// of one of the functions, and arguments that are valid against its schema.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/grammar.h"
#include "models/answer/reasoning_splitter.h"
#include "models/answer/tool_format.h"

namespace hearth::engine {

struct CallableFunction {
  std::string name;
  std::string schema;  ///< of its arguments, JSON text
};

struct CallGrammar {
  const models::ToolFormat* format = nullptr;
  std::vector<CallableFunction> functions;  ///< at least one of them is called
  bool one_call = false;
  models::ReasoningMarks reasoning;  ///< may come before the call
  bool reasoning_open = false;       ///< the prompt has begun it: it must end first
  /// Marks that are control tokens of the vocabulary: each is one symbol, see mark_symbol().
  std::vector<std::string> control_marks;
};

/// The bytes that represent control mark `index` in a grammar and in a TokenTrie's pieces. No text
/// contains them, so only the mark itself matches.
std::string mark_symbol(size_t index);

/// The parameters of a function's schema whose values are always strings; none of one that is not
/// valid.
std::vector<std::string> string_parameters(std::string_view schema);

/// Errors name the function and have the field tools. `relaxed`: as in compile_json_schema().
Result<Grammar> compile_call_grammar(const CallGrammar& wanted,
                                     std::vector<std::string>* relaxed = nullptr);

}  // namespace hearth::engine
