"""Every code block of the README and of docs/ works."""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from tests.docs.blocks import PLAIN, ROOT, TESTED, Block, Page, blocks

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _cases() -> list[ParameterSet]:
    cases = []
    for path in PAGES:
        if "tutorial" in path.parts:  # test_tutorial.py tries its blocks, with its package installed
            continue
        if not any(b.language in TESTED for b in blocks(path.read_text())):
            continue
        marks = [pytest.mark.timeout(300)]
        marks += [getattr(pytest.mark, each) for each in ("slow", "thorough") if f"<!-- {each} -->" in path.read_text()]
        cases.append(pytest.param(path, marks=marks, id=path.relative_to(ROOT).as_posix()))
    return cases


@pytest.mark.parametrize("path", _cases())
def test_blocks_of_page_work(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: Path) -> None:
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    page = Page(folder, quick.parent)
    for block in blocks(path.read_text()):
        if block.skipped:
            continue
        try:
            page.run(block)
        except Exception as error:
            where = f"{path.relative_to(ROOT)}:{block.line}"
            raise AssertionError(f"the {block.language} block at {where}: {type(error).__name__}: {error}") from error


def test_languages_are_known() -> None:
    """A block with a misspelled language would be tested by nobody."""
    known = {*TESTED, *PLAIN}
    strange = [
        f"{path.relative_to(ROOT)}:{block.line} {block.language}"
        for path in PAGES
        for block in blocks(path.read_text())
        if block.language not in known
    ]
    assert strange == []


def test_few_blocks_are_left_out() -> None:
    found = [b for path in PAGES for b in blocks(path.read_text()) if b.language in TESTED]
    left_out = [b for b in found if b.skipped]
    assert len(left_out) <= max(2, len(found) // 10)


PAGE = """\
Text.

<!-- not tested: it needs a cloud -->
```console
$ tradewind fly
```

```python
# score.py
x = 1
```

  ```yaml
  searcher: random
  ```
"""


def test_parser_finds_blocks_with_their_notes() -> None:
    first, second, third = blocks(PAGE)
    assert (first.language, first.line, first.skipped) == ("console", 4, True)
    assert (second.file, second.skipped, second.text) == ("score.py", False, "# score.py\nx = 1\n")
    assert (third.language, third.text) == ("yaml", "searcher: random\n")


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", "1 / 0"),
        ("python", "# broken.py\ndef"),
        ("yaml", "searcher: [unclosed"),
        ("yaml", "searcher: no_such_searcher"),
        ("yaml", "budget: {dolars: 2}"),
        ("console", "$ false"),
        ("console", "no prompt"),
        ("console", "$ make no-such-target"),
        ("console", "$ pip install 'tradewind[no_such_extra]'"),
        ("bash", "if then"),
        ("json", "{"),
        ("toml", "a = "),
    ],
)
def test_wrong_blocks_are_noticed(language: str, text: str, tmp_path: Path) -> None:
    block = Block(language, text + "\n", 1, ())
    with pytest.raises(Exception):  # noqa: B017  (each language fails in its own way)
        Page(tmp_path).run(block)


def test_expected_exit_code_is_checked(tmp_path: Path) -> None:
    right = Block("console", "$ exit 5\n", 1, ("exit code: 5",))
    Page(tmp_path).run(right)
    wrong = Block("console", "$ true\n", 1, ("exit code: 5",))
    with pytest.raises(AssertionError, match="ended with 0"):
        Page(tmp_path).run(wrong)
