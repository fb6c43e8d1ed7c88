"""Templates that try to get out, to go on for ever or to fill the memory; and the program that tries each of them.

Run as a program, it tries every template in a process of its own (a fork of one that has everything loaded) and prints
one line of JSON for each: what came of it, how long it took, by how much the process grew, what it did to the system.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import PrivateAttr

from mixseek.records import EvaluationResult, MetricScore, Record, SubmissionRecord
from mixseek.templating import check_template, compile_template

# "either": how deep Python follows is not the same in all its versions.
Expectation = Literal["refused", "harmless", "either"]
SECRET = "UNDOCUMENTED-SECRET"
CANARY = "MIXSEEK_CANARY"


@dataclass(frozen=True)
class HostileTemplate:
    id: str
    category: str
    source: str
    expectation: Expectation


def _group(category: str, expectation: Expectation, sources: dict[str, str]) -> list[HostileTemplate]:
    return [HostileTemplate(f"{category}: {name}", category, source, expectation) for name, source in sources.items()]


def _nested(opening: str, closing: str, times: int, body: str = "x") -> str:
    return opening * times + body + closing * times


# A list that holds itself twice, a hundred times over: a hundred small lists, 2**100 parts.
_TWICE = "{% set n = namespace(x=[1]) %}{% for i in range(100) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
_TWICE_TUPLE = "{% set n = namespace(x=(1,)) %}{% for i in range(100) %}{% set n.x = (n.x, n.x) %}{% endfor %}"
_DEEP = "{% set n = namespace(x=[1]) %}{% for i in range(9000) %}{% set n.x = [n.x] %}{% endfor %}"
# Three million characters, the most that is easily had.
_LONG = "{% set s = 'ab c' * 750000 %}"

HOSTILE: list[HostileTemplate] = [
    *_group(
        "time",
        "either",
        {
            "deep lists printed": _DEEP + "{{ n.x }}",
            "deep lists compared": _DEEP + "{% set a = n.x %}" + _DEEP + "{{ a == n.x }}",
            "deep lists as json": _DEEP + "{{ n.x|tojson(2) }}",
        },
    ),
    *_group(
        "reach",
        "refused",
        {
            "class of a string": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
            "class by item": "{{ ''['__class__']['__mro__'] }}",
            "class by a built name": "{{ ''['__cla' ~ 'ss__'] }}",
            "class by attr": "{{ ''|attr('__class__')|attr('__mro__') }}",
            "class by attr, built name": "{{ ''|attr('_' ~ '_class_' ~ '_') }}",
            "class by map": "{{ ['']|map(attribute='__class__')|list }}",
            "class by dotted map": "{{ records|map(attribute='content.__class__')|list }}",
            "class by groupby": "{{ ['a']|groupby('__class__') }}",
            "class by sort": "{{ records|sort(attribute='__class__') }}",
            "class by selectattr": "{{ records|selectattr('__class__')|list }}",
            "class by sum": "{{ records|sum(attribute='__class__') }}",
            "class by unique": "{{ records|unique(attribute='__class__')|list }}",
            "class by join": "{{ records|join(', ', attribute='__class__') }}",
            "class by max": "{{ records|max(attribute='__class__') }}",
            "globals of cycler": "{{ cycler.__init__.__globals__.os.popen('touch $MIXSEEK_CANARY').read() }}",
            "globals of joiner": "{{ joiner.__init__.__globals__ }}",
            "globals of lipsum": "{{ lipsum.__globals__['os'].system('touch $MIXSEEK_CANARY') }}",
            "cycler by another name": "{% set c = cycler %}{{ c('a').next() }}",
            "lipsum": "{{ lipsum(n=100) }}",
            "globals of a macro": "{% macro m() %}{% endmacro %}{{ m.__globals__ }}",
            "function of a macro": "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
            "name of a macro": "{% macro m() %}{% endmacro %}{{ m.name }}",
            "a macro printed": "{% macro m() %}{% endmacro %}{{ [m] }}",
            "environment of a macro": "{% macro m() %}{% endmacro %}{{ m|attr('_environment') }}",
            "globals of namespace": "{{ namespace.__init__.__globals__ }}",
            "attributes of a namespace": "{{ namespace(a=1)._Namespace__attrs }}",
            "class of a namespace": "{% set n = namespace() %}{{ n|attr('__class__') }}",
            "class of range": "{{ range(3).__class__ }}",
            "function of range": "{{ range.__call__ }}",
            "self": "{% block b %}{% endblock %}{{ self.b.__init__ }}",
            "self's context": "{{ self._TemplateReference__context }}",
            "super": "{% block b %}{{ super.__init__ }}{% endblock %}",
            "loop's frame": "{% for i in [1] %}{{ loop.__init__.__globals__ }}{% endfor %}",
            "loop's iterable": "{% for i in [1] %}{{ loop._iterable }}{% endfor %}",
            "loop's undefined": "{% for i in [1] %}{{ loop|attr('_undefined') }}{% endfor %}",
            "loop printed": "{% for i in [1] %}{{ [loop]|string }}{% endfor %}",
            "undefined's class": "{{ nothing.__class__.__init__.__globals__ }}",
            "undefined's words": "{{ nothing|attr('_undefined_message') }}",
            "caught undefined": "{{ ([][9])|attr('_undefined_exception') }}",
            "str.format": "{{ '{0.__class__}'.format(records) }}",
            "str.format_map": "{{ '{a.__class__}'.format_map({'a': records}) }}",
            "str.format by item": "{{ '{0.__class__}'['format'](records) }}",
            "str.format by attr": "{{ ('{0.__class__}'|attr('format'))(records) }}",
            "str.format in a map": "{{ ['{0}']|map('attr', 'format')|list }}",
            "str.encode": "{{ 'abc'.encode('utf-16') }}",
            "str.translate": "{{ 'a'.translate({97: 'b' * 9}) }}",
            "a method printed": "{{ 'abc'.upper }}",
            "a method in a list": "{{ ['abc'.upper]|string }}",
            "a method compared by text": "{{ ['abc'.upper]|join }}",
            "a method's self": "{{ 'abc'.upper.__self__ }}",
            "owner of a method": "{{ 'abc'.upper.owner }}",
            "calling a method's call": "{{ 'abc'.upper.call }}",
            "list.append": "{{ records.append(1) }}",
            "list.sort by attr": "{{ (records|attr('sort'))() }}",
            "dict.update": "{{ details.update({'a': 1}) }}",
            "dict.pop by attr": "{{ (details|attr('pop'))('accuracy') }}",
            "dict.__getitem__": "{{ details.__getitem__ }}",
            "int.from_bytes": "{{ (1).from_bytes }}",
            "float.hex": "{{ (1.5).hex() }}",
            "model_dump of a record": "{{ records[0].model_dump() }}",
            "model_copy of a record": "{{ (records[0]|attr('model_copy'))() }}",
            "model_fields of a record": "{{ records[0].model_fields }}",
            "private field of a record": "{{ vault._hidden }}",
            "property of a record": "{{ vault.undocumented }}",
            "property by item": "{{ vault['undocumented'] }}",
            "property by map": "{{ [vault]|map(attribute='undocumented')|list }}",
            "property by attr": "{{ vault|attr('undocumented') }}",
            "class variable of a record": "{{ vault.shared }}",
            "fields by percent": "{{ '%(undocumented)s' % vault }}",
            "dict of a record": "{{ vault.__dict__ }}",
            "an object that is no record": "{{ plain.token }}",
            "an object that is no record, by item": "{{ plain['token'] }}",
            "an object that can be called": "{{ function() }}",
            "an object that can be called, printed": "{{ function }}",
            "include": "{% include '/etc/passwd' %}",
            "include of a list": "{% include ['/etc/passwd', 1] ignore missing %}",
            "import": "{% import 'os' as os %}{{ os.system('touch $MIXSEEK_CANARY') }}",
            "from import": "{% from 'os' import system %}{{ system }}",
            "extends": "{% extends '/etc/passwd' %}",
            "do": "{% do records.append(1) %}",
            "debug": "{% debug %}",
            "autoescape": "{% autoescape true %}{{ '<' * 1000000 }}{% endautoescape %}",
            "wide letters for a private name": "{{ ''.＿＿class＿＿ }}",
            "ligature in a name": "{% set ﬁle = 1 %}{{ file }}",
            "a hook by map": "{{ [-999999999]|map('<spend>', 0, 0, 1)|list }}",
            "a hook by name": "{{ 1|<spend>(0, 0, 1) }}",
            "keyword tricks": "{{ range(_loop_vars=1, __self=2, environment=3) }}",
            "a keyword twice": "{% for i in [1] %}{{ dict(_loop_vars=1) }}{% endfor %}",
            "os by item": "{{ records['__init__']['__globals__']['sys'] }}",
            "xmlattr with an open key": "{{ {'a onload=x': 1}|xmlattr }}",
            "random of a record": "{{ vault|random }}",
            "tojson of a record": "{{ vault|tojson }}",
        },
    ),
    *_group(
        "reach",
        "harmless",
        {
            "a private name that is asked for": "{{ (''|attr('__class__')) is defined }}",
            "a value that looks like a template": "{{ trap }}{{ trap|upper }}{{ trap ~ trap }}",
            "a value that looks like a template in a macro": "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(trap) }}",
            "a record printed": "{{ vault }}{{ [vault] }}{{ '%s' % vault }}{{ vault|pprint }}",
        },
    ),
    *_group(
        "numbers",
        "refused",
        {
            "power": "{{ 10 ** (10 ** 8) }}",
            "power of a power": "{{ 9 ** (9 ** 9) }}",
            "negative power": "{{ 10 ** -(10 ** 8) }}",
            "power in a dead branch of a constant": "{{ (2 ** 99999999) if 1 else 2 }}",
            "float overflow": "{{ 10.0 ** 400 }}",
            "squares": "{% set n = namespace(x=3) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}",
            "huge literal": "{{ " + "9" * 200_000 + " }}",
            "huge hexadecimal literal": "{{ 0x" + "f" * 200_000 + " * 0x" + "f" * 50_000 + " }}",
            "huge float literal": "{{ 1e999 }}",
            "int of a long text": "{{ ('9' * 1000000)|int }}",
            "int of base 32": "{{ ('v' * 9999)|int(base=32) }}",
            "float of a long text": "{{ ('1' * 2000000)|float }}",
            "round up": "{{ 1|round(99999999, 'ceil') }}",
            "round a whole number": "{{ 1|round(-99999999) }}",
            "range": "{{ range(100000000)|list }}",
            "range of a huge number": "{{ range(10 ** 1000)|length }}",
            "division by zero": "{{ 1 // 0 }}",
            "sum of powers": "{{ [2 ** 4000, 2 ** 4000]|sum * 2 ** 4000 }}",
        },
    ),
    *_group(
        "size",
        "refused",
        {
            "times": "{{ 'x' * 1000000000 }}",
            "times from the left": "{{ 1000000000 * 'x' }}",
            "times, folded": "{{ 'x' * 10000 * 10000 * 10 }}",
            "list times": "{{ [0] * 100000000 }}",
            "tuple times": "{{ (0,) * 100000000 }}",
            "lists of lists": "{{ [[[0] * 1000] * 1000] * 1000 }}",
            "list in itself": "{{ [range(9999)|list] * 9999 }}",
            "doubling by tilde": "{% set n = namespace(x='x') %}{% for i in range(60) %}"
            "{% set n.x = n.x ~ n.x %}{% endfor %}",
            "doubling by plus": "{% set n = namespace(x='x') %}{% for i in range(60) %}"
            "{% set n.x = n.x + n.x %}{% endfor %}",
            "doubling a list": "{% set n = namespace(x=[1]) %}{% for i in range(60) %}"
            "{% set n.x = n.x + n.x %}{% endfor %}",
            "doubling by a set block": "{% set n = namespace(x='x') %}{% for i in range(60) %}"
            "{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}{% endfor %}",
            "doubling by join": "{% set n = namespace(x='xx') %}{% for i in range(60) %}"
            "{% set n.x = [n.x, n.x]|join %}{% endfor %}",
            "doubling by replace": "{% set n = namespace(x='x') %}{% for i in range(60) %}"
            "{% set n.x = n.x|replace('x', 'xx') %}{% endfor %}",
            "doubling by format": "{% set n = namespace(x='x') %}{% for i in range(60) %}"
            "{% set n.x = '%s%s' % (n.x, n.x) %}{% endfor %}",
            "doubling by lines": "".join(f"{{% set x{i + 1} = x{i} ~ x{i} %}}" for i in range(60)).join(
                ["{% set x0 = 'xx' %}", "{{ x60 }}"]
            ),
            "replace nothing": _LONG + "{{ s|replace('', s) }}",
            "replace all": _LONG + "{{ s.replace('a', s) }}",
            "keeping pieces": _LONG + "{% set n = namespace(x=[]) %}{% for i in range(9999) %}"
            "{% set n.x = [n.x, s[i:]] %}{% endfor %}",
            "keeping lists": "{% set n = namespace(x=0) %}{% for i in range(9999) %}{% for j in range(9999) %}"
            "{% set n.x = [n.x, {'a': i}] %}{% endfor %}{% endfor %}",
            "keeping ranges": "{% set n = namespace(x=0) %}{% for i in range(9999) %}"
            "{% set n.x = [n.x, range(9999)|list] %}{% endfor %}",
            "center": "{{ 'x'|center(1000000000) }}",
            "center as a method": "{{ 'x'.center(1000000000) }}",
            "ljust": "{{ 'x'.ljust(1000000000) }}",
            "rjust": "{{ 'x'.rjust(1000000000, 'y') }}",
            "zfill": "{{ '1'.zfill(1000000000) }}",
            "expandtabs": "{{ '\t'.expandtabs(1000000000) }}",
            "many tabs": "{{ ('\t' * 100000).expandtabs(9999) }}",
            "indent": "{{ 'x\nx'|indent(1000000000) }}",
            "indent with a text": _LONG + "{{ ('x\n' * 9999)|indent(s) }}",
            "wordwrap with a text": _LONG + "{{ ('x ' * 9999)|wordwrap(1, wrapstring=s) }}",
            "join with a text": _LONG + "{{ range(9999)|join(s) }}",
            "join as a method": _LONG + "{{ s.join('x' * 9999) }}",
            "percent width": "{{ '%1000000000d' % 1 }}",
            "percent precision": "{{ '%.1000000000f' % 1 }}",
            "percent star": "{{ '%*d' % (1000000000, 1) }}",
            "percent with nested brackets": "{{ '%(a(b))1000000000d' % {'a(b)': 1} }}",
            "percent many times": _LONG + "{{ ('%(a)s' * 9999) % {'a': s} }}",
            "format filter": "{{ '%1000000000s'|format('x') }}",
            "format filter by map": "{{ ['%1000000000s']|map('format', 'x')|list }}",
            "is odd on a format": "{{ '%1000000000d' is odd }}",
            "is divisibleby on a format": "{{ '%1000000000d' is divisibleby 1 }}",
            "even by select": "{{ ['%1000000000d']|select('even')|list }}",
            "batch with filling": "{{ [1]|batch(1000000000, 'x')|list }}",
            "slice with filling": "{{ [1]|slice(1000000000, 'x')|list }}",
            "tojson indent": "{{ [[[1]]]|tojson(indent=1000000000) }}",
            "escape": _LONG + "{{ (s|replace('a', '<'))|escape }}{{ ('<' * 3000000)|forceescape }}",
            "urlencode": "{{ ('あ' * 3000000)|urlencode }}",
            "list of a long text": _LONG + "{{ s|list }}",
            "split of a long text": _LONG + "{{ s.split('b') }}",
            "split at spaces": _LONG + "{{ s.split() }}",
            "lines of a long text": "{{ ('\n' * 3000000).splitlines() }}",
            "print a long list": "{{ ['\\u0001' * 1000000, '\\u0001' * 1000000] }}",
            "output in a loop": "{% for i in range(10000) %}{{ big }}{% endfor %}",
            "text in a loop": "{% for i in range(10000) %}" + "x" * 10_000 + "{% endfor %}",
            "text in a macro": "{% macro m() %}"
            + "x" * 100_000
            + "{% endmacro %}{% for i in range(9999) %}{{ m() }}{% endfor %}",
            "text in a set block": "{% for i in range(9999) %}{% set a %}" + "x" * 100_000 + "{% endset %}{% endfor %}",
            "text in a filter block": "{% for i in range(9999) %}{% filter upper %}"
            + "x" * 100_000
            + "{% endfilter %}{% endfor %}",
            "text in a call block": "{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}"
            "{% for i in range(9999) %}{% call m() %}" + "x" * 50_000 + "{% endcall %}{% endfor %}",
            "one wide letter": "{% for i in range(14) %}{{ big }}{{ 'x' * 100000 }}{% endfor %}😀",
            "source too long": "x" * 300_000,
        },
    ),
    *_group(
        "time",
        "refused",
        {
            "two loops": "{% for i in range(10000) %}{% for j in range(10000) %}{% endfor %}{% endfor %}",
            "four loops": _nested("{% for i in range(9999) %}", "{% endfor %}", 4),
            "loop test": "{% for i in range(9999) %}{% for j in range(9999) if j < 0 %}{% endfor %}{% endfor %}",
            "loop over a long text": _LONG + "{% for c in s %}{% endfor %}",
            "loops with else": "{% for i in range(9999) %}{% for j in [] %}{% else %}"
            "{% for k in range(9999) %}{% endfor %}{% endfor %}{% endfor %}",
            "recursive loop": "{% for i in range(9) recursive %}{{ loop(range(9)) }}{% endfor %}",
            "recursive loop without end": "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
            "recursive loop with a test": "{% for i in range(99) if i >= 0 recursive %}"
            "{% if loop.depth < 9 %}{{ loop(range(9999)) }}{% endif %}{% endfor %}",
            "macro in itself": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
            "macro twice in itself": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}"
            "{{ m(40) }}",
            "macros in a row": "".join(
                f"{{% macro m{i} () %}}{{{{ m{i - 1}() }}}}{{{{ m{i - 1}() }}}}{{% endmacro %}}" for i in range(1, 45)
            ).join(["{% macro m0() %}{% endmacro %}", "{{ m44() }}"]),
            "caller in itself": "{% macro m() %}{{ caller() }}{% endmacro %}"
            "{% macro k() %}{% call m() %}{{ k() }}{% endcall %}{% endmacro %}{{ k() }}",
            "macro by namespace": "{% set n = namespace() %}{% macro m() %}{{ n.m() }}{{ n.m() }}{% endmacro %}"
            "{% set n.m = m %}{{ m() }}",
            "block in itself": "{% block b %}{{ self.b() }}{% endblock %}",
            "map of map": "{{ range(9999)|map('string')|map('center', 9999)|list|length }}",
            "equal twins": _TWICE + "{% set a = n.x %}" + _TWICE + "{{ a == n.x }}",
            "equal twins by test": _TWICE + "{% set a = n.x %}" + _TWICE + "{{ a is eq n.x }}",
            "twins in a list": _TWICE + "{% set a = n.x %}" + _TWICE + "{{ a in [n.x] }}",
            "twins by is in": _TWICE + "{% set a = n.x %}" + _TWICE + "{{ a is in [n.x] }}",
            "twins counted": _TWICE + "{% set a = n.x %}" + _TWICE + "{{ [a].count(n.x) }}",
            "twins looked for": _TWICE + "{% set a = n.x %}" + _TWICE + "{{ [a].index(n.x) }}",
            "twins that changed": _TWICE
            + "{% set a = n.x %}"
            + _TWICE
            + "{% for i in [a, n.x] %}{{ loop.changed(i) }}{% endfor %}",
            "twins printed": _TWICE + "{{ n.x }}",
            "twins as text": _TWICE + "{{ n.x|string|length }}",
            "twins by tilde": _TWICE + "{{ n.x ~ '' }}",
            "twins by percent": _TWICE + "{{ '%s' % [n.x] }}",
            "twins as json": _TWICE + "{{ n.x|tojson }}",
            "twins as pprint": _TWICE + "{{ n.x|pprint }}",
            "twins joined": _TWICE + "{{ n.x|join }}",
            "twins replaced": _TWICE + "{{ 'x'|replace(n.x, 'y') }}",
            "twins as a key": _TWICE_TUPLE + "{{ {n.x: 1} }}",
            "twins as an item": _TWICE_TUPLE + "{{ details[n.x] }}",
            "twins as a key of get": _TWICE_TUPLE + "{{ details.get(n.x) }}",
            "twins in a mapping": _TWICE_TUPLE + "{{ n.x in details }}",
            "twins unique": _TWICE_TUPLE + "{{ [n.x, n.x]|unique|list }}",
            "twins sorted": _TWICE + "{{ [n.x, n.x]|sort }}",
            "twins as the largest": _TWICE + "{{ [n.x, n.x]|max }}",
            "twins grouped": _TWICE + "{{ [[n.x], [n.x]]|groupby(0) }}",
            "twins as dict": _TWICE_TUPLE + "{{ dict([(n.x, 1)]) }}",
            "twins sorted by key": _TWICE + "{{ {'a': n.x, 'b': n.x}|dictsort(by='value') }}",
            "twins as default": _TWICE + "{{ nothing|default(n.x) }}",
            "twins url encoded": _TWICE + "{{ {'a': n.x}|urlencode }}",
            "twins as attributes": _TWICE + "{{ {'a': n.x}|xmlattr }}",
            "namespace as a name for attr": _TWICE + "{{ ''|attr([n]) }}",
            "namespace as a name for map": _TWICE + "{{ [1]|map((n,))|list }}",
            "namespace as a name for select": _TWICE + "{{ [1]|select((n,))|list }}",
            "namespace as a target": _TWICE + "{{ 'http://example.com'|urlize(target=[n]) }}",
            "namespace as a separator": _TWICE + "{{ [1, 2]|join([n]) }}",
            "numbers with one hash": "{{ range(0, 2305843009213693951 * 9999, 2305843009213693951)|unique|list }}",
            "keys with one hash": "{% set m = 2305843009213693951 %}{{ dict(range(0, m * 9998, m)|batch(2)) }}",
            "a sort by many names": "{{ ([{'a': 1}] * 4000)|sort(attribute='" + "a," * 99 + "a') }}",
            "many specifiers": "{{ ('%d' * 700000) % 1 }}",
            "many percent signs": "{{ ('%%' * 700000) % () }}",
            "title of many words": "{{ ('漢-' * 300000)|title|length }}",
            "striptags of entities": "{{ ('&#x41;' * 200000)|striptags|length }}",
            "pprint of many lines": "{{ ('a\n' * 240000)|pprint|length }}",
            "urlencode of wide letters": "{{ ('あ' * 950000)|urlencode|length }}",
            "urlize with many schemes": "{{ ('a:b ' * 4000)|urlize(extra_schemes=['a:'] * 300000) }}",
            "wordwrap of many lines": "{{ ('a\n' * 40000)|wordwrap }}",
            "wordwrap of many words": "{{ ('ab ' * 300000)|wordwrap(9999) }}",
            "numbers kept": "{% set n = namespace(x=0) %}{% for i in range(9999) %}{% for j in range(9) %}"
            "{% set n.x = [n.x, 2 ** 4000 + i, -(2 ** 4000)] %}{% endfor %}{% endfor %}",
            "letters kept": "{% set s = '漢' * 100000 %}{% set n = namespace(x=0) %}"
            "{% for c in s %}{% set n.x = [n.x, c] %}{% endfor %}",
            "macros before their names": "{% macro m(a=k()) %}{% endmacro %}"
            "{% macro k() %}{{ m() }}{% endmacro %}{{ m() }}",
            "namespace in itself": "{% set n = namespace() %}{% set n.n = n %}{{ n }}",
            "namespace in its list": "{% set n = namespace() %}{% set n.l = [n] %}{{ n.l }}",
            "sum of lists": "{{ ([range(999)|list] * 9999)|sum(start=[])|length }}",
            "sorting long texts": "{{ ([('x' * 1000)] * 9999)|sort|length }}",
            "striptags of comments": "{{ ('<!---->' * 100000)|striptags }}",
            "striptags of open tags": "{{ ('<' * 1000000)|striptags }}",
            "urlize of brackets": "{{ (('(' * 50000) ~ 'x')|urlize }}",
            "urlize of closing brackets": "{{ ((')' * 50000) ~ 'x')|urlize }}",
            "urlize of dots": "{{ (('www.' ~ '.' * 50000) ~ 'x')|urlize }}",
            "wordwrap of one word": "{{ ('x' * 1000000)|wordwrap(1) }}",
            "wordwrap of hyphens": "{{ ('-' * 1000000)|wordwrap(1) }}",
            "trim with a long set": _LONG + "{{ s|trim(s) }}{{ s|trim(s) }}{{ s.strip(s) }}",
            "title of a long text": _LONG + "{% for i in range(999) %}{% set t = s|title %}{% endfor %}",
            "wordcount of a long text": _LONG + "{% for i in range(99) %}{{ s|wordcount }}{% endfor %}",
            "in of long texts": _LONG + "{% for i in range(9999) %}{{ (s ~ 'z') in s }}{% endfor %}",
            "comparing long texts": _LONG + "{% set t = s ~ '' %}{% for i in range(9999) %}{{ s == t }}{% endfor %}",
            "counting in a long text": _LONG + "{% for i in range(9999) %}{{ s.count('a') }}{% endfor %}",
            "slicing a long text": _LONG + "{% for i in range(9999) %}{% set t = s[::-1] %}{% endfor %}",
            "slicing a value": "{% for i in range(9999) %}{% set t = big[::2] %}{% endfor %}",
            "upper of a value": "{% for i in range(9999) %}{% set t = big|upper %}{% endfor %}",
            "feedback in a loop": "{% for i in range(9999) %}{% for j in range(99) %}"
            "{% set t = feedback.feedback_summary %}{% endfor %}{% endfor %}",
            "feedback kept": "{% set n = namespace(x=0) %}{% for i in range(9999) %}"
            "{% set n.x = [n.x, feedback.feedback_summary] %}{% endfor %}",
            "feedback kept by map": "{{ ([feedback] * 9999)|map(attribute='feedback_summary')|list|length }}",
            "feedback kept by attr": "{{ ([feedback] * 9999)|map('attr', 'feedback_summary')|list|length }}",
            "feedback selected": "{{ ([feedback] * 9999)|selectattr('feedback_summary')|list|length }}",
            "feedback sorted": "{{ ([feedback] * 9999)|sort(attribute='feedback_summary')|length }}",
            "feedback by item": "{% set n = namespace(x=0) %}{% for i in range(9999) %}"
            "{% set n.x = [n.x, feedback['feedback_summary']] %}{% endfor %}",
            "long attribute path": "{{ (['x'] * 9999)|map(attribute='" + "a." * 5_000 + "')|list }}",
            "many filters by map": "{% for i in range(9999) %}{{ records|map('upper')|map('lower')|list }}{% endfor %}",
            "many arguments": "{% macro m() %}{{ varargs|length }}{% endmacro %}"
            "{% for i in range(9999) %}{{ m(*range(9999)) }}{% endfor %}",
        },
    ),
    *_group(
        "compiling",
        "refused",
        {
            "deep brackets": "{{ " + _nested("(", ")", 200, "1") + " }}",
            "deeper brackets": "{{ " + _nested("[", "]", 50_000, "1") + " }}",
            "deep loops": _nested("{% for i in [1] %}", "{% endfor %}", 25),
            "deep conditions": _nested("{% if 1 %}", "{% endif %}", 110),
            "deeper conditions": _nested("{% if 1 %}", "{% endif %}", 5_000),
            "a long sum": "{{ " + "+".join(["1"] * 50_000) + " }}",
            "many negations": "{{ " + "not " * 20_000 + "1 }}",
            "many filters": "{{ 1" + "|string" * 10_000 + " }}",
            "many attributes": "{{ details" + ".a" * 50_000 + " }}",
            "many outputs": "{{a}}" * 50_000,
            "many comments": "{##}" * 60_000,
            "many items": "{{ [" + "1," * 100_000 + "] }}",
            "many macros": "".join(f"{{% macro m{i}() %}}{{% endmacro %}}" for i in range(8_000)),
            "many blocks": "".join(f"{{% block b{i} %}}{{% endblock %}}" for i in range(7_000)),
            "many conditions": "{% if 1 %}" + "{% elif 1 %}x" * 15_000 + "{% endif %}",
            "many names": "".join(f"{{% set v{i} = 1 %}}" for i in range(12_000)),
            "many alternatives": "{{ " + "1 if 0 else " * 15_000 + "2 }}",
            "digits with lines": "{{ " + "1_" * 100_000 + "1 }}",
            "a text without end": "{{ '" + "\\'" * 100_000 + " }}",
            "a comment without end": "{#" * 100_000,
            "raw without end": "{% raw %}" + "{% " * 80_000,
            "folded center": "{{ 'x'|center(30000000) }}",
            "folded format": "{{ '%0100000000d'|format(1) }}",
            "folded in a test": "{% if 'x' * 100000000 == 'y' %}{% endif %}",
            "folded in an argument": "{{ records|join('x' * 100000000) }}",
            "folded in a slice": "{{ ('x' * 100000000)[:1] }}",
            "folded concat": "{{ ('x' * 9000000) ~ ('y' * 9000000) }}",
            "folded in a default": "{% macro m(a='x' * 100000000) %}{{ a }}{% endmacro %}{{ m() }}",
            "folded in a set": "{% set x = 'x' * 100000000 %}",
            "folded in a with": "{% with x = 'x' * 100000000 %}{% endwith %}",
        },
    ),
    *_group(
        "compiling",
        "harmless",
        {
            "comments": "{##}" * 7_000,
            "many lines": "\n" * 250_000,
            "blanks before tags": (" " * 1000 + "{# #}\n") * 240,
            "a long text": "あ" * 250_000,
            "int of base 36": "{{ ('z' * 9999)|int(base=36) }}",
            "left-associative power": "{{ 2**10**2 }}",
            "every fitting filter": "{{ big|upper|lower|length }}{{ big|truncate(50) }}{{ big|summarize }}"
            "{{ big|wordcount }}",
        },
    ),
]


# --- what is passed in ----------------------------------------------------------------------------------------------


class Vault(Record):
    documented: str = "documented"
    shared: ClassVar[str] = SECRET
    _hidden: str = PrivateAttr(default=SECRET)

    @property
    def undocumented(self) -> str:
        return SECRET


class _Plain:
    token = SECRET

    def __str__(self) -> str:
        return "plain"


def make_values() -> dict[str, object]:
    records = [SubmissionRecord(round_number=n, content="内容" * 500, score=10.0 * n) for n in range(1, 6)]
    metrics = [MetricScore(metric_name=f"m{n}", score=1.0, evaluator_comment="x" * 1000) for n in range(500)]
    return {
        "big": "提出内容 " * 200_000,
        "details": {"accuracy": 80.0},
        "feedback": EvaluationResult(metrics=metrics, overall_score=1.0),
        "function": os.getcwd,
        "plain": _Plain(),
        "records": records,
        "trap": "{{ 7 * 7 }}{% include 'x' %}{# c #}",
        "vault": Vault(),
    }


# --- trying them ----------------------------------------------------------------------------------------------------

_SUSPICIOUS = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "subprocess.Popen",
    "socket.connect",
    "ctypes",
    "shutil",
    "os.remove",
)


def _render(source: str, values: dict[str, object]) -> str:
    return compile_template(source, "continuation_prompt").render(values)


def _check(source: str, values: dict[str, object]) -> str:
    return str(len(check_template(source, "continuation_prompt")))


def _render_plainly(source: str, values: dict[str, object]) -> str:
    return ImmutableSandboxedEnvironment().from_string(source).render(values)


_WAYS: dict[str, Callable[[str, dict[str, object]], str]] = {
    "render": _render,
    "check": _check,
    "plain jinja": _render_plainly,
}


def _peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _watch(seen: list[str]) -> None:
    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event.startswith(_SUSPICIOUS) or (event == "open" and CANARY in str(args[0])):
            seen.append(event)

    sys.addaudithook(hook)


def try_one(way: str, source: str, values: dict[str, object]) -> dict[str, Any]:
    seen: list[str] = []
    _watch(seen)
    peak, wall, cpu = _peak_kb(), time.perf_counter(), time.process_time()
    outcome, text = "text", ""
    try:
        text = _WAYS[way](source, values)
    except jinja2.TemplateError as error:
        outcome, text = "refused", f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001  # any other error is a finding, and is reported as one
        outcome, text = "escaped", f"{type(error).__name__}: {error}"
    return {
        "outcome": outcome,
        "text": text[:300] + text[-300:],
        "length": len(text),
        "leaks": SECRET in text or " at 0x" in text or "<class" in text,
        "cpu": time.process_time() - cpu,
        "wall": time.perf_counter() - wall,
        "grown_kb": _peak_kb() - peak,
        "system": seen,
    }


def try_in_child(way: str, source: str, values: dict[str, object]) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        # Processor time, not the clock: a busy machine must not look like a template that hangs.
        resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
        with os.fdopen(writing, "w") as out:
            json.dump(try_one(way, source, values), out)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        told = answer.read()
    _, status = os.waitpid(child, 0)
    nothing = {"outcome": f"died with {status}", "cpu": 99.0, "wall": 99.0, "grown_kb": 0, "text": "", "length": 0}
    return json.loads(told) if told else {**nothing, "system": [], "leaks": False}


def main(way: str) -> None:
    values = make_values()
    _render("{{ 'a b'|wordwrap(1)|tojson }}{{ [1]|pprint }}{{ [1]|random }}{{ 'a'|urlize|urlencode }}", values)
    for hostile in HOSTILE:
        result = try_in_child(way, hostile.source, values)
        sys.stdout.write(json.dumps({"id": hostile.id, **result}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        sys.stdout.write(json.dumps(try_in_child(sys.argv[1], Path(sys.argv[2]).read_text(), make_values())))
    else:
        main(sys.argv[1])
