// Parses the parameters by which these APIs and those of other servers ask for reasoning, or for
// none.

#include "daemon/http/requests/request_members.h"

namespace hearth::http {
namespace {

void set(Members& in, std::string_view name, std::string_view reasoning, Json& request) {
  const auto found = request.find("reasoning");
  if (found != request.end() && *found != reasoning) {
    return in.invalid(name, "contradicts another parameter about reasoning");
  }
  request["reasoning"] = reasoning;
}

/// `none` asks for no reasoning. Any other effort is passed to the template, which may know it.
void take_effort(Members& in, std::string_view name, std::string_view effort, Json& request) {
  if (effort == "none") return set(in, name, "off", request);
  if (!is_effort(effort)) {
    return in.invalid(name, "want none, minimal, low, medium, high, xhigh or max");
  }
  set(in, name, "on", request);
  pass_effort(effort, request);
}

/// {"type":"disabled"}, {"type":"enabled","budget_tokens":1024} or {"type":"adaptive"}.
void take_thinking(Members& in, Json& thinking, Json& request) {
  if (!thinking.is_object()) return in.wrong("thinking", thinking, "an object");
  Members inner(thinking, "thinking.");
  const std::string type = inner.text("type").value_or("");
  if (type == "disabled") {
    set(in, "thinking", "off", request);
  } else if (type == "enabled") {
    set(in, "thinking", "on", request);
  } else if (type != "adaptive") {
    inner.invalid("type", "want enabled, adaptive or disabled");
  }
  if (const Json* budget = inner.take("budget_tokens")) {
    if (!budget->is_number_unsigned() || *budget == 0) {
      inner.wrong("budget_tokens", *budget, "an integer from 1");
    }
    inner.ignore("thinking.budget_tokens");
  }
  // Reasoning is always returned.
  if (inner.text("display").value_or("") == "omitted") inner.ignore("thinking.display");
  inner.check_unknown();
  in.join(inner);
}

}  // namespace

bool is_effort(std::string_view effort) {
  constexpr std::string_view kEfforts[] = {"minimal", "low", "medium", "high", "xhigh", "max"};
  return std::ranges::find(kEfforts, effort) != std::end(kEfforts);
}

void pass_effort(std::string_view effort, Json& request) {
  Json& members = request["template_kwargs"];
  if (members.is_null()) members = Json::object();
  if (members.is_object() && !members.contains("reasoning_effort")) {
    members["reasoning_effort"] = effort;
  }
}

void take_reasoning(Members& in, Json& request) {
  if (const auto effort = in.text("reasoning_effort")) {
    take_effort(in, "reasoning_effort", *effort, request);
  }
  if (const Json* enabled = in.take("enable_thinking")) {
    if (!enabled->is_boolean()) return in.wrong("enable_thinking", *enabled, "true or false");
    set(in, "enable_thinking", *enabled == true ? "on" : "off", request);
  }
  if (Json* thinking = in.take("thinking")) take_thinking(in, *thinking, request);
  Json* reasoning = in.take("reasoning");
  if (reasoning == nullptr) return;
  if (!reasoning->is_object()) return in.wrong("reasoning", *reasoning, "an object");
  Members inner(*reasoning, "reasoning.");
  if (const auto effort = inner.text("effort"))
    take_effort(in, "reasoning.effort", *effort, request);
  for (const char* name : {"summary", "generate_summary"}) inner.text(name);  // all is returned
  inner.check_unknown();
  in.join(inner);
}

}  // namespace hearth::http
