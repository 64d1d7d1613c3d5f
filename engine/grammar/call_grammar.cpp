#include "engine/grammar/call_grammar.h"

#include <fmt/core.h>

#include <algorithm>

#include "engine/grammar/rule_set.h"
#include "engine/grammar/schema_reader.h"
#include "models/template/json.h"
#include "models/template/text.h"

namespace hearth::engine {
namespace {

class CallGrammarWriter {
 public:
  CallGrammarWriter(const CallGrammar& wanted, std::vector<std::string>* relaxed)
      : wanted_(wanted), relaxed_(relaxed) {}

  Result<Grammar> run() {
    HEARTH_ASSIGN_OR_RETURN(const int32_t whole, rules_.add(nullptr, "the answer"));
    HEARTH_ASSIGN_OR_RETURN(PiecePtr front, reasoning());
    HEARTH_ASSIGN_OR_RETURN(PiecePtr called, calls());
    rules_.set(whole, seq_piece({std::move(front), std::move(called)}));
    return rules_.compile();
  }

 private:
  /// The text, with control marks as their symbols.
  PiecePtr literal(std::string_view text) const {
    std::vector<PiecePtr> out;
    std::string plain;
    while (!text.empty()) {
      size_t which = 0;
      const auto& marks = wanted_.control_marks;
      while (which < marks.size() && (marks[which].empty() || !text.starts_with(marks[which]))) {
        ++which;
      }
      if (which == marks.size()) {
        plain += text.front();
        text.remove_prefix(1);
        continue;
      }
      out.push_back(text_piece(std::exchange(plain, {}) + mark_symbol(which)));
      text.remove_prefix(marks[which].size());
    }
    out.push_back(text_piece(std::move(plain)));
    return seq_piece(std::move(out));
  }
  bool is_control(std::string_view mark) const {
    return std::ranges::find(wanted_.control_marks, mark) != wanted_.control_marks.end();
  }

  /// Any text up to the first `mark`, and the mark. A rule for each part of the mark that can have
  /// been read, each ending in the next one, so that no stack grows.
  Result<PiecePtr> until(std::string_view mark) {
    HEARTH_ASSIGN_OR_RETURN(const PiecePtr any, rules_.as_rule(chars_piece(complement({}))));
    if (is_control(mark)) return seq_piece({repeat_piece(any, 0, -1), literal(mark)});
    std::vector<std::string> chars;
    for (std::string_view rest = mark; !rest.empty();) {
      const size_t bytes = models::jinja::first_char(rest).bytes;
      chars.emplace_back(rest.substr(0, bytes));
      rest.remove_prefix(bytes);
    }
    std::vector<int32_t> rules;
    for (size_t i = 0; i < chars.size(); ++i) {
      HEARTH_ASSIGN_OR_RETURN(const int32_t rule, rules_.add(nullptr, "reasoning"));
      rules.push_back(rule);
    }
    for (size_t i = 0; i < chars.size(); ++i) {
      std::vector<PiecePtr> ways;
      CharRanges named;
      for (size_t k = 0; k < chars.size(); ++k) {
        if (std::find(chars.begin(), chars.begin() + k, chars[k]) != chars.begin() + k) {
          continue;  // once each
        }
        const uint32_t code = models::jinja::first_char(chars[k]).code;
        named.emplace_back(code, code);
        const size_t next = matched_after(chars, i, chars[k]);
        const PiecePtr one = chars_piece({{code, code}});
        ways.push_back(next == chars.size() ? one : seq_piece({one, rule_piece(rules[next])}));
      }
      ways.push_back(seq_piece({chars_piece(complement(std::move(named))), rule_piece(rules[0])}));
      rules_.set(rules[i], any_piece(std::move(ways)));
    }
    return rule_piece(rules[0]);
  }
  /// Characters of the mark that stand at the end of its first `matched` and `next`.
  static size_t matched_after(const std::vector<std::string>& mark, size_t matched,
                              const std::string& next) {
    std::vector<std::string> text(mark.begin(), mark.begin() + matched);
    text.push_back(next);
    for (size_t n = std::min(text.size(), mark.size()); n > 0; --n) {
      if (std::equal(mark.begin(), mark.begin() + n, text.end() - n)) {
        return n;
      }
    }
    return 0;
  }

