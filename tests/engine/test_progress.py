from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tradewind import AsyncStudy, Study, tunable
from tradewind.engine.progress import NotebookBar
from tradewind.errors import ConfigurationError

JOB: dict[str, Any] = {
    "name": "bowl",
    "space": {"x": "0..10"},
    "objective": {"minimise": "value"},
    "searcher": {"use": "exhaustive"},
}


def bowl(x: int) -> float:
    return float((x - 3) ** 2)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def screen(written: str) -> list[str]:
    """The lines that a terminal shows when all of it is written."""
    lines, column = [""], 0
    for token in re.findall(r"\x1b\[[\d;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", written):
        if token == "\n":
            lines.append("")
            column = 0
        elif token == "\r":
            column = 0
        elif token == "\x1b[2K":
            lines[-1] = ""
        elif not token.startswith("\x1b"):
            lines[-1] = lines[-1][:column].ljust(column) + token + lines[-1][column + len(token) :]
            column += len(token)
    return lines


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Both streams are the same terminal of 80 columns, and every drawing is made."""
    made = Terminal()
    # pytest puts its own streams into `sys` again between a fixture and its test.
    monkeypatch.setattr("tradewind.engine.progress.sys", SimpleNamespace(stdout=made, stderr=made, modules=sys.modules))
    monkeypatch.setattr("tradewind.engine.progress._INTERVAL", 0.0)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("CI", raising=False)
    return made


def test_a_terminal_shows_how_far_the_search_is(terminal: Terminal) -> None:
    seen: list[str] = []

    def function(x: int) -> float:
        seen.append(screen(terminal.getvalue())[-1])
        return bowl(x)

    with Study(JOB) as study:
        study.optimise(function)
        assert study.spent > 0
    assert len(seen) == 11
    assert "0 of 11 trials, best value -, $0.00 spent" in seen[0]
    assert re.search(r"6 of 11 trials, best value 0, 0\.0\d*¢ spent$", seen[6])
    *_, last, end = screen(terminal.getvalue())
    assert "11 of 11 trials, best value 0" in last
    assert end == ""
    assert all(len(line) < 80 for line in [*seen, last])


def test_several_calls_at_a_time_have_the_same_bar(terminal: Terminal) -> None:
    seen: list[str] = []

    async def function(x: int) -> float:
        await asyncio.sleep(0)
        seen.append(screen(terminal.getvalue())[-1])
        return bowl(x)

    async def main() -> None:
        async with AsyncStudy(JOB) as study:
            await study.optimise(function, 5, parallel=3)
            await study.optimise(function, 1, progress=False)
            with pytest.raises(ConfigurationError, match="progress='yes' is no choice"):
                await study.optimise(function, progress="yes")  # type: ignore[arg-type]
            assert len(study.study.trials) == 6

    asyncio.run(main())
    assert "0 of 5 trials" in seen[0]
    last, end = screen(terminal.getvalue())
    assert "5 of 5 trials, best value 0" in last
    assert end == ""


def test_who_asks_and_tells_may_show_it(terminal: Terminal) -> None:
    with Study(JOB) as study, study.progress_bar(2) as bar:
        for _ in range(2):
            (asked,) = study.ask()
            study.tell(asked, runtime=1.0, metrics={"value": 4.0})
            bar.update()
    assert "2 of 2 trials, best value 4" in screen(terminal.getvalue())[0]


def test_the_trials_of_one_call_and_of_the_budget_are_counted(terminal: Terminal) -> None:
    with Study({**JOB, "budget": {"trials": 7, "dollars": 2}}) as study:
        study.optimise(bowl, 3)
        study.optimise(bowl, 9)
        study.optimise(bowl)
    lines = [line for line in screen(terminal.getvalue()) if line]
    assert [re.search(r"\d+ of \d+ trials", line)[0] for line in lines] == [  # type: ignore[index]
        "3 of 3 trials",
        "4 of 4 trials",
        "7 of 7 trials",
    ]
    assert all("of $2.00 spent" in line for line in lines)


def test_money_is_the_measure_where_the_number_of_trials_is_not_known(terminal: Terminal) -> None:
    space = {"x": {"type": "float", "low": 0, "high": 1}}
    job = {**JOB, "space": space, "searcher": "random", "budget": {"dollars": 0.1}}
    with Study(job) as study, pytest.raises(KeyboardInterrupt):
        study.optimise(lambda x: raise_at(len(study.trials), 4))
    assert re.search(r"3 trials, best value 1, 0\.0\d*¢ of \$0\.100 spent", terminal.getvalue())


def raise_at(number: int, last: int) -> float:
    if number >= last:
        raise KeyboardInterrupt
    return 1.0


def test_what_the_function_prints_stays_as_it_is(terminal: Terminal) -> None:
    """In pieces, with brackets, by log handlers that had the stream before, and a line that is never ended."""
    log = logging.getLogger("test_progress")
    handler = logging.StreamHandler(terminal)
    log.addHandler(handler)

    def function(x: int) -> float:
        print(f"[red]trying {x}", end=" ", flush=True, file=terminal)
        print("... done", file=terminal)
        log.warning("logged %s", x)
        print(".", end="", file=terminal)
        return bowl(x)

    try:
        with Study(JOB) as study:
            study.optimise(function, 3)
    finally:
        log.removeHandler(handler)
    lines = screen(terminal.getvalue())
    assert lines[:6] == [
        "[red]trying 0 ... done",
        "logged 0",
        ".[red]trying 1 ... done",
        "logged 1",
        ".[red]trying 2 ... done",
        "logged 2",
    ]
    assert lines[6] == "."
    assert "3 of 3 trials" in lines[7]
    assert len(lines) == 9


def test_an_interrupt_leaves_a_clean_terminal_and_a_study_that_goes_on(terminal: Terminal) -> None:
    calls: list[int] = []

    def function(x: int) -> float:
        calls.append(x)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return bowl(x)

    with Study(JOB) as study:
        with pytest.raises(KeyboardInterrupt):
            study.optimise(function)
        assert screen(terminal.getvalue()) == [""]
        assert "write" not in vars(terminal)
        study.optimise(function)
        assert calls == [0, 1, 2, *range(2, 11)]
    assert "11 of 11 trials" in screen(terminal.getvalue())[0]


def test_an_error_of_the_study_leaves_a_clean_terminal(terminal: Terminal) -> None:
    with Study(JOB) as study:

        def function(x: int) -> float:
            study.close()
            return bowl(x)

        with pytest.raises(ConfigurationError, match="this Study was closed"):
            study.optimise(function)
        assert screen(terminal.getvalue()) == [""]
        assert "write" not in vars(terminal)


def test_a_function_that_tunes_another_has_one_bar(terminal: Terminal) -> None:
    @tunable({"y": "0..2"}, searcher="exhaustive")
    def inner(y: int) -> float:
        return float(y)

    def function(x: int) -> float:
        best = inner.tune(fresh=True)
        assert best is not None
        return bowl(x) + best.configuration["y"]  # type: ignore[operator]

    with Study(JOB) as study:
        study.optimise(function, 2)
    assert "of 3 trials" not in terminal.getvalue()
    assert [re.search(r"\d+ of \d+ trials", line) is not None for line in screen(terminal.getvalue())] == [True, False]
    assert "write" not in vars(terminal)


def test_a_narrow_terminal_gets_the_figures_only(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    with Study(JOB) as study:
        study.optimise(bowl, 2)
    line, _ = screen(terminal.getvalue())
    assert line.startswith("2 of 2 trials, best value")
    assert len(line) < 30


def test_no_text_of_the_user_moves_the_cursor(terminal: Terminal) -> None:
    metric = "v\x1b[2Jalue"
    with Study({**JOB, "objective": {"minimise": metric}}) as study:
        study.optimise(lambda x: {metric: 1.0}, 2)
    assert "\x1b[2J" not in terminal.getvalue()


def test_a_terminal_without_unicode_has_a_bar_of_its_own_characters(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Plain(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    raw = io.BytesIO()
    plain = Plain(raw, encoding="ascii")
    monkeypatch.setattr("tradewind.engine.progress.sys.stderr", plain)
    with Study({**JOB, "objective": {"minimise": "größe"}}) as study:
        study.optimise(lambda x: {"größe": 1.0}, 2)
    plain.flush()
    assert "2 of 2 trials, best gr??e 1" in raw.getvalue().decode("ascii")


# ------------------------------------------------------------------ where it is shown


@pytest.mark.parametrize("why", ["pipe", "CI", "dumb", "False"])
def test_it_is_silent_where_nobody_looks(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    pipe = io.StringIO()
    if why == "pipe":
        monkeypatch.setattr("tradewind.engine.progress.sys.stderr", pipe)
    elif why == "CI":
        monkeypatch.setenv("CI", "true")
    elif why == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    with Study(JOB) as study:
        study.optimise(bowl, 2, progress=False if why == "False" else None)
    assert terminal.getvalue() + pipe.getvalue() == ""


def test_who_asks_for_it_in_a_pipe_gets_lines(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr("tradewind.engine.progress.sys.stderr", pipe)
    monkeypatch.setenv("CI", "true")

    @tunable({"x": "0..10"}, searcher="exhaustive")
    def function(x: int) -> float:
        return bowl(x)

    function.tune(progress=True)
    first, *_, last = pipe.getvalue().splitlines()
    assert first == "0 of 11 trials, best value -, $0.00 spent"
    assert last.startswith("11 of 11 trials, best value 0, ")
    assert "\x1b" not in pipe.getvalue()
    assert terminal.getvalue() == ""


@pytest.mark.usefixtures("terminal")
def test_a_stream_that_can_only_be_written_to_disturbs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tee:
        def write(self, text: str) -> int:
            return len(text)

    monkeypatch.setattr("tradewind.engine.progress.sys.stderr", Tee())
    with Study(JOB) as study:
        study.optimise(bowl, 1)
    monkeypatch.setattr("tradewind.engine.progress.sys.stderr", None)
    with Study(JOB) as study:
        study.optimise(bowl, 1, progress=True)
        assert len(study.trials) == 2


@pytest.mark.parametrize("wrong", ["yes", 1, 0])
def test_another_choice_is_refused(wrong: Any) -> None:
    with Study(JOB) as study:
        with pytest.raises(ConfigurationError, match=r"progress=.* is no choice.*True, False or None"):
            study.optimise(bowl, progress=wrong)
        assert study.trials == []


def test_a_notebook_has_a_bar_whose_output_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, bar: NotebookBar) -> None:
            shown[-1] = bar._repr_html_()

    class Display:
        @staticmethod
        def display(bar: NotebookBar, display_id: bool) -> Handle:
            assert display_id
            shown.append(bar._repr_html_())
            return Handle()

    monkeypatch.setattr("tradewind.engine.progress.in_notebook", lambda: True)
    monkeypatch.setattr("tradewind.engine.progress.import_module", lambda name: Display)
    monkeypatch.delenv("CI", raising=False)
    with Study({**JOB, "objective": {"minimise": "<b>"}}) as study:
        study.optimise(lambda x: {"<b>": 1.0}, 4)
    (html,) = shown
    assert '<progress max="1" value="1.0000"' in html
    assert "4 of 4 trials, best &lt;b&gt; 1" in html


PROGRAM = """
import signal
import threading
from tradewind import Study

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell that runs tests in the background has it ignored

def function(x):
    if x == 2:
        print("READY", flush=True)
        threading.Event().wait(60)
    return x

space, objective = {"x": "0..10"}, {"minimise": "value"}
with Study({"name": "bowl", "space": space, "objective": objective, "searcher": "exhaustive"}) as study:
    study.optimise(function)
"""


@pytest.mark.slow
def test_ctrl_c_on_a_real_terminal_leaves_nothing_of_the_bar(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | {"TERM": "xterm"}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        written = b""
        while b"READY\r\n" not in written:
            written += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # the end of a terminal
            while part := os.read(ours, 4096):
                written += part
    os.close(ours)
    lines = screen(written.decode())
    assert b"of 11 trials" in written
    assert lines[0] == "READY"
    assert lines[1].startswith("Traceback")
    assert lines[-2:] == ["KeyboardInterrupt", ""]
    assert not any("of 11 trials" in line for line in lines)
