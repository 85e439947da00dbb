"""python.md: the public names of the package."""

from __future__ import annotations

import dataclasses
import inspect
from functools import cached_property
from typing import Any

import tradewind
from reference.text import docstring, first_line, page, table

INTRO = """\
These names are public: `from tradewind import ...`. They keep their meaning within a major version. Authors of parts
also import the contracts (`tradewind.searcher.base`, `tradewind.deployer.runner.base`, ...), `tradewind.plugins`,
`tradewind.problem`, `tradewind.errors` and the conformance suites of `tradewind.testing`."""


def write() -> str:
    """The page."""
    names = tradewind.__all__
    things = {name: tradewind.__getattr__(name) for name in names if not name.startswith("__")}
    rows = [[f"[`{name}`](#{name.lower()})", first_line(thing)] for name, thing in things.items()]
    return page("Python", INTRO, table(["name", "what it is"], rows), *(_section(n, t) for n, t in things.items()))


def _section(name: str, thing: Any) -> str:
    if inspect.isclass(thing):
        return _class(name, thing)
    if callable(thing):
        return f"## {name}\n\n```text\n{name}{_signature(thing)}\n```\n\n{docstring(thing)}"
    return f"## {name}\n\n{docstring(thing) if not isinstance(thing, str | int | float) else f'`{thing!r}`'}"


def _class(name: str, thing: type) -> str:
    blocks = [f"## {name}"]
    if not issubclass(thing, BaseException) or "__init__" in vars(thing):
        blocks.append(f"```text\n{name}{_signature(thing)}\n```")
    blocks.append(docstring(thing))
    fields = {field.name for field in dataclasses.fields(thing)} if dataclasses.is_dataclass(thing) else set()
    for member, value in vars(thing).items():
        if member.startswith("_") or member in fields:
            continue
        value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if isinstance(value, property | cached_property):
            blocks.append(f"### {name}.{member}\n\n{docstring(value)}")
        elif inspect.isfunction(value):
            blocks.append(f"### {name}.{member}\n\n```text\n{member}{_signature(value)}\n```\n\n{docstring(value)}")
    return "\n\n".join(blocks)


def _signature(thing: Any) -> str:
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return "(...)"
    kept = [p.replace(default=p.default if _plain(p.default) else ...) for p in signature.parameters.values()]
    kept = [p for p in kept if p.name not in ("self", "cls")]
    return str(signature.replace(parameters=kept)).replace("'", "").replace("~", "")


def _plain(default: Any) -> bool:
    """True for a default whose text is the same in every process and Python version."""
    return (
        default is inspect.Parameter.empty or default is None or isinstance(default, str | int | float | bool | tuple)
    )
