"""Writes schemas.json: 100 JSON schemas, and the verdict of Python's jsonschema on a pool of texts for each.

    pip install jsonschema rfc3339-validator && python tests/golden/schemas/make_schemas.py

`must` texts are valid and in the form that hearth makes: they must be accepted. `valid` has a digit for each text of the
pool: none that is invalid may be accepted.
"""

import itertools
import json
from pathlib import Path

import jsonschema

S = lambda n=20, **more: {"type": "string", "maxLength": n} | more
OBJ = lambda required=None, closed=None, **props: (
    {"type": "object", "properties": props, "required": list(props) if required is None else required}
    | ({} if closed is None else {"additionalProperties": not closed}))
ARR = lambda items, n=3, **more: {"type": "array", "items": items, "maxItems": n} | more
INT = lambda low, high: {"type": "integer", "minimum": low, "maximum": high}

TREE = {"$ref": "#/$defs/node", "$defs": {"node": OBJ(["v"], v=INT(0, 9), c=ARR({"$ref": "#/$defs/node"}, 2))}}
CASES = [
    (S(8), ["", "ab", "é世👋", "a\"b\\c\n", "12345678"]),
    (S(5, minLength=2), ["ab", "ééééé"]),
    ({"type": "string", "enum": ["red", "gr\"een", "blü"]}, ["red", "gr\"een", "blü"]),
    ({"const": {"a": [1, None, "x"]}}, [{"a": [1, None, "x"]}]),
    ({"enum": [1, "1", None, True, [2]]}, [1, "1", None, True, [2]]),
    ({"type": ["boolean", "null"]}, [True, False, None]),
    ({"type": "string", "maxLength": 3, "nullable": True}, ["abc"]),
    (INT(0, 9), [0, 9]), (INT(-3, 12), [-3, 0, 12]), (INT(95, 1105), [95, 100, 1105, 999]), (INT(-120, -7), [-7, -99, -120]),
    ({"type": "integer", "exclusiveMinimum": 5, "exclusiveMaximum": 8}, [6, 7]),
    ({"type": "integer", "minimum": -1000000}, [-1000000, 0, 5]),
    ({"type": "integer", "maximum": 42}, [42, -7]),
    ({"type": "integer", "minimum": 1.5, "maximum": 3.5}, [2, 3]),
    ({"type": "number", "minimum": 0, "maximum": 1}, [0, 1, 0.5, 0.25, 1.0]),
    ({"type": "number", "exclusiveMinimum": -2, "exclusiveMaximum": 2}, [-1.5, 0, 1.999]),
    ({"type": "number", "minimum": -10, "maximum": -1}, [-10, -1, -1.5, -9.75]),
    ({"type": "number", "minimum": 3}, [3, 3.5, 700]),
    ({"type": "integer", "multipleOf": 1, "minimum": 0, "maximum": 99}, [0, 99]),
    ({"type": "number", "exclusiveMaximum": 0, "minimum": -5}, [-5, -0.5]),
    (ARR(INT(0, 99)), [[], [1], [1, 2, 3]]), (ARR(S(4), 4, minItems=2), [["a", "b"], ["a", "b", "c", "d"]]),
    (ARR({"type": "boolean"}, 5, minItems=5), [[True] * 5]), (ARR(ARR(INT(0, 9), 2), 2), [[], [[1, 2], []]]),
    ({"type": "array", "prefixItems": [S(5), INT(0, 9)], "items": False}, [[], ["a"], ["a", 1]]),
    ({"type": "array", "prefixItems": [S(5), INT(0, 9)], "items": {"type": "null"}, "minItems": 2, "maxItems": 4},
     [["a", 1], ["a", 1, None, None]]),
    ({"type": "array", "prefixItems": [{"const": 1}, {"const": 2}, {"const": 3}], "maxItems": 2}, [[1], [1, 2]]),
    (OBJ(a=INT(0, 9)), [{"a": 1}]), (OBJ(name=S(10), age=INT(0, 120)), [{"name": "x", "age": 7}]),
    (OBJ(["b"], a=INT(0, 9), b=S(3), c={"type": "null"}), [{"b": ""}, {"a": 1, "b": "x"}, {"b": "x", "c": None}, {"a": 1, "b": "", "c": None}]),
    (OBJ([], a=INT(0, 9), b=INT(0, 9)), [{}, {"a": 1}, {"b": 2}, {"a": 1, "b": 2}]),
    (OBJ([], True, a=INT(0, 9)), [{}, {"a": 3}]),
    (OBJ(["a"], False, a=INT(0, 9)) | {"additionalProperties": INT(10, 20), "maxProperties": 4}, [{"a": 1}, {"a": 1, "zz": 12}, {"a": 1, "ab": 10, "b": 20}]),
    ({"type": "object", "additionalProperties": INT(0, 9), "maxProperties": 3}, [{}, {"x": 1}, {"x": 1, "y": 2, "z": 3}]),
    ({"type": "object", "additionalProperties": False, "minProperties": 0}, [{}]),
    ({"type": "object", "properties": {"k\"é": INT(0, 5)}, "required": ["k\"é"]}, [{"k\"é": 5}]),
    (OBJ(o=OBJ(p=OBJ(q={"const": "deep"}))), [{"o": {"p": {"q": "deep"}}}]),
    (TREE, [{"v": 1}, {"v": 1, "c": [{"v": 2, "c": []}, {"v": 3}]}]),
    ({"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"]},
     [{"next": None}, {"next": {"next": None}}]),
    ({"anyOf": [S(4), INT(0, 9), {"type": "null"}]}, ["a", 3, None]),
    ({"oneOf": [OBJ(kind={"const": "a"}, x=INT(0, 9)), OBJ(kind={"const": "b"}, y=S(3))]}, [{"kind": "a", "x": 1}, {"kind": "b", "y": "z"}]),
    ({"oneOf": [{"type": "integer", "minimum": 0, "maximum": 5}, S(5)]}, [4, "four"]),
    ({"allOf": [OBJ(a=INT(0, 9)), OBJ(b=S(3))]}, [{"a": 1, "b": "x"}]),
    ({"allOf": [{"$ref": "#/$defs/p"}], "$defs": {"p": OBJ(p={"type": "boolean"})}}, [{"p": True}]),
    ({"type": "object", "properties": {"t": S(3)}, "required": ["t"], "anyOf": [{"required": ["t"]}]}, [{"t": "x"}]),
    ({"type": "string", "pattern": "^[a-c]{2,4}$"}, ["ab", "abca"]),
    ({"type": "string", "pattern": "^(foo|ba[rz])-\\d{3}$"}, ["foo-123", "baz-000"]),
    ({"type": "string", "pattern": "^\\w{1,12}@\\w{1,8}\\.(com|org)$"}, ["me@here.org"]),
    ({"type": "string", "pattern": "^[^\\d\\s]{1,5}$"}, ["abc", "x-y"]),
    ({"type": "string", "pattern": "^\\\\\"[\\n\\t ]?$"}, ["\\\"", "\\\"\n"]),
    ({"type": "string", "pattern": "^é[à-ü世]{0,6}$"}, ["é", "éà世"]),
    ({"type": "string", "pattern": "^(?:a?b){0,5}c$"}, ["c", "abbabc"]),
    ({"type": "string", "format": "date"}, ["2024-02-28", "1999-12-31"]),
    ({"type": "string", "format": "time"}, ["23:59:59Z", "00:00:00.5+01:30"]),
    ({"type": "string", "format": "date-time"}, ["2024-01-31T12:00:00Z"]),
    ({"type": "string", "format": "uuid"}, ["123e4567-e89b-12d3-a456-426614174000"]),
    ({"type": "string", "format": "ipv4"}, ["192.168.0.1", "255.255.255.255", "0.0.0.0"]),
    ({"type": "string", "format": "email"}, ["a.b@c.de"]),
    ({"maxLength": 4}, ["abcd"]), ({"maximum": 7, "minimum": 5}, [5, 6.5]), ({"maxItems": 1, "items": S(2)}, [["a"]]),
    ({"title": "t", "description": "d", "type": "integer", "minimum": 0, "maximum": 3, "default": 1, "examples": [2]}, [3]),
    (OBJ(["city"], city=S(12, description="Größe"), unit={"type": "string", "enum": ["c", "f"]}, days=ARR(INT(1, 7), 7)),
     [{"city": "Köln", "unit": "c", "days": [1, 2]}, {"city": "x"}]),
]


