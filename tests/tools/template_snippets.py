# SPDX-License-Identifier: Apache-2.0
"""Small templates of our own for what the template language offers, kind by kind: render_templates.py renders them
with Jinja2 and writes tests/templates/language.json.

SNIPPETS must come out as Jinja2 has it, errors included. REFUSED is what Jinja2 knows and Pagewise does not offer:
it must be refused by this name when the template is compiled, never rendered differently.
"""

CONTEXT = {
    "messages": [
        {"role": "system", "content": "Rules"},
        {"role": "user", "content": "Héllo <b>", "name": "Ann"},
        {"role": "assistant", "content": "yes", "reasoning_content": "hm"},
    ],
    "add_generation_prompt": True,
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"properties": {
        "b": {"type": "string"}, "a": {"type": ["integer", "null"]}}, "required": ["b"]}}}],
    "variables": {"enable_thinking": False, "depth": 3, "ratio": 0.5, "words": ["x", "Y", "z"],
                  "table": {"b": 2, "a": 1, "C": 3}, "nothing": None, "text": "one two  three\nfour\n",
                  "people": [{"n": "Bo", "age": 3, "city": "A"}, {"n": "al", "age": 5, "city": "b"},
                             {"n": "Cy", "age": 3, "city": "B"}]},
}

SNIPPETS = [
    # loop variables
    "{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined else '-' }}>{{ loop.nextitem.role if loop.nextitem is defined else '-' }};{% endfor %}",
    "{% for m in messages %}{% if loop.previtem and loop.previtem.role == 'user' %}after user{% endif %}{% if not loop.nextitem %}end{% endif %}{% endfor %}",
    "{% for x in words %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for p in people %}{{ loop.changed(p.age) }}{{ loop.changed(p.age, p.city) }} {% endfor %}",
    "{% for p in people %}{{ loop.cycle('odd', 'even') }}{{ loop.cycle(1, 2, 3) }} {% endfor %}",
    "{% for x in words %}{% for y in words if y != x %}{{ loop.index }}{{ loop.length }}{% else %}none{% endfor %},{% endfor %}",
    "{% for x in words %}{% if loop.index is even %}{% continue %}{% endif %}{{ x }}{% if loop.last %}!{% endif %}{% endfor %}",
    "{% for x in 1, 2, 3 %}{{ x }}{% endfor %}",
    "{% for k, v in table.items() %}{{ k }}={{ v }}{{ ',' if not loop.last }}{% endfor %}{% for k in table.keys() | list %}{{ k }}{% endfor %}",
    "{% for k, v in table | items %}{{ k }}{{ v }}{% endfor %}{% for k, v in table | dictsort %}{{ k }}{{ v }}{% endfor %}",
    "{% for c in 'añb' %}[{{ c }}]{% endfor %}{% for x in range(2, 8, 3) %}{{ x }}{% endfor %}",
    "{% for x in [] %}a{% else %}b{% endfor %}{{ x }}{% for messages in [1] %}{{ messages }}{% endfor %}{{ messages|length }}",
    "{% for x in messages|reverse %}{{ x.role }}{{ loop.first }}{% endfor %}{% for m in messages[1:] %}{{ m.role }}{% endfor %}{% for m in messages[::-1] %}{{ loop.index0 }}{{ m.role }}{% endfor %}",
    # conditions
    "{{ 'a' if nothing else 'b' }}{{ 'a' if words }}|{{ 'a' if missing }}|{{ ('a' if missing) is defined }}{{ 'x' if (messages|length > 2 and not nothing) else 'y' }}",
    "{{ 1 < depth <= 3 }}{{ 1 < depth < 3 }}{{ 1 == 1.0 == true }}{{ depth in [1, 3] }}{{ 'x' in words and 'Q' not in words }}{{ 'b' in table }}{{ not ('z' in table) }}",
    "{{ messages[0] is mapping }}{{ messages is mapping }}{{ messages is iterable }}{{ 'x' is iterable }}{{ depth is iterable }}{{ messages is sequence }}{{ table is sequence }}{{ nothing is iterable }}",
    "{{ missing is defined }}{{ messages[0].nope is defined }}{{ messages[0]['role'] is defined }}{{ nothing is defined }}{{ messages[9] is defined }}{{ table.a is defined }}",
    "{{ 'abc' is string }}{{ depth is number }}{{ ratio is float }}{{ depth is integer }}{{ true is boolean }}{{ true is true }}{{ false is false }}{{ nothing is none }}{{ 1 is true }}{{ enable_thinking is false }}{{ missing is false }}",
    "{{ 'ABC' is upper }}{{ 'abc' is lower }}{{ 'aBc' is upper }}{{ 4 is divisibleby(2) }}{{ 3 is odd }}{{ 3 is even }}{{ 'a' is eq('a') }}{{ 3 is ne 4 }}{{ 3 is in([3]) }}{{ 2 is lt 3 }}{{ 2 is le 2 }}{{ 3 is gt 2 }}{{ 3 is ge 4 }}{{ nothing is sameas none }}{{ true is sameas true }}",
    "{{ range is callable }}{{ namespace is defined }}{{ raise_exception is defined }}{{ strftime_now is defined }}{{ dict is defined }}{{ messages is not string }}{{ not messages is string }}",
    "{% if messages[0].content is string and messages[0].content is not mapping %}s{% endif %}{% if tools is defined and tools is not none and tools|length > 0 %}t{% endif %}{% if tools is iterable and tools %}i{% endif %}{% if documents %}d{% endif %}",
    "{% if not add_generation_prompt is defined %}x{% endif %}{% if (add_generation_prompt is defined) and add_generation_prompt %}y{% endif %}{% if not enable_thinking is defined or enable_thinking %}t{% else %}n{% endif %}",
    "{{ (1, 2) < (1, 3) }}{{ [1, 2] < [1] }}{{ 'a' < 'B' }}{{ 'é' > 'z' }}{{ [] == () }}{{ {} == {} }}{{ 'a' == none }}", "{{ [1] < ['a'] }}", "{{ none < 1 }}", "{{ {} < {} }}",
    # operators
    "{{ 'a' ~ 1 ~ [1, 'b'] ~ {'k': none} ~ true ~ 1.0 ~ missing }}{{ 'x' + 'y' * 2 }}{{ [1] + [2, 3] }}{{ (1, 2) + (3,) }}", "{{ 'n: ' ~ depth + 1 }}",
    "{{ 7 // 2 }}{{ -7 // 2 }}{{ 7 % 3 }}{{ -7 % 3 }}{{ 2 ** 8 }}{{ 2 ** 0.5 }}{{ 10 / 4 }}{{ 10 / 5 }}{{ 0.1 + 0.2 }}{{ 1e3 }}{{ 1.5e-7 }}{{ 3.0 * 2 }}{{ -depth }}{{ +depth }}{{ - -3 }}{{ 1_000 }}",
    "{{ 0x1F }}{{ 0o17 }}{{ 0b101 }}{{ 1_0.5 }}{{ 1e1_0 }}", "{{ 9223372036854775807 + 0 }}{{ -9223372036854775807 - 1 }}",
    "{{ 1.0 }}{{ 100.0 }}{{ 1e15 }}{{ 1e16 }}{{ 123456789.125 }}{{ 0.00001 }}{{ 1 / 3 }}{{ 2.5 % 2 }}{{ 7.0 // 2 }}{{ 1.0 == 1 }}{{ 3 | float }}{{ '3.70' | float }}{{ 5 / 1 }}",
    "{{ '%s is %d' % ('a', 3) }}|{{ '%s' % 'x' }}|{{ '%5.2f|%-5s|%05d|%x|%X|%o|%e|%g|%%|%r|%c' % (3.14159, 'ab', 42, 255, 255, 8, 12345.678, 0.0001, 'q', 'z') }}",
    "{{ '%(a)s-%(b)03d' % {'a': 'x', 'b': 7} }}|{{ '%s' % [1, 'a'] }}|{{ '%s %s' % (none, true) }}|{{ '%.3s' % 'abcdef' }}|{{ '%+d % d' % (5, 5) }}|{{ '%i' % 3.9 }}|{{ '%5s|%-5d|' % ('é', 3) }}",
    "{{ '%s' % (1, 2) }}", "{{ '%s %s' % 'a' }}", "{{ '%d' % 'a' }}", "{{ '%q' % 1 }}", "{{ 'plain' % () }}{{ 'p' % [] }}{{ 'p' % {} }}", "{{ 'plain' % 1 }}",
    "{{ '{}-{}'.format('a', 1) }}|{{ '{0}{1}{0}'.format('x', 'y') }}|{{ '{n}: {v}'.format(n='k', v=[1]) }}|{{ '{{}}{}'.format(2) }}|{{ '%s-%s' | format('a', 1) }}|{{ '%(k)s' | format(k='v') }}",
    "{{ '{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}|{!r}'.format('a', 'b', 'c', 42, 3.14159, 1234567, 'q') }}", "{{ '{}'.format() }}", "{{ '{a}'.format(1) }}",
    # sets, blocks, scopes
    "{% set x %}block {{ depth }}{% endset %}[{{ x }}]{% set y | upper %}text{% endset %}{{ y }}{% set z | trim | replace('a', 'b') %}  a a {% endset %}[{{ z }}]",
    "{% set ns = namespace(found=false, n=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.found = true %}{% endif %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.found }}{{ ns.n }}",
    "{% set ns = namespace() %}{% set ns.a = [] %}{% for w in words %}{% set ns.a = ns.a + [w] %}{% endfor %}{{ ns.a }}{{ ns.b is defined }}{{ ns.a|length }}",
    "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}", "{% set ns = namespace(a=1) %}{{ ns['a'] }}", "{% set a = b = 1 %}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = (3, 4) %}{{ c }}{{ d }}{% set e = 1, %}{{ e }}{% set f = (1) %}{{ f }}",
    "{% if true %}{% set inner = 'kept' %}{% endif %}{{ inner }}{% for i in [1] %}{% set lost = 1 %}{% endfor %}{{ lost is defined }}",
    "{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}{% set a = 5 %}{% with a = 1, b = a %}{{ b }}{% endwith %}",
    "{% filter upper %}shout {{ 'x' }}{% endfilter %}{% filter trim | replace('b', 'c') %}  ab {% endfilter %}|{% filter indent(2) %}a\nb{% endfilter %}",
    "{% macro m(x, y='d', *args) %}{% endmacro %}", "{% macro m(x, y='d') %}{{ x }}{{ y }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }}{{ m(1, 2, 3, 4) }}{{ m(1, z=5) }}",
    "{% macro wrap(tag) %}<{{ tag }}>{{ caller() }}</{{ tag }}>{% endmacro %}{% call wrap('b') %}in{{ depth }}{% endcall %}", "{% macro each(xs) %}{% for x in xs %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(v, i=0) each(words) %}[{{ v }}{{ i }}]{% endcall %}",
    "{% macro outer(a) %}{% macro inner(b) %}{{ a }}{{ b }}{% endmacro %}{{ inner('x') }}{% endmacro %}{{ outer(1) }}{{ inner is defined }}", "{% macro m() %}{{ m.name }}{% endmacro %}{{ m.name }}{{ m() }}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m('q') }}",
    "{% macro tool_json(t) -%}\n{{ t.function.name }}: {{ t.function.parameters | tojson }}\n{%- endmacro %}{% for t in tools %}{{ tool_json(t) }}{% endfor %}",
    "{% macro a(n) %}{% if n %}{{ n }}{{ a(n - 1) }}{% endif %}{% endmacro %}{{ a(3) }}{% set f = a %}{{ f(2) }}", "{% macro m() %}x{% endmacro %}{{ m() | upper }}{{ (m()) ~ 'y' }}{{ [m(), m()] | join('-') }}",
    "{% generation %}{{ messages[2].content }}{% endgeneration %}{% raw %}{{ not }}{% kept %}{% endraw %}{% raw -%}  a {%- endraw %}|",
    # filters
    "{{ words | batch(2) | list }}{{ words | batch(2, '-') | list }}{{ [1, 2, 3, 4, 5] | slice(2) | list }}{{ [1, 2, 3, 4, 5] | slice(3, 'f') | list }}",
    "{% for g in people | groupby('age') %}{{ g.grouper }}:{{ g.list | map(attribute='n') | join(',') }};{% endfor %}{% for k, v in people | groupby('city') %}{{ k }}{{ v | length }}{% endfor %}{% for k, v in people | groupby('city', case_sensitive=true) %}{{ k }}{{ v | length }}{% endfor %}{% for k, v in people | groupby('nope', default='?') %}{{ k }}{{ v | length }}{% endfor %}",
    "{{ people | map(attribute='n') | sort | join }}{{ people | sort(attribute='age') | map(attribute='n') | join(',') }}{{ people | sort(attribute='age,n', reverse=true) | map(attribute='n') | list }}{{ people | sum(attribute='age') }}{{ [1, 2.5] | sum }}{{ [] | sum }}{{ [1, 2] | sum(start=10) }}",
    "{{ [3, 1, 2] | min }}{{ [3, 1, 2] | max }}{{ ['b', 'A'] | min }}{{ ['b', 'A'] | max(case_sensitive=true) }}{{ people | max(attribute='age') }}{{ [] | max is defined }}{{ [] | min }}|",
    "{{ 3.14159 | round }}{{ 3.14159 | round(2) }}{{ 2.5 | round }}{{ 3.5 | round }}{{ 2.4 | round(method='ceil') }}{{ 2.6 | round(0, 'floor') }}{{ 1234 | round(-2) }}{{ 3 | round }}{{ 2.675 | round(2) }}{{ -2.5 | round }}{{ 2.45 | round(1, 'ceil') }}", "{{ 1 | round(1, 'x') }}", "{{ 'a' | round }}",
    "{{ text | indent }}|{{ text | indent(2, true) }}|{{ text | indent(width=3, first=true, blank=true) }}|{{ 'a\n\nb' | indent(2) }}|{{ 'a\n\nb' | indent(2, blank=true) }}|{{ 'a\nb' | indent('> ', true) }}|{{ '' | indent(2, true) }}|",
    "{{ 'a' | center(5) }}|{{ 'abc' | center(6) }}|{{ 'abc' | center(2) }}|{{ 'foo bar baz' | truncate(7) }}|{{ 'foo bar baz' | truncate(7, true) }}|{{ 'foo bar baz' | truncate(9, false, '..', 0) }}|", "{{ 'foo' | truncate(2) }}",
    "{{ words | first }}{{ words | last }}{{ words | length }}{{ words | count }}{{ words | reverse | list }}{{ words | join(', ') }}{{ words | list }}{{ table | length }}{{ [] | first is defined }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | list }}{{ messages | rejectattr('role', 'ne', 'user') | list | length }}{{ messages | selectattr('name') | list | length }}{{ messages | selectattr('name', 'defined') | map(attribute='name') | first }}{{ messages | selectattr('reasoning_content', 'undefined') | list | length }}",
    "{{ words | map('lower') | list }}{{ words | select('in', ['x', 'Y']) | list }}{{ words | reject('equalto', 'x') | join }}{{ words | map('replace', 'x', 'w') | join }}{{ words | map('upper') | map('lower') | unique | list }}{{ [1, 2, 3] | select('odd') | sum }}{{ [[1, 2], [3]] | map('length') | list }}{{ [1, '2'] | map('int') | list }}{{ ['a'] | map('default', 'x') | list }}",
    "{{ table | tojson }}{{ table | tojson(indent=2) }}{{ messages[1] | tojson }}{{ tools | tojson(indent=4) }}{{ 'é\"\\n</script>' | tojson }}{{ [1.0, 1e20, 1e-7, none, true] | tojson }}{{ table | tojson(sort_keys=true) }}{{ (1, 2) | tojson }}{{ tools[0] | tojson(separators=(',', ':')) }}{{ 'x' | tojson(ensure_ascii=False) }}",
    "{{ missing | default('d') }}{{ nothing | default('d') }}{{ nothing | default('d', true) }}{{ '' | default('e', boolean=true) }}{{ missing.x | default('deep') if false else 'skipped' }}{{ messages[0].nope | default('n') }}{{ (messages | selectattr('role', 'equalto', 'tool') | first) | default('none') }}",
    "{{ 'hello world' | title }}{{ 'HELLO' | capitalize }}{{ ' x ' | trim }}|{{ 'xxhixx' | trim('x') }}{{ 'Ab' | upper }}{{ 'Ab' | lower }}{{ 'a-b' | replace('-', '_') }}{{ 'aaa' | replace('a', 'b', 2) }}{{ 5 | string }}{{ '7' | int }}{{ '7.9' | int }}{{ '0x1f' | int(0, 16) }}{{ 'z' | int(default=3) }}{{ '12' | int(base=8) }}{{ '7.5' | float }}{{ -3 | abs }}{{ (-3) | abs }}",
    # methods
    "{{ ' a '.strip() }}|{{ 'a'.upper() }}{{ 'A'.lower() }}{{ 'hello world'.title() }}{{ 'hello'.capitalize() }}{{ 'Hello'.swapcase() }}{{ 'a,b'.split(',') }}{{ 'a b  c'.split() }}{{ 'a,b,c'.rsplit(',', 1) }}{{ 'a\nb\r\nc'.splitlines() }}{{ 'a\nb'.splitlines(true) }}{{ ''.splitlines() }}",
    "{{ 'abc'.startswith('a') }}{{ 'abc'.startswith(('x', 'ab')) }}{{ 'abc'.startswith('b', 1) }}{{ 'abc'.endswith('c') }}{{ 'abc'.endswith('b', 0, 2) }}{{ 'abcb'.find('b') }}{{ 'abcb'.find('b', 2) }}{{ 'abcb'.rfind('b') }}{{ 'abc'.index('c') }}{{ 'abcb'.rindex('b') }}{{ 'abcb'.count('b') }}{{ 'abc'.find('z') }}", "{{ 'abc'.index('z') }}",
    "{{ 'a-b-c'.replace('-', '+') }}{{ 'a-b-c'.replace('-', '+', 1) }}{{ 'ab'.replace('', '.') }}{{ 'pre-x'.removeprefix('pre-') }}{{ 'x.y'.removesuffix('.y') }}{{ 'a.b.c'.partition('.') }}{{ 'a.b.c'.rpartition('.') }}{{ 'abc'.partition('z') }}{{ 'a'.join(['x', 'y']) }}",
    "{{ '7'.zfill(3) }}{{ '-7'.zfill(4) }}{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3, '.') }}|{{ 'a'.center(4, '*') }}|{{ 'ab'.center(5) }}|{{ 'xyx'.strip('x') }}{{ 'xyx'.lstrip('x') }}{{ 'xyx'.rstrip('x') }}",
    "{{ '12'.isdigit() }}{{ 'a1'.isdigit() }}{{ ''.isdigit() }}{{ 'ab'.isalpha() }}{{ 'a1'.isalnum() }}{{ ' '.isspace() }}{{ 'AB'.isupper() }}{{ 'ab'.islower() }}{{ '12'.isnumeric() }}{{ '12'.isdecimal() }}{{ 'ab'.isascii() }}",
    "{{ table.get('a') }}{{ table.get('q') }}{{ table.get('q', 'd') }}{{ table.get(1) }}{{ table.keys() | list }}{{ table.values() | list }}{{ table.items() | list }}{{ table['a'] }}{{ table.a }}{{ {'items': 1}['items'] }}{{ {'get': 2}['get'] }}{{ {'items': {'type': 1}}.items is defined }}{{ {'items': {'type': 1}}.items.type is defined }}{{ 'y' if {}.keys else 'n' }}{{ {'a': 1}.keys is string }}{{ [{'items': 3}] | map(attribute='items') | first }}", "{{ table.copy() }}{{ words.copy() }}{{ words.index('Y') }}{{ words.count('x') }}", "{{ words.index('nope') }}",
    "{{ words.append('q') }}", "{{ table.update({'x': 1}) }}", "{{ words.pop() }}", "{{ table.pop('a') }}", "{{ table.setdefault('a', 1) }}", "{{ words.extend([1]) }}", "{{ words.insert(0, 1) }}", "{{ words.sort() }}", "{{ words.reverse() }}", "{{ words.clear() }}", "{% set _ = words.append('q') %}", "{% do words.append(1) %}",
    "{{ ''.join(words) }}{{ ', '.join(words | map('upper')) }}{{ '-'.join(table) }}",
    # dictionaries and lists
    "{{ {'a': 1, 'b': [2]}.b[0] }}{{ [{'a': 1}][0].a }}{{ [1, 2][-1] }}{{ (1, 2)[0] }}{{ 'abc'[::-1] }}{{ [1, 2, 3, 4][::2] }}{{ [1, 2, 3, 4][-3:-1] }}{{ 'abc'[5:] }}|{{ [1, 2, 3][1:][0] }}",
    "{{ dict([('a', 1), ['b', 2]]) }}{{ dict({'x': 1}, y=2) }}{{ dict() }}", "{{ [1, 2] == [1, 2] }}{{ [1] in [[1]] }}{{ {'a': 1} in [{'a': 1}] }}{{ 1 in (1,) }}{{ 'a' in 'cat' }}{{ '' in 'x' }}{{ none in [none] }}",
    "{{ [1, 2] * 2 }}{{ (0,) * 3 }}{{ 2 * [1] }}", "{{ messages[0]['content'][:3] }}{{ messages[-1]['role'] }}{{ messages[1].get('name', 'x') }}{{ messages[0].get('name', 'x') }}{{ messages[0].name is defined }}{{ messages|length - 1 }}{{ messages | map(attribute='role') | list }}",
    # printing
    "{{ [1.0, 2.50, 1e16, -0.0, 'é', '\\t', \"'\", '\"', '\\\\', '\\x00', '\\x7f', '\U0001F600'] }}", "{{ {'a': {'b': [1, (2,), none]}} }}{{ [[]] }}{{ [missing] }}{{ [true, false] }}", "{{ none }}{{ true }}{{ 1.10 }}{{ '' }}{{ [] }}{{ {} }}{{ () }}", "{{ loop }}",
    "{{ range(5)[1] }}{{ range(5) | last }}{{ range(10, 0, -3) | list }}{{ range(3) | length }}{{ 2 in range(3) }}", "{{ range(0) | list }}{{ range(3, 1) | list }}",
    # errors and calls
    "{{ raise_exception('own words ' ~ depth) }}", "{{ missing.x }}", "{{ missing() }}", "{{ depth() }}", "{{ messages.foo() }}", "{{ none.x.y }}", "{{ table.a.b.c }}", "{{ 'abc'.nope }}|{{ words.nope }}|", "{% if undefined_function is defined %}{{ undefined_function() }}{% endif %}ok",
    "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{% trans %}x{% endtrans %}", "{% nope %}",
    "{{ strftime_now('%Y-%m-%d') }}{{ strftime_now('%d %b %Y') }}{{ strftime_now('%B %d, %Y, %H:%M') }}{{ strftime_now(format='%A') }}", "{{ (strftime_now('%Y') | int) + 1 }}",
    # white space
    "a\n{%- if true %}\n  b\n{%- endif %}\nc\n", "{% if true -%}\n  x\n{%- else -%}y{% endif %}", "  {%+ if true %}x{% endif +%}\n y", "{{- 'a' -}}  \n {{ 'b' }}\n\n", "\n\n{{ 1 }}\n\n", "{# a #}\n{#- b -#}\nx{# c\nd #}y", "{% set x = 1 %}\n{% set y = 2 %}\n{{ x + y }}\n",
    "line one \\\n two {{ \"a\\nb\" }}{{ 'c\\\\n' }}{{ '\\'' }}", "# not a comment\n## neither\n% no statement {{ 1 }}", "{{ '{{' }}{{ '{%' }}{{ '#}' }}", "{%- set x = [\n  1,\n  2,\n] -%}\n{{ x }}{{ {\n 'a': 1,\n} }}{{ (1,\n 2) }}",
    # in the manner of known templates, in our own words
    "{%- for m in messages -%}{{ '<|' ~ m.role ~ '|>\\n' ~ m.content | trim ~ ('<|end|>\\n' if not loop.last else '') }}{%- endfor -%}",
    "{%- set sys = messages[0].content if messages and messages[0].role == 'system' else 'Default' -%}{{ sys }}{%- for m in (messages[1:] if messages[0].role == 'system' else messages) -%}[{{ m.role | upper }}] {{ m.content }}{%- endfor -%}",
    "{%- set ns = namespace(last=-1) -%}{%- for m in messages -%}{%- if m['role'] == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}{{ ns.last }}{{ messages[ns.last]['content'] }}",
    "{%- for t in tools -%}{%- set f = t.function -%}{{ f.name }}({%- for k, v in f.parameters.properties.items() -%}{{ k }}{{ '?' if k not in f.parameters.required }}: {{ (v.type | join(' or ')) if v.type is not string else v.type }}{{ ', ' if not loop.last }}{%- endfor -%}){%- endfor -%}",
    "{%- for m in messages -%}{%- set c = m.content.split('</think>')[-1].lstrip('\\n') if '</think>' in m.content else m.content -%}{{ c }}|{%- endfor -%}", "{{ (messages | last).role == 'assistant' and not add_generation_prompt }}{{ (messages | map(attribute='role') | list)[::-1].index('user') }}",
    "{% macro render(content) %}{% if content is string %}{{ content }}{% elif content is iterable %}{% for p in content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endmacro %}{{ render([{'type': 'text', 'text': 'a'}, {'type': 'image'}]) }}{{ render('b') }}",
    "{{ messages | map(attribute='content') | map('trim') | join('\\n') }}{{ messages | rejectattr('role', 'equalto', 'system') | map(attribute='role') | unique | join('/') }}{{ '=' * 10 }}{{ 'Turn ' ~ (messages | selectattr('role', 'equalto', 'user') | list | length) }}",
]

