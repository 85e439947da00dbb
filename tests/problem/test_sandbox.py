"""Nothing that a template says takes much time or memory."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
from jinja2.exceptions import SecurityError

from tradewind.problem.sandbox import ENVIRONMENT, rendered

_NESTED = "{% for x in [['A' * 9000]] %}{% for y in [[" + "x," * 900 + "]] %}"

GREEDY = [
    "{{ ('A' * 10000)|join('B' * 10000) }}",
    "{% for a in range(1000) %}{% for b in range(1000) %}" + "A" * 5000 + "{% endfor %}{% endfor %}",
    "{% for a in 'A' * 10000 %}{% for b in 'A' * 10000 %}{% endfor %}{% endfor %}",
    "{% for a in range(1000) %}{% for b in range(1000) %}{{ ('ba' * 5000)|sort|join }}{% endfor %}{% endfor %}",
    "{{ 'A' * 1000000000 }}",
    "{{ 1000000000 * 'A' }}",
    "{{ [['A' * 10000] * 10000] * 10000 }}",
    "{{ ([['A' * 1000] * 9] * 10000)|string|length }}",
    "{{ ([('A' * 5000)|list] * 10000)|sum(start=[]) }}",
    "{{ ([('A' * 5000)|list] * 10000)|tojson }}",
    "{{ [1]|tojson(indent=1000000000) }}",
    "{{ [1]|tojson(1000000000) }}",
    "{{ 'A'.ljust(1000000000) }}",
    "{{ 'A'.center(1000000000) }}",
    "{{ '7'.zfill(1000000000) }}",
    "{{ '\t'.expandtabs(1000000000) }}",
    "{{ 'A'.replace('', 'B' * 1000) }}",
    "{{ '{:>1000000000}'.format('A') }}",
    "{{ '{x:>1000000000}'.format_map({'x': 1}) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ ('A' * 9000).join('B' * 9000) }}",
    "{{ ('A' * 9000)|replace('A', 'B' * 9000) }}",
    "{{ 10 ** 10 ** 8 }}",
    "{{ range(1000000000)|list }}",
    "{{ (1).to_bytes(1000000000) }}",
    f"{_NESTED} {{{{ [{'y,' * 900}] }}}}{{% endfor %}}{{% endfor %}}",
    f"{_NESTED} {{{{ '' ~ [{'y,' * 900}] }}}}{{% endfor %}}{{% endfor %}}",
    "{{ " + " ~ ".join(["'A' * 9000"] * 700) + " }}",
]  # fmt: skip


@pytest.mark.parametrize("template", GREEDY)
def test_what_would_grow_is_refused_before_it_grows(template: str) -> None:
    with pytest.raises(SecurityError):
        rendered(ENVIRONMENT.bounded(template), {})


@pytest.mark.slow
def test_all_of_them_fit_into_little_memory() -> None:
    code = f"""
        import resource, time
        from jinja2.exceptions import SecurityError
        from tradewind.problem.sandbox import ENVIRONMENT, rendered
        resource.setrlimit(resource.RLIMIT_DATA, (1 << 28, 1 << 28))
        for template in {GREEDY!r}:
            start = time.process_time()
            try:
                rendered(ENVIRONMENT.bounded(template), {{}})
            except SecurityError:
                pass
            assert time.process_time() - start < 10, template
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ a ~ '-' ~ 3 ~ true }}", "x y-3True"),
        ("{{ a.split(' ')[1].upper() }}", "Y"),
        ("{% for k, v in d.items() %}{{ loop.index }}{{ k }}{{ v }}{{ loop.cycle(',', ';') }}{% endfor %}", "1p1,2q2;"),
        ("{% for i in [] %}x{% else %}none{% endfor %}", "none"),
        ("{% for i in [3, 4] if i > 3 %}{{ loop.last }}{{ i }}{% endfor %}", "true4"),
        ("{{ [1, 2]|tojson }} {{ d|tojson(indent=1)|length }}", "[1, 2] 20"),
        ("{{ [1, 2.5]|sum }} {{ [3, 1]|sort|join('<') }}", "3.5 1<3"),
        ("{{ [1, [2, 3]] }}", "[1, [2, 3]]"),
        ("{{ '-' * 20 }}", "-" * 20),
    ],
)  # fmt: skip
def test_what_is_written_every_day_works(template: str, text: str) -> None:
    assert rendered(ENVIRONMENT.bounded(template), {"a": "x y", "d": {"p": 1, "q": 2}}) == text
