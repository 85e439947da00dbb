"""The template language of job files and applications: Jinja in a sandbox, with bounds on time and memory.

The words of other people's jobs are filled in on our machine. Whatever can grow has a bound before it grows: texts and
lists that are repeated, joined or nested, loops, powers, what methods and filters make, and the time that it all takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import wraps
from itertools import islice
from types import BuiltinMethodType
from typing import Any

from jinja2 import StrictUndefined, Template, nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import LoopContext, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_TEXT = 100_000
"""Characters that a word may have, and entries that anything may have on the way."""

_MAX_LOOP = 1_000
_MAX_PIECE = 10_000
"""What one operation may repeat: pieces can be put together, so each is smaller than the whole."""

_SECONDS = 2.0
_DEEPEST = 50
_MAX_INDENT = 16
_FILTERS = (
    *("abs", "capitalize", "count", "d", "default", "first", "float", "int", "join", "last", "length", "list"),
    *("lower", "max", "min", "round", "sort", "string", "sum", "tojson", "trim", "unique", "upper"),
)
_METHODS = frozenset(
    (
        *("capitalize", "casefold", "count", "endswith", "find", "get", "index", "isalnum", "isalpha", "isdigit"),
        *("items", "keys", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "rfind", "rpartition"),
        *("rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper", "values"),
    )
)
"""What their results hold is in what they are called on."""

_until: ContextVar[float] = ContextVar("until", default=float("inf"))


def rendered(template: Template, variables: Mapping[str, Any], most: int = MAX_TEXT) -> str:
    """A template with its variables filled in.

    Args:
        template: A template of `ENVIRONMENT`.
        variables: Its variables.
        most: Characters that it may give.

    Raises:
        SecurityError: It takes too long, or gives too much.
        TemplateError: It fails.
    """
    token = _until.set(time.monotonic() + _SECONDS)
    try:
        pieces, size = [], 0
        for piece in template.generate(variables):
            size += len(piece)
            if size > most:
                raise SecurityError(f"it gives more than {most} characters")
            pieces.append(piece)
        return "".join(pieces)
    finally:
        _until.reset(token)


class _Bounded(NodeTransformer):
    """Leads loops and ``~`` through filters of ours: the sandbox itself does not see them."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802  (named after the node)
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, "_steps", [], [], None, None, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        words = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(words, "join", [], [], None, None, lineno=node.lineno)


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja without anything that is not needed, and with bounds on what is left."""

    intercepted_binops = frozenset({"**", "*", "+", "%"})

    def __init__(self) -> None:
        super().__init__(
            undefined=StrictUndefined, finalize=_as_word, autoescape=False, keep_trailing_newline=True, optimized=False
        )
        self.globals = {"range": _short_range}
        known = {name: self.filters[name] for name in _FILTERS}
        own = {"join": _join, "list": _bounded, "replace": _replace, "sum": _sum, "tojson": _to_json(known["tojson"])}
        self.filters = {name: _watched(each) for name, each in (known | own | {"_steps": _steps}).items()}

    def bounded(self, source: str) -> Template:
        """A template whose loops and joins are bounded."""
        tree = _Bounded().visit(self.parse(source))
        return self.from_string(tree)

    def is_safe_callable(self, obj: Any) -> bool:
        """Only what gives no more than it was given."""
        if obj is _short_range or isinstance(getattr(obj, "__self__", None), LoopContext):
            return True
        return isinstance(obj, BuiltinMethodType) and obj.__name__ in _METHODS

    def wrap_str_format(self, value: Any) -> Any:
        """Formats make texts of any width."""
        if isinstance(value, BuiltinMethodType) and value.__name__ in ("format", "format_map"):
            raise SecurityError("text cannot be formatted with format()")
        return None

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Calculate, unless the result would be too large to hold."""
        _in_time()
        if operator == "**" and (abs(right) > 64 or abs(left) > 1e9):
            raise SecurityError(f"the power {left} ** {right} is too large")
        sized = [x for x in (left, right) if isinstance(x, str | list | tuple)]
        if operator == "*" and sized:
            times = right if sized[0] is left else left
            if _size(sized[0], _MAX_PIECE) * max(0, int(times)) > _MAX_PIECE:
                raise SecurityError("a repeated text is too long")
        if operator == "%" and isinstance(left, str):
            raise SecurityError("text cannot be formatted with %")
        if operator == "+" and sum(_size(x, MAX_TEXT) for x in sized) > MAX_TEXT:
            raise SecurityError("a text is too long")
        return super().call_binop(context, operator, left, right)


