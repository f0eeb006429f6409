"""Renders snippets of templates with Jinja2 in the environment of transformers' chat templates.

python3 generate.py writes snippets.golden.json (needs jinja2 3.1).
"""
import json
import os
import sys
from datetime import datetime

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

MESSAGES = [{"role": "system", "content": "  Be brief. \n"}, {"role": "user", "content": "Hi <b>&amp;</b>, it's\n\n\"Zoë\"\n"},
            {"role": "assistant", "content": "東京 ÄÖ, 1 + 1 = 2", "name": "bot"}]
VARIABLES = {"messages": MESSAGES, "none_value": None, "n": 3, "x": 2.5, "words": ["b", "A", "c", "a"], "empty": [],
             "tree": {"b": 1, "a": [True, None, 1e20, 1e-7, 100.0, "ü\"<'\n\u2028\x07\x7f"], "c": {"d": {}, "e": []}},
             "s": " one, two ,three  ", "bos_token": "<s>"}

SNIPPETS = r"""
a{{ 1 }}b
{{ missing }}|{{ missing is defined }}|{{ not missing }}|{{ missing ~ 'x' }}|{{ missing | length }}|{{ missing | default('d') }}
  {% if true %}
  yes
  {% endif %}
 x
  {%- if true -%}  
  yes
  {%- endif %}

 x
a   {%+ if true %} b{% endif +%}
c
a {#- gone -#} b
  {# whole line #}
x
x {# part #}
y
{% if n == 3 %}{% endif %}   {% if n %}z{% endif %}
  {% raw %}
  {{ x }}
  {% endraw %}
y
{{- ' a' -}}  b  {{ 'c' }}  
d
{% for w in words %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}
{% for w in empty %}a{% else %}none{% endfor %}
{% for w in words if w != 'A' %}{{ loop.index }}{{ w }}{{ loop.last }}{% endfor %}
{% for k, v in tree.items() %}{{ k }}={{ v }};{% endfor %}
{% for k in tree %}{{ k }}{% endfor %}{% for c in 'äb' %}[{{ c }}]{% endfor %}
{% for a, b in [(1, 2), [3, 4]] %}{{ a + b }} {% endfor %}
{% set y = 1 %}{% for i in range(3) %}{{ y }}{% set y = i %}{{ y }}{% endfor %}{{ y }}
{% if true %}{% set y = 5 %}{% endif %}{{ y }}
{% set ns = namespace(a=1) %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }} {{ ns.b is defined }}
{% set a, b = 1, 'x' %}{{ a }}{{ b }}
{% set t %}in {{ n }}{% endset %}{{ t | upper }}{{ t }}
{% set t | upper | replace('N', 'm') %}in {{ n }}{% endset %}{{ t }}
{% for i in range(10) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 4 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in range(3) %}{% for j in range(3) %}{% if j == 1 %}{% break %}{% endif %}{{ i }}{{ j }} {% endfor %}{% endfor %}
{% macro m(a, b=2, c=b) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=4) }}{{ m() }}
{% macro m(a) %} {{ a }} {{ n }} {% endmacro %}{{ m('x') | trim }}{{ m('y').strip() }}
{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(3) }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 2 * 3 + 1 }} {{ 1 - -1 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }}
{{ 'a' ~ 1 ~ 2.0 ~ none ~ true ~ [1, 'b'] }}
{{ 'a' + 'b' * 3 }} {{ [1] * 3 + [2] }} {{ 2 * 'ab' }}
{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] == [1, 2] }} {{ none == none }} {{ {'a': 1} == {'a': 1.0} }} {{ 'a' != 1 }}
{{ 'x' in 'xyz' }} {{ 'q' not in words }} {{ 'a' in tree }} {{ 3 in [1, 2, 3] }} {{ not 3 in [1] }}
{{ 'a' if n > 2 else 'b' }} {{ 'a' if n > 5 }} {{ 'a' if n > 5 else 'b' if n > 4 else 'c' }}
{{ n and 'yes' or 'no' }} {{ 0 or '' or 'z' }} {{ none_value and 1 }} {{ not n }}
{{ messages[0]['role'] }} {{ messages[-1].role }} {{ messages[-3].role }} {{ messages[-4] is defined }} {{ messages[9] is defined }} {{ messages[0].nothing is defined }}
{{ words[1:] }} {{ words[::-1] }} {{ words[:-1] }} {{ words[-2:] }} {{ words[::2] }} {{ words[3:0:-1] }} {{ words[10:] }} {{ words[-10:2] }} {{ words[5::-2] }}
{{ '東京都'[1] }} {{ '東京都'[-1] }} {{ '東京都'[::-1] }} {{ 'abc'[1:] }} {{ 'abc'[5:] }} {{ 'abc'[:-1] }} {{ words[1:][0] }}
{{ s | trim }}| {{ s.strip() }}|{{ s.lstrip() }}|{{ s.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xyaxy'.lstrip('yx') }}|{{ ' a ' | trim('a ') }}
{{ s.split(',') }} {{ s.split() }} {{ 'a  b'.split(' ') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b  c '.split(none, 1) }} {{ ' a b  c '.rsplit(none, 1) }} {{ ''.split(',') }} {{ ''.split() }}
{{ messages[1].content.split('\n')[-2] }}
{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith('bc') }} {{ 'abc'.startswith(('x', 'a')) }} {{ 'abc'.find('c') }} {{ 'ÄÖc'.find('c') }} {{ 'abc'.find('q') }} {{ 'aXbX'.count('X') }}
{{ 'abcabc'.replace('b', 'XX') }} {{ 'abcabc'.replace('b', 'XX', 1) }} {{ 'abcabc' | replace('b', 'X') }} {{ 'abcabc' | replace('b', 'X', 1) }} {{ 'ab'.replace('', '-') }}
{{ 'hELLO wORLD' | capitalize }} {{ 'hELLO wORLD'.title() }} {{ 'Äb' | upper }} {{ 'ÄB'.lower() }} {{ 'éa'.capitalize() }}
{% set t = "they're bill's" %}{{ t | upper }}|{{ t | lower }}|{{ t | capitalize }}|{{ t.upper() }}|{{ t.lower() }}|{{ t.capitalize() }}|{{ t.title() }}
{% set t = "z_a 1b" %}{{ t | upper }}|{{ t | lower }}|{{ t | capitalize }}|{{ t.upper() }}|{{ t.lower() }}|{{ t.capitalize() }}|{{ t.title() }}
{% set t = "Straße" %}{{ t | upper }}|{{ t | lower }}|{{ t | capitalize }}|{{ t.upper() }}|{{ t.lower() }}|{{ t.capitalize() }}|{{ t.title() }}
{% set t = "İx" %}{{ t | upper }}|{{ t | lower }}|{{ t | capitalize }}|{{ t.upper() }}|{{ t.lower() }}|{{ t.capitalize() }}|{{ t.title() }}
{% set t = "ΑΣ ΣΑΣ" %}{{ t | upper }}|{{ t | lower }}|{{ t | capitalize }}|{{ t.upper() }}|{{ t.lower() }}|{{ t.capitalize() }}|{{ t.title() }}
{% set t = "ǆa" %}{{ t | upper }}|{{ t | lower }}|{{ t | capitalize }}|{{ t.upper() }}|{{ t.lower() }}|{{ t.capitalize() }}|{{ t.title() }}
{% set t = "中a bc" %}{{ t | upper }}|{{ t | lower }}|{{ t | capitalize }}|{{ t.upper() }}|{{ t.lower() }}|{{ t.capitalize() }}|{{ t.title() }}
{% set t = "ﬁne day" %}{{ t | upper }}|{{ t | lower }}|{{ t | capitalize }}|{{ t.upper() }}|{{ t.lower() }}|{{ t.capitalize() }}|{{ t.title() }}
{% set t = "x-ray (see) [bar]<q>{r}" %}{{ t | upper }}|{{ t | lower }}|{{ t | capitalize }}|{{ t.upper() }}|{{ t.lower() }}|{{ t.capitalize() }}|{{ t.title() }}
{% set t = "ŉab" %}{{ t | upper }}|{{ t | lower }}|{{ t | capitalize }}|{{ t.upper() }}|{{ t.lower() }}|{{ t.capitalize() }}|{{ t.title() }}
{% set t = "1st-2ND" %}{{ t | upper }}|{{ t | lower }}|{{ t | capitalize }}|{{ t.upper() }}|{{ t.lower() }}|{{ t.capitalize() }}|{{ t.title() }}
{% set t = "  two  blanks " %}{{ t | upper }}|{{ t | lower }}|{{ t | capitalize }}|{{ t.upper() }}|{{ t.lower() }}|{{ t.capitalize() }}|{{ t.title() }}
{{ ', '.join(words) }} {{ words | join }} {{ words | join('-') }} {{ [1, none, 2.5] | join('/') }} {{ messages | join(',', attribute='role') }}
{{ words | first }} {{ words | last }} {{ 'xyz' | first }} {{ empty | first is defined }} {{ words | length }} {{ 'äö' | length }} {{ tree | count }} {{ words | list }} {{ 'ab' | list }} {{ tree | list }}
{{ messages | map(attribute='role') | list }} {{ words | map('upper') | join(',') }} {{ messages | map(attribute='name', default='-') | join(',') }} {{ [{'f': {'n': 1}}] | map(attribute='f.n') | list }} {{ [[1, 2]] | map(attribute=1) | list }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | selectattr('name') | map(attribute='role') | list }} {{ messages | rejectattr('role', 'in', ['user', 'system']) | map(attribute='role') | list }} {{ messages | selectattr('name', 'defined') | list | length }}
{{ [0, 1, 2, 3] | select('odd') | list }} {{ [0, 1, '', 'a'] | select | list }} {{ [0, 1, 2] | reject('equalto', 1) | list }} {{ [1, 2, 3, 4] | select('>', 2) | list }}
{{ words | reverse | list }} {{ 'abc' | reverse }}
{{ tree | tojson }}
{{ '𝄞' | tojson }}
{{ messages[1] | tojson }}
{{ tree }}
{{ [1.0, 1e16, 123456789012345680.0, 0.0001, 0.00001, -0.0, 1e22, 3.14] }} {{ 1_000 }} {{ 1.5e3 }} {{ 2e-7 }}
{{ ['it\'s', "q\"", 'b\\', 'a\tb', '\x41\u00e9\U0001d11e\d'] }} {{ 'a' 'b' }}
{{ tree.get('b') }} {{ tree.get('zz') }} {{ tree.get('zz', 5) }} {{ tree.keys() | list }} {{ tree.values() | list | length }} {{ tree.items() | list | length }} {{ tree | items | list | length }}
{{ range(3) | list }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }}
{{ n is string }}{{ 's' is string }}{{ none is none }}{{ n is not none }}{{ tree is mapping }}{{ words is iterable }}{{ words is sequence }}{{ tree is sequence }}{{ true is true }}{{ 1 is true }}{{ false is false }}{{ n is number }}{{ x is float }}{{ n is integer }}{{ true is integer }}{{ true is boolean }}{{ range is callable }}
{{ n is odd }}{{ n is even }}{{ n is divisibleby 3 }}{{ n is divisibleby(2) }}{{ n is eq 3 }}{{ n is ne(3) }}{{ n is gt 2 }}{{ 'a' is in words }}{{ missing is undefined }}{{ n is not defined }}{{ n is equalto 3 and true }}
{{ 'a' if n is odd else 'b' }}{{ 'a' if missing is string else 'b' }}
{{ '12' | int + 1 }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ 2.9 | int }} {{ ' 7 ' | int }} {{ '2.5' | int }}
{{ strftime_now('%d %b %Y') }} {{ strftime_now('%Y-%m-%dT%H:%M:%S %A %B %j %%') }}
{{ -n }} {{ +n }} {{ -2.5 }} {{ - -2 }} {{ -n | string }} {{ (-n) ~ '' }}
{{ none }} {{ true }} {{ False }} {{ None }}
{{ [1, 2, [3, 'a']] }} {{ {'a': {'b': [none]}} }} {{ [] }} {{ {} }}
{{ ((1)) }} {{ [1, 2,] }} {{ {'a': 1,} }} {{ '}}' }} {{ {'a': {'b': 1}}['a']['b'] }} {{ "%}" }}
{{ messages[1]['content'] | trim | replace('"', "'") }}
{{ bos_token + messages[0].role }} {{ (messages | length) - 1 }} {{ messages | length - 1 }} {{ (messages[1:] | first).role }} {{ messages[1:] | map(attribute='content') | map('length') | list }}
{% if messages[0].role == 'system' and messages | length > 1 %}{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}{{ rest | length }}
{% for message in messages[::-1] %}{% set index = (messages | length - 1) - loop.index0 %}{{ index }}{{ message.role }} {% endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {{- '<|' + message.role + '|>\n' + content }}
{%- endfor %}
{{ '' or messages[0]['content'].strip() if messages else 'q' }}
{{ x | default(1) }} {{ '' | default('e', true) }} {{ '' | default('e') }} {{ none_value | d('e', boolean=true) }} {{ none_value | default('e') }}
{{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ 'abc' | safe }} {{ 5 | string ~ 'a' }}
{{ messages[0].content | trim }}|{{ '\n\t a\u00a0\x1c' | trim }}|
{{ none | map('upper') | list }} {{ none | select | list }} {{ 'q' if false else 'x' | default('y') }} {% if false %}{{ 1 | nofilter }}{{ 1 is notest }}{% endif %}
{{ tree | tojson(indent=2) }}|{{ [] | tojson(indent=4) }}|{{ [[], {}, [1]] | tojson(indent='\t') }}|{{ tree | tojson(indent=0) }}|{{ tree | tojson(none, none) }} {{ (1, 'a') | tojson }} {{ [1] | tojson(ensure_ascii=false, indent=1) }}
{{ (1, 2) }} {{ (1,) }} {{ () }} {{ 1, 'a' }} {{ (1, 2) == [1, 2] }} {{ (1, 2) == (1, 2) }} {{ (1, 2) + (3,) }} {{ (1, 2) * 2 }} {{ (1, 2, 3)[1:] }} {{ (1, 2)[-1] }} {{ tree.items() | list }} {{ tree | items | first }} {{ 2 in (1, 2) }} {{ (1, 2) | length }} {{ (1, 2) is sequence }}
{% for a, b in ['xy', {'c': 1, 'd': 2}] %}{{ a }}{{ b }};{% endfor %}
{{ [1, 2] < [1, 3] }} {{ (1, 'a') < (1, 'b') }} {{ [1] < [1, 0] }} {{ [2] > [1, 5] }} {{ [1, 2] <= [1, 2] }}
{{ 2 ** 10 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 2 * 3 ** 2 }} {{ (-8) ** 3 }} {{ 0 ** 0 }} {{ 1 ** 99 }} {{ 7 % 4 ** 2 }} {{ '9' | int ** 2 }}
{{ '%s is %d, %5.2f%%|%-6s|%6s|%.2s|%05d|%+d|% d|%x|%X|%o|%e' % ('a', 7, 2.5, 'b', 'é', 'xyz', -42, 3, 4, 255, 255, 8, 12345.678) }}
{{ '%s' % 'x' }} {{ '%s and %s' % ('x', [1, none]) }} {{ '%(a)s-%(b)03d' % {'a': 'q', 'b': 5} }} {{ '%%' % () }} {{ '%s' % [1, 2] }} {{ '%i' % true }} {{ '%s' % missing }}| {{ '%F' % 3 }} {{ '%05s' % 'a' }}
{{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ words | sort(reverse=true) }} {{ [3, 1, 2.5, true] | sort }} {{ messages | sort(attribute='role') | map(attribute='role') | list }} {{ [{'a': 1, 'b': 'x'}, {'a': 0, 'b': 'X'}, {'a': 2, 'b': 'A'}] | sort(attribute='a') }} {{ tree | sort }} {{ [[2, 1], [1, 3]] | sort(attribute=1) }}
{{ {'b': 2, 'C': 1, 'a': 3} | dictsort }} {{ {'b': 2, 'C': 1, 'a': 3} | dictsort(true) }} {{ {'b': 2, 'C': 1, 'a': 3} | dictsort(by='value', reverse=true) }} {% for k, v in {'b': 2, 'a': 3} | dictsort %}{{ k }}{{ v }}{% endfor %}
{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb\n\nc\n' | indent(2, true) }}|{{ 'a\nb\n\nc' | indent('> ', blank=true) }}|{{ '' | indent(first=true) }}|{{ 'a\r\nb\x0bc' | indent(1) }}
{{ 'a\nb\r\nc\u2028d\x1ce\n\n'.splitlines() }} {{ 'a\nb\r\nc'.splitlines(true) }} {{ ''.splitlines() }} {{ '\n'.splitlines() }}
{% with a = n, b = 2 %}{{ a }}{{ b }}{% set a = 9 %}{{ a }}{% endwith %}{{ a is defined }}{% with %}{{ n }}{% endwith %}{% set n = 1 %}{% with n = n + 1, m = n %}{{ n }}{{ m }}{% endwith %}{{ n }}
{% for i in [1, 2] %}{% with x = i %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endwith %}{% endfor %}
{% filter upper | replace('A', 'b') %}a {{ 'c' }} {% set z = 1 %}{% endfilter %}{{ z is defined }}{% filter trim %}  x {% endfilter %}
a {% raw %}{{ not }} {% this %} {# n #}{% endraw %} b{%- raw -%}  x  {%- endraw -%}  c
{{ ('<' | safe) ~ '<' }} {{ '' | safe or 'e' }} {{ ('ab' | safe) | length }} {{ 'a' | safe is string }} {{ [1] | tojson | safe }}
{{ 5['x'] is defined }} {{ 'abc'['x'] is defined }} {{ none['x'] is defined }} {{ tree[1] is defined }} {{ tree[[1]] is defined }} {{ words[1.0] is defined }}
{{ ['b', 'a'] | sort | join(',') | upper }} {{ 'x'.startswith(('x', 'y')) }} {{ (messages | map(attribute='role') | list | sort)[0] }}
{{ loop is defined }} {{ words.0 }} {{ messages.1.role }}
{% if messages | selectattr('role', 'equalto', 'nobody') %}true{% endif %}{% set u = words | select('equalto', 'a') %}{% for i in [1, 2] %}{% for x in u %}{{ i }}{{ x }}{% endfor %}{% endfor %}|{{ (words | map('upper'))[0] }}|{{ words | map('upper') is sequence }}{{ words | map('upper') is iterable }}{{ words | reverse is sequence }}{{ words | select | reverse | list }}{{ tree | items is sequence }}
{% for x in words %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}
""".strip("\n")


def snippets():
    """A snippet is a line, with those that follow it where they belong together."""
    together = {"  {% if true %}": 4, "  {%- if true -%}  ": 5, "a   {%+ if true %} b{% endif +%}": 2, "  {# whole line #}": 2,
                "x {# part #}": 2, "  {% raw %}": 4, "{{- ' a' -}}  b  {{ 'c' }}  ": 2, "{%- for message in messages %}": 8}
    lines = SNIPPETS.split("\n")
    while lines:
        n = together.get(lines[0], 1)
        yield "\n".join(lines[:n])
        lines = lines[n:]


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime(2024, 7, 26, 13, 4, 5).strftime(f)
    return env


if __name__ == "__main__":
    env = environment()
    cases = []
    for source in snippets():
        try:
            cases.append({"source": source, "rendered": env.from_string(source).render(**VARIABLES)})
        except Exception as e:
            sys.exit(f"{source}: {e}")
    with open(os.path.join(os.path.dirname(__file__), "snippets.golden.json"), "w", encoding="utf-8") as f:
        json.dump({"jinja2": jinja2.__version__, "variables": VARIABLES, "cases": cases}, f, ensure_ascii=False, indent=1)
        f.write("\n")
