"""Options in groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from tradewind.cli.workflow.advise import group_options


@dataclass(frozen=True)
class Size:
    """How large it is."""

    wide: Annotated[int, typer.Option(min=1, help="Its width.")] = 2
    high: Annotated[int | None, typer.Option("--height", help="Its height.")] = None


def test_a_group_is_its_options_in_their_places() -> None:
    given: list[object] = []

    @group_options
    def draw(
        name: Annotated[str, typer.Argument()], size: Size, *, dry: Annotated[bool, typer.Option("--dry")] = False
    ) -> None:
        """Draw it."""
        given.extend([name, size, dry])

    app = typer.Typer()
    app.command()(draw)
    runner = CliRunner()
    assert runner.invoke(app, ["a", "--height", "3", "--dry"]).exit_code == 0
    assert given == ["a", Size(2, 3), True]
    shown = runner.invoke(app, ["--help"]).output
    assert "Draw it." in shown
    assert shown.index("--wide") < shown.index("--height") < shown.index("--dry")
    assert runner.invoke(app, ["a", "--wide", "0"]).exit_code == 2
