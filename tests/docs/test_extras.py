"""What a page shows can be done with what the page says to install."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from tests.docs.blocks import ROOT

NEEDS = {
    "service": r"^\$? ?tradewind (serve|user|application) ",
    "client": r"^from tradewind\.client import",
    "postgresql": r"postgresql(\+psycopg)?://",
    "plots": r"--png\b",
    "files": r"^\| `(s3|gs)://",
    "optuna": r"use: optuna\b",
    "mlflow": r"--callback mlflow\b|callbacks: \[.*\bmlflow\b",
    "tensorboard": r"use: tensorboard\b|--callback tensorboard\b",
    "forest": r"use: paris\b",
    "optimal": r"`cp_sat`",
    "learning": r"^import gymnasium",
    "ray": r"--ray\b|use: ray\b",
    "kubernetes": r"--kubernetes\b|use: kubernetes\b",
    "terraform": r"use: terraform\b",
    "docker": r"--docker\b|use: docker\b|^#   docker pull",
    "pandas": r"\.to_pandas\(",
    "polars": r"\.to_polars\(|`\.parquet`",
    "keyring": r"`keyring:",
    "fast": r"\bWithout numba\b",
}
"""By extra: what on a page needs it."""

SAID = re.compile(r"pip install[^\n]*?'(?:tradewind|\.)\[(?P<extras>[\w,]+)\]'(?P<more>[^\n]*)")
PAGES = [
    *(ROOT / "docs/guides").rglob("*.md"),
    *(ROOT / "docs/concepts").rglob("*.md"),
    ROOT / "docs/getting-started.md",
    *(ROOT / "examples").rglob("*.md"),
    *(ROOT / "examples").rglob("*.yaml"),
]


def _said(text: str) -> set[str]:
    """The extras that a page says how to install: others may follow the first command in its sentence."""
    found = {extra for one in SAID.finditer(text) for extra in one["extras"].split(",")}
    if found:
        found |= set(re.findall(r"'tradewind\[(\w+)\]'", text))
    return found


@pytest.mark.parametrize("path", sorted(PAGES), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_page_says_how_to_install_what_it_needs(path: Path) -> None:
    text = path.read_text()
    needed = {extra for extra, pattern in NEEDS.items() if re.search(pattern, text, re.MULTILINE)}
    assert needed - _said(text) == set()


def test_every_extra_is_looked_for() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(NEEDS) == set(known) - {"test", "dev", "site"}
