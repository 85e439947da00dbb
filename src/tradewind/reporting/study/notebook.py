"""The report of a study that a program holds, as an object that a notebook shows."""

from __future__ import annotations

from contextlib import closing
from functools import cached_property
from html import escape
from io import StringIO
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from tradewind.engine.study import Study
from tradewind.errors import ConfigurationError
from tradewind.store.base import store_at
from tradewind.utils.paths import expand

if TYPE_CHECKING:
    from tradewind.reporting.study.data import StudyData

_HEIGHT = "40rem"
_COLUMNS = 100
"""Characters of a line on a console at most, and on one whose width nobody knows."""


class StudyReport:
    """The report of a study: which configuration to use and why, with charts and a table of the trials.

    A notebook shows it as the page that ``tradewind report --html`` writes, a console as the text that
    ``tradewind report`` prints. It is about the moment at which it was made, and stays so.

    Args:
        study: The study, open or closed.

    Raises:
        ConfigurationError: It is no study.
        StudyNotFoundError: The study was deleted from its store.
    """

    def __init__(self, study: Study) -> None:
        from tradewind.reporting.study.data import StudyData

        if not isinstance(study, Study):
            raise ConfigurationError(f"StudyReport({study!r}): this is no Study", hint="give what Study(...) returned")
        with closing(store_at(study.store_url)) as store:
            self._data: StudyData = StudyData.load(store, study.row.id)

    @cached_property
    def html(self) -> str:
        """The whole page, which needs no network."""
        from tradewind.reporting.study.html import render_html

        return render_html(self._data)

    @cached_property
    def text(self) -> str:
        """The report in words, as a console shows it."""
        from rich.console import Console

        from tradewind.reporting.study.terminal import print_report

        written = StringIO()
        width = min(get_terminal_size((_COLUMNS, 1)).columns, _COLUMNS)
        # Else rich would show each line below the cell by itself.
        console = Console(file=written, highlight=False, no_color=True, force_jupyter=False, width=width)
        print_report(self._data, console)
        return "\n".join(line.rstrip() for line in written.getvalue().splitlines())

    def save(self, path: Path | str) -> Path:
        """Write the page into a file.

        Args:
            path: The file; what is there is replaced.

        Returns:
            The file.

        Raises:
            InputError: It cannot be written.
        """
        from tradewind.reporting.study.html import write_html

        return write_html(self.html, expand(path))

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        # The page has its own style and its own head: in a frame neither meets those of the notebook.
        return (
            f'<iframe srcdoc="{escape(self.html)}" sandbox="allow-scripts" title="{escape(self._data.study.name)}" '
            f'style="width:100%;height:{_HEIGHT};border:0;border-radius:8px"></iframe>'
        )
