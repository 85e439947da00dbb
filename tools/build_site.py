"""Makes the web site of the documentation in build/site: python tools/build_site.py [--out FOLDER].

MkDocs wants one folder of pages, and the repository has several. So the pages are first put together in FOLDER/pages,
each where it lies in the repository, and MkDocs makes FOLDER/site of them. On the way a link to a folder is made one to
its README, and a link to a file that is no page becomes the file's name; HTML comments go.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "docs/**/*.md",
    "examples/README.md",
    "benchmarks/*/README.md",
)
STYLE = "tools/site.css"
PICTURES = (".svg", ".png")
BEHIND = "---\nsearch:\n  boost: 0.3\n---\n\n"
"""What a page begins with that the search shows behind guides, concepts and reference."""

_FENCE = re.compile(r"^ *(`{3,})")
_LINK = re.compile(
    r"(?P<code>(?P<ticks>`+)(?:(?!(?P=ticks)).)+(?P=ticks))"
    r"|(?P<picture>!?)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<target>[^)\s]+)\)",
    re.DOTALL,
)
_COMMENT = re.compile(r"^[ ]*<!--.*?-->[ ]*$", re.DOTALL | re.MULTILINE)


class LinkError(Exception):
    """A link that leads nowhere."""


def pages() -> list[str]:
    """The pages of the site, as paths below the root of the repository."""
    found = {path.relative_to(ROOT).as_posix() for pattern in PAGES for path in ROOT.glob(pattern)}
    return sorted(name for name in found if "/tradewind-outside/" not in name)


def prepared(page: str, text: str, known: frozenset[str]) -> str:
    """The text of a page as the site has it.

    Args:
        page: The page's path below the root.
        text: What is in the file.
        known: All pages of the site.

    Raises:
        LinkError: One of its links leads nowhere.
    """
    head = BEHIND if page.startswith(("benchmarks/", "CHANGELOG")) else ""
    return head + "".join(part if is_code else _prose(page, part, known) for part, is_code in _parts(text))


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Pieces of a page, and whether each is a fenced block."""
    piece: list[str] = []
    fence = ""
    for line in text.splitlines(keepends=True):
        match = _FENCE.match(line)
        if match and not fence:
            yield "".join(piece), False
            piece, fence = [line], match[1]
        elif fence and line.strip() == fence:
            yield "".join([*piece, line]), True
            piece, fence = [], ""
        else:
            piece.append(line)
    yield "".join(piece), bool(fence)


def _prose(page: str, text: str, known: frozenset[str]) -> str:
    def rewrite(match: re.Match[str]) -> str:
        if match["code"]:
            return match[0].replace(r"\|", "|")  # in a table GitHub wants the backslash, and MkDocs shows it
        target, words = match["target"], match["text"]
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        file, _, anchor = target.partition("#")
        place = os.path.normpath(Path(page).parent / file)
        if not (ROOT / place).exists() or place.startswith(".."):
            raise LinkError(f"{page} links to {target}, which is not there")
        if f"{place}/README.md" in known:
            place = f"{place}/README.md"
        if place in known or match["picture"]:
            relative = os.path.relpath(place, Path(page).parent)
            return f"{match['picture']}[{words}]({relative}{'#' * bool(anchor)}{anchor})"
        name = Path(place).name
        return words if name in words else f"{words} (`{place}`)"

    return _LINK.sub(rewrite, _COMMENT.sub("", text))


def assemble(folder: Path) -> None:
    """Put all pages, their pictures and the style into a folder, which is emptied before."""
    shutil.rmtree(folder, ignore_errors=True)
    names = pages()
    for name in names:
        _write(folder / name, prepared(name, (ROOT / name).read_text(), frozenset(names)))
    for picture in (ROOT / "docs").rglob("*"):
        if picture.suffix in PICTURES:
            _write(folder / picture.relative_to(ROOT), picture.read_bytes())
    _write(folder / "assets" / "site.css", (ROOT / STYLE).read_text())


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def main() -> int:
    """Assemble the pages and have MkDocs build the site; the exit code is that of MkDocs."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path, default=ROOT / "build", help="the folder of pages and site")
    out = arguments.parse_args().out.resolve()
    try:
        assemble(out / "pages")
    except LinkError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(ROOT / "mkdocs.yml")]
    environment = {**os.environ, "TRADEWIND_PAGES": str(out / "pages"), "NO_MKDOCS_2_WARNING": "true"}
    done = subprocess.run([*words, "--site-dir", str(out / "site")], env=environment, check=False)
    if done.returncode == 0:
        print(f"The site is in {out / 'site'}: open index.html, or serve it for the search")  # noqa: T201
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
