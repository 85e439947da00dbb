"""Puts charts into a page of one file: the library, the scripts and the data, with a policy that allows no others."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from tradewind.reporting.charts import ASSETS
from tradewind.reporting.charts.document import Chart, ParallelChart, chart_json

_SCRIPTS = ("theme.js", "words.js", "view.js", "chart.js", "parallel.js", "report.js")
_IMPORT = re.compile(r"^import .*\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=const|function|class)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class EmbeddedCharts:
    """The parts of a page with charts, as text that belongs into its elements unescaped.

    Attributes:
        policy: What the page's Content-Security-Policy says of scripts.
        style: Style sheet.
        library: Script of the library, for an element before the others.
        script: Script that draws the charts, for an element with ``type="module"`` at the end.
        data: The charts as JSON, for the element with the id ``charts``.
    """

    policy: str
    style: str
    library: str
    script: str
    data: str


def embed(charts: Mapping[str, Chart | ParallelChart]) -> EmbeddedCharts:
    """Return what a page needs to draw charts where its elements have their names as ``data-chart``."""
    library, script, style = _assets()
    policy = " ".join(f"'sha256-{_digest(text)}'" for text in (library, script))
    data = json.dumps({name: chart_json(chart) for name, chart in charts.items()}, allow_nan=False)
    return EmbeddedCharts(f"script-src {policy}", style, library, script, data.replace("<", "\\u003c"))


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _assets() -> tuple[str, str, str]:
    """The library, all scripts as one, and the style sheet."""
    library, style = ((ASSETS / name).read_text("utf-8") for name in ("echarts.js", "chart.css"))
    parts = [(ASSETS / name).read_text("utf-8") for name in _SCRIPTS]
    return library.strip(), _EXPORT.sub("", _IMPORT.sub("", "".join(parts))).strip(), style
