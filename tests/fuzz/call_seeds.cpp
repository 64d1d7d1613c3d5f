// The seeds of the targets grammar and answer.

#include <string>

#include "tests/fuzz/seeds.h"

namespace hearth::fuzz {

void grammar_seeds(Folder out) {
  const std::string walk = "\x1E" + std::string("\x01\x09\x20\x05\x80\x03\x07\x11\x02\xFE\x04\x06");
  for (
      const char* source :
      {R"({"type":"object","properties":{"a":{"type":"integer","minimum":-7,"maximum":120},)"
       R"("b":{"type":"array","items":{"type":"string","maxLength":3},"maxItems":2}},)"
       R"("required":["a"],"additionalProperties":false})",
       R"({"anyOf":[{"type":"null"},{"$ref":"#/$defs/x"}],"$defs":{"x":{"enum":[1,"a",[2]]}}})",
       R"({"type":"string","pattern":"^[a-c\\d]{1,3}(x|yz)?$"})",
       R"({"type":"string","pattern":"^[^\\w-]\\D\\W\\S\\n\\r\\t\\f\\v\\.(?:a+?|b{2,})*.$","minLength":3})",
       R"({"type":"string","pattern":"(a|b){2}[\\da-f]","maxLength":9})",
       R"({"type":"string","pattern":"^(a{1,9}|bc*)[xy]{0,20}$","minLength":4,"maxLength":7})",
       R"({"type":"string","format":"date-time"})",
       R"({"format":"uri","maxLength":30})",
       R"({"allOf":[{"type":"object","properties":{"k":{"const":true}}},{"required":["k"]}]})",
       R"({"allOf":[{"$ref":"#/$defs/x"},{"properties":{"b":{}},"required":["b"]}],)"
       R"("$defs":{"x":{"properties":{"a":{}},"required":["a"],"title":"t"}}})",
       R"({"type":"object","properties":{"a":{}},"anyOf":[{"required":["a"]},{"minProperties":1}]})",
       R"({"oneOf":[{"type":"number","exclusiveMinimum":0,"maximum":2},{"type":"string"}]})",
       R"({"oneOf":[{"properties":{"k":{"const":"a"}},"required":["k"]},)"
       R"({"properties":{"k":{"enum":["b","c"]},"x":{"$ref":"#"}},"required":["k"]}]})",
       R"({"oneOf":[{"enum":[1,2]},{"const":3}]})",
       R"({"oneOf":[{"type":"integer"},{"type":"number"}]})",
       R"({"$ref":"#/$defs/a~1b~0","description":"d","$defs":{"a/b~":{"type":["string","null"]}}})",
       R"({"prefixItems":[{"type":"boolean"},{"format":"date"}],"items":false,"minItems":1})",
       R"({"items":{"enum":["a","b","a",null]},"uniqueItems":true,"minItems":1,"maxItems":2})",
       R"({"type":"array","items":{"type":"boolean"},"uniqueItems":true})",
       R"({"type":"integer","multipleOf":7})",
       R"({"type":"integer","multipleOf":5,"minimum":-12,"maximum":40})",
       R"({"type":"number","multipleOf":0.01,"minimum":-3,"exclusiveMaximum":12})",
       R"({"type":"integer","multipleOf":9973,"minimum":5})",
       R"({"prefixItems":[{"const":1},{"type":"string"}],"uniqueItems":true})",
       R"({"patternProperties":{"^a":{"const":1},"^[^a]":{"const":true}}})",
       R"({"lark":"start: (NAME | \"(\" start \")\")~1..3 X?\nNAME: /[a-z]+/\n)"
       R"(%import common.INT -> X\n%ignore \" \""})",
       R"({"lark":"start: x WORD\nx: WORD\n%import common.WORD"})",
       R"({"type":"string","lark":"start: start \"+\"i \"a\"..\"c\" -> x | [/\\d/]"})",
       R"({"patternProperties":{"^[a-z]{1,4}$":{"type":"integer"}},"additionalProperties":false,)"
       R"("minProperties":1,"maxProperties":3})",
       R"({"properties":{"a":{"nullable":true,"type":"string"},"ab":true},"additionalProperties":{}})",
       R"({"additionalProperties":{"type":["integer","null"]},"properties":{"ab":{}}})",
       "{}"}) {
    out.add(std::string(1, 1) + source + walk);
    out.add(std::string(1, 4) + source + walk);
  }
  for (const char* source :
       {"root ::= \"(\" root? \")\" | item{1,3}\nitem ::= [a-z^\\]] \"\\n\" # c\n",
        "root ::= (a | b)* \"\\u00e9\"\na ::= [^x] \".\"\nb ::= \"\" | . a+\n",
        "root ::= root \"a\"", "root ::= x"}) {
    out.add(std::string(1, 0) + source + walk);
  }
  for (const char* source : {"^(\\d{3}|[A-F]+)-?\\w*$", "[^a-z\\s]{2,4}(?:x|y)??",
                             "\\.\\\\[\\]\\-]+.", "a|b|", "(a", "[b-a]"}) {
    out.add(std::string(1, 2) + source + walk);
  }
  const std::string with_text =
      R"({"type":"object","properties":{"city":{"type":"string","maxLength":6},)"
      R"("day":{"type":"integer","minimum":1,"maximum":14},"unit":{"enum":["c","f"]}},)"
      R"("required":["city"]})";
  const std::string with_patterns =
      R"({"properties":{"p":{"type":"string","pattern":"^[ab]+$"},"s":{"type":"string"},)"
      R"("f":{"type":"string","format":"date"},"c":{"const":"x"},"n":{"type":["null","boolean"]}}})";
  for (char format = 0; format < 17; ++format) {
    for (const int flags : {0, 1, 2, 4, 10, 24, 26, 32 + 8, 32 + 2, 128 + 4}) {
      const std::string front{3, format, static_cast<char>(flags)};
      out.add(front + (flags % 4 == 0 ? with_text : with_patterns) + walk + walk + walk);
    }
    out.add(std::string{3, format, 64} + with_text + R"({"type":"integer"})" + walk);
    out.add(std::string{3, format, 64} + with_text + '\x1D' + R"({"type":"integer"})" + walk);
    out.add(std::string{3, format, 0} + R"({"required":["a"],"properties":{"<":{}}})" + walk);
  }
}

