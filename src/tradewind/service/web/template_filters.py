"""Filters of the templates: figures and moments as people read them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from markupsafe import Markup

from tradewind.problem import TrialState
from tradewind.reporting.charts.document import Chart, chart_json
from tradewind.reporting.words import percent
from tradewind.service.web.markdown import markdown
from tradewind.utils.units import format_bill, format_duration, format_memory, format_money

BADGES: dict[str, tuple[str, str, str]] = {
    "pending": ("quiet", "clock", "waiting"),
    "booting": ("work", "spin", "starting machines"),
    "bootstrapping": ("work", "spin", "preparing machines"),
    "submitting": ("work", "spin", "submitting"),
    "executing": ("work", "spin", "running"),
    "collecting": ("work", "spin", "collecting results"),
    "done": ("good", "check", "done"),
    "failed": ("bad", "cross", "failed"),
    "timed_out": ("bad", "clock", "timed out"),
    "preempted": ("warn", "bolt", "preempted"),
    "cancelled": ("quiet", "stop", "cancelled"),
    TrialState.SUCCEEDED.value: ("good", "check", "succeeded"),
    TrialState.ABORTED.value: ("warn", "stop", "cut short"),
    TrialState.LOST.value: ("quiet", "bolt", "lost"),
    "running": ("work", "spin", "running"),
    "waiting": ("quiet", "clock", "waiting"),
    "sending": ("work", "spin", "being sent"),
    "sent": ("good", "check", "sent"),
    "active": ("good", "check", "active"),
    "locked": ("bad", "lock", "locked"),
    "retired": ("quiet", "stop", "retired"),
    "finished": ("good", "check", "finished"),
    "stopped": ("warn", "stop", "stopped"),
    "interrupted": ("warn", "bolt", "interrupted"),
    "open": ("quiet", "clock", "not begun"),
    "queued": ("quiet", "clock", "queued"),
    "paused": ("warn", "stop", "paused"),
}
"""Badge of each state: kind, icon and word, so that none is distinguished by its colour alone."""


def badge_of(state: str) -> tuple[str, str, str]:
    """Return kind, icon and word of a state; one that is not known stands as it is."""
    return BADGES.get(state, ("quiet", "dot", state.replace("_", " ")))


def moment(seconds: float | None, style: str = "ago") -> Markup:
    """Write a moment as ``<time>``: in UTC here, and by the page's script in the reader's zone.

    Args:
        seconds: Since the epoch; None gives a dash.
        style: ``ago`` for "5 min ago", ``clock`` for the time of day with seconds, ``full`` for date and time.
    """
    if seconds is None:
        return Markup("&ndash;")
    iso = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    shown = iso[:10] + " " + iso[11 : 19 if style == "clock" else 16] + " UTC"
    return Markup('<time datetime="{}" data-when="{}">{}</time>').format(iso, style, shown)


def pretty(value: Any) -> str:
    """Write a document as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def setting(value: Any) -> str:
    """Write one value of a form or configuration, short; a number is all of it, as forms are read again."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return exact(value)
    if isinstance(value, Mapping) and "file" in value:
        return f"{value.get('name') or 'a file'} ({size(value.get('size'))})"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {setting(item)}" for name, item in value.items())
    return str(value)


def exact(number: float) -> str:
    """Write a number in the shortest text that is read as the same: ``1234567.5``, ``2``, ``0.00001``."""
    text = repr(float(number))
    if "e" in text and 1e-9 <= abs(number) < 1e15:
        text = f"{Decimal(text):f}"
    return text.removesuffix(".0")


def rounded(value: Any) -> str:
    """Write one value of a configuration that a search found; long numbers are cut to four significant digits."""
    text = setting(value)
    return f"{value:.4g}" if isinstance(value, float) and len(text.lstrip("-0.")) > _DIGITS else text


_DIGITS = 9
"""Digits that somebody may have written; values drawn from a range have more."""


def short(seconds: float | None) -> str:
    """Write a duration without a part that says nothing: ``20m``, ``2h``, ``5m 46s``."""
    if seconds is not None and seconds < 0.05:
        return "0 s"
    if seconds is not None and 1 <= seconds < 60:
        return f"{seconds:.0f} s"
    words = format_duration(seconds)
    return words.removesuffix(" 00s").removesuffix(" 00m")


def size(count: float | None) -> str:
    """Write bytes as people do."""
    return format_memory(count)


def shown_values(form: Any) -> dict[str, Any]:
    """Return the values of a form's fields before anything is typed in."""
    return {one.name: "" if one.default is None else one.default for one in form.fields}


def options(field: Any) -> list[tuple[Any, str]]:
    """List the choices of a form's field, with their words; one that must be chosen begins with none."""
    first = [("", "choose...")] if field.default is None else []
    return first + [(_option(choice), setting(choice)) for choice in field.choices]


def chosen(field: Any, value: Any) -> str:
    """Find the one of `options` that a value is, however it was written: ``true`` of a document is ``1`` of a form."""
    for choice in field.choices:
        if choice == value or (isinstance(value, str) and value in (_option(choice), str(choice))):
            return _option(choice)
    return str(value)


def _option(choice: Any) -> str:
    """Write a choice as a form sends it: truth as 1 and 0, like the boxes to tick."""
    return str(int(choice)) if isinstance(choice, bool) else str(choice)


_BROWSERS = (("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari"))
_SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS", "macOS"),
    ("Linux", "Linux"),
)


def agent(text: str) -> str:
    """Name a browser in two words; programs stand as they are."""
    browser = next((name for mark, name in _BROWSERS if mark in text), "")
    system = next((name for mark, name in _SYSTEMS if mark in text), "")
    if not browser:
        return text[:60] or "unknown"
    return f"{browser} on {system}" if system else browser


_GOALS = {"minimise cost": "the lowest cost", "minimise runtime": "the shortest run time"}


def goal(objective: str) -> str:
    """Write ``minimise cost`` as the goal of a person."""
    return _GOALS.get(objective, objective.replace("minimise", "the lowest").replace("maximise", "the highest"))


def backend_option(backend: Any) -> tuple[str, str]:
    """Write a backend to choose: its name and its title."""
    return backend.name, backend.title or backend.name


def charts_json(charts: Sequence[Chart]) -> str:
    """Write charts as JSON, for an attribute that a script reads."""
    return json.dumps([chart_json(chart) for chart in charts])


FILTERS = {
    "charts_json": charts_json,
    "markdown": markdown,
    "money": format_money,
    "bill": format_bill,
    "duration": short,
    "size": size,
    "moment": moment,
    "pretty": pretty,
    "setting": setting,
    "chosen": chosen,
    "exact": exact,
    "rounded": rounded,
    "agent": agent,
    "badge_of": badge_of,
    "backend_option": backend_option,
    "goal": goal,
    "options": options,
    "shown_values": shown_values,
    "percent": percent,
}
"""All filters, by the name that templates use."""
