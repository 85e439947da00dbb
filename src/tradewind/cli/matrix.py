"""``tradewind plugins --matrix``: which provisioners and runners go together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from tradewind.deployer.provisioner.base import Provisioner
    from tradewind.deployer.runner.base import Runner


def compatibility_matrix() -> dict[str, dict[str, str]]:
    """Runner -> provisioner -> why they do not go together, or an empty text; of all installed parts that load."""
    from tradewind import plugins
    from tradewind.deployer.compatibility import compatibility_matrix

    return compatibility_matrix(
        cast("dict[str, type[Provisioner]]", plugins.load_all("provisioner")),
        cast("dict[str, type[Runner]]", plugins.load_all("runner")),
    )


def print_matrix(*, as_json: bool) -> None:
    """Print the matrix, and below it the reasons."""
    found = compatibility_matrix()
    if as_json:
        from tradewind.cli.common import emit_json

        emit_json(
            {
                runner: {made: {"together": not why, "why": why} for made, why in row.items()}
                for runner, row in found.items()
            }
        )
        return
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=1000)
    provisioners = list(next(iter(found.values()), {}))
    room = console.width - max(map(len, [*found, "runner"])) - 1
    turned = sum(len(name) + 2 for name in provisioners) > room
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1 if turned else 2, 0, 0))
    table.add_column("runner", no_wrap=True, vertical="bottom")
    for name in provisioners:
        table.add_column("\n".join(name) if turned else name, no_wrap=True, vertical="bottom")
    for runner, row in found.items():
        table.add_row(runner, *("[green]yes[/]" if not row[name] else "-" for name in provisioners))
    console.print(table)
    for why, pairs in incompatibility_reasons(found).items():
        console.print(f"{', '.join(pairs)}: {escape(why)}", style="bright_black")


def incompatibility_reasons(found: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """Reason -> the pairs that it keeps apart, provisioner first."""
    apart: dict[str, list[str]] = {}
    for runner, row in found.items():
        for made, why in row.items():
            if why:
                apart.setdefault(why, []).append(f"{made} + {runner}")
    return apart