# What Jinja2 reads and we do not offer: the source, and the name in our sentence.
REFUSED = [
    ("{% for x in [[1, [2]]] recursive %}{{ x[0] }}{{ loop([x[1]]) }}{% endfor %}", "recursive"),
    ("{% for a, (b, c) in [(1, (2, 3))] %}{{ b }}{% endfor %}", "unpacking"),
    ("{% block b %}x{% endblock %}", "block"),
    ("{% autoescape false %}x{% endautoescape %}", "autoescape"),
    ("{% include 'x' %}", "include"), ("{% import 'x' as y %}", "import"), ("{% extends 'x' %}", "extends"),
    ("{% call messages[0]() %}x{% endcall %}", "call"),
    ("{{ '<' | e }}", "'e'"), ("{{ '<' | escape }}", "escape"), ("{{ '<b>' | striptags }}", "striptags"),
    ("{{ ['<'] | map('e') | join }}", "'e'"), ("{{ text | wordcount }}", "wordcount"),
    ("{{ text | wordwrap(3) }}", "wordwrap"), ("{{ table | attr('items') }}", "attr"),
    ("{{ 1000 | filesizeformat }}", "filesizeformat"), ("{{ table | xmlattr }}", "xmlattr"),
    ("{{ table | pprint }}", "pprint"), ("{{ 'a b' | urlencode }}", "urlencode"), ("{{ words | random }}", "random"),
    ("{{ 'trim' is filter }}", "filter"), ("{{ 'defined' is test }}", "test"), ("{{ [1] | select('filter') | list }}", "filter"),
    ("{{ 'x'.istitle() }}", "istitle"), ("{{ 'x'.isidentifier() }}", "isidentifier"),
    ("{{ 'x'.expandtabs() }}", "expandtabs"), ("{{ 'x'.encode() }}", "encode"), ("{{ 'x'.casefold() }}", "casefold"),
    ("{{ 'x'.translate({}) }}", "translate"), ("{{ (1).bit_length() }}", "bit_length"),
    ("{{ words.append(1) }}", "append"), ("{{ table.update(b=1) }}", "update"), ("{{ words.pop() }}", "pop"),
    ("{{ {1: 'a'} }}", "key"), ("{{ {none: 'a'} }}", "key"), ("{{ {(1, 2): 'a'} }}", "key"),
    ("{{ dict(**{'b': 2}) }}", "**"), ("{{ range(*[1, 2]) }}", "*"), ("{{ dict(a=1)() }}", "call of"),
    ("{{ joiner(', ') }}", "joiner"), ("{{ cycler(1, 2) }}", "cycler"), ("{{ lipsum() }}", "lipsum"),
    ("{{ unheard_of('x') if false else 'ok' }}", "unheard_of"), ("{{ 'a' | nope if false else 'b' }}", "nope"),
    ("{{ 1 if false and 'a' is nope else 2 }}", "nope"),
    ("{{ words | sort(nope=1) }}", "nope"), ("{{ 'a'.split(',', 1, 2) }}", "argument 3"),
]
