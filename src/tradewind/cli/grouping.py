"""Options in groups: a command takes a few dataclasses where its user sees many options."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


def group_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command for typer: each parameter that is a dataclass is replaced by the fields of that dataclass.

    Args:
        command: The function. Fields are annotated, and have defaults, as typer's parameters are and have; names of
            fields and of the other parameters differ from each other.

    Returns:
        A function that takes every option by itself, in the order in which they stand, and calls the command.
    """
    hints = get_type_hints(command, include_extras=True)
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type, list[str]]] = {}
    for name, one in inspect.signature(command).parameters.items():
        kind = hints[name]
        if not dataclasses.is_dataclass(kind):
            parameters.append(one.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        assert isinstance(kind, type)
        types = get_type_hints(kind, include_extras=True)
        groups[name] = kind, [each.name for each in dataclasses.fields(kind)]
        for each in dataclasses.fields(kind):
            default = inspect.Parameter.empty if each.default is dataclasses.MISSING else each.default
            parameters.append(
                inspect.Parameter(
                    each.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[each.name]
                )
            )

    def call(**given: Any) -> None:
        made = {group: kind(**{name: given.pop(name) for name in names}) for group, (kind, names) in groups.items()}
        command(**made, **given)

    call.__name__, call.__doc__, call.__module__ = command.__name__, command.__doc__, command.__module__
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call
