"""Writes cases.json: templates of our own, with the text that Python's jinja2 renders.

    python tests/golden/templates/make_cases.py
    python tests/golden/templates/make_cases.py FOLDER    the chat templates of FOLDER, into FOLDER/cases.json

`pieces` cover the language construct by construct; `chats` are whole chat templates in the manner of the public
families, each over several conversations. A case whose text is null is one that jinja2 refuses.
"""

import json
import sys
from pathlib import Path

from oracle import render

HERE = Path(__file__).parent

CONTEXT = {
    "name": "Ada", "empty": "", "n": 7, "zero": 0, "f": 2.5, "yes": True, "no": False, "nothing": None,
    "words": ["pear", "Apple", "fig"], "nums": [3, 1, 2, 3], "nested": {"a": {"b": [10, {"c": "deep"}]}, "items": 1},
    "people": [{"name": "Bo", "age": 30, "tag": "x"}, {"name": "al", "age": 20, "tag": "y"},
               {"name": "Cy", "age": 30, "tag": "x"}],
    "uni": "Grüße, 世界 👋", "lines": "one\n  two\n\nthree\n", "html": "<a href=\"x\">'&'</a>",
    "schema": {"type": "object", "properties": {"q": {"type": "string", "description": "Wörter \"zu\" suchen"}},
               "required": ["q"], "none": None, "t": True, "x": 1.0, "big": 1e22, "small": 1e-7, "e": []},
}

