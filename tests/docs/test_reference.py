"""The generated pages are current, complete, and their links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tradewind import plugins
from tradewind.cli.study.run import prerequisite_error
from tradewind.errors import PrerequisiteError, TradewindError
from tradewind.plugins import KINDS
from tradewind.problem import Fault, Run

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _errors() -> list[type[TradewindError]]:
    found: list[type[TradewindError]] = [TradewindError]
    for error in found:
        found += [child for child in error.__subclasses__() if child.__module__.startswith("tradewind.")]
    return [error for error in found if "code" in vars(error)]


@pytest.mark.slow
def test_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/generate_reference.py", "--check"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_pages_name_nothing_private_and_no_empty_default() -> None:
    pages = {name: (ROOT / "docs" / "reference" / name).read_text() for name in ("errors.md", "cli.md", "yaml.md")}
    assert [line for line in pages["errors.md"].splitlines() if line.lstrip().startswith("_")] == []
    assert [line for text in pages.values() for line in text.splitlines() if "| ` |" in line or "| `` |" in line] == []


def test_a_missing_prerequisite_ends_commands_as_the_page_says() -> None:
    found = prerequisite_error(Run("r", 0, fault=Fault.PREREQUISITE), "input data.bin does not exist")
    assert isinstance(found, PrerequisiteError) and found.exit_code == 3
    page = (ROOT / "docs/reference/errors.md").read_text().splitlines()
    [line] = [one for one in page if one.startswith("| `deploy.prereq")]
    assert line.startswith("| `deploy.prerequisite` | 3 |")


def test_every_error_code_is_documented_with_what_to_do() -> None:
    page = (ROOT / "docs/reference/errors.md").read_text()
    for error in _errors():
        row = re.search(rf"^\| `{re.escape(error.code)}` \| {error.exit_code} \| .*`{error.__name__}`.*$", page, re.M)
        assert row is not None, f"{error.__name__} ({error.code}, {error.exit_code}) is not in errors.md"
        assert row[0].rstrip("| ").count("|") >= 5, f"{error.code} has no word about what to do"


def test_error_codes_are_unique_and_below_their_parents() -> None:
    codes = [error.code for error in _errors()]
    assert len(codes) == len(set(codes))
    for error in _errors():
        parent = error.__bases__[0]
        if "." in error.code and issubclass(parent, TradewindError):
            assert error.code.startswith(parent.code + "."), error.__name__


@pytest.mark.parametrize("kind", KINDS)
def test_every_part_has_its_section(kind: str) -> None:
    page = (ROOT / f"docs/reference/plugins/{kind}.md").read_text()
    for name, part in plugins.load_all(kind).items():
        if plugins.origin(kind, name)[0] != "tradewind":
            continue
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert section, f"{kind} {name} is not in plugins/{kind}.md"
        for setting, field in part.Settings.model_fields.items():
            assert f"`{field.alias or setting}`" in section, f"{kind} {name}: {setting}"


def test_capability_matrix_says_what_the_classes_say() -> None:
    page = (ROOT / "docs/reference/plugins.md").read_text()
    for kind in KINDS:
        section = page.partition(f"\n### {kind.capitalize()}s\n")[2].partition("\n### ")[0]
        if not section:
            assert not any(part.capabilities() for part in plugins.load_all(kind).values())
            continue
        head, _, *rows = [line for line in section.splitlines() if line.startswith("|")]
        titles = re.findall(r"`(\w+)`", head)
        for row in rows:
            name, *cells = [cell.strip().strip("`") for cell in row.strip("|").split("|")]
            said = {title for title, cell in zip(titles, cells, strict=True) if cell == "yes"}
            assert said == set(plugins.load(kind, name).capabilities()), f"{kind} {name}"


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        page = (path.parent / file).resolve() if file else path
        assert page.exists(), f"{path.name} links to {target}"
        if anchor and page.suffix == ".md":
            assert anchor in _anchors(page), f"{path.name} links to {target}"


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def test_index_lists_every_page() -> None:
    index = (ROOT / "docs/README.md").read_text()
    for page in sorted((ROOT / "docs").rglob("*.md")):
        place = page.relative_to(ROOT / "docs").as_posix()
        if place == "README.md" or place.startswith("reference/plugins/"):
            continue
        assert f"({place})" in index, f"docs/README.md does not list {place}"
