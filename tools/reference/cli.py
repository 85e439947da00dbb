"""cli.md: every command with its arguments and options, read from the functions that typer calls."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any

import typer
from typer.models import ArgumentInfo, OptionInfo

from reference.text import code_marks, page, table
from tradewind.cli.plugins import type_words

INTRO = """\
`tradewind --help` lists the commands, `tradewind COMMAND --help` says the same as this page.

All commands keep their data in the folder that `TRADEWIND_HOME` names, or in the user's data folder, and their store at
`TRADEWIND_STORE`, or in an SQLite file in that folder. Messages go to the standard error, results to the standard
output. The exit codes are those of [errors.md](errors.md)."""


def write() -> str:
    """The page."""
    from tradewind.cli.app import app

    commands = dict(sorted(_commands(app)))
    rows = [
        [f"[`{name}`](#tradewind-{name.replace(' ', '-')})", _help(callback)[0]] for name, callback in commands.items()
    ]
    overview = table(["command", "what it does"], rows)
    return page("Commands", INTRO, overview, *(_section(name, callback) for name, callback in commands.items()))


def _commands(app: typer.Typer, above: str = "") -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every command with its function; a group that does something without a further word is one too."""
    for command in app.registered_commands:
        if command.callback is not None and not command.hidden:
            yield f"{above}{command.name or command.callback.__name__}", command.callback
    for group in app.registered_groups:
        inner = group.typer_instance
        if inner is None:
            continue
        name = f"{above}{group.name}"
        own = inner.registered_callback
        if own is not None and own.callback is not None:
            yield name, own.callback
        yield from _commands(inner, f"{name} ")


def _help(callback: Any) -> list[str]:
    paragraphs = code_marks((inspect.getdoc(callback) or "").partition("\nArgs:")[0]).strip().split("\n\n")
    return [" ".join(paragraph.split()) for paragraph in paragraphs]


def _section(name: str, callback: Any) -> str:
    arguments, options = [], []
    usage = ["tradewind", name]
    for parameter in _parameters(callback):
        if parameter["kind"] == "argument":
            usage.append(parameter["name"] if parameter["required"] else f"[{parameter['name']}]")
            arguments.append([f"`{parameter['name']}`", parameter["type"], parameter["default"], parameter["help"]])
        else:
            options.append([f"`{parameter['name']}`", parameter["type"], parameter["default"], parameter["help"]])
    usage.append("[OPTIONS]")
    titles = ["type", "default", "what it does"]
    blocks = [
        f"## tradewind {name}",
        "\n\n".join(_help(callback)),
        "```text\n" + " ".join(usage) + "\n```",
        table(["argument", *titles], arguments),
        table(["option", *titles], options),
    ]
    return "\n\n".join(block for block in blocks if block)


def _parameters(callback: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    hints = typing.get_type_hints(callback, include_extras=True)
    for name, parameter in inspect.signature(callback).parameters.items():
        kind, *notes = (
            typing.get_args(hints[name]) if typing.get_origin(hints[name]) is typing.Annotated else [hints[name]]
        )
        info = next((note for note in notes if isinstance(note, OptionInfo | ArgumentInfo)), None)
        if info is None or info.hidden:
            continue
        required = parameter.default is inspect.Parameter.empty
        yield {
            "kind": "argument" if isinstance(info, ArgumentInfo) else "option",
            "name": _argument_name(name, info) if isinstance(info, ArgumentInfo) else _option_name(name, info, kind),
            "type": "" if kind is bool else _type(kind),
            "required": required,
            "default": _default(parameter.default, required=required),
            "help": " ".join((info.help or "").split()),
        }


def _argument_name(name: str, info: ArgumentInfo) -> str:
    return (info.metavar if isinstance(info.metavar, str) else name).upper()


def _option_name(name: str, info: OptionInfo, kind: Any) -> str:
    word = "--" + name.replace("_", "-")
    # In Annotated, typer keeps the first name that is given where a default would stand.
    given = [d for d in (info.default, *(info.param_decls or ())) if isinstance(d, str) and d.startswith("-")]
    names = given or [f"{word}/--no-{name.replace('_', '-')}" if kind is bool else word]
    return ", ".join(names)


def _type(kind: Any) -> str:
    return type_words(kind)


def _default(default: Any, *, required: bool) -> str:
    if required:
        return "required"
    if default is None or default is False or default in ((), [], ""):
        return ""
    return f"`{default}`"
