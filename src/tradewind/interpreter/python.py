"""Metrics that a function of the user's computes."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import math
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from tradewind.errors import InterpretationError
from tradewind.interpreter.base import Interpreter
from tradewind.plugins import Settings
from tradewind.problem import RunOutput, stable_hash


def _check_reference(reference: str) -> str:
    place, colon, function = reference.rpartition(":")
    if not colon or not place or not function.isidentifier():
        raise ValueError(f"{reference!r} names no function; write path/to/file.py:function or module:function")
    return reference


class PythonSettings(Settings):
    """Settings of `PythonInterpreter`."""

    function: Annotated[str, AfterValidator(_check_reference)] = Field(
        description="path/to/file.py:function (from the folder of the job YAML) or module:function"
    )


class PythonInterpreter(Interpreter):
    """Calls your own function with what the run left behind; it returns a mapping of metric names to numbers.

    The function takes the `RunOutput` and, if it has a second parameter, the metrics read before. What it prints goes
    to the standard error.
    """

    Settings = PythonSettings
    settings: PythonSettings

    def interpret(self, output: RunOutput, metrics: Mapping[str, float]) -> Mapping[str, float]:
        """Call the function.

        Raises:
            InterpretationError: ``user-code`` if it does not load, raises, or returns something else;
                ``not-a-number`` if a value is not finite.
        """
        name = self.settings.function
        place, _, attribute = name.rpartition(":")
        path = (self.base / place).absolute() if place.endswith(".py") else None
        if path is not None and not path.is_file():
            raise InterpretationError("user-code", f"python {name}: there is no file {path}")
        with _search_path(path.parent if path else self.base), contextlib.redirect_stdout(sys.stderr):
            try:
                function = self._function(path, place, attribute)
                result = function(output, dict(metrics)) if _takes_two(function) else function(output)
            except InterpretationError:
                raise
            except (Exception, SystemExit) as error:
                raise InterpretationError("user-code", f"python {name}: {_last_line(error, path)}") from None
        return _numbers(name, result)

    def _function(self, path: Path | None, module: str, attribute: str) -> Callable[..., Any]:
        loaded = _load(path) if path else importlib.import_module(module)
        function = getattr(loaded, attribute, None)
        if not callable(function):
            raise InterpretationError("user-code", f"python {self.settings.function}: there is no function {attribute}")
        checked: Callable[..., Any] = function
        return checked


def _load(path: Path) -> Any:
    """Run a file as a module of its own; the same file content is run once in a process."""
    name = f"_tradewind_user_{stable_hash([str(path), path.stat().st_mtime_ns, path.stat().st_size])}"
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


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except (TypeError, ValueError):
        return False
    return True


def _last_line(error: BaseException, path: Path | None) -> str:
    """``file:line: Error: message``, the place being the innermost one in the user's file."""
    words = traceback.format_exception_only(error)[-1].strip()
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if path is not None and frame.filename == str(path)]
    foreign = [frame for frame in frames if frame.filename != __file__ and not frame.filename.startswith("<frozen")]
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: {words}"
    if own or foreign:
        frame = (own or foreign)[-1]
        return f"{frame.filename}:{frame.lineno}: {words}"
    return words


def _numbers(name: str, result: object) -> dict[str, float]:
    if not isinstance(result, Mapping):
        raise InterpretationError(
            "user-code",
            f"python {name} returned {type(result).__name__}, not a mapping",
            hint='return {"score": 1.5}',
        )
    numbers: dict[str, float] = {}
    for key, value in result.items():
        try:
            number = math.nan if isinstance(value, str | bytes) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not isinstance(key, str) or not math.isfinite(number):
            raise InterpretationError(
                "not-a-number", f"python {name} returned {key!r}: {value!r}, which is not a finite number by name"
            )
        numbers[key] = number
    return numbers
