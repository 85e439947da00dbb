"""The site has every page once, its links lead somewhere, and MkDocs builds it without a warning."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from tests.docs.blocks import ROOT

LIST = re.compile(r"^(?P<indent> *)([-*+]|\d+\.) ")


class Settings(yaml.SafeLoader):
    """Reads mkdocs.yml without MkDocs: its own tags stand for nothing here."""


Settings.add_multi_constructor("", lambda loader, suffix, node: None)


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    found: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(), Settings)
    return found


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_site", ROOT / "tools" / "build_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _named(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
            continue
        [value] = entry.values()
        yield from [value] if isinstance(value, str) else _named(value)


def test_navigation_names_every_page_once(settings: dict[str, Any], tool: ModuleType) -> None:
    named = Counter(_named(settings["nav"]))
    assert [page for page, times in named.items() if times > 1] == []
    assert set(named) == set(tool.pages())


def test_nothing_comes_from_another_host(settings: dict[str, Any]) -> None:
    assert settings["theme"]["font"] is False
    added = [*settings["extra_css"], *settings.get("extra_javascript", [])]
    assert [one for one in added if "//" in one] == []
    pages = [page.read_text() for page in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if "```mermaid" in page] == [], "the theme would fetch mermaid"


@pytest.mark.slow
def test_pages_are_put_together(tool: ModuleType, tmp_path: Path) -> None:
    tool.assemble(tmp_path)
    for name in tool.pages():
        text = re.sub(r"```.*?```|`[^`\n]+`", "", (tmp_path / name).read_text(), flags=re.DOTALL)
        assert "<!--" not in text, name
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if not re.match(r"[a-z]+:|#", target):
                assert ((tmp_path / name).parent / target.partition("#")[0]).is_file(), f"{name} links to {target}"


def test_links_become_those_of_the_site(tool: ModuleType) -> None:
    known = frozenset({"docs/a.md", "README.md", "benchmarks/compare/README.md"})

    def site(text: str) -> str:
        made: str = tool.prepared("docs/a.md", text, known)
        return made

    assert site("[figures](../benchmarks/compare)") == "[figures](../benchmarks/compare/README.md)"
    assert site("[all\nof it](../README.md#what-it-promises)") == "[all\nof it](../README.md#what-it-promises)"
    assert site("[`nginx.conf`](../deploy/nginx.conf)") == "`nginx.conf`"
    assert site("[the example](../examples/ssh)") == "the example (`examples/ssh`)"
    assert site("[here](#there), [there](https://example.org)") == "[here](#there), [there](https://example.org)"
    assert site("`[no](link)`") == "`[no](link)`"
    assert site("```text\n[no](link)\n<!-- shown -->\n```\n") == "```text\n[no](link)\n<!-- shown -->\n```\n"
    assert site("before\n\n<!-- not tested:\n why -->\n```bash\n") == "before\n\n\n```bash\n"
    assert site(r"| `a \| b` | c |") == "| `a | b` | c |"
    with pytest.raises(tool.LinkError, match=r"docs/a\.md links to gone\.md"):
        site("[gone](gone.md)")


def test_lists_tables_and_blocks_stand_alone(tool: ModuleType) -> None:
    """GitHub takes them after a line of text, MkDocs does not; and lists within lists need four blanks there."""
    wrong = [
        f"{name}:{line}: {what}" for name in tool.pages() for line, what in _joined((ROOT / name).read_text(), tool)
    ]
    assert wrong == []


def _joined(text: str, tool: ModuleType) -> Iterator[tuple[int, str]]:
    number, before = 0, ""
    for part, is_code in tool._parts(text):
        for line in part.splitlines():
            number += 1
            item = LIST.match(line)
            if not is_code and before.strip():
                if item and not LIST.match(before) and not before.startswith(" "):
                    yield number, "a list after a line of text"
                if line.startswith("|") and not before.startswith("|"):
                    yield number, "a table after a line of text"
            if not is_code and item and 0 < len(item["indent"]) < 4:
                yield number, "a list within a list"
            before = line


def test_lines_that_belong_to_no_list_are_noticed(tool: ModuleType) -> None:
    page = "text\n- one\n  more\n- two\n  - in it\n\ntext\n| a |\n\n```yaml\nkey:\n- value\n```\n"
    assert [number for number, _ in _joined(page, tool)] == [2, 5, 8]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="pip install 'tradewind[site]'")
def test_mkdocs_builds_it_strictly(tmp_path: Path) -> None:
    words = [sys.executable, str(ROOT / "tools" / "build_site.py"), "--out", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "site" / "docs" / "guides" / "service.html").read_text()
    assert "not tested" not in page
    fetched = re.findall(r"<(?:script|img|iframe|link)[^>]+(?:src|href)=[\"']?((?:https?:)?//[^\"'>\s]+)", page)
    assert fetched == []
    assert (tmp_path / "site" / "search" / "search_index.json").stat().st_size > 1_000_000
