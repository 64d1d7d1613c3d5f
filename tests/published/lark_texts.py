"""Texts that a model writes under grammars in Lark's notation, read by Lark: lark_texts.py ADDRESS MODEL

Each text that is complete must be one of the grammar for both of Lark's parsers, the second of which cuts it into the
longest terminals first. HEARTH_TEST_FULL=1 asks for more texts.
"""
import json
import os
import sys

import httpx
import lark

ADDRESS, MODEL = sys.argv[1:3]
SEEDS = 12 if os.environ.get("HEARTH_TEST_FULL") == "1" else 2
GRAMMARS = {
    "sums": r'''start: expr
expr: expr "+" term | expr "-" term | term
term: term "*" atom | atom
atom: NUMBER | "(" expr ")"
%import common.NUMBER
%import common.WS
%ignore WS''',
    "JSON": r'''start: value
value: object | array | ESCAPED_STRING | SIGNED_NUMBER | "true" | "false" | "null"
array: "[" [value ("," value)*] "]"
object: "{" [pair ("," pair)*] "}"
pair: ESCAPED_STRING ":" value
%import common (ESCAPED_STRING, SIGNED_NUMBER, WS)
%ignore WS''',
    "statements": r'''start: stmt+
stmt: "let" NAME "=" val ";" | "print" NAME+ ";"
val: NAME | INT | NAME "(" [val ("," val)*] ")"
NAME: /[a-z_][a-z0-9_]*/
%import common.INT
%import common.WS_INLINE
%ignore WS_INLINE''',
    "names": '''start: CNAME CNAME? ("," CNAME)* opt?
opt: INT+ CNAME?
%import common (CNAME, INT)
%ignore " "''',
    "repetitions": '''start: ("ab" | "c")~2..4 ["x"i] D~2
D: "0".."3" | "z"''',
    "classes": r'''start: A B
A: /[^\s"a-c]+/
B: /[ \t]\w\W?/''',
    "rules without text": r'''start: x* y?
x: "(" y ")" |
y: WORD | WORD "-" y
%import common.WORD
%ignore /\s/''',
}
failed = 0
for name, grammar in GRAMMARS.items():
    parsers = [lark.Lark(grammar, parser="earley")]
    try:
        parsers.append(lark.Lark(grammar, parser="lalr"))
    except lark.exceptions.GrammarError:
        pass  # rules without text are ambiguous for it
    read = 0
    for seed in range(SEEDS):
        answer = httpx.post(ADDRESS + "/v1/chat/completions", timeout=300, json={
            "model": MODEL, "seed": seed, "temperature": 1.6 if seed % 2 else 0.9, "top_k": 0, "top_p": 1, "n": 8,
            "max_tokens": 70, "messages": [{"role": "user", "content": f"Write {name}: {grammar}"}],
            "response_format": {"type": "json_schema", "json_schema": {
                "name": "n", "strict": True, "schema": {"type": "string", "lark": grammar}}}})
        assert answer.status_code == 200, answer.text
        for choice in answer.json()["choices"]:
            if choice["finish_reason"] != "stop":
                continue
            text = json.loads(choice["message"]["content"])
            for parser in parsers:
                try:
                    parser.parse(text)
                    read += 1
                except lark.exceptions.LarkError as error:
                    failed += 1
                    print("FAILED ", name, repr(text), str(error)[:300].replace("\n", " "), flush=True)
    print("ok     " if read else "none   ", f"{name}: {read} texts read", flush=True)
    failed += 0 if read else 1
sys.exit(1 if failed else 0)
