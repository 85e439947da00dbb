from __future__ import annotations

import time
from pathlib import Path

import pytest

from tradewind.errors import SpecError
from tradewind.problem import Configuration, Job, JobParameters, Offer
from tradewind.problem.template import check_template, render, split_command

OFFER = Offer("aws", "m5.large", 2, 8, 0.096, region="eu-west-1", facts={"disk": 40.0}).times(3)
CHOSEN = Configuration({"level": 6, "codec": "gzip; rm -rf /", "fast": True, "rate": 0.25})


def filled(*words: str, configuration: Configuration = CHOSEN, fraction: float = 1.0) -> tuple[str, ...]:
    job = Job("j", words, Path("/"), parameters=JobParameters({"rows": 1000.0}))
    return render(job, configuration, OFFER, fraction)[0]


def test_words_are_filled_in_one_by_one() -> None:
    assert filled("prog", "-{{ level }}", "{{ codec }}", "--x={{ level * 2 + 1 }}", "a b") == (
        *("prog", "-6", "gzip; rm -rf /", "--x=13", "a b"),
    )


def test_what_templates_may_name() -> None:
    words = "{{ instance.vcpu }} {{ instance.memory }} {{ instance.price }} {{ instance.type }} {{ instance.category }}"
    assert filled(words) == ("2 8 0.096 m5.large general",)
    assert filled("{{ instance.provider }}/{{ instance.region }}/{{ instance }}") == ("aws/eu-west-1/m5.large",)
    assert filled("{{ nodes }}", "{{ fraction }}", "{{ rows|int }}", "{{ instance.disk }}", fraction=0.5) == (
        *("3", "0.5", "1000", "40.0"),
    )
    assert filled("{{ fast }}", "{{ not fast }}", "{{ rate }}") == ("true", "false", "0.25")
    assert filled("{{ codec|replace('; rm -rf /', '')|upper }}", "{{ range(level)|join(',') }}") == (
        "GZIP",
        "0,1,2,3,4,5",
    )


def test_a_flag_can_depend_on_a_parameter() -> None:
    words = ("prog", "{% if window is defined %}--window={{ window }}{% endif %}", "{{ empty }}")
    assert filled(*words, configuration=Configuration({"empty": ""})) == ("prog", "")
    assert filled(*words, configuration=Configuration({"empty": "", "window": 3})) == ("prog", "--window=3", "")


def test_the_environment_is_filled_in() -> None:
    job = Job("j", ("p",), Path("/"), env={"THREADS": "{{ instance.vcpu|int }}", "PLAIN": "a{b"})
    assert render(job, CHOSEN, OFFER, 1.0)[1] == {"THREADS": "2", "PLAIN": "a{b"}
    with pytest.raises(SpecError, match=r"env X: the template '{{ nope }}'"):
        render(Job("j", ("p",), Path("/"), env={"X": "{{ nope }}"}), CHOSEN, OFFER, 1.0)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("{{ window }}", "'window' is undefined"),
        ("{{ instance.colour }}", "colour"),
        ("{{ instance._offer }}", "_offer|unsafe"),
        ("{{ instance.__class__ }}", "__class__|unsafe"),
        ("{{ ''.__class__.__mro__ }}", "__class__|unsafe"),
        ("{{ level / 0 }}", "fails: .*division"),
        ("{{ level + codec }}", "fails: "),
        ("{{ 9 ** 9 ** 99 }}", "too large"),
        ("{{ 'x' * 10000000 }}", "too long"),
        ("{{ 10000000 * 'x' }}", "too long"),
        ("{{ '%1000000000d' % level }}", "cannot be formatted"),
        ("{{ range(10000000)|length }}", "limited to 1000"),
        ("{{ ('x' * 90000)|replace('x', 'yyyyyyyyyyyyyyy') }}", "too long"),
        ("{% for a in range(400) %}{% for b in range(400) %}x{% endfor %}{% endfor %}", "more than 100000 characters"),
        ("a\0{{ level }}", "no program takes"),
        ("{{ level", "cannot read the template"),
        ("{% if level %}", "cannot read the template"),
        ("{% set a = 1 %}", "'assign', which is not allowed"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "'macro', which is not allowed"),
        ("{% include '/etc/passwd' %}", "'include', which is not allowed"),
        ("{% extends 'x' %}", "which is not allowed"),
        ("{{ level|center(1000000000) }}", "unknown filter 'center'"),
        ("{% for a in x recursive %}{% endfor %}", "loops"),
        (
            "{% for a in x %}{% for b in x %}{% for c in x %}{% endfor %}{% endfor %}{% endfor %}",
            "nests loops too deeply",
        ),
        ("{{ " + "x" * 20_000 + " }}", "longer than"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "nested too deeply"),
    ],
)
def test_templates_that_fail_or_are_refused_are_named(word: str, message: str) -> None:
    start = time.perf_counter()
    with pytest.raises(SpecError, match=message) as caught:
        filled(word)
    assert "\n" not in str(caught.value)
    assert time.perf_counter() - start < 3


def test_filling_in_takes_far_less_than_a_millisecond() -> None:
    words = ("prog", "--level", "{{ level }}", "--mem={{ (instance.memory * 0.8)|int }}", "{{ nodes }}")
    filled(*words)
    start = time.process_time()
    for _ in range(200):
        filled(*words)
    assert (time.process_time() - start) / 200 < 2e-3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prog -x 'a b' \"c d\"", ("prog", "-x", "a b", "c d")),
        ("prog --n={{ a + 1 }} {{ b | default('x y') }}", ("prog", "--n={{ a + 1 }}", "{{ b | default('x y') }}")),
        ("p '{{ a }} b' {% if c %}-d{% endif %}", ("p", "{{ a }} b", "{% if c %}-d{% endif %}")),
        ("p {# a note #}", ("p", "{# a note #}")),
        ("", ()),
    ],
)
def test_commands_are_split_like_a_shell_does(text: str, words: tuple[str, ...]) -> None:
    assert split_command(text) == words


def test_a_quote_that_is_not_closed_is_an_error() -> None:
    with pytest.raises(SpecError, match="no closing quotation"):
        split_command("prog 'a")


def test_names_are_checked_before_anything_runs() -> None:
    check_template("{{ level }} {% for i in range(3) %}{{ i }}{% endfor %}", {"level"})
    check_template("no holes {", set())
    with pytest.raises(SpecError, match=r"names 'levle', which is no parameter .did you mean 'level'"):
        check_template("{{ levle }}", {"level", "codec"})
    with pytest.raises(SpecError, match="known here: codec, level"):
        check_template("{{ zzz }}", {"level", "codec"})
