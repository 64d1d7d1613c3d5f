#pragma once
// The formats in which families of models write calls of functions. A model's format is detected
// from its chat template: see answer_format.h.

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::models {

enum class CallStyle {
  kObject,    ///< open, one JSON object with name and arguments, close
  kList,      ///< open, a JSON list of such objects, close
  kNamed,     ///< open, lead, the name, name_end, the arguments' JSON, close
  kTagged,    ///< as kNamed, with marks around each argument; see tagged_arguments.h
  kQuoted,    ///< as kNamed, with marks around strings; see quoted_arguments.h
  kChannels,  ///< messages with a header each, to functions.NAME; see channel_parser.h
};

/// The marks around each argument of a call, and after the last one.
struct ArgumentTags {
  std::string_view key_begin;  ///< before an argument's name
  std::string_view key_end;    ///< after it
  /// In place of key_end if the value is not a string; "": strings are not marked.
  std::string_view json_key_end;
  std::string_view value_begin;  ///< "": the value follows key_end
  std::string_view value_end;
  std::string_view end;  ///< after the arguments
  bool lines = false;    ///< the value is on lines of its own
};

/// All texts are ASCII or complete characters. Blanks between them may differ in an answer.
struct ToolFormat {
  std::string_view id;  ///< for people: "hermes"
  CallStyle style = CallStyle::kObject;
  std::string_view open;        ///< before a call or the list of calls; "": see `bare`
  std::string_view list_begin;  ///< kList: more text between `open` and the list
  std::string_view close;       ///< after it; may be missing at the end of the answer
  std::string_view name_key;    ///< kObject, kList
  std::string_view arguments_key;
  std::string_view lead;      ///< kNamed, kTagged, kQuoted: before the name
  std::string_view id_begin;  ///< after the name, before an identifier of the call; "": none
  std::string_view name_end;  ///< after both
  ArgumentTags tags;          ///< kTagged
  std::string_view quote;     ///< kQuoted: before and after a string
  /// The answer itself begins with the object; `optional_open` may come before it.
  bool bare = false;
  std::string_view optional_open;
  std::vector<std::string_view> around;  ///< marks around calls, without other meaning
  /// Marks that may be control tokens but are treated as text here.
  std::vector<std::string_view> marks;
  std::vector<std::string_view> ends;  ///< tokens that end an answer with calls

  /// How a call is written when a grammar enforces one.
  struct Written {
    std::string_view first;  ///< before the first call
    std::string_view before_name;
    std::string_view between;  ///< between name and arguments
    std::string_view after;    ///< after the arguments
    std::string_view separator;
    std::string_view last;  ///< after the last call
    bool several = false;
  } written;
};

/// In the order in which they are tried.
std::span<const ToolFormat> tool_formats();
/// Null if no format has that id.
const ToolFormat* find_tool_format(std::string_view id);
/// "hermes, mistral, ..."
std::string tool_format_ids();

/// Whether a character may be in a function's name: letters, digits, _ - and .
bool is_name_char(char c);
/// Whether a name has 1 to 64 of them and is not a keyword of tool_choice.
bool is_function_name(std::string_view name);

}  // namespace hearth::models
