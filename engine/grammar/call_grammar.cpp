#include "engine/grammar/call_grammar.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "engine/grammar/rule_set.h"
#include "engine/grammar/schema_reader.h"
#include "kernels/base/chars.h"
#include "models/template/json.h"

namespace hearth::engine {
namespace {

class CallGrammarWriter {
 public:
  CallGrammarWriter(const CallGrammar& wanted, std::vector<std::string>* relaxed)
      : wanted_(wanted), relaxed_(relaxed) {}

  Result<Grammar> run() {
    HEARTH_ASSIGN_OR_RETURN(const int32_t whole, rules_.add(nullptr, "the answer"));
    if (wanted_.among_text) {
      HEARTH_ASSIGN_OR_RETURN(PiecePtr text, text_with_calls());
      rules_.set(whole, std::move(text));
      return rules_.compile();
    }
    HEARTH_ASSIGN_OR_RETURN(PiecePtr front, reasoning());
    HEARTH_ASSIGN_OR_RETURN(PiecePtr called, calls());
    if (!wanted_.answer_schema.empty()) {
      HEARTH_ASSIGN_OR_RETURN(PiecePtr plain, answer());
      called = any_piece({std::move(called), std::move(plain)});
    }
    rules_.set(whole, seq_piece({std::move(front), std::move(called)}));
    return rules_.compile();
  }

 private:
  /// An answer without calls.
  Result<PiecePtr> answer() {
    SchemaReader reader(rules_, wanted_.relax_answer ? relaxed_ : nullptr);
    HEARTH_ASSIGN_OR_RETURN(PiecePtr body, reader.read(wanted_.answer_schema));
    if (wanted_.format->style != models::CallStyle::kChannels) return body;
    return seq_piece({literal("<|channel|>final<|message|>"), std::move(body)});
  }

  /// The text, with control marks as their symbols.
  std::string encoded(std::string_view text) const {
    std::string out;
    while (!text.empty()) {
      size_t which = 0;
      const auto& marks = wanted_.control_marks;
      while (which < marks.size() && (marks[which].empty() || !text.starts_with(marks[which]))) {
        ++which;
      }
      if (which == marks.size()) {
        out += text.front();
        text.remove_prefix(1);
        continue;
      }
      out += mark_symbol(which);
      text.remove_prefix(marks[which].size());
    }
    return out;
  }
  PiecePtr literal(std::string_view text) const { return text_piece(encoded(text)); }

  static PiecePtr blanks(int32_t most) {
    return repeat_piece(chars_piece({{' ', ' '}, {'\n', '\n'}, {'\r', '\r'}, {'\t', '\t'}}), 0,
                        most);
  }
  /// Blanks that a model may write where its template has none.
  PiecePtr gap() const { return blanks(wanted_.among_text ? kMostBlanks : 0); }
  /// Part of a call as the template writes it. A model that is free to call has its own blanks.
  PiecePtr written(std::string_view text) const {
    if (!wanted_.among_text) return literal(text);
    std::vector<PiecePtr> out;
    while (!text.empty()) {
      const size_t blank = std::min(text.find_first_of(" \n"), text.size());
      if (blank > 0) out.push_back(literal(text.substr(0, blank)));
      text.remove_prefix(blank);
      if (text.empty()) break;
      out.push_back(gap());
      text.remove_prefix(std::min(text.find_first_not_of(" \n"), text.size()));
    }
    return seq_piece(std::move(out));
  }

