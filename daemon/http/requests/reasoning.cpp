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
  constexpr std::string_view kEfforts[] = {"minimal", "low", "medium", "high", "xhigh", "max"};
  if (std::ranges::find(kEfforts, effort) == std::end(kEfforts)) {
    return in.invalid(name, "want none, minimal, low, medium, high, xhigh or max");
  }
  set(in, name, "on", request);
  Json& members = request["template_kwargs"];
  if (members.is_null()) members = Json::object();
  if (members.is_object() && !members.contains("reasoning_effort")) {
    members["reasoning_effort"] = effort;
  }
}

/// {"type":"disabled"}, {"type":"enabled","budget_tokens":1024} or {"type":"adaptive"}.
void take_thinking(Members& in, Json& thinking, Call& call, Json& request) {
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
    call.ignored.push_back("thinking.budget_tokens");
  }
  inner.text("display");  // reasoning is always returned
  inner.check_unknown();
  in.take_error_of(inner);
}

}  // namespace

void take_reasoning(Members& in, Call& call, Json& request) {
  if (const auto effort = in.text("reasoning_effort")) {
    take_effort(in, "reasoning_effort", *effort, request);
  }
  if (const Json* enabled = in.take("enable_thinking")) {
    if (!enabled->is_boolean()) return in.wrong("enable_thinking", *enabled, "true or false");
    set(in, "enable_thinking", *enabled == true ? "on" : "off", request);
  }
  if (Json* thinking = in.take("thinking")) take_thinking(in, *thinking, call, request);
  Json* reasoning = in.take("reasoning");
  if (reasoning == nullptr) return;
  if (!reasoning->is_object()) return in.wrong("reasoning", *reasoning, "an object");
  Members inner(*reasoning, "reasoning.");
  if (const auto effort = inner.text("effort"))
    take_effort(in, "reasoning.effort", *effort, request);
  for (const char* name : {"summary", "generate_summary"}) inner.text(name);  // all is returned
  inner.check_unknown();
  in.take_error_of(inner);
}

}  // namespace hearth::http
