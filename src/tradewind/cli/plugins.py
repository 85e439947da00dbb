"""``tradewind plugins``: what is installed, and what each part can do, its settings, and which go together."""

from __future__ import annotations

import types
import typing
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from tradewind.cli import completion

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

    from tradewind.deployer.provisioner.base import Provisioner
    from tradewind.deployer.runner.base import Runner


def compatibility_matrix(*, workflows: bool = False) -> dict[str, dict[str, str]]:
    """Runner -> provisioner -> why they do not go together, or an empty text; of all installed parts that load.

    Args:
        workflows: True for plans of workflows that are carried out, False for jobs.
    """
    from tradewind import plugins
    from tradewind.deployer.compatibility import compatibility_matrix

    return compatibility_matrix(
        cast("dict[str, type[Provisioner]]", plugins.load_all("provisioner")),
        cast("dict[str, type[Runner]]", plugins.load_all("runner")),
        workflows=workflows,
    )


def print_matrix(*, as_json: bool) -> None:
    """Print the matrix, and below it the reasons."""
    found, flows = compatibility_matrix(), compatibility_matrix(workflows=True)
    if as_json:
        from tradewind.cli.common import emit_json

        emit_json(
            {
                runner: {
                    made: {"together": not why, "why": why, "workflows": not flows[runner][made]}
                    for made, why in row.items()
                }
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
    able = [f"{made} + {runner}" for runner, row in flows.items() for made, why in row.items() if not why]
    console.print(f"workflow run carries out plans on {', '.join(able)}")
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


_ROOMY = 110
"""Characters of a terminal in which capabilities have a column of their own; in others their names would be broken."""

_NARROW = 80
"""Characters of a terminal below which there is no room for where a part is from."""


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One key that a part understands.

    Attributes:
        name: The key in the YAML.
        type: Its values, in words.
        default: What holds without it, as YAML writes it; empty where it must be given.
        required: True when it must be given.
        description: What it does.
    """

    name: str
    type: str
    default: str
    required: bool
    description: str


@dataclass(frozen=True, slots=True)
class PartRow:
    """One installed part.

    Attributes:
        kind: One of `tradewind.plugins.KINDS`.
        name: What the YAML calls it.
        summary: What it does, in one line.
        capabilities: What it can do besides its contract.
        package: The distribution that brings it.
        version: That distribution's version.
        settings: The keys that it understands.
        broken: Why it does not load; empty if it does.
    """

    kind: str
    name: str
    summary: str = ""
    capabilities: Sequence[str] = ()
    package: str = ""
    version: str = ""
    settings: Sequence[SettingRow] = ()
    broken: str = ""


def plugins_command(
    name: Annotated[
        str | None,
        typer.Argument(help="Show this part's settings.", show_default=False, autocompletion=completion.any_part),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            help="searcher, selector, catalogue, provisioner, runner, interpreter, store or planner.",
            metavar="KIND",
            autocompletion=completion.kinds,
        ),
    ] = None,
    matrix: Annotated[
        bool, typer.Option("--matrix", help="Show which provisioners and runners go together, and why others do not.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show the installed parts and what each can do.

    A part that does not load is listed with the reason.
    """
    from tradewind.cli.common import emit_json

    if matrix:
        from tradewind.errors import InputError

        if name is not None or kind is not None:
            raise InputError("--matrix shows all provisioners and runners", hint="leave the part and --kind out")
        print_matrix(as_json=as_json)
        return
    rows = part_rows(kind, name)
    if as_json:
        emit_json([asdict(row) for row in rows])
        return
    console = _console()
    if name is not None:
        for row in rows:
            _print_part(console, row)
    else:
        _print_table(console, rows)


def part_rows(kind: str | None = None, name: str | None = None) -> list[PartRow]:
    """The installed parts, by kind in the order of a trial's way, then by name.

    Args:
        kind: Only this kind.
        name: Only parts of this name; several kinds may have one.

    Raises:
        PluginError: There is no such kind, or no part of that name.
    """
    from tradewind import plugins

    kinds = plugins.KINDS if kind is None else (kind,)
    found = [(k, n) for k in kinds for n in plugins.names(k) if name in (None, n)]
    if name is not None and not found:
        raise _unknown(name, kinds)
    return [_row(k, n) for k, n in found]


def _unknown(name: str, kinds: Sequence[str]) -> Exception:
    from tradewind import plugins
    from tradewind.errors import PluginError
    from tradewind.utils.suggestions import did_you_mean

    known = sorted({n for k in kinds for n in plugins.names(k)})
    what = kinds[0] if len(kinds) == 1 else "part"
    return PluginError(f"there is no {what} named {name!r}", hint=did_you_mean(name, known, "installed:"))


def _row(kind: str, name: str) -> PartRow:
    from tradewind import plugins
    from tradewind.errors import PluginError

    package, version = plugins.origin(kind, name)
    try:
        part = plugins.load(kind, name)
    except PluginError as error:
        return PartRow(kind, name, package=package, version=version, broken=str(error))
    return PartRow(
        kind, name, part.summary(), part.capabilities(), package, version, tuple(setting_rows(part.Settings))
    )


def setting_rows(model: type[BaseModel]) -> list[SettingRow]:
    """The fields of a settings model, in the order they are declared."""
    rows = []
    for name, field in model.model_fields.items():
        required = field.is_required()
        default = "" if required else _default(field.get_default(call_default_factory=True))
        key = field.alias or name
        rows.append(SettingRow(key, type_words(field.annotation), default, required, field.description or ""))
    return rows


_WORDS: Mapping[Any, str] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "true or false",
    Path: "path",
    type(None): "null",
    Any: "anything",
}


def type_words(annotation: Any) -> str:
    """A type in a user's words: ``number``, ``list of text``, ``one of a, b``."""
    if isinstance(annotation, Hashable) and annotation in _WORDS:
        return _WORDS[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return type_words(arguments[0])
    if origin is typing.Literal:
        return "one of " + ", ".join(str(a) for a in arguments)
    if origin in (typing.Union, types.UnionType):
        words = dict.fromkeys(type_words(a) for a in arguments if a is not type(None))
        return " or ".join(words)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"mapping of {type_words(arguments[1])}"
    if isinstance(origin, type) and issubclass(origin, Sequence | set | frozenset):
        inner = [a for a in arguments if a is not Ellipsis]
        return "list of " + " or ".join(dict.fromkeys(type_words(a) for a in inner))
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return "one of " + ", ".join(str(choice.value) for choice in annotation)
    return str(getattr(annotation, "__name__", annotation))


def _default(value: Any) -> str:
    import json

    from pydantic_core import to_jsonable_python

    return json.dumps(to_jsonable_python(value, fallback=str), ensure_ascii=False)


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False)
    # A pipe gets one line a part, whatever its length: grep and awk come next.
    return console if console.is_terminal else Console(highlight=False, width=1000)


def _print_table(console: Console, rows: Sequence[PartRow]) -> None:
    from rich import box
    from rich.table import Table

    roomy, narrow = console.width >= _ROOMY, console.width < _NARROW
    titles = ["kind", "name", "what it does", *(["capabilities"] if roomy else []), *([] if narrow else ["from"])]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in titles:
        table.add_column(title, no_wrap=title in ("kind", "name", "from"), overflow="fold")
    for row in rows:
        summary = f"DOES NOT LOAD: {row.broken}" if row.broken else row.summary
        abilities = ", ".join(row.capabilities)
        middle = [summary, abilities] if roomy else [summary + (f"\ncan: {abilities}" if abilities else "")]
        came_from = [] if narrow else [f"{row.package} {row.version}".strip()]
        table.add_row(*(_plain(text) for text in (row.kind, row.name, *middle, *came_from)))
    console.print(table)


def _print_part(console: Console, row: PartRow) -> None:
    from rich import box
    from rich.table import Table

    came_from = f" ({row.package} {row.version})" if row.package else ""
    console.print(_plain(f"{row.kind} {row.name}{came_from}"), style="bold")
    if row.broken:
        console.print(_plain(f"does not load: {row.broken}"))
        return
    console.print(_plain(row.summary))
    if row.capabilities:
        console.print(_plain(f"can: {', '.join(row.capabilities)}"))
    if not row.settings:
        console.print("It has no settings.")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("setting", "type", "default", "what it does"):
        table.add_column(title, no_wrap=title == "setting", overflow="fold")
    for setting in row.settings:
        default = "required" if setting.required else setting.default
        table.add_row(*(_plain(t) for t in (setting.name, setting.type, default, setting.description)))
    console.print(table)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