def combined():
    """More schemas, put together from the ones above, up to 100."""
    simple = [CASES[i] for i in (0, 2, 5, 7, 8, 15, 21, 22, 28, 30, 40, 46, 53, 57)]
    for (a, xs), (b, ys) in itertools.combinations(simple, 2):
        yield OBJ(["first"], True, first=a, second=b), [{"first": xs[0], "second": ys[-1]}, {"first": xs[-1]}]
        yield ARR({"anyOf": [a, b]}, 2), [[], [xs[0]], [ys[0], xs[-1]]]


VALUES = [None, True, False, 0, 1, -1, 5, 7, 10, 42, 100, 0.5, -0.5, 1.5, 2.5, -2, 1e10, "", "a", "ab", "abc", "abcdefghi", "red", "é", "2024-02-30",
          "2024-13-01", "25:00:00Z", "256.1.1.1", "foo-12", "x@y", [], [1], ["a"], [1, 2, 3, 4], [None], [[]], ["a", "b", "c", "d", "e"], {},
          {"a": 1}, {"a": "1"}, {"a": 1, "zz": 5}, {"b": "x"}, {"b": "abcd"}, {"v": 1, "c": [{"c": []}]}, {"kind": "a", "y": "z"}, {"next": 1},
          {"first": 1}, {"first": "a", "third": 1}, {"name": "x"}, {"age": 1, "name": "x"}]


def main():
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    pool = [json.dumps(value, ensure_ascii=False) for value in VALUES + [v for _, xs in CASES for v in xs[:1]]]
    cases = []
    for schema, made in itertools.islice(itertools.chain(CASES, combined()), 100):
        jsonschema.Draft202012Validator.check_schema(schema)
        judged = {"anyOf": [schema, {"type": "null"}]} if schema.get("nullable") else schema  # of OpenAPI
        judge = jsonschema.Draft202012Validator(judged, format_checker=checker)
        for value in made:
            assert judge.is_valid(value), (schema, value)
        must = [json.dumps(value, ensure_ascii=False, separators=style) for value in made for style in (None, (",", ":"))]
        valid = "".join("01"[judge.is_valid(json.loads(text))] for text in pool)
        cases.append({"schema": json.dumps(schema, ensure_ascii=False), "must": must, "valid": valid})
    assert len(cases) == 100
    out = Path(__file__).parent / "schemas.json"
    lines = [json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in cases]
    out.write_text('{"pool":' + json.dumps(pool, ensure_ascii=False) + ',\n"cases":[\n' + ",\n".join(lines) + "\n]}\n")
    print(len(cases), "schemas,", len(cases) * len(pool), "texts,", out.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