namespace {

void answers(Folder& out) {
#define HEARTH_BAR "\xEF\xBD\x9C"
#define HEARTH_GAP "\xE2\x96\x81"
#define HEARTH_DSML HEARTH_BAR "DSML" HEARTH_BAR
#define HEARTH_CALL "<" HEARTH_BAR "tool" HEARTH_GAP "call" HEARTH_GAP "begin" HEARTH_BAR ">"
#define HEARTH_CALL_END "<" HEARTH_BAR "tool" HEARTH_GAP "call" HEARTH_GAP "end" HEARTH_BAR ">"
#define HEARTH_SEP "<" HEARTH_BAR "tool" HEARTH_GAP "sep" HEARTH_BAR ">"
  struct Answer {
    char kind;  // see tool_format_kinds.h
    const char* text;
  };
  const Answer answers[] = {
      {0,
       "Yes.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": "
       "\"}\\\"\"}}\n</tool_call>\n<tool_call>{"},
      {0, "<tool_call>{\"arguments\": {\"a\": [1, {}]}, \"name\": \"g\"}</tool_call> done"},
      {1,
       "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": "
       "{}}]<|END_ACTION|>"},
      {2,
       "Action:\n```json\n[{\"tool_name\": \"g\", \"parameters\": {\"x\": [1]}}, {\"tool_name\": "
       "\"h\"}]```"},
      {3, "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]h[ARGS]{}"},
      {4, "[TOOL_CALLS]f[CALL_ID]a1b2c3d4e[ARGS]{\"a\": 1}"},
      {4, "[TOOL_CALLS]f[CALL_ID]a b[ARGS]{}"},
      {5,
       "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}, \"id\": \"123456789\"}, {\"name\": 1}]"},
      {6, HEARTH_CALL "function" HEARTH_SEP "f\n```json\n{\"a\":1}\n```" HEARTH_CALL_END},
      {7, HEARTH_CALL "f" HEARTH_SEP "{}" HEARTH_CALL_END},
      {8, "<" HEARTH_DSML "function_calls>\n<" HEARTH_DSML "invoke name=\"f\">\n<" HEARTH_DSML
          "parameter name=\"a\" string=\"true\">7\n</" HEARTH_DSML "parameter>\n<" HEARTH_DSML
          "parameter name=\"b\" string=\"false\">[7]</" HEARTH_DSML "parameter></" HEARTH_DSML
          "invoke>\n</" HEARTH_DSML "function_calls>"},
      {9,
       "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">true</parameter>\n"
       "</invoke>\n<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>"},
      {10,
       "<tool_call>\n<function=f>\n<parameter=a>\nif a < b:\n\t\"x\"\\\n\n</parameter>\n"
       "<parameter=days>\n7\n</parameter></function>\n</tool_call>\nNow."},
      {10, "<tool_call>\n<function=g>\n</function>\n<tool_call>\n<function=g> x"},
      {11,
       "<seed:tool_call>\n<function=f>\n<parameter=b>one two</parameter><parameter=c>True"
       "</parameter><parameter=d>[1, 'a \\'\\n\"', {'k': None}]</parameter><parameter=e>[1, 'a"
       "</parameter>\n</function>\n</seed:tool_call>"},
      {12,
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
       "{\"a\": 1}<|tool_call_end|><|tool_calls_section_end|>"},
      {13,
       "<tool_call>f\n<arg_key>b</arg_key>\n<arg_value>{\"b\": null}</arg_value>\n</tool_call>"
       "<tool_call>f<arg_key>a</arg_key><arg_value>P</a</arg_value></tool_call>"},
      {13, "<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value> and"},
      {14,
       "<|tool_call>call:f{city:<|\"|>Par\"is\n<|\"|>,days:[1,-2.5,{a:true,b:None}],<|\"|>c "
       "d<|\"|>:{}}<tool_call|><|tool_call>call:g{\"a\": \"x\\\"\n\"}<tool_call|>"},
      {14, "<|tool_call>call:f{a:x}"},
      {15,
       "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary "
       "to=functions.f <|constrain|>json<|message|>{}<|call|>"},
      {15, " to=functions.g<|channel|>commentary json<|message|>{}<|start|>assistant<|message|>x"},
      {16, "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"a\": null}}; {\"name\": \"f\"}"},
      {61, "<|channel|>final<|message|>A < b<|channel|>analysis<|message|>c<|return|> <|sta"},
      {63, "plain \xC3\xA9 text"}};
  for (const Answer& each : answers) {
    for (const char flags : {0, 3, 5, 8, 32, 48}) {
      const std::string front = (flags & 2) != 0   ? "hm\n</think>\n\n"
                                : (flags & 1) != 0 ? "<think>a</think>"
                                                   : "";
      out.add(std::string{each.kind, flags} + front + each.text);
    }
  }
}

#undef HEARTH_BAR
#undef HEARTH_GAP
#undef HEARTH_DSML
#undef HEARTH_CALL
#undef HEARTH_CALL_END
#undef HEARTH_SEP

/// Ways of templates to write calls.
void ways_of_templates(Folder& out) {
  const char* const ways[] = {
      "<tool_call>\n\x03\n</tool_call>",
      "{\"name\": \"\x01\", \"parameters\": \x02}",
      "[TOOL_CALLS] [\x03]",
      "[TOOL_CALLS]\x01[ARGS]\x02",
      "<tool_call>{\"name\": \"\x01\", \"arguments\": \x04}</tool_call>",
      ("<tool_call>\n<function=\x01>\n\x05<parameter=\x06>\n\x07\n</parameter>\n\x08"
       "</function>\n</tool_call>"),
      "<tool_call>\x01\n\x05<arg_key>\x06</arg_key>\n<arg_value>\x07</arg_value>\n\x08</tool_call>",
      "<|tool_call>call:\x01{\x05\x06:\x07\x08}<tool_call|>",
      "<|channel|>commentary to=functions.\x01 <|constrain|>json<|message|>\x02<|call|>",
      "<call>\x03</call>"};
  for (const char* way : ways) {
    for (char flags = 0; flags < 8; ++flags) out.add(std::string{62, flags} + way);
    for (const char flags : {9, 16}) out.add(std::string{62, flags} + way);
  }
}

}  // namespace

void answer_seeds(Folder out) {
  answers(out);
  ways_of_templates(out);
}

}  // namespace hearth::fuzz