def _in_time() -> None:
    if time.monotonic() > _until.get():
        raise SecurityError("it takes too long")


def _size(value: Any, most: int, depth: int = 0) -> int:
    """Characters and entries of a value, a shared part as often as it stands there; above ``most``, any number."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, int):
        return 1 + value.bit_length() // 3
    if isinstance(value, Mapping):
        value = value.items()
    elif not isinstance(value, list | tuple | set | frozenset):
        return 1
    if depth > _DEEPEST:
        raise SecurityError("a list is nested too deeply")
    total = 1
    for entry in value:
        total += 1 + _size(entry, most - total, depth + 1)
        if total > most:
            break
    return total


def _held(value: Any) -> Any:
    if _size(value, MAX_TEXT) > MAX_TEXT:
        raise SecurityError("a text is too long")
    return value


def _watched(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that begins only while there is time, on values that can be held."""

    @wraps(function)
    def watched(*arguments: Any, **named: Any) -> Any:
        _in_time()
        for each in (*arguments, *named.values()):
            if not isinstance(each, Undefined):
                _held(each)
        return function(*arguments, **named)

    return watched


def _as_word(value: Any) -> Any:
    """Booleans the way that YAML writes them; the sandbox writes nothing that is too large."""
    return str(value).lower() if isinstance(value, bool) else _held(value)


def _steps(values: Iterable[Any]) -> Iterator[Any]:
    """Items that a loop goes through."""
    for count, value in enumerate(values):
        if count >= _MAX_LOOP:
            raise SecurityError(f"a loop is limited to {_MAX_LOOP} steps")
        _in_time()
        yield value


def _short_range(*arguments: int) -> range:
    numbers = range(*arguments)
    if len(numbers) > _MAX_LOOP:
        raise SecurityError(f"range is limited to {_MAX_LOOP} numbers")
    return numbers


def _bounded(values: Iterable[Any]) -> list[Any]:
    found = list(islice(values, MAX_TEXT + 1))
    if len(found) > MAX_TEXT:
        raise SecurityError("a list is too long")
    return found


def _join(values: Iterable[Any], d: str = "", attribute: None = None) -> str:
    if attribute is not None:
        raise SecurityError("join takes no attribute")
    words = [str(_held(value)) for value in _bounded(values)]
    if sum(map(len, words)) + len(str(d)) * len(words) > MAX_TEXT:
        raise SecurityError("a text is too long")
    return str(d).join(words)


def _replace(text: str, old: str, new: str) -> str:
    if str(text).count(str(old)) * len(str(new)) > MAX_TEXT:
        raise SecurityError("a text is too long")
    return str(text).replace(str(old), str(new))


def _sum(values: Iterable[Any], attribute: None = None, start: float = 0) -> Any:
    if attribute is not None or not isinstance(start, int | float):
        raise SecurityError("sum adds numbers")
    return sum(_bounded(values), start)


def _to_json(written: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(written)
    def to_json(*arguments: Any, **named: Any) -> Any:
        indent = named.get("indent", arguments[2] if len(arguments) > 2 else None)
        if indent is not None and not (isinstance(indent, int) and indent <= _MAX_INDENT):
            raise SecurityError(f"an indent is limited to {_MAX_INDENT}")
        return written(*arguments, **named)

    return to_json


ENVIRONMENT = _Environment()
"""Where templates are read."""
