#!/usr/bin/env python3
"""Writes tests/tokenizer/templates.json: Jinja sources with what jinja2 makes of them, set up as transformers does.

Three kinds: one-line cases for the language, sources that must be refused, and whole chat templates written for this
project with the constructs of the published families, each rendered for several conversations.

Needs: pip install jinja2. The output is the same on every run.
Usage: tools/make_template_cases.py
"""
import datetime
import json
import pathlib

import jinja2.ext
from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/tokenizer/templates.json"
NOW = 1764538200  # 2025-11-30, the tests' clock


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks what the assistant wrote; the text is the same."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(line)

    def _pass(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(form)
    return env


VARIABLES = dict(
    messages=[{"role": "user", "content": "Hello World"}, {"role": "assistant", "content": "x y", "tool_calls": [{"a": 1}]}],
    add_generation_prompt=True, tools=None, documents=None, bos_token="<s>", eos_token="</s>",
    s="  Hello wörld, ÄÖ ß\n line2  ", n=7, f=2.5, neg=-3, big=1e20, l=[3, 1, 2], ls=["b", "A", "c"],
    d={"z": 1, "a": {"b": [1, 2]}, "items": 5, "k y": None}, e=[], es="", t=True, none=None,
    lo=[{"n": "x", "v": 2}, {"n": "y", "v": 1}, {"n": "X", "v": 2}, {"v": 9}], html="<a href=\"x\">'&</a>", num="42",
    fl="3.14", nested=[[1, 2], [3]], tiny=1.5e-7, mid=123456.789)

LANGUAGE = r'''
{{ s|trim }}|{{ s.strip() }}|{{ s.lstrip() }}|{{ s.rstrip() }}|{{ s.strip(' H') }}
{{ s|upper }}|{{ s|lower }}|{{ s|title }}|{{ s.title() }}|{{ s|capitalize }}|{{ s.capitalize() }}|{{ 'ab-cd (ef) x'|title }}|{{ "it's o'neil".title() }}
{{ s.split() }}|{{ s.split('l') }}|{{ s.split('l',1) }}|{{ s.rsplit('l',1) }}|{{ 'a  b c'.split(None,1) }}|{{ 'a  b c '.rsplit(None,1) }}|{{ s.splitlines() }}
{{ 'abc'[0] }}|{{ 'abc'[-1] }}|{{ 'abcdef'[1:4] }}|{{ 'äöü'[1:] }}|{{ 'abcdef'[::-1] }}|{{ 'abcdef'[4:1:-2] }}|{{ l[-2:] }}|{{ l[5:] }}|{{ l[::2] }}|{{ (1,2,3)[1:] }}
{{ l|sort }}|{{ ls|sort }}|{{ ls|sort(case_sensitive=true) }}|{{ ls|sort(reverse=true) }}|{{ lo|sort(attribute='v')|map(attribute='v')|list }}
{{ d }}|{{ d|tojson }}|{{ d|tojson(indent=2) }}|{{ d|dictsort }}|{{ d['items'] }}
{{ d.get('z') }}|{{ d.get('q','dflt') }}|{{ d.get('q') }}|{{ d.keys()|list }}|{{ d.values()|list }}
{{ 7//2 }}|{{ -7//2 }}|{{ 7%3 }}|{{ -7%3 }}|{{ 7/2 }}|{{ 2**10 }}|{{ 2**-1 }}|{{ 7.5//2 }}|{{ -7.5%2 }}|{{ 1+True }}|{{ 'a'*3 }}|{{ [0]*2 }}|{{ 3*'x' }}|{{ -2**2 }}|{{ 2**3**2 }}|{{ - n }}|{{ +n }}|{{ not n }}
{{ 1.0 }}|{{ f }}|{{ big }}|{{ 1e16 }}|{{ 1e15 }}|{{ tiny }}|{{ 0.0001 }}|{{ 0.00001 }}|{{ mid }}|{{ 100.0 }}|{{ 1/3 }}|{{ 1e22 }}|{{ -0.0 }}|{{ 5e-324 }}|{{ 1_000 }}|{{ 0x1F }}|{{ 0b101 }}
{{ [1,'a',None,True,2.5,'it\'s',"q\"",'both\'"'] }}|{{ (1,) }}|{{ () }}|{{ {'a':(1,2)} }}|{{ ['\n\t\\ é \x01 \u200b'] }}
{{ 1 < 2 < 3 }}|{{ 1 < 3 < 2 }}|{{ 1 == 1.0 }}|{{ 'a' < 'b' }}|{{ [1,2] < [1,3] }}|{{ 1 in l }}|{{ 9 not in l }}|{{ 'z' in d }}|{{ 'ell' in s }}|{{ none in [None] }}|{{ 1 != 2 == 2 }}
{{ n if t else 'no' }}|{{ 'x' if e }}|{{ 'a' if e else 'b' if t else 'c' }}|{{ e or 'dflt' }}|{{ t and 'yes' }}|{{ es or none }}
{{ undef }}|{{ undef|default('d') }}|{{ es|default('d') }}|{{ es|default('d',true) }}|{{ undef is defined }}|{{ d.q is defined }}|{{ undef == undef2 }}|{{ undef|length }}|{{ undef|list }}|{{ undef ~ 'x' }}
{{ n is odd }}|{{ n is even }}|{{ n is divisibleby 7 }}|{{ n is divisibleby(3) }}|{{ s is string }}|{{ d is mapping }}|{{ l is sequence }}|{{ l is iterable }}|{{ n is iterable }}|{{ n is number }}|{{ t is boolean }}|{{ t is true }}|{{ t is integer }}|{{ n is integer }}|{{ f is float }}|{{ none is none }}|{{ s is not none }}|{{ range is callable }}|{{ d is sequence }}|{{ n is sameas n }}|{{ 'a' is in ['a'] }}|{{ n is eq 7 }}|{{ n is gt(3) }}|{{ 'abc' is lower }}|{{ 'ABC' is upper }}|{{ 5 is ge 5 }}
{{ lo|selectattr('n','equalto','x')|list }}|{{ lo|selectattr('n')|map(attribute='n')|join(',') }}|{{ lo|rejectattr('n','defined')|list }}|{{ l|select('gt',1)|list }}|{{ l|reject('odd')|list }}|{{ ls|map('upper')|list }}|{{ lo|map(attribute='n',default='?')|list }}|{{ nested|map('first')|list }}|{{ nested|map('join','-')|list }}|{{ l|select|list }}
{{ l|first }}|{{ l|last }}|{{ l|min }}|{{ l|max }}|{{ l|sum }}|{{ lo|sum(attribute='v') }}|{{ l|join(', ') }}|{{ l|reverse|list }}|{{ 'abc'|reverse }}|{{ lo|map(attribute='v')|unique|list }}|{{ ls|unique|list }}|{{ l|length }}|{{ s|length }}|{{ 'äö'|count }}|{{ e|first }}|{{ l|batch(2)|list }}|{{ l|batch(2,'-')|list }}|{{ [1,2,3,4,5]|slice(3)|list }}|{{ [1,2,3,4,5]|slice(3,'x')|list }}
{{ lo|selectattr('n')|groupby('n')|list }}
{{ num|int + 1 }}|{{ fl|float + 1 }}|{{ 'x'|int }}|{{ 'x'|int(5) }}|{{ 'ff'|int(base=16) }}|{{ '3.9'|int }}|{{ f|int }}|{{ f|round }}|{{ 2.675|round(2) }}|{{ 2.5|round }}|{{ 3.5|round }}|{{ 2.1|round(0,'ceil') }}|{{ 2.9|round(method='floor') }}|{{ neg|abs }}|{{ 1234|filesizeformat }}|{{ 1234567|filesizeformat(true) }}|{{ 42.123|round(1) }}|{{ 7|round(2) }}
{{ html|e }}|{{ html|escape }}|{{ html|safe }}|{{ 'a b&c/d?é'|urlencode }}|{{ 'hello world foo bar'|truncate(11) }}|{{ 'hello world foo bar'|truncate(9,true,'…',0) }}|{{ 'a b c'|wordcount }}|{{ 'x'|center(7) }}|{{ 'ab'|center(7) }}|{{ 'ab'.center(5,'*') }}|{{ 'abc'.center(6,'*') }}|{{ '7'.zfill(3) }}|{{ '-7'.zfill(4) }}|{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3,'.') }}
{{ '<a>'|safe + html }}|{{ html + '<b>'|safe }}|{{ html|e + '<' }}|{{ '<'|e|e }}|{{ '<'|e|forceescape }}|{{ '<'|safe ~ '>' }}|{{ ('<'|safe)|string + '>' }}|{{ '<'|safe + 'x' + '>' }}|{{ [html|e, '<']|join }}|{{ ('<'|safe)|tojson }}|{{ ('<'|safe) == '<' }}
{{ "a\nb\n\nc"|indent }}|{{ "a\nb\n\nc"|indent(2,true) }}|{{ "a\nb\n\nc"|indent(2,false,true) }}|{{ "a\nb"|indent('>>') }}|{{ "a\nb\n"|indent(2) }}
{{ 'a%sb%d' % ('x',3) }}|{{ '%.2f' % 3.14159 }}|{{ '%5d|%-5s|%05d' % (1,'a',42) }}|{{ '%x %X %o' % (255,255,8) }}|{{ '%s' % 'q' }}|{{ '%r' % 'q' }}|{{ '%s and %s'|format('a','b') }}|{{ '{} {1}'.format(1) if false else '{} {}'.format('a',2) }}|{{ '{0}-{name}'.format('z',name='k') }}|{{ '{:.2f}|{:>5}|{:<4}|{:03d}'.format(1.234,'ab','c',7) }}|{{ '%%' % () }}
{{ 'abc'.replace('b','X') }}|{{ 'aaa'.replace('a','b',2) }}|{{ 'abc'|replace('','-') }}|{{ 'abc'.find('c') }}|{{ 'abc'.find('q') }}|{{ 'äbc'.find('c') }}|{{ 'abcabc'.rfind('b') }}|{{ 'abab'.count('ab') }}|{{ 'abc'.startswith('ab') }}|{{ 'abc'.endswith(('x','c')) }}|{{ 'abc'.index('b') }}|{{ 'x=y=z'.partition('=') }}|{{ 'x=y=z'.rpartition('=') }}|{{ 'xy'.partition('=') }}|{{ 'abc'.removeprefix('a') }}|{{ 'abc'.removesuffix('c') }}|{{ '-'.join(['a','b']) }}|{{ 'aBc'.swapcase() }}|{{ 'abc'.isalpha() }}|{{ '12'.isdigit() }}|{{ '²'.isdigit() }}|{{ '²'.isdecimal() }}|{{ '½'.isnumeric() }}|{{ ' '.isspace() }}|{{ 'Ab'.istitle() }}|{{ 'a1'.isalnum() }}|{{ 'AB'.isupper() }}|{{ 'ab1'.islower() }}|{{ ''.isalpha() }}
{{ l.index(1) }}|{{ l.count(3) }}|{{ l.copy() }}|{{ l + [4] }}|{{ (1,2)+(3,) }}|{{ 'a' 'b' }}|{{ 1 ~ 'a' ~ none ~ 2.0 ~ true }}|{{ [1,2,3,]|length }}|{{ {'a':1,}['a'] }}
{{ 'tests: ' ~ (1 is defined and 2 is not string) }}|{{ 'q'|upper|lower|upper }}|{{ (l|length) * 2 }}|{{ -l|length if false else 0 }}|{{ d.a.b.0 }}|{{ d.a.b[1] }}|{{ d['a']['b'][0] }}|{{ d.a['q'] }}|{{ none.foo }}|{{ 'x'.foo }}|{{ n.foo }}
{%- for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a','b') }}{{ loop.depth }}{{ loop.changed(x) }};{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for x in e %}x{% else %}empty{% endfor %}{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}{{ x }}{% endfor %}{% for c in 'äb' %}[{{ c }}]{% endfor %}
{% for x in range(10) %}{% if x == 3 %}{% continue %}{% endif %}{% if x == 6 %}{% break %}{% endif %}{{ x }}{% endfor %}{{ range(3)|list }}{{ range(5,1,-2)|list }}
{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }},{% endfor %}{{ x }}{% set ns = namespace(c=0,q='z') %}{% for i in l %}{% set ns.c = ns.c + i %}{% endfor %}{{ ns.c }}{{ ns.q }}
{% if t %}{% set y = 5 %}{% endif %}{{ y }}{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set q %}block {{ n }}{% endset %}{{ q|upper }}{% set w | upper %}low{% endset %}{{ w }}
{% macro m(a, b='dflt', c=none) %}[{{ a }},{{ b }},{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c=3) }}{{ m(1,2,3) }}{{ m() }}{{ m(b=2,a=1) }}
{% macro va() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ va(1,2,x=3) }}{% macro wrap(t) %}<{{ t }}>{{ caller('in') }}</{{ t }}>{% endmacro %}{% call(z) wrap('b') %}body {{ z }}{% endcall %}
{% macro fact(k) %}{{ k * (fact(k-1)|int) if k > 1 else 1 }}{% endmacro %}{{ fact(10) }}{% with p = 3, r = n %}{{ p + r }}{% endwith %}{% filter upper %}fil {{ n }}{% endfilter %}{% filter replace('a','b')|upper %}aaa{% endfilter %}
{% raw %}{{ not }} {% if %}{% endraw %}{# comment #}{#- c -#} x {%- if t -%}  y  {%- endif -%}  z
{%- for i in [[1,[2,[]]],[3]] recursive %}{{ i if i is number }}{% if i is not number and i %}({{ loop(i) }}){% endif %}{% endfor %}
{{ messages[0]['role'] }}{{ messages[-1].content }}{{ messages|length }}{% if messages[1].tool_calls is defined and messages[1].tool_calls %}T{% endif %}{{ messages[0].tool_calls is defined }}{% for m in messages %}{{ loop.index0 % 2 == 0 }}{{ m.role == 'user' }}{% endfor %}{{ messages[1:] }}{{ messages[:-1]|length }}
{{ [1,2]|tojson }}{{ 'é"\\/<>&\u2028'|tojson }}{{ 'é😀'|tojson(ensure_ascii=true) }}{{ {'b':1,'a':[]}|tojson(sort_keys=true) }}{{ {'a':[1,{}]}|tojson(indent=4) }}{{ {'a':1}|tojson(separators=(',',':')) }}{{ none|tojson }}{{ 1.0|tojson }}{{ 1e100|tojson }}{{ {1:2,none:3,true:4}|tojson }}{{ "\x7f\x01\t"|tojson }}
{{ strftime_now('%Y-%m-%d %B %d %a') }}{{ dict(a=1,b=2) }}{{ dict([('x',1)]) }}{{ namespace(a=1).a }}{{ d|items|list }}{{ none|string }}{{ 5|string + 'x' }}{{ l|string }}
{% generation %}gen{{ n }}{% endgeneration %}{{ 'x' if undef is undefined else 'y' }}{{ (undef or {}).get('x', 'alt') }}{{ [] is sequence }}{{ '' is iterable }}{{ d|length }}{{ 'abc'|list }}{{ l|map('string')|join('+') }}{{ ['a','b']|map('length')|sum }}{{ lo|map(attribute='n')|select('string')|list }}{{ lo|selectattr('v','in',[1,9])|list|length }}
{{ 'a,b;c'|replace(',',';')|trim }}{{ "tab\tq" }}{{ 'uni\u00e9\x41\101\q' }}
{{ l is none }}{{ 1 if l else 2 }}{{ l == [3,1,2] }}{{ (1,2) == [1,2] }}{{ {'a':1} == {'a':1.0} }}{{ 'a' == 1 }}{{ none == false }}{{ 0 == false }}{{ d.q is none }}{{ d['k y'] is none }}{{ true|int }}{{ [true,false]|string }}{{ 10|string|length }}
{{ 3 is odd and not 4 is odd }}{{ not true or true }}{{ not (1 == 2) }}{{ 1 + 2 * 3 - 4 / 2 }}{{ 'a' + 'b' ~ 1 + 2 if false else 'ok' }}{{ (1 + 2) ~ 'x' }}{{ 7 - 2 - 1 }}{{ 2 * 3 % 4 }}
'''

# Not cut at newlines: white space, comments, raw blocks.
SPACED = [
    "a\n", "a\n\n", "", "\n", "{{ 1 }}\n", " {% if true %}\n x\n {% endif %}\n y", "{% if true -%}\n x {%- endif %}\n",
    "x {#- c #}\n y", "{% set a=1 %}\n{{a}}", "\r\na\r\n{{1}}\r", "  {{ 1 }}\n  {%- if 1 %}\n\n{% endif +%}\n z",
    "{%- raw -%}  a {{ x }} {%- endraw -%}  b", "\t{% raw %}\n q{% endraw %}\n", "{{ 'multi\nline' }}",
    "   {% if t %}\n   line\n   {% endif %}\n", "{{ (undef.x is defined) if false else 1 }}", "{#\n{{ x }}\n#}\n  y",
]

REFUSED = [
    "{{ undef.x }}",
    "{{ undef() }}",
    "{{ 1 + 'a' }}",
    "{{ raise_exception('no!') }}",
    "{% for x in 5 %}{% endfor %}",
    "{{ none|length }}",
    "{{ l.append(1) }}",
    "{{ 'a' < 1 }}",
    "{{ 1/0 }}",
    "{{ 1%0 }}",
    "{{ d.pop('z') }}",
    "{{ x|nofilter }}",
    "{{ x is notest }}",
    "{% if %}",
    "{{ 1 + }}",
    "{% for x in l %}",
    "{% endif %}",
    "{{ 'abc",
    "{{ foo(",
    "{% unknown %}",
    "{{ range(1000000)|length }}",
    "{{ undef + 1 }}",
    "{{ [1,2,3](0) }}",
    "{{ {} < {} }}",
    "{{ undef|tojson }}",
    "{{ l|join(undef.x) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1,2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(q=2) }}",
    "{% set l.x = 1 %}",
    "{{ 'a'|int|foo }}",
    "{% break %}",
    "{% set a, b = 1 %}",
    "{{ 'x'.index('q') }}",
    "{{ ''.join([1]) }}",
    "{{ '%d' % 'a' }}",
    "{{ 'a' in 5 }}",
    "{{ 'abc'.split('') }}",
    "{{ d.get() }}",
    "{# open",
    "{{ }}",
    "{{ a b }}",
    "{{ (l|select)|length }}",
    "{{ -'a' }}",
    "{{ undef[0] }}",
    "{{ [1] + (2,) }}",
    "{{ 5|join }}",
    "{{ {}['a'].b }}",
    "{{ x.y.z }}",
]

CHATS = {
    # Headers, built-in tools, the date, tools in the first user message.
    "headers": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = strftime_now("%d %b %Y") %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start|>system<|end|>\\n\\nToday: " + date_string + "\\n\\n" }}
{%- if tools is not none %}
    {{- "You have these functions:\\n\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start|>' + message['role'] + '<|end|>\\n\\n' + message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start|>assistant<|end|>\\n\\n{"name": "' + tool_call.name + '", "parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot|>" }}
    {%- else %}
        {{- "<|start|>ipython<|end|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable and message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant<|end|>\\n\\n' }}
{%- endif %}
""",
    # Reasoning cut off earlier turns, tool answers grouped in one turn, the last question found backwards.
    "turns": """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- "# Tools\\n\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning_content) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls or [] %}
            {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
            {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '<tool_call>\\n{"name": "' ~ tool_call.name ~ '", "arguments": ' }}
            {%- if tool_call.arguments is string %}{{- tool_call.arguments }}{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}""",
    # One line, state carried in a namespace, full-width bars.
    "flat": """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='', is_first_sp=true) %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<｜User｜>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' in message and message['tool_calls'] %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls'] %}{%- if not ns.is_first %}{%- if message['content'] is none %}{{'<｜Assistant｜><｜calls｜><｜call｜>' + tool['type'] + '<｜sep｜>' + tool['function']['name'] + '\\n' + '```json' + '\\n' + tool['function']['arguments']|string + '\\n' + '```' + '<｜end｜>'}}{%- else %}{{'<｜Assistant｜>' + message['content'] + '<｜calls｜><｜call｜>' + tool['type'] + '<｜sep｜>' + tool['function']['name']}}{%- endif %}{%- set ns.is_first = true -%}{%- else %}{{'\\n<｜call｜>' + tool['type'] + '<｜sep｜>' + tool['function']['name']}}{%- endif %}{%- endfor %}{{'<｜calls-end｜>' + eos_token}}{%- elif message['role'] == 'assistant' %}{%- if ns.is_tool %}{{'<｜outputs-end｜>' + message['content'] + eos_token}}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{'<｜Assistant｜>' + content + eos_token}}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if ns.is_output_first %}{{'<｜outputs｜><｜output｜>' + message['content'] + '<｜end｜>'}}{%- set ns.is_output_first = false %}{%- else %}{{'\\n<｜output｜>' + message['content'] + '<｜end｜>'}}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'<｜outputs-end｜>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<｜Assistant｜><think>\\n'}}{% endif %}""",
    # Strict alternation.
    "strict": """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/... after the optional system message') }}
    {%- endif %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- " [INST] " ~ message["content"] ~ " [/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"] + eos_token}}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported") }}
    {%- endif %}
{%- endfor %}
""",
    # A macro that calls itself over a JSON schema, required fields, enums, defaults.
    "schema": """{%- macro render_type(spec, required_params=[], level=0) -%}
    {%- if spec.type == "array" -%}
        {%- if spec['items'] -%}
            {%- if spec['items']['type'] is not string -%}
                {{- spec['items']['type'] | join(' | ') + "[]" }}
            {%- else -%}
                {{- render_type(spec['items'], required_params, level + 1) + "[]" }}
            {%- endif -%}
        {%- else -%}
            {{- "any[]" }}
        {%- endif -%}
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string and spec.type is not mapping and spec.type[0] is defined -%}
        {{- spec.type | join(" | ") }}
    {%- elif spec.anyOf -%}
        {%- for variant in spec.anyOf -%}
            {{- render_type(variant, required_params, level) }}
            {%- if not loop.last %}{{- " | " }}{% endif -%}
        {%- endfor -%}
    {%- elif spec.type == "string" and spec.enum -%}
        {{- '"' + spec.enum|join('" | "') + '"' -}}
    {%- elif spec.type == "object" -%}
        {%- if spec.properties -%}
            {{- "{\\n" }}
            {%- for name, sub in spec.properties.items() -%}
                {{- "  " * level ~ name }}
                {%- if name not in (spec.required or []) %}{{- "?" }}{% endif -%}
                {{- ": " }}{{ render_type(sub, spec.required or [], level + 1) }}
                {%- if sub.default is defined %}{{- ", // default: " ~ sub.default|tojson }}{% endif -%}
                {{- "\\n" }}
            {%- endfor -%}
            {{- "  " * level ~ "}" }}
        {%- else -%}
            {{- "object" }}
        {%- endif -%}
    {%- else -%}
        {{- {"integer": "number", "number": "number", "boolean": "boolean", "string": "string"}.get(spec.type, "any") }}
    {%- endif -%}
{%- endmacro -%}
{%- macro block(title) -%}
<{{ title }}>{{ caller() }}</{{ title }}>
{%- endmacro -%}
{%- if tools %}
{%- call block("functions") %}
namespace functions {
    {%- for tool in tools | map(attribute='function') | sort(attribute='name') %}
// {{ tool.description | default("no description", true) | replace("\\n", "\\n// ") }}
type {{ tool.name }} = (_: {{ render_type(tool.parameters) }}) => any;
    {%- endfor %}
}
{%- endcall %}
{%- endif %}
{%- for message in messages | rejectattr('role', 'equalto', 'system') %}
<|start|>{{ message.role }}<|message|>{% generation %}{{ message.content }}{% endgeneration %}<|end|>
{%- endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}
""",
    # Documents, the date, parts of content, loop controls, filters over lists.
    "documents": """{%- set sys = (messages | selectattr('role', 'equalto', 'system') | map(attribute='content') | list) -%}
{{ bos_token }}<|system|>Knowledge until: {{ strftime_now('%B %d, %Y') }}.
{%- if sys %} {{ sys | join(' ') | trim }}{% endif %}

