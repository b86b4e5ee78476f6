#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/templates/expected.json: what Jinja2 makes of our templates and expressions; and
tests/templates/families/expected.json: of templates built like those of known model families; and
tests/templates/language.json: of the small templates in template_snippets.py.

Jinja2 is set up as Transformers sets it up for chat templates (trim_blocks, lstrip_blocks, loop controls,
a JSON filter that keeps characters). Run it after changing a template or adding a case:

    pip install jinja2 && python3 tests/tools/render_templates.py
"""
import datetime
import itertools
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

import template_snippets

ROOT = pathlib.Path(__file__).resolve().parent.parent / "templates"


class Raised(Exception):
    pass


def raise_exception(message):
    raise Raised(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks an assistant's words for training; rendering sees a scope."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)


NOW = datetime.datetime(2026, 3, 4, 15, 9, 26)
NOW_SECONDS = int(NOW.replace(tzinfo=datetime.timezone.utc).timestamp())


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, Generation]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


def message(role, content):
    return {"role": role, "content": content}


CONVERSATIONS = [
    [message("user", "Hi")],
    [message("system", "Be brief."), message("user", "Hi")],
    [message("user", "One"), message("assistant", "Two"), message("user", "Three")],
    [message("system", "S\nT"), message("user", " spaces "), message("assistant", ""),
     message("user", '"q" <b> & \'s\'')],
    [message("user", "  \n lead and trail \u00a0\n"), message("assistant", "\n\nanswer\n")],
    [message("user", "typed <|im_end|>\n<|im_start|>system\nno")],
    [message("system", ""), message("user", "")],
    [message("user", "one"), message("user", "two")],
    [message("assistant", "first"), message("user", "second")],
    [message("user", "a"), message("system", "in the middle"), message("user", "b")],
    [message("user", "weather?"), message("assistant", "<think>\nlook it up\n</think>\n\nLooking."),
     message("tool", '{"t": 21}'), message("tool", "sunny"),
     message("assistant", "<think>ok</think>21 and sunny"), message("user", "thanks 🙂"),
     message("assistant", "<think>\n\npolite\n</think>\n\n中文 é")],
    [message("user", "crlf\r\nline {{ 7 * 7 }} {% if x %}")],
    [message("tool", "<tool>x</tool>"), message("user", "<tool>y</tool>")],
    [message("critic", "unknown role")],
    [],
]

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather at a place.",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "The city's name, say \"Zürich\""},
            "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
            "days": {"type": ["integer", "null"]},
            "near": {"type": "array", "items": {"type": "object", "properties": {
                "lat": {"type": "number"}, "lon": {"type": "number", "default": 0.5}}, "required": ["lat"]}},
        }, "required": ["city"]}}},
    {"type": "function", "function": {
        "name": "now", "description": "The time <|im_end|> now.",
        "parameters": {"type": "object", "properties": {}}}},
]
DOCUMENTS = [{"title": "on cats-and dogs", "text": "Cats sleep."}, {"title": "II", "text": "Dogs\nbark <|eot_id|>."}]


def call(name, arguments, identity):
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*tool_calls, **more):
    return {"role": "assistant", "content": None, "tool_calls": list(tool_calls), **more}


def result(content, identity, name):
    return {"role": "tool", "content": content, "tool_call_id": identity, "name": name}


WEATHER = call("get_weather", {"city": "Zürich", "unit": "C", "near": [{"lat": 47.4, "lon": 8}]}, "abcdefgh1")
TIME = call("now", {}, "abcdefgh2")
FAMILY_CONVERSATIONS = [
    {"messages": [message("user", "Hi")]},
    {"messages": [message("system", "Be brief."), message("user", " Hi \n")]},
    {"messages": [message("system", "S"), message("user", "One"), message("assistant", "Two"), message("user", "Three"),
                  message("assistant", "Four")], "add_generation_prompt": False},
    {"messages": [message("system", "Use tools."), message("user", "Weather?")], "tools": TOOLS},
    {"messages": [message("user", "Weather?"), calls(WEATHER), result('{"t": 21}', "abcdefgh1", "get_weather")],
     "tools": TOOLS},
    {"messages": [message("system", "Rules"), message("user", "Weather?"), calls(WEATHER, reasoning_content="look\nit up"),
                  result("sunny", "abcdefgh1", "get_weather"), message("assistant", "Sunny."), message("user", "Thanks 🙂")],
     "tools": TOOLS[:1]},
    {"messages": [message("user", "Both?"), calls(WEATHER, TIME), result("sunny", "abcdefgh1", "get_weather"),
                  result("noon", "abcdefgh2", "now")], "tools": TOOLS, "add_generation_prompt": False},
    {"messages": [message("system", "Think /no_think"), message("user", "1+1?"),
                  message("assistant", "<think>\neasy\n</think>\n\n2"), message("user", "2+2?"),
                  message("assistant", "<think>\nhm\n</think>\n\n4")],
     "variables": {"enable_thinking": False, "controls": {"length": "short"}}},
    {"messages": [message("system", "Keep to the documents."), message("user", "Cats?")], "documents": DOCUMENTS},
    {"messages": [message("user", "a"), message("user", "b"), message("system", "in the middle")], "documents": DOCUMENTS,
     "tools": TOOLS},
    {"messages": [message("system", "é <b> & 'q'"), message("user", "typed <|im_end|><|eot_id|>\n[/INST] {{ x }} 中文"),
                  message("assistant", "ok"), message("user", "<tool_call>{}</tool_call>")], "tools": TOOLS[1:], "now": None},
    {"messages": [], "variables": {"enable_thinking": False, "date_string": "1 May", "messages": "no"}},
]

# Expressions and small templates; each is rendered with the conversation below.
SNIPPET_MESSAGES = [message("system", "Rules"), message("user", "Héllo <b>"), message("assistant", "yes")]
SNIPPETS = [
    # printing
    "{{ 1 }} {{ -2 }} {{ 1.0 }} {{ 0.1 + 0.2 }} {{ 1e100 }} {{ 1e16 }} {{ 123456789012345.6 }} {{ 1e-5 }} {{ 0.0001 }}",
    "{{ true }} {{ False }} {{ none }} {{ None }}{{ missing }}|",
    "{{ [1, 'a', \"it's\", 'q\"', none, 1.5, true] }}", "{{ {'k': ['v', {'n': 1}], 'é': '\\n\\t\\\\'} }}",
    "{{ (1, 2) }} {{ (1,) }} {{ () }} {{ 1, 'x' }}", "{{ [] }}{{ {} }}",
    "{{ 'a' 'b' \"c\" }}", "{{ 'tab\\tnl\\nq\\'dq\\\"back\\\\ \\x41 \\u00e9 \\U0001F600 \\101 \\q' }}",
    # arithmetic
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }}",
    "{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1 + 2 * 3 - 4 }} {{ (1 + 2) * 3 }} {{ 2 * 3 ** 2 }} {{ -2 ** 2 }} {{ true + 1 }}",
    "{{ 'ab' * 3 }} {{ 2 * 'x' }} {{ 'x' * 0 }}| {{ 'x' * -1 }}| {{ [1] + [2] }}",
    "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ 'a' + 1 }}", "{{ 1 + none }}", "{{ 'a' + missing }}", "{{ missing + 'a' }}",
    "{{ 'a' ~ 1 ~ none ~ missing ~ true ~ 1.5 }}", "{{ 1 ~ 2 + 3 }}", "{{ -missing }}", "{{ -'a' }}",
    # comparison and logic
    "{{ 1 < 2 }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ 'a' == 'a' }} {{ 1 == '1' }} {{ true == 1 }}",
    "{{ 1 != 2 }} {{ 3 >= 3 }} {{ 3 <= 2 }} {{ 4 > 1 }} {{ [1, [2]] == [1, [2]] }} {{ {'a': 1} == {'a': 1} }} {{ [1] == (1,) }}",
    "{{ 'a' < 1 }}", "{{ missing < 1 }}", "{{ missing == missing }} {{ missing == '' }} {{ missing == none }} {{ none == none }}",
    "{{ 'ell' in 'hello' }} {{ 'x' not in 'hello' }} {{ 1 in [1, 2] }} {{ 'a' in {'a': 1} }} {{ 'z' in missing }}",
    "{{ 1 in 'abc' }}", "{{ 1 in 5 }}", "{{ not true }} {{ not missing }} {{ not 'x' in 'y' }}",
    "{{ 'a' or 'b' }} {{ '' or 'b' }} {{ 'a' and 'b' }} {{ '' and 'b' }}| {{ none or 0 }} {{ 1 and 2 or 3 }}",
    "{{ 'y' if true else 'n' }} {{ 'y' if false else 'n' }} {{ 'y' if false }}| {{ 'a' if false else 'b' if false else 'c' }}",
    # access
    "{{ messages[0].role }} {{ messages[-1]['content'] }} {{ messages.0.role }} {{ messages[0]['ro' + 'le'] }}",
    "{{ messages[7].role }}", "{{ messages[7] }}|{{ missing.x }}", "{{ missing['x'] }}", "{{ none.x }}|{{ none['x'] }}|{{ (1).x }}|{{ 'abc'.x }}|",
    "{{ 'hello'[0] }}{{ 'hello'[-1] }}{{ 'hello'[9] }}| {{ 'héllo'[1] }}",
    "{{ 'hello'[1:3] }} {{ 'hello'[:-1] }} {{ 'hello'[::2] }} {{ 'hello'[::-1] }} {{ 'héé🙂x'[1:4] }} {{ 'hello'[3:1] }}| {{ 'hello'[-3:] }} {{ 'hello'[10:] }}|",
    "{{ [1, 2, 3, 4][1:3] }} {{ [1, 2, 3][::-1] }} {{ [1, 2, 3][-2:] }} {{ [1, 2, 3, 4, 5][4:0:-2] }} {{ (1, 2, 3)[:2] }}",
    "{{ missing[1:] }}", "{{ messages|length }}{% set five = 5 %}{{ five[1:] }}", "{{ messages[none:none]|length }}{{ messages['x':] }}", "{{ messages[missing:] }}", "{{ [1][::0] }}", "{{ [1, 2]['x'] }}|{{ 'abc'['x'] }}|{{ {'a': 1}[1] }}|",
    "{{ {'a': 1, 'a': 2} }} {{ {'a': 1}.get('a') }} {{ {'a': 1}.get('b') }} {{ {'a': 1}.get('b', 3) }} {{ {'a': 1}['b'] }}|",
    # filters
    "{{ '  x '|trim }}| {{ 'xxaxx'|trim('x') }} {{ 5|trim }} {{ missing|trim }}| {{ none|trim }} {{ '\u3000x\u00a0'|trim }}|",
    "{{ 'abc'|length }} {{ 'é🙂'|count }} {{ [1, 2]|length }} {{ {'a': 1}|length }} {{ missing|length }}", "{{ 5|length }}",
    "{{ missing|default('d') }} {{ ''|default('d') }}| {{ ''|default('d', true) }} {{ ''|d('e', boolean=true) }} {{ none|default('d') }} {{ missing|default }}|",
    "{{ 'aBc'|upper }} {{ 'aBc'|lower }} {{ 'aBC dE'|capitalize }} {{ ''|capitalize }}| {{ 1|upper }} {{ none|lower }}",
    "{{ [1, 2]|first }} {{ [1, 2]|last }} {{ []|first }}| {{ 'abc'|first }} {{ 'abé'|last }} {{ []|last }}|",
    "{{ ['a', 1, none]|join }} {{ ['a', 'b']|join(', ') }} {{ 'abc'|join('-') }} {{ missing|join('x') }}|", "{{ 5|join }}",
    "{{ 'abc'|list }} {{ {'a': 1, 'b': 2}|list }} {{ (1, 2)|list }}", "{{ 5|list }}",
    "{{ 'a-b-c'|replace('-', '+') }} {{ 'aaa'|replace('a', 'b', 2) }} {{ 'aaa'|replace('aa', 'b') }} {{ 1|replace('1', '2') }}",
    "{{ 5|string + '!' }} {{ true|string }} {{ missing|string }}| {{ [1]|string|length }}",
    "{{ '42'|int + 1 }} {{ ' 7 '|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ 3.9|int }} {{ -3.9|int }} {{ true|int }} {{ none|int }} {{ '-5'|int }} {{ '+5'|int }}",
    "{{ [3, 1]|reverse|list }} {{ 'abc'|reverse }}", "{{ -5|abs }} {{ (-5)|abs }} {{ (-2.5)|abs }}",
    "{{ {'a': [1, 2.5, none, true, 'x\"y\\n\\\\/é🙂<b>']}|tojson }} {{ []|tojson }} {{ {}|tojson }} {{ '\\x00\\x1f\\x7f\\b\\f\\r\\t'|tojson }}",
    "{{ {'a': [1, {'b': 2}], 'c': [], 'd': {}}|tojson(indent=2) }}", "{{ [1, [2, 3]]|tojson(indent=4) }}", "{{ missing|tojson }}",
    "{% for k, v in {'a': 1, 'b': 2}|items %}{{ k }}{{ v }}{% endfor %}{{ missing|items|list }}",
    "{{ '<b>'|safe }} {{ ' x '|trim|upper ~ '!' }} {{ 'a'|upper + 'b'|upper }} {{ -1|string }}",
    # tests
    "{{ missing is defined }} {{ messages is defined }} {{ missing is undefined }} {{ missing is not defined }} {{ none is none }} {{ missing is none }}",
    "{{ 'a' is string }} {{ 1 is string }} {{ 1 is number }} {{ 1.5 is number }} {{ true is number }} {{ 1 is integer }} {{ true is integer }} {{ 1.0 is integer }} {{ 1.0 is float }} {{ true is boolean }} {{ 1 is boolean }}",
    "{{ {} is mapping }} {{ [] is mapping }} {{ [] is iterable }} {{ 'a' is iterable }} {{ 1 is iterable }} {{ missing is iterable }} {{ [] is sequence }} {{ {} is sequence }} {{ 1 is sequence }}",
    "{{ true is true }} {{ 1 is true }} {{ false is false }} {{ none is false }} {{ 3 is odd }} {{ 3 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }}",
    "{{ 1 is eq 1 }} {{ 1 is equalto(2) }} {{ 'a' is ne 'b' }} {{ 1 is not eq 1 }} {{ messages is string or messages is iterable }}",
    # methods
    "{{ ' x '.strip() }}|{{ 'xyx'.strip('xy') }}|{{ ' x '.lstrip() }}|{{ ' x '.rstrip() }}|{{ '\\n\\nx\\n'.strip('\\n') }}|{{ 'ééxé'.lstrip('é') }}",
    "{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith('bc') }} {{ 'abc'.startswith('') }} {{ 'abc'.startswith(('x', 'a')) }} {{ ''.endswith('x') }}",
    "{{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ ' a  b '.split() }} {{ 'abc'.split('x') }} {{ ''.split(',') }} {{ ''.split() }} {{ 'a b c'.split(maxsplit=1) }} {{ ' a b  c '.split(none, 1) }}",
    "{{ 'a,b,c'.rsplit(',', 1) }} {{ 'a,b,c'.rsplit(',') }} {{ 'aaa'.rsplit('aa', 1) }} {{ 'abc'.split('') }}",
    "{{ 'a b'.upper() }} {{ 'A'.lower() }} {{ 'aB c'.capitalize() }} {{ 'a-b'.replace('-', '') }} {{ 'aXbXc'.replace('X', 'é', 1) }} {{ 'héllo'.find('l') }} {{ 'a'.find('z') }}",
    "{{ ', '.join(['a', 'b']) }} {{ '-'.join('abc') }}", "{{ ','.join([1]) }}", "{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }} {{ 'x'.removeprefix('y') }}",
    "{{ {'a': 1}.items()|list }} {{ {'a': 1}.keys()|list }} {{ {'a': 1}.values()|list }}", "{{ missing.strip() }}", "{{ (5).strip() }}", "{{ none.items() }}",
    # statements
    "{% if missing %}a{% elif [] %}b{% elif 'x' %}c{% else %}d{% endif %}", "{% if 0 %}a{% elif 0.0 %}b{% elif {} %}c{% else %}d{% endif %}",
    "{% for x in [1, 2, 3] %}{{ x }}{% endfor %}{% for x in missing %}{{ x }}{% else %}none{% endfor %}{% for c in 'hé' %}[{{ c }}]{% endfor %}",
    "{% for x in {'a': 1, 'b': 2} %}{{ x }}{% endfor %}{% for x in range(3) %}{{ x }}{% endfor %}{% for x in range(5, 0, -2) %}{{ x }}{% endfor %}",
    "{% for x in 5 %}{{ x }}{% endfor %}", "{% for x in none %}{{ x }}{% endfor %}", "{% for a, b in [[1, 2], 'xy'] %}{{ a }}{{ b }};{% endfor %}", "{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}",
    "{% for x in [1, 2, 3, 4] if x % 2 == 0 %}{{ loop.index }}{{ x }}{{ loop.last }}{% else %}no{% endfor %}{% for x in [1] if x > 1 %}{{ x }}{% else %}no{% endfor %}",
    "{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c }}{{ d }}{% set x = 1, 2 %}{{ x }}",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}",
    "{% set x %}a{{ 1 }}{% set y = 2 %}b{% endset %}{{ x }}{{ x|length }}{{ y }}", "{% set ns = namespace(a=1) %}{% set ns.b = ns.a + 1 %}{{ ns.a }}{{ ns.b }}{{ ns.c }}|", "{% set x = 1 %}{% set x.y = 2 %}",
    "{% for i in [1, 2] %}{% for j in [1, 2] %}{{ loop.index }}{{ loop.depth }}{{ loop.first }}{% endfor %}{{ loop.index0 }}{% endfor %}", "{{ loop }}|{{ loop is defined }}",
    "{{ raise_exception('my own sentence, with 100%') }}", "{% if false %}{{ raise_exception('never') }}{% endif %}fine", "{% for m in messages %}{{ raise_exception('bad ' + m.role) if m.role == 'user' }}{% endfor %}",
    # functions that may be missing
    "{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }}{% else %}26 Jul 2024{% endif %}",
    "{{ today('%d', utc=true) if today is not undefined else 'no day' }}", "{% if not today is defined %}{{ today(1) }}{% endif %}",
    # white space
    "a\n{% if true %}\nb\n{% endif %}\nc", "a\n   {% if true %}\n  b\n   {% endif %}\nc\n", "a\n   {%+ if true %}\n  b\n   {% endif +%}\nc", "a  {% if true %}  b  {% endif %}  c",
    "a \n {%- if true -%} \n b \n {%- endif -%} \n c", "a \n {{- 1 -}} \n b", "a\n  {{ 1 }}\nb\n\n", "a\n  {# c #}\nb", "a\n  {#- c -#}\n  b", "a {# c #} b", "{# x\ny #}\nz", "\t {% set x = 1 %}\n\n{{ x }}\n",
    "x\r\ny\rz{{ '\\r\\n' }}", "  {% if true %}x{% endif %}  {% if true %}\n  y{% endif %}", "{% if true %}{% if true %}\n\n  z  {% endif %}  {% endif %}", "  {{ 1 }}  {% if true %}  {% endif %}\n  {% if true %}  {% endif %}  \n",
    "{{'}}'}} {{ '%}' }} {% if '%}' %}x{% endif %} {{ {'a': {'b': 1}}['a']['b'] }} {{ '{{' }}", "{ {% if true %}{ {% endif %} } { % {", "a{{ 1 }}\n{{ 2 }}\n", "{{ 1 -}}\n\n  x", "x\n\n{{- 1 }}",
    "{%- for i in [1, 2] %}\n  {{ i }}\n{%- endfor %}", "{% for i in [1, 2] -%}\n  {{ i }}\n{% endfor %}", "\n\n{% if true %}\n\n{% endif %}\n\n", "\u00a0{% if true %}\u2003{%- endif %}x",
    # macros
    "{% macro m(a, b='x', c=none) %}[{{ a }}|{{ b }}|{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(1, c=3) }}{{ m(a='k') }}{{ m() }}{{ m(c=1, a=2, b=3)|length }}",
    "{% macro m(a, b=a ~ '!') %}{{ b }}{% endmacro %}{{ m('hi') }}", "{% macro m() %}x{% endmacro %}{{ m(1) }}", "{% macro m(a) %}x{% endmacro %}{{ m(b=1) }}", "{% macro m(a) %}x{% endmacro %}{{ m(1, a=1) }}",
    "{% macro fact(n) %}{% if n > 1 %}{{ n }}*{{ fact(n - 1) }}{% else %}1{% endif %}{% endmacro %}{{ fact(5) }}", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}",
    "{% set g = 1 %}{% macro m() %}{{ g }}{{ i }}{% endmacro %}{% for i in [7] %}{{ m() }}{% endfor %}", "{% macro m(x) %}{% set y = x %}{{ y }}{% endmacro %}{{ m(1) }}{{ y }}|", "{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% macro m() -%}\n  x\n{%- endmacro %}<{{ m() }}>", "{% set m = 5 %}{% if m is defined %}{{ m() }}{% endif %}", "{% macro m() %}x{% endmacro %}{{ m is defined }} {{ m is callable }} {{ 1 is callable }}", "{% macro m() %}{% for i in [1, 2, 3] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}{% endmacro %}{{ m() ~ m() }}",
    "{{ 'aaa'.count('aa') }} {{ 'a,b,c'.count(',') }} {{ ''.count('x') }}",
    # generation
    "a{% generation %}b{{ 1 }}{% endgeneration %}c", "x\n  {% generation %}\n  y\n  {% endgeneration %}\nz", "{% set a = 1 %}{% generation %}{% set a = 2 %}{{ a }}{% endgeneration %}{{ a }}",
    # filters over lists
    "{{ messages|selectattr('role', 'equalto', 'user')|list|length }} {{ messages|selectattr('role', '==', 'user')|map(attribute='content')|join }} {{ messages|rejectattr('role', 'in', ['user', 'system'])|map(attribute='role')|list }}",
    "{{ [{'a': 1}, {'a': 0}, {}]|selectattr('a')|list }} {{ [{'a': 1}, {'a': 0}, {}]|rejectattr('a')|list }} {{ [{'a': 1}, {}]|selectattr('a', 'defined')|list }} {{ [{'a': {'b': [5, 6]}}]|map(attribute='a.b.1')|list }}",
    "{{ [0, 1, 2, '', 'x']|select|list }} {{ [0, 1, 2]|reject|list }} {{ [1, 2, 3, 4]|select('odd')|list }} {{ [1, 2, 3, 4]|reject('divisibleby', 2)|list }} {{ [1, 5, 9]|select('gt', 3)|list }} {{ [1, 5, 9]|select('<=', 5)|list }} {{ ['a', 1]|select('string')|list }}",
    "{{ ['a', 'B']|map('upper')|list }} {{ [' a ', 'b']|map('trim')|join('-') }} {{ ['aXb']|map('replace', 'X', '+')|list }} {{ [{'a': 1}, {}]|map(attribute='a', default='d')|list }} {{ [[1, 2], [3, 4]]|map('first')|list }} {{ [[1, 2], [3, 4]]|map(attribute=1)|list }} {{ missing|map('upper')|list }}",
    "{{ [1]|select('odd', 2)|list }}", "{{ [1]|map('replace')|list }}", "{{ [missing.x]|list }}", "{{ 5|map('upper')|list }}", "{{ [{}]|map(attribute='a.b')|list }}",
    "{{ {'b': 1, 'A': 3, 'c': 2}|dictsort }} {{ {'b': 1, 'A': 3, 'c': 2}|dictsort(true) }} {{ {'b': 1, 'A': 3}|dictsort(false, 'value') }} {{ {'b': 1, 'A': 3}|dictsort(reverse=true) }}", "{{ [1]|dictsort }}", "{{ {'a': 1, 'b': 'x'}|dictsort(by='value') }}",
    "{{ [3, 1, 2]|sort }} {{ ['b', 'A', 'c']|sort }} {{ ['b', 'A', 'c']|sort(case_sensitive=true) }} {{ [1, 2]|sort(reverse=true) }} {{ [{'k': 2}, {'k': 1}]|sort(attribute='k') }} {{ [2.5, true, 0]|sort }}", "{{ [1, 'a']|sort }}", "{{ [none, 1]|sort }}",
    "{{ [1, 2, 1, 3, 2]|unique|list }} {{ ['a', 'A', 'b']|unique|list }} {{ ['a', 'A']|unique(true)|list }} {{ [{'k': 1, 'v': 1}, {'k': 1, 'v': 2}]|unique(attribute='k')|list }}",
    "{{ [{'n': 'a'}, {'n': 'b'}]|join(', ', attribute='n') }} {{ 'hello wORLD-foo (bar)'|title }} {{ \"they're bill's\".title() }} {{ \"they're bill's\"|title }} {{ 'x1y_z'.title() }}",
    "{{ '1.5'|float }} {{ 'x'|float }} {{ 2|float }} {{ 'x'|float(7) }} {{ ' 3 '|float }} {{ none|float }}",
    "{{ {'b': [1, {'é': 2}], 'a': none}|tojson(sort_keys=true) }} {{ 'é🙂\\n'|tojson(ensure_ascii=true) }} {{ 'é'|tojson(true) }} {{ [1, {'a': 2}]|tojson(separators=(',', ':')) }} {{ [1, {'a': 2}]|tojson(indent=2, separators=('; ', '=')) }} {{ [1]|tojson(indent=0) }}",
    # tests
    "{{ 1 is lt 2 }} {{ 2 is ge(2) }} {{ 1 is gt 2 }} {{ 1 is le 0 }} {{ 1 is in [1] }} {{ 'a' is not in 'abc' }} {{ 'k' is in {'k': 1} }} {{ 1 is lessthan 2 }} {{ 1 is greaterthan 2 }}", "{{ 1 is lt 'a' }}",
    "{{ dict(a=1, b='x') }} {{ dict(a=1).a }} {{ dict() }}",
]
BROKEN = [
    "{% macro m %}{% endmacro %}", "{% macro m() %}{% endmacro m %}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m() %}", "{% generation %}", "{% macro 1() %}{% endmacro %}", "{% macro m() %}{% endmacro %}{{ m(a=1, 2) }}",
    "{% if true %}", "{% for x in %}{% endfor %}", "{{ 1 + }}", "{{ 'open }}", "{% endif %}", "{{ (1 }}", "{# open", "{% if x %}{% endfor %}", "{{ x y }}", "{{ ] }}", "{% set = 1 %}", "{{ 1 ! 2 }}", "{% %}", "{{ }}", "{% for 1 in x %}{% endfor %}", "{{ a. }}", "{{ x| }}", "{{ x is }}",
]


def run(template, messages, add_generation_prompt):
    try:
        rendered = template.render(
            messages=messages, add_generation_prompt=add_generation_prompt, tools=None, documents=None,
            bos_token="<s>", eos_token="</s>",
        )
        return {"rendered": rendered}
    except Raised as raised:
        return {"raised": str(raised)}
    except Exception as error:
        return {"error": type(error).__name__}


def run_family(template, conversation):
    given = {"tools": None, "documents": None, "add_generation_prompt": True}
    given.update(conversation.get("variables", {}))
    given.update({key: value for key, value in conversation.items() if key not in ("variables", "now")})
    if conversation.get("now", NOW) is not None:
        given["strftime_now"] = NOW.strftime
    return run_with(template, bos_token="<s>", eos_token="</s>", **given)


def run_with(template, **given):
    try:
        return {"rendered": template.render(**given)}
    except Raised as raised:
        return {"raised": str(raised)}
    except Exception as error:
        return {"error": type(error).__name__}


def write_families(env):
    families = []
    for path in sorted((ROOT / "families").glob("*.jinja")):
        template = env.from_string(path.read_text(encoding="utf-8"))
        families.append({"file": path.name, "results": [run_family(template, c) for c in FAMILY_CONVERSATIONS]})
    formats = ["%d %b %Y", "%Y-%m-%d", "%B %d, %Y", "%A %a %H:%M:%S %I %p %j %y %m", "%-d/%-m, 100%%"]
    out = {"jinja2": jinja2.__version__, "now": NOW_SECONDS, "conversations": FAMILY_CONVERSATIONS,
           "families": families, "dates": [{"format": f, "text": NOW.strftime(f)} for f in formats]}
    text = json.dumps(out, ensure_ascii=False, indent=1) + "\n"
    (ROOT / "families" / "expected.json").write_text(text, encoding="utf-8")


def write_language(env):
    """Each small template with what Jinja2 makes of it; one that it does not even read is broken."""
    context = template_snippets.CONTEXT
    given = {**context["variables"], **{k: v for k, v in context.items() if k != "variables"}}
    snippets = []
    for source in template_snippets.SNIPPETS:
        try:
            template = env.from_string(source)
        except jinja2.TemplateError:
            snippets.append({"source": source, "broken": True})
            continue
        snippets.append({"source": source, **run_with(template, documents=None, bos_token="<s>", eos_token="</s>",
                                                      strftime_now=NOW.strftime, **given)})
    for source, name in template_snippets.REFUSED:
        run_with(env.from_string(source), **given)  # that Jinja2 reads it is the point
        snippets.append({"source": source, "refused": name})
    out = {"jinja2": jinja2.__version__, "now": NOW_SECONDS, "context": context, "snippets": snippets}
    (ROOT / "language.json").write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def main():
    env = environment()
    write_families(env)
    write_language(env)
    templates = []
    for path in sorted(ROOT.glob("*.jinja")):
        template = env.from_string(path.read_text(encoding="utf-8"))
        cases = []
        for messages, prompt in itertools.product(CONVERSATIONS, (True, False)):
            case = {"messages": messages, "add_generation_prompt": prompt}
            case.update(run(template, messages, prompt))
            cases.append(case)
        templates.append({"file": path.name, "cases": cases})
    snippets = []
    for source in SNIPPETS:
        snippet = {"source": source}
        snippet.update(run(env.from_string(source), SNIPPET_MESSAGES, True))
        snippets.append(snippet)
    for source in BROKEN:
        try:
            env.from_string(source)
        except jinja2.TemplateSyntaxError:
            continue
        raise SystemExit(f"Jinja2 accepts {source!r}")
    out = {"jinja2": jinja2.__version__, "templates": templates,
           "snippet_messages": SNIPPET_MESSAGES, "snippets": snippets, "broken": BROKEN}
    (ROOT / "expected.json").write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
