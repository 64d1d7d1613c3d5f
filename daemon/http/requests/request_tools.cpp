// Parses the functions that the model may call, in the format of each API.

#include "daemon/http/requests/request_members.h"

namespace hearth::http {
namespace {

/// Takes {"name":..., "description":..., "parameters":{...}} from `from`, whose schema member is
/// called `schema`. Unknown members are refused by name, which the caller checks.
/// `relaxed`: set if the function is declared not to be strict.
Json take_function(Members& from, std::string_view schema, bool* relaxed) {
  Json out = Json::object();
  if (const auto name = from.text("name")) {
    out["name"] = *name;
  } else {
    from.invalid("name", "absent, want a string");
  }
  if (const auto description = from.text("description")) out["description"] = *description;
  if (Json* parameters = from.take(schema)) {
    if (parameters->is_object()) {
      out["parameters"] = std::move(*parameters);
    } else {
      from.wrong(schema, *parameters, "a JSON schema");
    }
  }
  *relaxed = *relaxed || from.is_false("strict");
  if (from.flag("strict", false)) out["strict"] = true;
  return out;
}

/// The members that only Anthropic's tools have.
void take_anthropic_members(Members& from) {
  if (const Json* examples = from.take("input_examples")) {
    if (!examples->is_array()) from.wrong("input_examples", *examples, "a list");
    from.ignore("tools.input_examples");
  }
  if (from.flag("eager_input_streaming", false)) from.ignore("tools.eager_input_streaming");
  from.only("defer_loading", {Json(false)});
  from.only("allowed_callers", {Json::array({"direct"})});
}

/// {"type":"text"}, or {"type":"grammar","syntax":"regex","definition":"[0-9]+"}; chat's has an
/// object around the last two. Adds a pattern, which the whole input matches, or a grammar of it
/// (syntax lark) to the schema `input`.
void take_input_format(Members& tool, Json& format, ToolWords words, Json* input) {
  if (!format.is_object()) return tool.wrong("format", format, "an object");
  Members outer(format, tool.path_of("format") + ".");
  const std::string type = outer.text("type").value_or("text");
  Json* const holder = words == ToolWords::kChat ? outer.take("grammar") : &format;
  if (type == "grammar" && (holder == nullptr || !holder->is_object())) {
    outer.invalid("grammar", "absent, want an object");
  } else if (type == "grammar") {
    const bool nested = holder != &format;
    std::optional<Members> own;
    if (nested) own.emplace(*holder, outer.path_of("grammar") + ".");
    Members& grammar = nested ? *own : outer;
    const std::string syntax = grammar.text("syntax").value_or("");
    if (syntax != "regex" && syntax != "lark") {
      grammar.unsupported("syntax", "want regex or lark");
    }
    const auto definition = grammar.text("definition");
    if (!definition) {
      grammar.invalid("definition", "absent, want a string");
    } else if (syntax == "lark") {
      (*input)["lark"] = *definition;
    } else {
      const bool anchored = definition->starts_with('^') && definition->ends_with('$') &&
                            !definition->ends_with("\\$");
      (*input)["pattern"] = anchored ? *definition : fmt::format("^({})$", *definition);
    }
    if (nested) {
      grammar.check_unknown();
      outer.join(grammar);
    }
  } else if (type != "text") {
    outer.unsupported("type", "want text or grammar");
  }
  outer.check_unknown();
  tool.join(outer);
}

/// A custom tool, as a function with one text.
Json take_custom(Members& from, ToolWords words, std::string sent,
                 std::vector<CustomTool>* custom) {
  Json* const holder = words == ToolWords::kChat ? from.take("custom") : nullptr;
  if (words == ToolWords::kChat && (holder == nullptr || !holder->is_object())) {
    from.invalid("custom", "absent, want an object");
    return {};
  }
  std::optional<Members> own;
  if (holder != nullptr) own.emplace(*holder, from.path_of("custom") + ".");
  Members& tool = own ? *own : from;
  Json function = {{"name", tool.text("name").value_or("")}};
  if (function["name"] == "") tool.invalid("name", "absent, want a string");
  if (const auto description = tool.text("description")) function["description"] = *description;
  Json input = {{"type", "string"}};
  if (Json* format = tool.take("format")) take_input_format(tool, *format, words, &input);
  custom->push_back({.name = function["name"].get<std::string>(), .sent = std::move(sent)});
  Json properties = Json::object();
  properties[kCustomParameter] = std::move(input);
  function["parameters"] = {{"type", "object"},
                            {"properties", std::move(properties)},
                            {"required", Json::array({kCustomParameter})},
                            {"additionalProperties", false}};
  function["strict"] = true;
  if (own) {
    tool.check_unknown();
    from.join(tool);
  }
  return function;
}

Json take_tool(Members& in, Json& tool, size_t index, ToolWords words, bool* relaxed,
               std::vector<CustomTool>* custom) {
  const std::string path = fmt::format("tools[{}]", index);
  if (!tool.is_object()) {
    in.wrong(path, tool, "an object");
    return {};
  }
  const auto named_type = tool.find("type");
  const bool is_custom = custom != nullptr && named_type != tool.end() && *named_type == "custom";
  std::string sent = is_custom ? ipc::dump_json(tool) : std::string();
  Members from(tool, path + ".");
  const std::string plain = words == ToolWords::kMessages ? "custom" : "function";
  const std::string type =
      from.text("type").value_or(words == ToolWords::kMessages ? plain : std::string());
  if (type != plain && !is_custom) {
    from.unsupported("type", fmt::format("met '{}'; of tools only functions of the client's own "
                                         "are supported ({})",
                                         ipc::printable(type), plain));
  }
  Json function;
  Kept kept;
  if (is_custom) {
    function = take_custom(from, words, std::move(sent), custom);
  } else if (words == ToolWords::kChat) {
    Json* inner = from.take("function");
    if (inner == nullptr || !inner->is_object()) {
      from.invalid("function", "absent, want an object");
    } else {
      Members members(*inner, path + ".function.");
      function = take_function(members, "parameters", relaxed);
      kept.add(take_cache_control(members), 0);
      members.check_unknown();
      in.join(members);
    }
  } else {
    function =
        take_function(from, words == ToolWords::kMessages ? "input_schema" : "parameters", relaxed);
  }
  kept.add(take_cache_control(from), 0);
  if (words == ToolWords::kMessages) take_anthropic_members(from);
  from.check_unknown();
  in.join(from);
  Json out = {{"type", "function"}, {"function", std::move(function)}};
  kept.write_to(out);
  return out;
}

/// {"type":"allowed_tools","mode":"auto","tools":[...]}; chat's has an object around the last two.
/// Returns the mode, and the names of the functions that may be called.
std::string take_allowed(Members& choice, ToolWords words, std::vector<std::string>* allowed) {
  Json* const holder = words == ToolWords::kChat ? choice.take("allowed_tools") : nullptr;
  if (words == ToolWords::kChat && (holder == nullptr || !holder->is_object())) {
    choice.invalid("allowed_tools", "absent, want an object");
    return "auto";
  }
  std::optional<Members> nested;
  if (holder != nullptr) nested.emplace(*holder, choice.path_of("allowed_tools") + ".");
  Members& from = nested ? *nested : choice;
  const std::string mode = from.text("mode").value_or("");
  if (mode != "auto" && mode != "required") from.invalid("mode", "want auto or required");
  Json* const tools = from.take("tools");
  if (tools == nullptr || !tools->is_array() || tools->empty()) {
    from.invalid("tools", "want a list of functions");
  } else {
    for (size_t i = 0; i < tools->size() && !from.failed(); ++i) {
      const Json& tool = (*tools)[i];
      const char* const holder_name =
          tool.is_object() && tool.value("type", Json()) == "custom" ? "custom" : "function";
      const Json function =
          words == ToolWords::kChat && tool.is_object() ? tool.value(holder_name, Json()) : tool;
      const Json name = function.is_object() ? function.value("name", Json()) : Json();
      if (!name.is_string()) {
        from.invalid(fmt::format("tools[{}]", i), "want a function with a name");
      } else {
        allowed->push_back(name.get<std::string>());
      }
    }
  }
  if (nested) {
    from.check_unknown();
    choice.join(from);
  }
  return mode;
}

/// Returns auto, none, required or a function's name. `allowed`: the functions that may be called;
/// empty: all.
std::string take_choice(Members& in, ToolWords words, bool* one_call,
                        std::vector<std::string>* allowed) {
  Json* choice = in.take("tool_choice");
  if (choice == nullptr) return "auto";
  const std::string want = words == ToolWords::kMessages
                               ? "an object of type auto, any, none or tool"
                               : "auto, none, required or a function";
  if (choice->is_string() && words != ToolWords::kMessages) {
    const auto& text = choice->get_ref<const std::string&>();
    if (text == "auto" || text == "none" || text == "required") return text;
  }
  if (!choice->is_object()) {
    in.wrong("tool_choice", *choice, want);
    return "auto";
  }
  Members from(*choice, "tool_choice.");
  const std::string type = from.text("type").value_or("");
  std::string out = "auto";
  if (words == ToolWords::kMessages) {
    *one_call = from.flag("disable_parallel_tool_use", false);
    if (type == "any") out = "required";
    if (type == "none") out = "none";
    if (type == "tool") out = from.text("name").value_or("");
    if (type != "auto" && type != "any" && type != "none" && type != "tool") {
      from.invalid("type", "want auto, any, none or tool");
    }
  } else if (type == "allowed_tools") {
    out = take_allowed(from, words, allowed);
  } else if (type == "function" || type == "custom") {
    const Json* holder = words == ToolWords::kChat ? from.take(type) : choice;
    if (words == ToolWords::kResponses) from.take("name");
    const bool named = holder != nullptr && holder->is_object() && holder->contains("name") &&
                       (*holder)["name"].is_string();
    out = named ? (*holder)["name"].get<std::string>() : std::string();
  } else {
    from.unsupported("type", "want function, custom or allowed_tools");
  }
  if (out.empty()) from.invalid("name", "absent, want a string");
  from.check_unknown();
  in.join(from);
  return out;
}

/// Leaves the functions that may be called.
void keep_allowed(Members& in, const std::vector<std::string>& allowed, Json& tools) {
  Json kept = Json::array();
  for (const std::string& name : allowed) {
    const auto found = std::ranges::find_if(
        tools, [&name](const Json& tool) { return tool["function"]["name"] == name; });
    if (found == tools.end()) {
      return in.invalid("tool_choice",
                        fmt::format("allows '{}', which is not among tools", ipc::printable(name)));
    }
  }
  for (Json& tool : tools) {
    const Json& name = tool["function"]["name"];
    if (std::ranges::find(allowed, name.get<std::string>()) != allowed.end())
      kept.push_back(std::move(tool));
  }
  tools = std::move(kept);
}

// The bounds on a call's arguments as text are those on the same object within a body.
Result<Json> parse_arguments(std::string_view text, size_t* value_bytes) {
  // The levels around it: request, messages, message, calls, call, function.
  constexpr int kDepthAround = 6;
  ipc::JsonLimits limits = kBodyLimits;
  limits.max_depth -= kDepthAround;
  limits.max_value_bytes = kMaxArgumentValueBytes - *value_bytes;
  limits.last_key_applies = true;  // a model repeats keys, and clients send its calls back
  return ipc::parse_json_object(text, limits, value_bytes);
}

}  // namespace

Json made_call(Members& in, std::string_view field, const std::string& id, const std::string& name,
               Json arguments, size_t* value_bytes) {
  // Templates need an object; the OpenAI APIs send it as text.
  if (arguments.is_string()) {
    Result<Json> object = parse_arguments(arguments.get_ref<const std::string&>(), value_bytes);
    if (object) {
      arguments = std::move(*object);
    } else if (object.error().code == ErrorCode::kTooLarge) {
      in.invalid(field, object.error().message);
    }  // Text that is not a JSON object stays text.
  }
  return {{"id", id},
          {"type", "function"},
          {"function", {{"name", name}, {"arguments", std::move(arguments)}}}};
}

void take_tools(Members& in, ToolWords words, Json& request, std::vector<CustomTool>* custom) {
  in.pass("tool_form", request);
  bool one_call = false;
  std::vector<std::string> allowed;
  const std::string choice = take_choice(in, words, &one_call, &allowed);
  if (words != ToolWords::kMessages) one_call = !in.flag("parallel_tool_calls", true);
  Json* tools = in.take("tools");
  if (tools != nullptr && !tools->is_array()) return in.wrong("tools", *tools, "a list");
  if (tools == nullptr || tools->empty()) {
    if (choice != "auto" && choice != "none") {
      in.invalid("tool_choice", "met it without tools");
    }
    return;
  }
  Json list = Json::array();
  bool relaxed = false;
  for (size_t i = 0; i < tools->size() && !in.failed(); ++i) {
    list.push_back(take_tool(in, (*tools)[i], i, words, &relaxed, custom));
  }
  if (!allowed.empty() && !in.failed()) keep_allowed(in, allowed, list);
  request["tools"] = std::move(list);
  if (relaxed) request["relax_schema"] = true;
  request["tool_choice"] = choice;
  request["parallel_tool_calls"] = !one_call;
}

}  // namespace hearth::http