  Result<PiecePtr> reasoning() {
    const PiecePtr breaks = repeat_piece(text_piece("\n"), 0, 2);
    if (wanted_.format->style == models::CallStyle::kChannels) {
      HEARTH_ASSIGN_OR_RETURN(PiecePtr rest, until("<|end|>"));
      return optional_piece(seq_piece({literal("<|channel|>analysis<|message|>"), std::move(rest),
                                       literal("<|start|>assistant")}));
    }
    if (wanted_.reasoning.empty()) return text_piece("");
    HEARTH_ASSIGN_OR_RETURN(PiecePtr rest, until(wanted_.reasoning.end));
    if (wanted_.reasoning_open) return seq_piece({std::move(rest), breaks});
    return optional_piece(seq_piece({literal(wanted_.reasoning.begin), std::move(rest), breaks}));
  }

  Result<PiecePtr> arguments(const CallableFunction& function) {
    SchemaReader reader(rules_, relaxed_);
    if (wanted_.format->style != models::CallStyle::kTagged) return reader.read(function.schema);
    HEARTH_ASSIGN_OR_RETURN(const auto parameters, reader.parameters(function.schema));
    const models::ArgumentTags& tags = wanted_.format->tags;
    const PiecePtr line = optional_piece(text_piece("\n"));
    const std::string value_end = (tags.lines ? "\n" : "") + std::string(tags.value_end);
    std::vector<PiecePtr> out;
    for (const SchemaParameter& parameter : parameters) {
      const bool marked = !parameter.string && !tags.json_key_end.empty();
      std::vector<PiecePtr> one = {literal(tags.key_begin), text_piece(parameter.name),
                                   literal(marked ? tags.json_key_end : tags.key_end)};
      if (!tags.value_begin.empty()) one.insert(one.end(), {line, literal(tags.value_begin)});
      if (tags.lines) one.push_back(text_piece("\n"));
      if (parameter.piece == nullptr) {
        HEARTH_ASSIGN_OR_RETURN(PiecePtr text, until(value_end));
        one.push_back(std::move(text));
      } else {
        one.insert(one.end(), {parameter.piece, literal(value_end)});
      }
      one.push_back(line);
      PiecePtr whole = seq_piece(std::move(one));
      out.push_back(parameter.required ? std::move(whole) : optional_piece(std::move(whole)));
    }
    return seq_piece(std::move(out));
  }

  Result<PiecePtr> calls() {
    const models::ToolFormat::Written& written = wanted_.format->written;
    std::vector<PiecePtr> each;
    for (const CallableFunction& function : wanted_.functions) {
      Result<PiecePtr> given = arguments(function);
      if (!given.ok()) {
        Error error = given.take_error();
        error.message = fmt::format("tools: parameters of {}: {}", function.name, error.message);
        error.field = "tools";
        return error;
      }
      each.push_back(seq_piece({text_piece(function.name), literal(written.between), *given}));
    }
    HEARTH_ASSIGN_OR_RETURN(PiecePtr call, rules_.as_rule(seq_piece({literal(written.before_name),
                                                                     any_piece(std::move(each)),
                                                                     literal(written.after)})));
    PiecePtr more = text_piece("");
    if (written.several && !wanted_.one_call) {
      more = repeat_piece(seq_piece({literal(written.separator), call}), 0, -1);
    }
    return seq_piece(
        {literal(written.first), std::move(call), std::move(more), literal(written.last)});
  }

  const CallGrammar& wanted_;
  std::vector<std::string>* const relaxed_;
  RuleSet rules_;
};

}  // namespace

std::string mark_symbol(size_t index) { return {'\xFF', static_cast<char>(index + 1)}; }

std::vector<std::string> string_parameters(std::string_view schema) {
  models::jinja::Arena arena;
  const auto parsed = models::jinja::parse_json(arena, schema);
  std::vector<std::string> out;
  if (!parsed.ok() || !parsed->is_dict()) return out;
  const models::jinja::Value* const properties = parsed->dict().find("properties");
  if (properties == nullptr || !properties->is_dict()) return out;
  for (const auto& [name, value] : properties->dict().entries()) {
    if (SchemaReader::is_string(value)) out.emplace_back(name.text());
  }
  return out;
}

Result<Grammar> compile_call_grammar(const CallGrammar& wanted, std::vector<std::string>* relaxed) {
  Result<Grammar> out = CallGrammarWriter(wanted, relaxed).run();
  if (out.ok()) return out;
  Error error = out.take_error();
  if (error.field != "tools") error.message = "tools: " + error.message;
  error.field = "tools";
  return error;
}

}  // namespace hearth::engine