{% if documents %}
{% for doc in documents %}
<|document|>{{ doc.doc_id | default(loop.index) }}
{{ doc.text | indent(2) | truncate(40, true) }}
{{ doc | dictsort | tojson(indent=1) }}
{% else %}
none
{% endfor %}
{% endif %}
{% for message in messages %}
{% if message.role == 'system' %}{% continue %}{% endif %}
<|{{ message.role | upper }}|>
{%- if message.content is string %}
 {{ message.content }}
{%- elif message.content is not none %}
    {%- for part in message.content %}
        {%- if part.type == 'text' %} {{ part.text }}{% elif part['type'] in ['image', 'image_url'] %}<image {{ loop.index }}/{{ loop.length }}>{% else %}{{ raise_exception('Unknown part: ' ~ part.type) }}{% endif %}
    {%- endfor %}
{%- endif %}
{%- if message.tool_calls is defined %}
    {%- for call in message.tool_calls if call.function is defined %}
 [{{ call.function.name }}({% for k, v in call.function.arguments.items() %}{{ k }}={{ v | tojson if v is not string else "'" ~ v ~ "'" }}{{ ", " if not loop.last }}{% endfor %})]
    {%- endfor %}
{%- endif %}
{{ eos_token if message.role == 'assistant' }}
{% endfor %}
{% if add_generation_prompt %}<|ASSISTANT|>{% endif %}
""",
}

TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "The \"weather\" & <temp>\nof a city — °C", "parameters": {
        "type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "description": "City"}, "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
            "days": {"type": "integer"}, "tags": {"type": "array", "items": {"type": ["string", "null"]}},
            "where": {"type": "object", "properties": {"lat": {"type": "number"}, "on": {"type": "boolean"}}, "required": ["lat"]},
            "alt": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}}},
    {"type": "function", "function": {"name": "do_nothing", "description": "", "parameters": {"type": "object", "properties": {}}}},
]
CALL = {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Köln \"X\"", "days": 2, "on": True, "x": None, "f": 1.5}}}


def message(role, content, **more):
    return {"role": role, "content": content} | more


CONVERSATIONS = [
    [message("user", "Hello")],
    [message("system", " Be brief. "), message("user", "Hi\n there "), message("assistant", " yes\n"), message("user", "日本 😀 <b>")],
    [message("user", "q"), message("assistant", "<think>\nhm\n</think>\n\nanswer"), message("user", "and?"), message("assistant", "so", reasoning_content="\nbecause\n")],
    [message("user", "w?"), message("assistant", None, tool_calls=[CALL]), message("tool", "{\"t\": 20}"), message("tool", "b"), message("assistant", "20")],
    [message("user", [{"type": "text", "text": "look"}, {"type": "image"}]), message("assistant", "ok")],
    [message("assistant", "first"), message("user", "second")],
    [message("user", "a"), message("assistant", "let me", tool_calls=[CALL, CALL]), message("tool", "x")],
]
EXTRAS = [{}, {"tools": TOOLS, "enable_thinking": False},
          {"documents": [{"doc_id": 7, "text": "one\ntwo"}, {"text": "a text that is longer than forty characters are"}], "date_string": "1 Jan"}]


def main():
    env = environment()

    def outcome(source, variables):
        try:
            return env.from_string(source).render(**variables)
        except Exception as error:  # the message differs from ours, that there is one does not
            return {"refused": type(error).__name__}

    language = [[source, outcome(source, VARIABLES)] for source in LANGUAGE.strip("\n").split("\n") + SPACED + REFUSED]
    for source, result in language:
        if (source in REFUSED) != isinstance(result, dict):
            raise SystemExit(f"unexpected: {source!r} gives {result!r}")
    chats = []
    for name, source in CHATS.items():
        for conversation in range(len(CONVERSATIONS)):
            for extra in range(len(EXTRAS)):
                for prompt in (True, False):
                    if not prompt and extra:
                        continue
                    variables = dict(messages=CONVERSATIONS[conversation], add_generation_prompt=prompt, tools=None, documents=None,
                                     bos_token="<s>", eos_token="</s>") | EXTRAS[extra]
                    chats.append([name, conversation, extra, prompt, outcome(source, variables)])
    lines = lambda items: "[\n" + ",\n".join(json.dumps(item, ensure_ascii=False) for item in items) + "\n]"
    OUT.write_text('{"variables": ' + json.dumps(VARIABLES, ensure_ascii=False) + ',\n"language": ' + lines(language) +
                   ',\n"templates": ' + json.dumps(CHATS, ensure_ascii=False, indent=0) + ',\n"conversations": ' + lines(CONVERSATIONS) +
                   ',\n"extras": ' + lines(EXTRAS) + ',\n"chats": ' + lines(chats) + "}\n")


if __name__ == "__main__":
    main()
