"""A progress bar for functions that are tuned: on a terminal and in a notebook."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, Self, TextIO

from tradewind.engine.ask_tell.asked_trial import check_calls
from tradewind.errors import ConfigurationError
from tradewind.problem import Problem
from tradewind.utils.notebook import bar_html, in_notebook
from tradewind.utils.units import format_money, printable

if TYPE_CHECKING:
    from types import TracebackType

    from tradewind.engine.study import Study

_INTERVAL = 0.125
"""Seconds between two drawings, at least: functions may take less than a bar takes to draw."""

_WIDTH = 20
"""Characters of the bar itself."""

_ERASE = "\r\x1b[2K"


class ProgressDisplay(Protocol):
    """Something that shows the progress."""

    def draw(self, share: float | None, words: str) -> None:
        """Show a moment.

        Args:
            share: Share that is done; None where nobody knows how much there is to do.
            words: The figures.
        """

    def end(self, *, clear: bool) -> None:
        """Show no more.

        Args:
            clear: Take away what is shown, for an error is shown next.
        """


class OptimiseProgress:
    """Shows how far `Study.optimise` is: trials of how many, the best value, and the money spent.

    Use it as a context manager, and call `update` after each trial.

    Args:
        study: The study.
        problem: What it is about.
        trials: Calls at most, or None.
        wanted: True to show it, False not to, None to show it to people only: on a terminal and in a notebook, but
            neither in a pipe, nor in a file, nor where the variable ``CI`` says that a build runs.

    Raises:
        ConfigurationError: ``wanted`` is none of these, or ``trials`` no number of calls.
    """

    def __init__(self, study: Study, problem: Problem, trials: int | None, wanted: bool | None) -> None:
        if not (wanted is None or isinstance(wanted, bool)):
            raise ConfigurationError(f"progress={wanted!r} is no choice", hint="write True, False or None")
        check_calls(trials)
        self._study = study
        self._problem = problem
        self._trials = trials
        self._display = _display(wanted)
        self._drawn = -1.0
        self._done = self._total = 0

    def __enter__(self) -> Self:
        if self._display is not None:
            self._done, self._total = self._extent()
            try:
                self._draw(self._display)
            except BaseException:
                self._display.end(clear=True)
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._display is not None:
            try:
                self._draw(self._display)
            finally:
                self._display.end(clear=kind is not None)

    def update(self) -> None:
        """Count a trial that has ended."""
        self._done += 1
        if self._display is not None and time.monotonic() - self._drawn >= _INTERVAL:
            self._draw(self._display)

    def _extent(self) -> tuple[int, int]:
        """Trials that are done, and how many there will be at most; 0 where nobody knows.

        Where the caller limits the trials, they are those of this call, otherwise those of the study.
        """
        ended = sum(trial.state.ended for trial in self._study.trials)
        budget, space = self._study.spec.budget.trials, self._problem.space
        if self._trials is not None:
            return 0, self._trials if budget is None else min(self._trials, max(0, budget - ended))
        limits = [limit for limit in (budget, len(space) if space.enumerable else None) if limit is not None]
        return ended, min(limits, default=0)

    def _draw(self, display: ProgressDisplay) -> None:
        self._drawn = time.monotonic()
        dollars = self._study.spec.budget.dollars
        of = f" of {max(self._total, self._done):,}" if self._total else ""
        money = f" of {format_money(dollars)}" if dollars is not None else ""
        objective, best = self._problem.objective, self._study.best
        value = best.observation.objective if best is not None and best.observation is not None else None
        words = (
            f"{self._done:,}{of} trials, best {objective.metric} {objective.format(value)}, "
            f"{format_money(self._study.spent)}{money} spent"
        )
        share = None
        if self._total:
            share = min(1.0, self._done / self._total)
        elif dollars:
            share = min(1.0, self._study.spent / dollars)
        display.draw(share, words)


def _display(wanted: bool | None) -> ProgressDisplay | None:
    """Choose the display, or None."""
    build = os.environ.get("CI", "").lower() not in ("", "0", "false")
    if wanted is False or (wanted is None and build):
        return None
    if in_notebook():
        return NotebookBar()
    if _is_terminal(sys.stderr):
        return TerminalBar(sys.stderr)
    return ProgressLines(sys.stderr) if wanted and sys.stderr is not None else None


def _is_terminal(stream: TextIO | None) -> bool:
    """True for a terminal on which a line can be written anew.

    Programs put objects of their own in the place of the streams, which have ``write`` and little else.
    """
    if stream is None or getattr(stream, "closed", False) or os.environ.get("TERM", "") == "dumb":
        return False
    return hasattr(stream, "isatty") and stream.isatty()


class NotebookBar:
    """A bar below a cell. It needs no widgets: the output itself is replaced."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._share: float | None = None
        self._words = ""

    def draw(self, share: float | None, words: str) -> None:
        """Show it, or replace what is shown."""
        self._share, self._words = share, words
        if self._handle is None:
            self._handle = import_module("IPython.display").display(self, display_id=True)
        else:
            self._handle.update(self)

    def end(self, *, clear: bool) -> None:
        """Leave it as it is: an error is shown below it."""

    def __repr__(self) -> str:
        return self._words

    def _repr_html_(self) -> str:
        return bar_html(self._share, self._words)


