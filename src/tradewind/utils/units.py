"""Durations, money and memory, as people write them and as they read them; numbers as any reader of JSON takes them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from tradewind.errors import InputError

_DURATION = {"ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_MEMORY = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "k": 2**10,
    "m": 2**20,
    "g": 2**30,
    "t": 2**40,
}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]+)")
_CENT = 0.01
_THOUSANDS = re.compile(r"(?<![\d,])(?<!\d\.)\d{1,3}(?:,\d{3})+(?![\d,])|(?<![\w,])(?<!\d\.)\d+(?:_\d+)+(?![\w,])")


def without_thousands(text: str) -> str:
    """A text without what groups the digits of its numbers: ``$1,000`` and ``$1_000`` become ``$1000``."""
    return _THOUSANDS.sub(lambda match: re.sub("[,_]", "", match[0]), text)


def parse_duration(text: str | float) -> float:
    """Seconds of ``90m``, ``2h30m``, ``1.5h``, ``45 s`` or a bare number of seconds.

    Raises:
        InputError: It is not a duration.
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        seconds = _as_float(text)
    else:
        plain = without_thousands(str(text).strip().lower())
        if re.fullmatch(r"\d+(\.\d+)?", plain):
            seconds = float(plain)
        else:
            parts = _PART.findall(plain)
            rest = re.sub(r"\s", "", _PART.sub("", plain))
            if not parts or rest or any(unit not in _DURATION for _, unit in parts):
                raise InputError(f"{text!r} is not a duration", hint="write 90s, 45m, 2h30m or a number of seconds")
            seconds = sum(float(number) * _DURATION[unit] for number, unit in parts)
    if not math.isfinite(seconds) or seconds < 0:
        raise InputError(f"{text!r} is not a duration", hint="it must be zero or more")
    return seconds


def parse_money(text: str | float) -> float:
    """USD of ``$2``, ``2.50``, ``2 USD``, ``USD 2``, ``50c`` or a number.

    Raises:
        InputError: It is not an amount of money.
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        amount = _as_float(text)
    else:
        match = re.fullmatch(
            r"(?:usd|(?:us)?\$)?\s*(\d+(?:[\d_]*\d)?(?:\.\d+)?|\.\d+)\s*(usd|\$|c|ct|cents?|¢)?",
            without_thousands(str(text).strip().lower()),
        )
        if not match:
            raise InputError(f"{text!r} is not an amount of money", hint="write $2.50 or 2.5")
        amount = float(match[1].replace("_", "")) / (100.0 if (match[2] or "").startswith(("c", "¢")) else 1.0)
    if not math.isfinite(amount) or amount < 0:
        raise InputError(f"{text!r} is not an amount of money", hint="it must be zero or more")
    return amount


def parse_memory(text: str | float) -> int:
    """Bytes of ``512MiB``, ``4GiB``, ``2GB`` or a number of GiB.

    Raises:
        InputError: It is not an amount of memory.
    """
    if isinstance(text, int | float) and not isinstance(text, bool):
        number, unit = _as_float(text), "gib"
    else:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", without_thousands(str(text).strip()))
        if not match or (match[2].lower() or "gib") not in _MEMORY:
            raise InputError(f"{text!r} is not an amount of memory", hint="write 512MiB, 4GiB or a number of GiB")
        number, unit = float(match[1]), match[2].lower() or "gib"
    size = number * _MEMORY[unit]
    if not math.isfinite(size) or size < 0:
        raise InputError(f"{text!r} is not an amount of memory", hint="it must be zero or more")
    return int(size)


def _as_float(number: float) -> float:
    """A number as a float; one that none is large enough for is infinite, as one that is written as a text."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def count(number: float, one: str) -> str:
    """``1 trial``, ``1,500 trials``: how many there are of a thing whose plural ends in s."""
    shown = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{shown} {one}" if number == 1 else f"{shown} {one}s"


def shortened(text: str, most: int) -> str:
    """A text of at most ``most`` characters: a longer one loses its middle, for names often differ at their ends."""
    if len(text) <= most:
        return text
    end = (most - 1) // 3
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"


_LONGEST = 100
"""Characters of one value of a configuration."""


def listed(names: Sequence[str], most: int = 4, longest: int = 60) -> str:
    """Some names, and how many more there are: ``a, b, c, d and 12 more``.

    Args:
        names: The names.
        most: How many are written out; one more, where that is all.
        longest: Characters of each.
    """
    shown = most if len(names) > most + 1 else len(names)
    more = f" and {len(names) - shown:,} more" if len(names) > shown else ""
    return ", ".join(shortened(name, longest) for name in names[:shown]) + more


