"""Puts charts into a page of one file: the library, the scripts and the data, with a policy that allows no others."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from tradewind.reporting.charts import ASSETS
from tradewind.reporting.charts.document import Chart, ParallelChart, chart_json

_SCRIPTS = ("theme.js", "words.js", "view.js", "chart.js", "parallel.js", "report.js")
_IMPORT = re.compile(r"^import .*\n", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=const|function|class)", re.MULTILINE)


def render_page(template: str, drawn: Mapping[str, Chart | ParallelChart], **values: Any) -> str:
    """Render a page of one file, whose charts are drawn where its elements have their names as ``data-chart``.

    Args:
        template: Template of `tradewind.reporting` that extends ``one_page.html.j2``.
        drawn: The charts by name.
        values: What the template shows.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("tradewind.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    library, script, style = _assets()
    policy = " ".join(f"'sha256-{_digest(text)}'" for text in (library, script))
    data = json.dumps({name: chart_json(chart) for name, chart in drawn.items()}, allow_nan=False)
    parts = {"library": library, "script": script, "style": style, "data": data.replace("<", "\\u003c")}
    # Our own scripts and styles, and JSON without a "<".
    safe = {name: Markup(text) for name, text in parts.items()}  # noqa: S704
    return environment.get_template(template).render(policy=f"script-src {policy}", **safe, **values)


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _assets() -> tuple[str, str, str]:
    """The library, all scripts as one, and the style sheet."""
    library, style = ((ASSETS / name).read_text("utf-8") for name in ("echarts.js", "chart.css"))
    parts = [(ASSETS / name).read_text("utf-8") for name in _SCRIPTS]
    return library.strip(), _EXPORT.sub("", _IMPORT.sub("", "".join(parts))).strip(), style
