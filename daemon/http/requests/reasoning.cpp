// Parses the parameters by which these APIs and those of other servers ask for reasoning, or for
// none.

#include <array>

#include "daemon/http/requests/request_members.h"

namespace hearth::http {
namespace {

constexpr auto kEfforts = std::to_array<Effort>({
    {"minimal", 512},
    {"low", 1024},
    {"medium", 8192},
    {"high", 24576},
    {"xhigh", 0},
    {"max", 0},
});

void set(Members& in, std::string_view name, std::string_view reasoning, Json& request) {
  const auto found = request.find("reasoning");
  if (found != request.end() && *found != reasoning) {
    return in.invalid(name, "contradicts another parameter about reasoning");
  }
  request["reasoning"] = reasoning;
  if (reasoning == "on") in.note_reasoning(name);
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

/// A bound on reasoning, in tokens. `path`: its name in the request.
void take_budget(Members& in, std::string_view name, std::string_view path, Json& request) {
  const Json* const budget = in.take(name);
  if (budget == nullptr) return;
  if (!budget->is_number_unsigned() || *budget == 0) {
    return in.wrong(name, *budget, "an integer from 1");
  }
  const auto known = request.find("reasoning_budget");
  if (known != request.end() && *known != *budget) {
    return in.invalid(name, "contradicts another bound on reasoning");
  }
  request["reasoning_budget"] = *budget;
  in.note_reasoning(path);
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
  take_budget(inner, "budget_tokens", "thinking.budget_tokens", request);
  if (inner.text("display")) inner.ignore("thinking.display");
  inner.check_unknown();
  in.join(inner);
}

/// The bound of the effort that the template gets, unless the request has one of its own.
void bound_by_effort(Json& request) {
  const auto members = request.find("template_kwargs");
  if (members == request.end() || !members->is_object() || request.contains("reasoning_budget")) {
    return;
  }
  const auto effort = members->find("reasoning_effort");
  if (effort == members->end() || !effort->is_string()) return;
  const auto known =
      std::ranges::find(kEfforts, effort->get_ref<const std::string&>(), &Effort::name);
  if (known != kEfforts.end() && known->budget > 0) request["reasoning_budget"] = known->budget;
}

}  // namespace

std::span<const Effort> efforts() { return kEfforts; }

bool is_effort(std::string_view effort) {
  return std::ranges::find(kEfforts, effort, &Effort::name) != kEfforts.end();
}

void pass_effort(std::string_view effort, Json& request) {
  Json& members = request["template_kwargs"];
  if (members.is_null()) members = Json::object();
  if (members.is_object() && !members.contains("reasoning_effort")) {
    members["reasoning_effort"] = effort;
  }
}

void take_think(Members& in, Json& request) {
  const Json* const think = in.take("think");
  if (think == nullptr) return;
  if (think->is_boolean()) return set(in, "think", *think == true ? "on" : "off", request);
  if (!think->is_string()) return in.wrong("think", *think, "true, false or an effort");
  take_effort(in, "think", think->get_ref<const std::string&>(), request);
  bound_by_effort(request);
}

void take_reasoning(Members& in, Json& request) {
  take_budget(in, "reasoning_budget", "reasoning_budget", request);
  if (const auto effort = in.text("reasoning_effort")) {
    take_effort(in, "reasoning_effort", *effort, request);
  }
  if (const Json* enabled = in.take("enable_thinking")) {
    if (!enabled->is_boolean()) return in.wrong("enable_thinking", *enabled, "true or false");
    set(in, "enable_thinking", *enabled == true ? "on" : "off", request);
  }
  if (Json* thinking = in.take("thinking")) take_thinking(in, *thinking, request);
  Json* reasoning = in.take("reasoning");
  if (reasoning == nullptr) return bound_by_effort(request);
  if (!reasoning->is_object()) return in.wrong("reasoning", *reasoning, "an object");
  Members inner(*reasoning, "reasoning.");
  take_budget(inner, "max_tokens", "reasoning.max_tokens", request);
  if (const auto effort = inner.text("effort"))
    take_effort(in, "reasoning.effort", *effort, request);
  if (inner.text("summary")) inner.ignore("reasoning.summary");
  if (inner.text("generate_summary")) inner.ignore("reasoning.generate_summary");
  inner.check_unknown();
  in.join(inner);
  bound_by_effort(request);
}

}  // namespace hearth::http
