#include "daemon/http/requests/request_members.h"

#include <charconv>
#include <cmath>

#include "ipc/schema/field_table.h"
#include "kernels/base/numbers.h"

namespace hearth::http {
namespace {

// {"50256":-100} becomes [[50256,-100]].
void take_logit_bias(Members& in, Json& request) {
  const Json* bias = in.take("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) return in.wrong("logit_bias", *bias, "an object of token ids");
  Json pairs = Json::array();
  for (const auto& [key, value] : bias->items()) {
    uint32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc{} || end != key.data() + key.size()) {
      return in.invalid("logit_bias",
                        fmt::format("met the key '{}', want token ids", ipc::printable(key)));
    }
    pairs.push_back(Json::array({id, value}));
  }
  request["logit_bias"] = std::move(pairs);
}

}  // namespace

Result<ipc::GenerateRequest> decode(Json& request, const std::vector<Renamed>& renamed) {
  Result<ipc::ClientRequest> decoded = ipc::request_from_json(request);
  if (decoded) return std::get<ipc::GenerateRequest>(std::move(decoded).value());
  Error error = decoded.take_error();
  for (const Renamed& name : renamed) {
    if (error.field != name.ours) continue;
    const std::string begin = std::string(name.ours) + ": ";
    if (error.message.starts_with(begin)) {
      error.message = fmt::format("{}: {}", name.theirs, error.message.substr(begin.size()));
    }
    error.field = name.theirs;
    break;
  }
  return error;
}

Json new_request() {
  Json request = Json::object();
  request["verb"] = "generate";
  return request;
}

void take_parsed(Members& in) {
  for (const char* name : {"parsed", "parsed_arguments", "parsed_output"}) {
    if (in.take(name) != nullptr) in.ignore(name);
  }
}

void set_max_tokens(const Json& most, Json& request) {
  const double bound = ipc::find_field(ipc::Verb::kGenerate, "max_tokens")->max;
  const auto largest = narrow<uint64_t>(std::llround(bound));
  const bool clips = request.value("clip_max_tokens", false) && most.is_number_unsigned();
  request["max_tokens"] = clips ? Json(std::min(most.get<uint64_t>(), largest)) : most;
}

void take_max_tokens(Members& in, std::string_view name, Json& request) {
  const Json* most = in.take(name);
  if (most == nullptr || is_negative(*most, -1)) return;
  if (*most == 0) return in.wrong(name, *most, "an integer from 1");
  set_max_tokens(*most, request);
}

void take_stop(Members& in, std::string_view name, Json& request) {
  Json* stop = in.take(name);
  if (stop == nullptr) return;
  request["stop"] = stop->is_string() ? Json::array({std::move(*stop)}) : std::move(*stop);
}

void take_sampling(Members& in, Json& request) {
  in.pass("model", request);
  in.pass("n", request);
  if (Json* seed = in.take("seed"); seed != nullptr && !is_negative(*seed, -1))
    request["seed"] = *seed;
  in.pass("temperature", request);
  in.pass("top_p", request);
  in.pass("presence_penalty", request);
  in.pass("frequency_penalty", request);
  // These APIs apply penalties over the whole text.
  if (request.contains("presence_penalty") || request.contains("frequency_penalty")) {
    request["penalty_window"] = -1;
  }
  take_stop(in, "stop", request);
  take_logit_bias(in, request);
  for (const char* ours :
       {"top_k", "min_p", "typical_p", "repetition_penalty", "penalty_window", "min_tokens",
        "stop_ids", "ignore_eos", "priority", "deadline_ms", "speculate", "cache", "grammar",
        "regex", "remote", "adapter", "steps", "block_length", "remasking"}) {
    in.pass(ours, request);
  }
  take_guides(in, request);
}

/// A grammar of which the text is one of `choices`; nothing: they are not texts.
std::optional<std::string> grammar_of_choices(const Json& choices) {
  if (!choices.is_array() || choices.empty()) return std::nullopt;
  std::string out = "root ::= ";
  for (const Json& each : choices) {
    if (!each.is_string() || each.get_ref<const std::string&>().empty()) return std::nullopt;
    if (out.back() == '"') out += " | ";
    out += '"';
    for (const char c : each.get_ref<const std::string&>()) {
      if (c == '\n') {
        out += "\\n";
        continue;
      }
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
    out += '"';
  }
  return out;
}

void take_guides(Members& in, Json& request) {
  const auto set = [&](std::string_view name, std::string_view ours, Json value) {
    for (const char* rule : {"json_schema", "grammar", "regex"}) {
      if (request.contains(rule)) {
        return in.invalid(name, "met a second schema, grammar or regex, want one");
      }
    }
    if (value.is_object()) value = ipc::dump_json(value);
    request[std::string(ours)] = std::move(value);
  };
  const auto set_choice = [&](std::string_view name, const Json& choices) {
    if (auto grammar = grammar_of_choices(choices))
      return set(name, "grammar", *std::move(grammar));
    in.wrong(name, choices, "a list of texts");
  };
  if (Json* schema = in.take("json_schema")) set("json_schema", "json_schema", std::move(*schema));
  if (const Json* choices = in.take("guided_choice")) set_choice("guided_choice", *choices);
  Json* outputs = in.take("structured_outputs");
  if (outputs == nullptr) return;
  if (!outputs->is_object()) return in.wrong("structured_outputs", *outputs, "an object");
  Members inner(*outputs, "structured_outputs.");
  for (const auto& [name, ours] :
       {std::pair("json", "json_schema"), {"grammar", "grammar"}, {"regex", "regex"}}) {
    if (Json* rule = inner.take(name)) set(inner.path_of(name), ours, std::move(*rule));
  }
  if (const Json* choices = inner.take("choice")) set_choice("structured_outputs.choice", *choices);
  if (inner.take("structural_tag") != nullptr) {
    inner.unsupported("structural_tag", "is not supported; use json, grammar, regex or choice");
  }
  for (const char* name : {"disable_fallback", "disable_any_whitespace"}) {
    inner.only(name, {Json(false)});
  }
  inner.check_unknown();
  in.join(inner);
}

void take_stream(Members& in, Call& call) {
  call.stream = in.flag("stream", false);
  Json* options = in.take("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) return in.wrong("stream_options", *options, "an object");
  if (!call.stream) {
    return in.invalid("stream_options", "met it without stream");
  }
  Members inner(*options, "stream_options.");
  call.include_usage = inner.flag("include_usage", false);
  call.continuous_usage = inner.flag("continuous_usage_stats", false) && call.include_usage;
  inner.flag("include_obfuscation", false);  // pads chunks, and changes no text
  inner.check_unknown();
  in.join(inner);
}

std::optional<std::string> text_of(Json& content, const std::vector<std::string>& types,
                                   const std::string& path, Members& in, Kept* kept) {
  if (content.is_string()) return std::move(content.get_ref<std::string&>());
  if (!content.is_array()) {
    in.wrong(path, content, "a string or a list of parts");
    return std::nullopt;
  }
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    if (!content[i].is_object()) {
      in.wrong(at, content[i], "an object");
      return std::nullopt;
    }
    Members part(content[i], at + ".");
    const std::string type = part.text("type").value_or("text");
    if (std::find(types.begin(), types.end(), type) == types.end()) {
      part.unsupported("type",
                       fmt::format("'{}' is not supported, only text is", ipc::printable(type)));
    }
    const std::optional<std::string> piece = part.text("text");
    if (!piece) part.invalid("text", "absent, want a string");
    const int64_t keep_s = take_cache_control(part);
    if (kept != nullptr) kept->add(keep_s, text.size() + piece.value_or("").size());
    take_parsed(part);
    part.only("annotations", {Json::array()});
    part.only("logprobs", {Json::array()});
    part.only("citations", {Json::array()});
    part.check_unknown();
    in.join(part);
    if (in.failed()) return std::nullopt;
    text += *piece;
  }
  return text;
}

void take_format(Members& in, std::string_view name, Json& format, bool nested, Json& request) {
  if (!format.is_object()) return in.wrong(name, format, "an object");
  Members inner(format, std::string(name) + ".");
  const std::string type = inner.text("type").value_or("");
  Json* holder = nested ? inner.take("json_schema") : &format;
  const Json* const plain = nested ? inner.take("schema") : nullptr;
  if (request.contains("json_schema") && type != "text") {
    inner.invalid("type", "met a second schema, want one");
  } else if (plain != nullptr && holder == nullptr && type != "text") {
    if (!plain->is_object()) inner.wrong("schema", *plain, "a JSON schema");
    request["json_schema"] = ipc::dump_json(*plain);
  } else if (type == "json_object") {
    request["json_schema"] = R"({"type":"object"})";
  } else if (type == "json_schema") {
    if (holder == nullptr || !holder->is_object()) {
      inner.invalid("json_schema", "want an object with a schema");
    } else {
      Members schema(*holder, std::string(name) + (nested ? ".json_schema." : "."));
      if (!nested) schema.take("type");
      schema.text("name");
      schema.text("description");
      // Output follows the schema exactly either way, as far as that can be promised.
      if (schema.is_false("strict")) request["relax_schema"] = true;
      schema.flag("strict", true);
      const Json* value = schema.take("schema");
      if (value == nullptr || !value->is_object()) {
        schema.invalid("schema", "absent, want an object");
      } else {
        request["json_schema"] = ipc::dump_json(*value);
      }
      schema.check_unknown();
      in.join(schema);
    }
  } else if (type != "text") {
    inner.invalid("type", "want text, json_object or json_schema");
  }
  if (nested) inner.check_unknown();
  in.join(inner);
}

}  // namespace hearth::http
