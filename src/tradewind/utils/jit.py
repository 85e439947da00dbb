"""Compiles functions with numba where it is installed (the extra ``fast``).

Where it is not, the functions run as they stand: the same statements in the same order, so the same results. Compiled
code is kept beside the source, or in the user's cache folder where that cannot be written.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

try:
    _numba: Any = importlib.import_module("numba")
except ImportError:
    _numba = None

COMPILED = _numba is not None and not _numba.config.DISABLE_JIT
"""Whether functions are compiled."""


def njit(function: F) -> F:
    """Compile a function of numbers and arrays."""
    return _compiled(function)


def njit_inline(function: F) -> F:
    """As `njit`, for small innermost parts: to pass arrays to a function costs more than these functions do."""
    return _compiled(function, inline="always")


def _compiled(function: F, **options: Any) -> F:
    if not COMPILED:
        return function
    options |= {"nogil": True, "error_model": "numpy"}
    try:
        compiled: F = _numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder for the cache can be written, not even the user's: compile in each process
        compiled = _numba.njit(**options)(function)
    return compiled