PIECES = r"""
{{ name }}|{{ empty }}|{{ n }}|{{ f }}|{{ yes }}|{{ nothing }}|{{ missing }}
{{ 1e3 }} {{ 1.5e-7 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 123456789.0 }} {{ 1_000 }} {{ 0x1f }} {{ 0b101 }} {{ 0o17 }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1 - 2 - 3 }}
{{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ (1 + 2) * 3 }} {{ 1 + 2 * 3 }} {{ (10 - 2) ~ 3 }} {{ 1 ~ 2 * 3 }} {{ 'a' ~ 1 ~ none ~ true ~ 1.0 }}
{{ 'ab' * 3 }} {{ 2 * 'x' }} {{ [1] * 2 + [3] }} {{ (1, 2) + (3,) }} {{ 'a' + 'b' }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ 'a' != 'b' }} {{ 3 >= 3 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ true == 1 }}
{{ 'a' in 'cat' }} {{ 'x' not in 'cat' }} {{ 2 in nums }} {{ 'a' in nested }} {{ 5 in [] }} {{ 'a' in missing }} {{ 3 in (1, 3) }}
{{ yes and no }} {{ no or 'x' }} {{ not yes }} {{ not no and yes }} {{ '' or 0 or 'last' }} {{ 1 and 'two' }}
{{ 'a' if yes else 'b' }} {{ 'a' if no }}| {{ 'x' if no else 'y' if no else 'z' }} {{ ('p' if n > 5 else 'q') ~ '!' }}
{{ nested.a.b[1].c }} {{ nested['a']['b'][0] }} {{ nested.items is callable }} {{ nested['items'] }}
{{ words[0] }} {{ words[-1] }} {{ words[9] }}| {{ words.0 }} {{ name[1] }} {{ uni[7] }} {{ uni[-1] }}
{{ words[1:] }} {{ words[:-1] }} {{ words[::-1] }} {{ nums[::2] }} {{ nums[3:0:-2] }} {{ name[::-1] }} {{ uni[2:9] }} {{ words[-2:] }}
{{ nums[10:] }} {{ name[5:] }}| {{ name[:100] }} {{ nums[-100:2] }} {{ nums[:] }} {{ messages[1:] if messages else 'none' }}
{{ [1, 'two', 3.0, none, true, [4], {'k': 'v'}] }} {{ (1,) }} {{ () }} {{ {} }} {{ {'a': 1, 'b': [1]} }} {{ ["it's", 'say "x"', 'a\nb', "\\"] }}
{{ 'esc: \n\t\\ \' \" \x41 é \d' }} {{ "multi" "part" }} {{ 'é世👋' }}
{{ name.upper() }} {{ name.lower() }} {{ 'hello wOrld-it is'.title() }} {{ 'hELLO'.capitalize() }} {{ '  x '.strip() }}| {{ 'xxaxx'.strip('x') }} {{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}|
{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c'.split(' ', 1) }} {{ 'a b c'.rsplit(' ', 1) }} {{ 'a--b'.split('--')[-1] }} {{ ''.split() }} {{ ''.split(',') }} {{ 'a b  c'.split(none, 1) }}
{{ 'one</think>two'.split('</think>')[-1].lstrip('\n') }} {{ 'x<y>z'.split('<')[1].split('>')[0] }}
{{ name.startswith('A') }} {{ name.endswith(('x', 'a')) }} {{ name.startswith('') }} {{ 'aXbX'.replace('X', '-') }} {{ 'aXbX'.replace('X', '-', 1) }}
{{ 'banana'.find('an') }} {{ 'banana'.rfind('an') }} {{ 'banana'.find('z') }} {{ 'banana'.count('a') }} {{ ','.join(words) }} {{ uni.find('世') }}
{{ '<{}|{}>'.format(name, n) }} {{ '{1}{0}{{}}'.format('a', 'b') }} {{ '{k}-{}'.format(1.5, k='v') }} {{ 'x'.format() }}
{{ '12'.isdigit() }} {{ 'ab'.isalpha() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'ab1'.isalnum() }} {{ ''.isdigit() }} {{ '7'.zfill(3) }}
{{ lines.splitlines() }} {{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'unhappy'.removeprefix('un') }} {{ 'a.py'.removesuffix('.py') }}
{{ nested.get('a').get('zz', 'dflt') }} {{ nested.get('zz') }} {{ nested.keys() | list }} {{ schema.properties.keys() | list }} {{ nested.values() | list | length }}
{% for k, v in schema.items() %}{{ k }}={{ v }};{% endfor %}
{% for k in nested %}{{ k }},{% endfor %} {% for c in 'añb' %}[{{ c }}]{% endfor %}
{{ '  x ' | trim }}| {{ 'xyx' | trim('x') }} {{ name | upper | lower }} {{ words | join(', ') }} {{ people | join('/', attribute='name') }} {{ nums | join }} {{ [1, none, 'a'] | join('-') }}
{{ words | length }} {{ uni | length }} {{ nested | count }} {{ missing | length }} {{ words | first }} {{ words | last }} {{ [] | first }}| {{ '' | last }}|
{{ missing | default('d') }} {{ '' | default('d') }}| {{ '' | default('d', true) }} {{ nothing | default('d') }} {{ none | d('x', boolean=true) }} {{ missing.x | default('no') if missing else 'skip' }}
{{ 'abc' | list }} {{ words | map('upper') | list }} {{ people | map(attribute='name') | join(',') }} {{ people | map(attribute='zip', default='-') | list }} {{ words | map('replace', 'p', 'P') | list }} {{ [[1, 2], [3]] | map('length') | list }}
{{ none | map('upper') | list }} {{ none | selectattr('x') | list }} {{ 0 | reject | list }} {{ [0, 1, '', 'a', none] | select | list }} {{ nums | select('odd') | list }} {{ nums | reject('odd') | list }} {{ nums | select('gt', 1) | list }} {{ nums | select('in', [1, 2]) | list }}
{{ people | selectattr('age', 'equalto', 30) | map(attribute='name') | list }} {{ people | rejectattr('tag', 'eq', 'x') | list }} {{ people | selectattr('name') | list | length }} {{ people | selectattr('nope', 'defined') | list }}
{{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ nums | sort(reverse=true) }} {{ people | sort(attribute='age') | map(attribute='name') | list }} {{ people | sort(attribute='age,name') | length if no else '' }}
{{ nums | unique | list }} {{ ['a', 'A', 'b'] | unique | list }} {{ nums | reverse | list }} {{ name | reverse }} {{ nums | sum }} {{ people | sum(attribute='age') }} {{ nums | min }} {{ nums | max }} {{ words | max }}
{{ schema | items | list | length }} {{ missing | items | list }} {{ nums | string }} {{ 5 | string ~ 'x' }} {{ '42' | int + 1 }} {{ 'x' | int }} {{ 'x' | int(9) }} {{ 3.9 | int }} {{ ' 12 ' | int }} {{ '2.5' | float }} {{ 'q' | float(1.5) }} {{ 'ff' | int(base=16) }} {{ '3.7' | int }}
{{ -3 | abs }} {{ -2.5 | abs }} {{ 2.567 | round(1) }} {{ 2.5 | round }} {{ 2.4 | round(0, 'ceil') }} {{ 2.6 | round(method='floor') }} {{ 3.5 | round }} {{ 7 | round }}
{{ html | escape }} {{ html | e }} {{ html | safe }} {{ (html | e) ~ '<' }} {{ (html | safe) + '<b>' }} {{ '<i>' + (html | safe) }} {{ html | forceescape }}
{{ lines | indent }}| {{ lines | indent(2, true) }}| {{ lines | indent(width=3, blank=true) }}| {{ 'a\nb' | indent('> ') }}
{{ 'hello big-world (now)' | title }} {{ 'HELLO' | capitalize }} {{ 'a b  c' | wordcount }} {{ '%s is %d, %.2f%%' | format(name, 3, 1.5) }} {{ '%s-%s' % (1, 'b') }} {{ '<%s>' % name }}
{{ {'b': 1, 'A': 2} | dictsort }} {{ {'b': 1, 'a': 2} | dictsort(by='value') }} {{ {'b': 1, 'a': 2} | dictsort(reverse=true) }}
{{ nums | batch(2) | list }} {{ nums | batch(3, 'x') | list }} {% for g, l in people | groupby('age') %}{{ g }}:{{ l | map(attribute='name') | join('+') }};{% endfor %}
{{ schema | tojson }} {{ 'a"b\\c\n\t\x01é/' | tojson }} {{ [1, 2.0, true, none, 'x'] | tojson }} {{ {} | tojson }} {{ [] | tojson }} {{ (1, 2) | tojson }} {{ {1: 'a', true: 'b'} | tojson }}
{{ schema | tojson(indent=2) }} {{ [[], {}, [1]] | tojson(indent=4) }} {{ uni | tojson(ensure_ascii=true) }} {{ {'b': 1, 'a': [1, 2]} | tojson(sort_keys=true, separators=(',', ':')) }} {{ html | tojson }} {{ nested | tojson | upper }} {{ schema | tojson | safe ~ '<x>' }}
{{ 1 is defined }} {{ missing is defined }} {{ missing is undefined }} {{ nothing is none }} {{ name is string }} {{ nested is mapping }} {{ words is sequence }} {{ name is sequence }} {{ words is iterable }} {{ n is iterable }} {{ missing is sequence }} {{ nested is iterable }}
{{ n is number }} {{ yes is number }} {{ n is integer }} {{ yes is integer }} {{ f is float }} {{ yes is boolean }} {{ yes is true }} {{ 1 is true }} {{ no is false }} {{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(2) }}
{{ n is eq 7 }} {{ n is ne 7 }} {{ n is gt(3) }} {{ n is lt 3 }} {{ n is ge 7 }} {{ 'a' is in 'abc' }} {{ 2 is in nums }} {{ 'AB' is upper }} {{ 'ab' is lower }} {{ n is not none }} {{ n is not string }} {{ range is callable }} {{ nothing is sameas none }} {{ not n is none }} {{ n is eq(7) and yes }}
{{ n is string or name is string }} {{ (words | length) is gt 2 }} {{ words | length is gt 2 }} {{ nested.a is defined and nested.a.b is defined and nested.a.q is not defined }}
{% if n > 5 %}big{% elif n > 3 %}mid{% else %}small{% endif %} {% if missing %}x{% else %}none{% endif %} {% if words %}some{% endif %} {% if not nothing %}n{% endif %}
{% for w in words %}{{ loop.index }}/{{ loop.length }}:{{ w }}{% if not loop.last %}, {% endif %}{% endfor %}
{% for w in words %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.depth }}{{ loop.cycle('o', 'e') }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}
{% for x in [] %}a{% else %}nothing{% endfor %} {% for x in missing %}a{% else %}undef{% endfor %} {% for x in nums if x > 1 %}{{ x }}@{{ loop.index }}/{{ loop.length }} {% else %}none{% endfor %} {% for x in nums if x > 9 %}{{ x }}{% else %}none{% endfor %}
{% for x in nums %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %} {% for x in nums %}{% if loop.changed(x) %}!{{ x }}{% endif %}{% endfor %}
{% for a, b in [(1, 2), [3, 4]] %}{{ a + b }} {% endfor %}{% for i, (a, b) in [(1, (2, 3))] %}{{ i }}{{ a }}{{ b }}{% endfor %} {% for (k, v) in {'x': 1}.items() %}{{ k }}{{ v }}{% endfor %}
{% for x in [{'v': 1, 'c': [{'v': 2, 'c': []}, {'v': 3, 'c': [{'v': 4, 'c': []}]}]}] recursive %}<{{ x.v }}@{{ loop.depth }}{{ loop(x.c) }}>{% endfor %}
{% for i in range(3) %}{{ i }}{% endfor %} {% for i in range(5, 1, -2) %}{{ i }}{% endfor %} {{ range(2, 5) | list }} {% for i in range(0, words | length) %}{{ words[i] }}{% endfor %}
{% set x = 1 %}{% for i in nums %}{{ x }}{% set x = 9 %}{{ x }}{% endfor %}{{ x }} {% if yes %}{% set x = 2 %}{% endif %}{{ x }} {% set a, b = 1, 2 %}{{ a }}{{ b }} {% set t = 1, 2 %}{{ t }}
{% set ns = namespace(found=false, k=1) %}{% for i in nums %}{% if i == 2 %}{% set ns.found = true %}{% endif %}{% set ns.k = ns.k + i %}{% endfor %}{{ ns.found }}{{ ns.k }} {% set ns.new = 'x' %}{{ ns.new }} {{ ns.absent }}|
{% set block %}a{{ n }}b{% endset %}{{ block }} {% set up | upper %}abc{% endset %}{{ up }} {% set b2 %}  x {% endset %}[{{ b2 | trim }}] {% set o | trim | replace('a', 'b') %} aa {% endset %}[{{ o }}]
{% macro m(a, b=2, c='z') %}<{{ a }}{{ b }}{{ c }}>{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(a=5, c='q') }}{{ m(1, b='k') }} {{ m() }} {{ m('x') | upper }} {{ m(1) ~ m(2) }}
{% set outer = 'O' %}{% macro sees() %}{{ outer }}{{ n }}{% endmacro %}{{ sees() }}{% set outer = 'P' %}{{ sees() }} {% macro rec(k) %}{{ k }}{% if k > 0 %}{{ rec(k - 1) }}{% endif %}{% endmacro %}{{ rec(3) }}
{% macro wrap(t) %}[{{ t }}:{{ caller() }}]{% endmacro %}{% call wrap('w') %}body {{ n }}{% endcall %} {% macro each(l) %}{% for x in l %}{{ caller(x) }}{% endfor %}{% endmacro %}{% call(x) each(nums) %}({{ x }}){% endcall %}
{% macro d1(s, p=n + 1) %}{{ s }}{{ p }}{% endmacro %}{{ d1('a') }} {% macro inner(x) %}{% set y = x ~ '!' %}{{ y }}{% endmacro %}{{ inner('k') }}{{ y }}|
{% filter upper %}abc {{ name }}{% endfilter %} {% filter trim | replace('b', 'c') %} abb {% endfilter %}| {% with a = 1, b = n %}{{ a + b }}{% endwith %}{{ a }}| {% raw %}{{ not }} {% if %}{% endraw %} {% generation %}gen {{ n }}{% endgeneration %}
{# comment {{ x }} #}a{#- trimmed -#} b {# other #}c
{%- if yes -%}   x   {%- endif -%}   y  {{- 'z' -}}  w {{ 'v' }}
{% if yes +%} plus{% endif %} {{ dict(a=1, b='x') }} {{ dict({'z': 1}, y=2) }} {{ namespace(a=3).a }} {{ strftime_now('%Y-%m-%d %H:%M:%S|%d %b %Y|%B %A %j') }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }} {% set j = joiner(' | ') %}{% for w in words %}{{ j() }}{{ w }}{% endfor %}
{{ 'ß'.upper() }} {{ 'ÉCOLE'.lower() }} {{ 'ñandú'.title() }} {{ uni | upper }} {{ '  　x ' | trim }}| {{ 'é' * 3 }} {{ 'aé' in 'xaéy' }} {{ 'İ' | length }}
{{ (words | map('length') | list)[0] }} {{ people[0].name ~ ':' ~ people[-1]['age'] }} {{ people | map(attribute='name') | map('lower') | sort | join('') }} {{ nested['a'].b | last }} {{ (nums | sort)[-1] }}
{{ {'k': 1}['k'] }} {{ {'k': {'j': 2}}.k.j }} {{ [1, 2, 3][1] }} {{ 'abc'[1] }} {{ ('a', 'b')[0] }} {{ [[1, 2], [3, 4]][1][0] }} {{ {1: 'one'}[1] }} {{ {'a': 1,} }} {{ [1, 2,] }}
{{ -n }} {{ +n }} {{ - -n }} {{ -1.5 }} {{ not not yes }} {{ -n | abs }} {{ (-n) | abs }} {{ 3 - -2 }} {{-5}}
{{ missing == missing }} {{ missing == none }} {{ missing != 1 }} {{ [] == [] }} {{ {'a': 1} == {'a': 1.0} }} {{ 'a' == 1 }} {{ none == false }} {{ (1, 2) == [1, 2] }}
{{ missing ~ 'x' }} {{ missing | upper }}| {{ missing | trim }}| {{ missing | list }} {{ missing | join(',') }}| {{ missing | string }}| {% for x in missing | list %}{% endfor %} {{ [missing] }}
{{ words | tojson | length }} {{ 'a' | replace('', '-') }} {{ 'aaa' | replace('a', 'b', 2) }} {{ 5 | replace('5', '6') }} {{ [1] | first | string | length }} {{ nums | map('string') | join('') }}
""".strip("\n")
MULTILINE = [
    "{% for w in words %}\n  {{ w }}\n{% endfor %}\nend\n",
    "  {% if yes %}\n    a\n  {% else %}\n    b\n  {% endif %}\n  c\n\n",
    "x {% if yes %}\n  y\n{% endif %} z\n   {# c #}\n  w\n",
    "{%- for w in words %}\n{{- w }}\n{%- endfor %}\n\n{%+ if yes %}k{% endif %}\n",
    "a\n   {%+ if yes %}b{% endif +%}\nc\n  {%- if yes %}d{% endif -%}  \n e",
    "line1\r\nline2\rline3\n\n",
    "{{ 'a' }}\n{{ 'b' }}\n\n{% set x = 1 %}\n{{ x }}\n",
    "{% macro m(x) %}\n<{{ x }}>\n{% endmacro %}\n{{ m(1) }}\n{{- m(2) }}\n",
    "   {% set a %}\n  text\n   {% endset %}\n[{{ a }}]\n",
    "{% raw %}\n  {{ x }}\n{% endraw %}\n  {% raw -%}\n  y  \n{%- endraw %}\nz",
    "\t{% if yes %}\t\n x\n\t{% endif %}\t.\n",
    "{% if yes %}{% if no %}{% else %}\n\n  deep\n{% endif %}\n{% endif %}\n",
    "{% for a in [1,2] %}{% for b in [3,4] %}\n  {{ loop.index }}{{ a }}{{ b }}\n{%- endfor %}\n{% endfor %}",
    "{{ {'a': {'b': 1}}.a.b }}{{ {'x': '}}'} }}{{ '{%' }}{{ '#}' }} } {",
    "{% set x = {'k': [1, {'z': (1, 2)}]} %}{{ x }}{{ x.k[1].z[0] }}",
    "{#-\n big\n-#}\n  a {#+ b #}\nc",
]
MUTABLE = [
    "{% set l = [] %}{% for w in words %}{% set _ = l.append(w | upper) %}{% endfor %}{{ l }}",
    "{% set l = [3, 1] %}{{ l.pop() }}{{ l }}{{ l.insert(0, 'x') }}{{ l }}{{ l.extend([7, 8]) }}{{ l.pop(0) }}{{ l }}",
    "{% set d = {'a': 1} %}{{ d.update({'b': 2}) }}{{ d.update(c=3) }}{{ d.pop('a') }}{{ d }}{{ d.setdefault('q', 9) }}{{ d }}",
    "{% set l = [1, 2] %}{{ l.reverse() }}{{ l }}{{ l.index(1) }}{{ l.count(2) }}{% set m = l.copy() %}{{ m.append(4) }}{{ l }}{{ m }}",
]
REFUSED = [
    "{{ missing.x }}", "{{ missing['x'] }}", "{{ missing() }}", "{{ missing + 1 }}", "{{ 1 < 'a' }}", "{{ 1 / 0 }}",
    "{{ 'a' + 1 }}", "{{ nothing.x.y }}", "{{ raise_exception('no') }}", "{{ n | nonesuch }}", "{{ n is nonesuch }}",
    "{{ missing | tojson }}", "{{ range | tojson }}", "{% if %}x{% endif %}", "{% for x in %}{% endfor %}", "{{ 1 + }}",
    "{% if yes %}", "{{ 'a }}", "{% nonesuch %}", "{{ a b }}", "{{ n() }}", "{% for a, b in [1] %}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% set n.x = 1 %}", "{{ [1, 2 }}", "{{ n[ }}", "{% endif %}",
    "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{{ none + 1 }}", "{{ 1 in 5 }}", "{# open",
    "{% raw %}x", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}",
    "{{ '{}'.format() }}", "{{ '{'.format(1) }}", "{{ '{x}'.format(1) }}", "{{ {[1]: 2} }}", "{{ 'x' is in 5 }}", "{% break %}", "{{ -'a' }}", "{% do 1 %}", "{{ n.foo.bar }}", "{{ words.x.y }}",
    "{{ 'a'.nonesuch() }}", "{{ people | sort }}", "{{ [1, 'a'] | sort }}", "{{ 5 | length }}", "{% for x in 5 %}{% endfor %}",
]

TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "The weather \"now\" <somewhere>", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "Größe"},
                                         "unit": {"type": "string", "enum": ["c", "f"]},
                                         "days": {"type": "array", "items": {"type": "integer"}}},
        "required": ["city"]}}}]
CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "c0ffee123", "type": "function", "function": {"name": "weather", "arguments": {"city": "Köln", "unit": "c"}}}]}
CONVERSATIONS = {
    "plain": {"messages": [{"role": "user", "content": "Hi\nthere"}], "add_generation_prompt": True},
    "system": {"messages": [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "1+1?"},
                            {"role": "assistant", "content": "2"}, {"role": "user", "content": " 世界? "}],
               "add_generation_prompt": True},
    "closed": {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
               "add_generation_prompt": False},
    "tools": {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Weather?"}, CALL,
                           {"role": "tool", "name": "weather", "tool_call_id": "c0ffee123", "content": "{\"t\": 7}"},
                           {"role": "tool", "name": "weather", "tool_call_id": "c0ffee123", "content": "rain"}],
              "tools": TOOLS, "add_generation_prompt": True},
    "tools-first": {"messages": [{"role": "user", "content": "Weather?"}], "tools": TOOLS, "add_generation_prompt": True},
    "reasoning": {"messages": [{"role": "user", "content": "q1"},
                               {"role": "assistant", "content": "<think>\nhm\n</think>\n\na1"},
                               {"role": "user", "content": "q2"},
                               {"role": "assistant", "reasoning_content": "so so", "content": "a2"},
                               {"role": "user", "content": "q3"}],
                  "add_generation_prompt": True, "enable_thinking": False},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "look "}, {"type": "text", "text": "here"}]}],
              "add_generation_prompt": True, "enable_thinking": True, "reasoning_effort": "high"},
    "wrong-order": {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
                    "add_generation_prompt": True},
    "only-system": {"messages": [{"role": "system", "content": "only"}]},
}