def format_setting(value: Any) -> str:
    """One value of a configuration, short; numbers are cut to four digits that mean something."""
    if isinstance(value, bool) or not isinstance(value, float):
        return shortened(str(value), _LONGEST)
    return str(int(value)) if value.is_integer() and abs(value) < 1e9 else f"{value:.4g}"


def format_settings(configuration: Mapping[str, Any]) -> str:
    """A configuration on one line."""
    return " ".join(f"{name}={format_setting(value)}" for name, value in configuration.items())


def printable(words: str) -> str:
    """Text without control characters, which could change what a terminal or a page shows beside it."""
    return words if words.isprintable() else "".join(c if c.isprintable() else "·" for c in words)


def format_duration(seconds: float | None) -> str:
    """``0.42 s``, ``7.3 s``, ``1m 30s``, ``2h 05m``; ``-`` for None."""
    if seconds is None or math.isnan(seconds):
        return "-"
    if math.isinf(seconds):
        return "no limit"
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if seconds < 1:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    minutes = round(seconds / 60)
    return f"{minutes // 60}h {minutes % 60:02d}m"


def format_number(value: float, digits: int | None = None) -> str:
    """``1,234,567``, ``0.00125``, ``-2.5``: all digits of a number, those before the point in groups of three.

    Args:
        value: The number.
        digits: So many digits that mean something are kept after the point at most; all without it.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, float) and digits is not None and value:
        value = round(value, max(0, digits - 1 - math.floor(math.log10(abs(value)))))
    if isinstance(value, float) and not 1e-5 <= abs(value) < 1e15 and value:
        return f"{value:.{(digits or 17) - 1}e}" if digits is not None else repr(value)
    whole, point, rest = f"{Decimal(repr(value)):,f}".partition(".")
    rest = rest.rstrip("0")
    return f"{whole}{point}{rest}" if rest else whole


def format_money(usd: float | None) -> str:
    """``$12.30``, ``$0.0421``, and below a cent ``0.421¢``: three digits that mean something; ``-`` for None."""
    if usd is None or math.isnan(usd):
        return "-"
    if math.isinf(usd):
        return "no limit"
    if usd < 0:
        return "-" + format_money(-usd)
    if usd == 0 or usd >= 1:
        return f"${usd:,.2f}"
    if usd >= _CENT:
        return f"${usd:.{max(2, 2 - math.floor(math.log10(usd)))}f}"
    cents = 100.0 * usd
    digits = min(7, 2 - math.floor(math.log10(cents)))
    return f"{cents:.{digits}f}".rstrip("0").rstrip(".") + "¢"


def runs_of_unit(usd: float | None) -> int:
    """Number of runs whose bill is a readable amount, 1, 1,000 or 1,000,000: what costs less than a cent is for many.

    Args:
        usd: Cost of a run that is usual for what is written, or None.
    """
    if usd is None or not 0.0 < usd < _CENT:
        return 1
    return 1000 if usd * 1000.0 >= _CENT else 1_000_000


def format_bill(usd: float | None, words: str = "", *, beside: float | None = None) -> str:
    """The cost of a run: ``$0.0421 this run``, and where that is less than a cent ``$4.21 per 1,000 runs``.

    Args:
        usd: USD of one run, or None.
        words: Words behind the cost of a single run.
        beside: Cost of another run, in whose unit it is written to be compared with it.
    """
    runs = runs_of_unit(usd if beside is None else beside)
    if usd is None or runs == 1:
        return f"{format_money(usd)} {words}".rstrip()
    return f"{format_money(usd * runs)} per {runs:,} runs"


def bill_column(costs: Iterable[float | None]) -> tuple[str, Callable[[float | None], str]]:
    """The heading of a column of costs of runs, and how each is written: ``this run``, or ``1,000 runs``.

    Args:
        costs: USD of a run in each line; their median says for how many runs a readable amount is.
    """
    known = sorted(cost for cost in costs if cost is not None and math.isfinite(cost) and cost > 0)
    runs = runs_of_unit(known[len(known) // 2] if known else None)
    heading = "this run" if runs == 1 else f"{runs:,} runs"
    return heading, lambda usd: format_money(None if usd is None else usd * runs)


def format_memory(count: float | None) -> str:
    """``512 MiB``, ``1.5 GiB``; ``-`` for None."""
    if count is None or math.isnan(count):
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if count >= 100 or unit == "B" else f"{count:.3g} {unit}"
        count /= 1024
    raise AssertionError  # pragma: no cover


def json_safe(document: Any) -> Any:
    """A document that any reader of JSON takes: what is no finite number is null, and keys are texts.

    Args:
        document: Mappings, lists and plain values.
    """
    if isinstance(document, float):
        return document if math.isfinite(document) else None
    if isinstance(document, Mapping):
        return {str(key): json_safe(value) for key, value in document.items()}
    return [json_safe(value) for value in document] if isinstance(document, list | tuple) else document
