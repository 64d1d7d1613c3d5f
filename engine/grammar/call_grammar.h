#pragma once
// The grammar of an answer that calls functions: the marks of the model's format, the name of one
// of the functions, and arguments that are valid against its schema. The call is all of the answer,
// or follows any text.

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
  std::string schema;   ///< of its arguments, JSON text
  bool strict = false;  ///< the schema is enforced as a whole, or refused
};

struct CallGrammar {
  const models::ToolFormat* format = nullptr;
  std::vector<CallableFunction> functions;
  /// false: the answer is at least one call. true: it is any text, in which the mark that opens a
  /// call can only begin a valid one.
  bool among_text = false;
  /// Not empty: the answer is calls, or JSON that is valid against this schema and nothing else.
  std::string answer_schema;
  bool relax_answer = false;  ///< what of it cannot be enforced is left out
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

/// Errors name the function and have the field tools, or json_schema for that of the answer.
/// `relaxed`: as in compile_json_schema(), of functions that are not strict.
Result<Grammar> compile_call_grammar(const CallGrammar& wanted,
                                     std::vector<std::string>* relaxed = nullptr);

}  // namespace hearth::engine
