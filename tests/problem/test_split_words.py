"""Command lines: words as a shell has them, and nothing that only a shell would do."""

from __future__ import annotations

import shlex
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.errors import SpecError
from tradewind.problem.template import _split, split_words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('echo "cannot open file" >&2; exit 1', ">&2"),
        ("echo hello\nsleep 0.1", "several lines"),
        ("for i in 1 2 3; do echo; done", ";"),
        ('run --to "$HOME/x"', "$HOME"),
        ("run ${SIZE}", "${..."),
        ("run $(nproc)", "$(..."),
        ("run `nproc`", "`"),
        ("a | b", "|"),
        ("cd x && make", "&&"),
        ("make || true", "||"),
        ("server &", "&"),
        ("run 2>&1", "2>&1"),
        ("run >out", ">"),
        ("run >> out", ">>"),
        ("sort < in", "<"),
    ],
)
def test_what_only_a_shell_would_do_is_refused(text: str, found: str) -> None:
    with pytest.raises(SpecError) as error:
        split_words(text)
    assert f"no shell sees the command, but it has {found}" in error.value.message
    assert "[sh, -c" in str(error.value.hint)


def test_a_variable_before_the_program_belongs_under_env() -> None:
    with pytest.raises(SpecError, match=r"begins with OMP_NUM_THREADS= \(set OMP_NUM_THREADS under env\)"):
        split_words("OMP_NUM_THREADS=4 ./solve --size 3")


@pytest.mark.parametrize(
    "text",
    [
        "prog 'a; b' \"c | d\" e\\;f",
        "prog '$HOME' \\$HOME a$",
        "awk '{print $1; n++}' --sep=';'",
        "python train.py \\\n  --rate 0.1 \\\n  --name 'two words'",
        "sh -c 'cd x && make; echo $?'",
        "prog --filter='x > 3' \"x >= 3\"",
        "  prog a\n",
    ],
)
def test_words_are_those_of_a_shell(text: str) -> None:
    printed = subprocess.run(
        ["sh", "-c", f"printf '%s\\0' {text.strip()}"], capture_output=True, text=True, check=True
    ).stdout
    assert split_words(text) == tuple(printed.split("\0")[:-1])


@pytest.mark.parametrize("text", ["curl http://x/?a=1&b=2", "prog --mode=a|b", "find . -name *.c", "prog a;b --x>=3"])
def test_signs_within_a_word_mean_themselves(text: str) -> None:
    assert split_words(text) == tuple(text.split())


@pytest.mark.slow
@given(st.lists(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1), min_size=1))
def test_quoted_words_come_back_whatever_they_hold(words: list[str]) -> None:
    assert split_words(shlex.join(["prog", *words])) == ("prog", *words)


@pytest.mark.slow
@given(st.text("ab $\t\r\n'\"\\\\\u00a0\u00e9", max_size=14))
def test_words_are_those_of_the_standard_library(text: str) -> None:
    try:
        words = shlex.split(text)
    except ValueError:
        with pytest.raises(ValueError, match=r"No (closing quotation|escaped character)"):
            _split(text)
    else:
        assert _split(text) == words


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["a" * 2**19, "'" + "a" * 2**19 + "'", '"' + "\\a" * 2**18 + '"', "\\a" * 2**18, "'" * 2**18]
)
def test_a_long_word_takes_no_time_that_grows_with_its_square(text: str) -> None:
    began = time.process_time()
    assert len(split_words(text)) == 1
    assert time.process_time() - began < 10.0, "the standard library takes more than half a minute"