def chats_of(folder):
    chats = []
    for file in sorted(folder.glob("*.jinja")):
        source = file.read_text()
        chats.append({"template": file.name, "expected": {
            name: render(source, {"tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>",
                                  "add_generation_prompt": True} | conversation)
            for name, conversation in CONVERSATIONS.items()}})
    return chats


def main():
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        cases = {"conversations": CONVERSATIONS, "chats": chats_of(folder)}
        (folder / "cases.json").write_text(json.dumps(cases, ensure_ascii=False) + "\n")
        return
    pieces = [{"template": line, "expected": render(line, CONTEXT)} for line in PIECES.split("\n")]
    pieces += [{"template": t, "expected": render(t, CONTEXT)} for t in MULTILINE]
    pieces += [{"template": t, "expected": render(t, CONTEXT, mutable=True)} for t in MUTABLE]
    for piece in pieces:
        if piece["expected"] is None:
            print("refused by jinja2:", piece["template"][:100])
    for template in REFUSED:
        assert render(template, CONTEXT) is None, template
    chats = chats_of(HERE)
    cases = {"context": CONTEXT, "pieces": pieces, "refused": REFUSED, "conversations": CONVERSATIONS, "chats": chats}
    (HERE / "cases.json").write_text(json.dumps(cases, ensure_ascii=False, indent=1) + "\n")
    refused = sum(text is None for chat in chats for text in chat["expected"].values())
    print(len(pieces), "pieces,", len(chats), "chat templates,", refused, "conversations refused")


if __name__ == "__main__":
    main()
