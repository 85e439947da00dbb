"""Functions and classes of the user's own, named in a job YAML: found, loaded and called."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import math
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from tradewind.errors import TradewindError
from tradewind.utils.paths import expand

_LONGEST = 80
"""Characters of a value in the words of an error."""


def check_function_reference(reference: str) -> str:
    """The reference itself, if it names a function.

    Raises:
        ValueError: It names none.
    """
    place, colon, function = reference.rpartition(":")
    if not colon or not place or not function.isidentifier():
        raise ValueError(f"{reference!r} names no function; write path/to/file.py:function or module:function")
    return reference


def is_reference(name: str) -> bool:
    """True for ``path/to/file.py:Name`` and ``module:Name``, false for a plain name."""
    place, colon, thing = name.rpartition(":")
    return bool(colon and place) and thing.isidentifier()


def anchored_reference(reference: str, base: Path) -> str:
    """A reference whose file is absolute; modules and plain names stay.

    Args:
        reference: See `is_reference`.
        base: The folder that a file is seen from.
    """
    place, _, thing = reference.rpartition(":")
    if not is_reference(reference) or not place.endswith(".py"):
        return reference
    return f"{(base / expand(place)).absolute()}:{thing}"


def load_object(reference: str, base: Path) -> Any:
    """Load what a reference names.

    Args:
        reference: See `is_reference`.
        base: The folder that a file is seen from.

    Raises:
        UserFunctionError: It is not there, or its file does not load.
    """
    place, _, name = reference.rpartition(":")
    path = (base / place).absolute() if place.endswith(".py") else None
    if path is not None and not path.is_file():
        raise UserFunctionError(f"there is no file {path}")
    with _search_path(path.parent if path else base), contextlib.redirect_stdout(sys.stderr):
        try:
            module = _load(path) if path else importlib.import_module(place)
        except (Exception, SystemExit) as error:
            raise UserFunctionError(_last_line(error, path)) from None
    if not hasattr(module, name):
        raise UserFunctionError(f"{path or place} has no {name}")
    return getattr(module, name)


class JobRelativePath:
    """Marks a setting whose text begins with a path that is seen from the folder of the job YAML."""


FunctionReference = Annotated[str, AfterValidator(check_function_reference), JobRelativePath()]
"""``path/to/file.py:function`` or ``module:function``."""


class UserFunctionError(Exception):
    """A function is not there, does not load, or raised; where and what, in one line. Whoever calls it says so."""


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function of the user's.

    What it prints goes to the standard error; the file may import its neighbours.

    Attributes:
        reference: See `FunctionReference`.
        base: The folder that a file is seen from.
        passed: What the function may raise on purpose: it comes out as it is.
    """

    reference: str
    base: Path
    passed: type[Exception] | tuple[()] = ()

    def __call__(self, *arguments: Any) -> Any:
        """Call it with all arguments, or with as many of the first as it takes.

        Raises:
            OwnCodeError: It is not there, does not load, or raised.
        """
        place, _, name = self.reference.rpartition(":")
        path = (self.base / place).absolute() if place.endswith(".py") else None
        if path is not None and not path.is_file():
            raise UserFunctionError(f"there is no file {path}")
        with _search_path(path.parent if path else self.base), contextlib.redirect_stdout(sys.stderr):
            try:
                function = getattr(_load(path) if path else importlib.import_module(place), name, None)
                if callable(function):
                    return function(*arguments[: _taken(function, len(arguments))])
            except self.passed:
                raise
            except (Exception, SystemExit) as error:
                raise UserFunctionError(_last_line(error, path)) from None
        raise UserFunctionError(f"there is no function {name}")


def _load(path: Path) -> Any:
    """Run a file as a module of its own; the same file content is run once in a process."""
    stat = path.stat()
    mark = hashlib.sha256(repr((str(path), stat.st_mtime_ns, stat.st_size)).encode()).hexdigest()[:16]
    name = f"_tradewind_user_{mark}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextlib.contextmanager
def _search_path(folder: Path) -> Iterator[None]:
    """Let the user's file import its neighbours, and leave ``sys.path`` as it was."""
    before = list(sys.path)
    sys.path.insert(0, str(folder.absolute()))
    try:
        yield
    finally:
        sys.path[:] = before


def _taken(function: Callable[..., Any], offered: int) -> int:
    """Number of the given arguments that a function takes; one where that cannot be found out."""
    for count in range(offered, 1, -1):
        try:
            inspect.signature(function).bind(*[None] * count)
        except (TypeError, ValueError):
            continue
        return count
    return 1


def _last_line(error: BaseException, path: Path | None) -> str:
    """``file:line: Error: message``, the place being the innermost one in the user's file."""
    mine = isinstance(error, TradewindError)
    words = str(error) if mine else traceback.format_exception_only(error)[-1].strip()
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if path is not None and frame.filename == str(path)]
    python = (__file__, importlib.__file__)  # where a module is looked for says nothing
    foreign = [frame for frame in frames if frame.filename not in python and not frame.filename.startswith("<frozen")]
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: {words}"
    if own or foreign:
        frame = (own or foreign)[-1]
        return f"{frame.filename}:{frame.lineno}: {words}"
    return words


def exception_words(error: BaseException) -> str:
    """``ValueError: no data``: the kind of an exception and the first line of what it says, if it can say anything."""
    try:
        said = str(error).partition("\n")[0].strip()
    except Exception:  # an exception of the user's own may fail at that
        said = ""
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def exit_words(error: SystemExit) -> str:
    """Words for the end of a function that has called ``sys.exit``, whatever the code."""
    return f"it called sys.exit({'' if error.code is None else _shown(error.code)})"


def returned_metrics(value: Any, metric: str) -> dict[str, float]:
    """The metrics that a function for trials has returned, as numbers; the same wherever it is called.

    Args:
        value: What it has returned: a number, a mapping of metrics, or None.
        metric: The objective's metric, which a bare number is a value of; empty where it is none of the function's.

    Raises:
        UserFunctionError: It is something else, or the objective's value is not finite.
    """
    if value is None or (not metric and not isinstance(value, Mapping)):
        return {}
    if not isinstance(value, Mapping):
        return {metric: _figure(value, "", finite=True)}
    found = {}
    for name, one in value.items():
        if not isinstance(name, str) or not name:
            raise UserFunctionError(f"it returned a metric that is called {_shown(name)}, and names are text")
        found[name] = _figure(one, f"{name}=", finite=name == metric)
    return found


def _figure(value: Any, named: str, *, finite: bool) -> float:
    try:
        if isinstance(value, str | bytes):
            raise TypeError  # float() would read some of them
        number = float(value)
    except OverflowError:
        raise UserFunctionError(f"it returned {named}{_shown(value)}, which is too large for a number") from None
    except Exception:  # an object of the user's own may raise anything
        raise UserFunctionError(f"it returned {named}{_shown(value)}, which is no number") from None
    if finite and not math.isfinite(number):
        raise UserFunctionError(f"it returned {named}{number}, which is no finite number")
    return number


def _shown(value: Any) -> str:
    try:
        words = " ".join(repr(value).split())
    except Exception:  # an object of the user's own, or a whole number of thousands of digits
        words = f"an object of type {type(value).__name__}"
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 3]}..."