  /// A text as numbers: its bytes, and kByteValues and more for control marks.
  using Units = std::vector<uint32_t>;
  static Units units_of(std::string_view bytes) {
    Units out;
    for (size_t i = 0; i < bytes.size(); ++i) {
      const uint32_t byte = byte_of(bytes[i]);
      out.push_back(byte == kMarkByte ? kByteValues + byte_of(bytes[++i]) - 1 : byte);
    }
    return out;
  }
  /// A text that ends a stretch of any text, and what follows it; null: it cannot be written.
  struct Stop {
    std::string_view text;
    PiecePtr then;
  };
  /// Any text up to the first stop. There is a rule for each beginning of a stop that can have been
  /// read; each ends in the next one, so no stack grows. `open_end`: the whole text may also end
  /// anywhere in it, and other control marks belong to it.
  Result<PiecePtr> up_to(const std::vector<Stop>& stops, bool open_end,
                         std::string_view not_first = {}) {
    std::vector<Units> ends;
    std::vector<PiecePtr> thens;
    for (const Stop& stop : stops) {
      const std::string marked = encoded(stop.text);
      ends.push_back(units_of(marked));
      thens.push_back(stop.then);
      // A control mark that is spelled out reads like itself.
      if (marked == stop.text) continue;
      ends.push_back(units_of(stop.text));
      thens.push_back(nullptr);
    }
    std::vector<Units> read = {{}};
    for (const Units& units : ends) {
      for (size_t n = 1; n < units.size(); ++n) {
        Units begin(units.begin(), units.begin() + n);
        if (std::ranges::find(read, begin) == read.end()) read.push_back(std::move(begin));
      }
    }
    std::vector<int32_t> rules;
    for (size_t i = 0; i < read.size(); ++i) {
      HEARTH_ASSIGN_OR_RETURN(const int32_t rule, rules_.add(nullptr, "text"));
      rules.push_back(rule);
    }
    const size_t num_units = kByteValues + wanted_.control_marks.size();
    const auto ways_after = [&](const Units& before, std::string_view except) {
      std::vector<PiecePtr> ways;
      if (open_end) ways.push_back(text_piece(""));
      std::map<size_t, CharRanges> bytes_to;
      for (uint32_t unit = 0; unit < num_units; ++unit) {
        const bool is_mark = unit >= kByteValues;
        if (unit == kMarkByte) continue;
        if (std::ranges::any_of(except, [unit](char c) { return byte_of(c) == unit; })) continue;
        Units now = before;
        now.push_back(unit);
        const auto ends_now = [&now](const Units& text) {
          return text.size() <= now.size() && std::equal(text.rbegin(), text.rend(), now.rbegin());
        };
        const auto stop = std::ranges::find_if(ends, ends_now);
        const PiecePtr one =
            is_mark ? text_piece(mark_symbol(unit - kByteValues)) : bytes_piece({{unit, unit}});
        if (stop != ends.end()) {
          const PiecePtr& then = thens[stop - ends.begin()];
          if (then != nullptr) ways.push_back(seq_piece({one, then}));
          continue;
        }
        size_t next = 0;
        for (size_t i = 0; i < read.size(); ++i) {
          if (ends_now(read[i]) && read[i].size() > read[next].size()) next = i;
        }
        if (!is_mark) {
          bytes_to[next].emplace_back(unit, unit);
        } else if (next != 0 || open_end) {
          ways.push_back(seq_piece({one, rule_piece(rules[next])}));
        }
      }
      for (auto& [next, bytes] : bytes_to) {
        ways.push_back(seq_piece({bytes_piece(std::move(bytes)), rule_piece(rules[next])}));
      }
      return any_piece(std::move(ways));
    };
    for (size_t i = 0; i < read.size(); ++i) rules_.set(rules[i], ways_after(read[i], {}));
    if (not_first.empty()) return rule_piece(rules[0]);
    return rules_.as_rule(ways_after({}, not_first));
  }
  Result<PiecePtr> until(std::string_view mark) { return up_to({{mark, text_piece("")}}, false); }

  /// The body of a message in channels, which no header can interrupt.
  Result<PiecePtr> body(PiecePtr then, bool open_end) {
    return up_to({{"<|end|>", std::move(then)}, {"<|start|>", nullptr}, {"<|channel|>", nullptr}},
                 open_end);
  }

