"""Coroutines in a thread of their own: a browser that other tests have opened keeps an event loop in the main one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run_apart(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns or raises."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