class ProgressLines:
    """A line now and then, for a file or a pipe where somebody asked for it.

    Args:
        stream: Where to write.
    """

    _SECONDS = 1.0

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next = 0.0
        self._waiting = ""

    def draw(self, share: float | None, words: str) -> None:
        """Write it, unless another line was written in this second."""
        self._waiting = words
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._SECONDS
            self._write()

    def end(self, *, clear: bool) -> None:
        """Write what was not written yet."""
        if self._waiting:
            self._write()

    def _write(self) -> None:
        self._stream.write(_encodable(printable(self._waiting), self._stream) + "\n")
        self._stream.flush()
        self._waiting = ""


_one_bar = threading.Lock()
"""Held by the bar that is on the terminal: a second one, of a thread or of a function that tunes, is not shown."""


class TerminalBar:
    """A bar on the last line of a terminal.

    Whatever else is written to the terminal through Python's streams stays as it is: the bar is taken away before, and
    comes back when the line is complete. rich's own live display would break lines that are written in pieces, and
    have them in its markup; it draws this bar, but does not place it.

    Args:
        stream: The terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._plain_write = stream.write
        self._process = os.getpid()
        self._hooks = ExitStack()
        self._streams: list[TextIO] = []
        self._placed = False
        self._shown = False
        self._inside_line = False
        self._line = ""

    def draw(self, share: float | None, words: str) -> None:
        """Show it on the current line, unless something else has begun that line."""
        if not self._placed:
            if not _one_bar.acquire(blocking=False):
                return
            self._placed = True
            self._hooks.callback(_one_bar.release)
            self._streams = [s for s in (sys.stdout, self._stream) if _is_terminal(s) and hasattr(s, "__dict__")]
            for stream in self._streams:
                self._hooks.enter_context(self._hooked(stream))
        self._line = self._rendered(share, words)
        if not self._inside_line:
            self._show()

    def end(self, *, clear: bool) -> None:
        """Leave it, with the following line for others, or take it away."""
        try:
            if self._placed and clear:
                self._hide()
            elif self._placed:
                if self._inside_line:
                    self._plain_write("\n")
                self._show()
                self._plain_write("\n")
                self._stream.flush()
        finally:
            self._placed = self._shown = False
            self._hooks.close()

    def _show(self) -> None:
        for stream in self._streams:
            stream.flush()
        self._shown = True
        self._plain_write(_ERASE + self._line)
        self._stream.flush()

    def _hide(self) -> None:
        if self._shown:
            self._shown = False
            self._plain_write(_ERASE)
            self._stream.flush()

    @contextmanager
    def _hooked(self, stream: TextIO) -> Generator[None]:
        """Hear of what is written to a stream, whoever holds it: log handlers have had it from the beginning."""
        write = stream.write

        def hear(text: str) -> int:
            if text and os.getpid() == self._process:
                self._hide()
                self._inside_line = not text.endswith(("\n", "\r"))
            return write(text)

        before = vars(stream).get("write")  # of whoever does the same as we
        setattr(stream, "write", hear)  # noqa: B010  (a method cannot be assigned to, says mypy)
        try:
            yield
        finally:
            if before is None:
                delattr(stream, "write")
            else:
                setattr(stream, "write", before)  # noqa: B010

    def _rendered(self, share: float | None, words: str) -> str:
        """The line, no wider than the terminal."""
        from rich.console import Console
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        console = Console(file=self._stream, highlight=False)
        row: list[Any] = [Text(printable(words), no_wrap=True, overflow="ellipsis")]
        if share is not None and console.width >= 2 * _WIDTH:
            row.insert(0, ProgressBar(total=1.0, completed=share, width=_WIDTH))
        grid = Table.grid(padding=(0, 1))
        grid.add_row(*row)
        with console.capture() as drawn:
            console.print(grid, width=console.width - 1)
        return _encodable(drawn.get().splitlines()[0].rstrip(), self._stream)


def _encodable(text: str, stream: TextIO) -> str:
    """A text with a question mark for what a stream cannot write."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)