  Result<PiecePtr> reasoning() {
    const PiecePtr breaks = repeat_piece(text_piece("\n"), 0, 2);
    if (wanted_.format->style == models::CallStyle::kChannels) {
      HEARTH_ASSIGN_OR_RETURN(PiecePtr rest, body(literal("<|start|>assistant"), false));
      return optional_piece(
          seq_piece({literal("<|channel|>analysis<|message|>"), std::move(rest)}));
    }
    if (wanted_.reasoning.empty()) return text_piece("");
    HEARTH_ASSIGN_OR_RETURN(PiecePtr rest, until(wanted_.reasoning.end));
    if (wanted_.reasoning_open) return seq_piece({std::move(rest), breaks});
    return optional_piece(seq_piece({literal(wanted_.reasoning.begin), std::move(rest), breaks}));
  }

  Result<PiecePtr> arguments(const CallableFunction& function) {
    SchemaReader reader(rules_, function.strict ? nullptr : relaxed_);
    if (wanted_.format->style != models::CallStyle::kTagged) {
      HEARTH_ASSIGN_OR_RETURN(const PiecePtr any, reader.read(function.schema));
      // Schemas often leave the type out, and nothing but an object is read as arguments.
      PiecePtr objects = only_objects(any, rules_);
      if (objects == nullptr) return Error::invalid("want a schema of objects", "tools");
      return objects;
    }
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

  /// The name of a function and its arguments.
  Result<PiecePtr> name_and_arguments() {
    std::vector<PiecePtr> each;
    for (const CallableFunction& function : wanted_.functions) {
      Result<PiecePtr> given = arguments(function);
      if (!given.ok()) {
        Error error = given.take_error();
        error.message = fmt::format("tools: parameters of {}: {}", function.name, error.message);
        error.field = "tools";
        return error;
      }
      each.push_back(seq_piece({text_piece(function.name), between(), gap(), *given, gap()}));
    }
    return rules_.as_rule(any_piece(std::move(each)));
  }
  PiecePtr between() const {
    const models::ToolFormat& format = *wanted_.format;
    if (!wanted_.among_text) return literal(format.written.between);
    if (format.style == models::CallStyle::kChannels) {
      const PiecePtr type = seq_piece(
          {gap(), optional_piece(literal("<|constrain|>")), optional_piece(text_piece("json"))});
      return seq_piece({type, literal("<|message|>")});
    }
    if (format.id_begin.empty()) return written(format.written.between);
    const PiecePtr id = chars_piece({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
    return seq_piece(
        {literal(format.id_begin), repeat_piece(id, 0, kMostIdChars), literal(format.name_end)});
  }

  Result<PiecePtr> calls() {
    const models::ToolFormat::Written& form = wanted_.format->written;
    HEARTH_ASSIGN_OR_RETURN(PiecePtr named, name_and_arguments());
    HEARTH_ASSIGN_OR_RETURN(
        PiecePtr call,
        rules_.as_rule(seq_piece({literal(form.before_name), named, literal(form.after)})));
    return seq_piece({literal(form.first), call, more(call), literal(form.last)});
  }
  /// Further calls after the first.
  PiecePtr more(const PiecePtr& call) const {
    const models::ToolFormat::Written& form = wanted_.format->written;
    if (!form.several || wanted_.one_call) return text_piece("");
    return repeat_piece(seq_piece({written(form.separator), call}), 0, -1);
  }

  /// Text in which calls may stand, with reasoning before it.
  Result<PiecePtr> text_with_calls() {
    HEARTH_ASSIGN_OR_RETURN(const int32_t rule, rules_.add(nullptr, "text with calls"));
    const PiecePtr text = rule_piece(rule);
    HEARTH_ASSIGN_OR_RETURN(PiecePtr named, name_and_arguments());
    const PiecePtr rest = wanted_.one_call ? text_piece("") : text;
    if (wanted_.format->style == models::CallStyle::kChannels) {
      HEARTH_ASSIGN_OR_RETURN(PiecePtr first, message(named, text));
      rules_.set(rule, std::move(first));
      return text;
    }
    HEARTH_ASSIGN_OR_RETURN(
        PiecePtr all, wanted_.format->bare ? calls_alone(named, rest) : calls_in_text(named, rest));
    rules_.set(rule, std::move(all));
    if (wanted_.reasoning.empty()) return text;
    HEARTH_ASSIGN_OR_RETURN(PiecePtr thoughts, up_to({{wanted_.reasoning.end, text}}, true));
    if (wanted_.reasoning_open) return thoughts;
    return any_piece({text, seq_piece({blanks(-1), literal(wanted_.reasoning.begin), thoughts})});
  }

  /// Any text without the mark that opens a call, and from that mark on a call.
  Result<PiecePtr> calls_in_text(const PiecePtr& named, const PiecePtr& rest) {
    const models::ToolFormat& format = *wanted_.format;
    const models::ToolFormat::Written& form = format.written;
    const std::string opening = std::string(form.first) + std::string(form.before_name);
    const bool around = !format.around.empty() && opening.starts_with(format.around.front());
    const std::string_view mark = around ? format.around.front() : format.open;
    std::vector<PiecePtr> then = {gap(), written(std::string_view(opening).substr(mark.size())),
                                  named, written(form.after)};
    if (!form.first.empty()) {
      then.push_back(more(seq_piece({written(form.before_name), named, written(form.after)})));
    }
    then.insert(then.end(), {written(form.last), rest});
    std::vector<Stop> stops = {{mark, seq_piece(std::move(then))}};
    if (around) stops.push_back({format.open, nullptr});
    return up_to(stops, true);
  }

  /// A call that no mark opens begins the answer, or follows another; any other text goes to the
  /// end. So text cannot begin as a call does.
  Result<PiecePtr> calls_alone(const PiecePtr& named, const PiecePtr& rest) {
    const models::ToolFormat& format = *wanted_.format;
    constexpr std::string_view kBetween = " \t\r\n;";
    std::vector<Stop> stops;
    PiecePtr open = text_piece("");
    if (!format.optional_open.empty()) {
      stops.push_back({format.optional_open, nullptr});
      open = optional_piece(seq_piece({literal(format.optional_open), gap()}));
    }
    HEARTH_ASSIGN_OR_RETURN(PiecePtr plain, up_to(stops, true, std::string(kBetween) + "{"));
    CharRanges before;
    for (const char c : kBetween) before.emplace_back(byte_of(c), byte_of(c));
    return seq_piece(
        {repeat_piece(chars_piece(std::move(before)), 0, -1),
         any_piece({std::move(plain), seq_piece({open, written(format.written.before_name), named,
                                                 written(format.written.after), rest})})});
  }

  /// A message with its header, of which one kind is a call; and, after other kinds, the next one.
  Result<PiecePtr> message(const PiecePtr& named, const PiecePtr& next) {
    HEARTH_ASSIGN_OR_RETURN(PiecePtr text,
                            body(seq_piece({literal("<|start|>assistant"), next}), true));
    const PiecePtr kind =
        any_piece({text_piece("analysis"), text_piece("final"), text_piece("commentary")});
    return any_piece(
        {seq_piece({literal("<|channel|>"), kind, literal("<|message|>"), std::move(text)}),
         seq_piece({literal(wanted_.format->written.first), named})});
  }

  static constexpr uint32_t kByteValues = 256;
  static constexpr uint32_t kMarkByte = 0xFF;  // see mark_symbol()
  static constexpr int32_t kMostBlanks = 16;
  static constexpr int32_t kMostIdChars = 32;

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
  // Those of a function's schema name the function already.
  if (error.field == "json_schema") return error;
  if (error.field != "tools") error.message = "tools: " + error.message;
  error.field = "tools";
  return error;
}

}  // namespace hearth::engine
