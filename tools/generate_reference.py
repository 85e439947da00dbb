"""Writes docs/reference from the code, or with --check says which pages are not current.

python tools/generate_reference.py [--check]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reference import cli, errors, parts, python, rest, service, store, wrong_inputs, yaml

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"


def pages() -> dict[str, str]:
    """All pages, by file name below docs/reference."""
    return {
        "cli.md": cli.write(),
        "errors.md": errors.write(),
        **parts.write(),
        "python.md": python.write(),
        "rest.md": rest.write(),
        "service.md": service.write(),
        "store.md": store.write(),
        "wrong-inputs.md": wrong_inputs.write(),
        "yaml.md": yaml.write(),
    }


def main() -> int:
    """Write or check; the exit code is 1 when a checked page is not current."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--check", action="store_true", help="change nothing, name the pages that are not current")
    check = arguments.parse_args().check
    made = pages()
    there = {str(path.relative_to(FOLDER)): path.read_text() for path in FOLDER.rglob("*.md")}
    stale = sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))
    if check:
        for name in stale:
            print(f"docs/reference/{name} is not current: make docs writes it again")  # noqa: T201
        return 1 if stale else 0
    for name in stale:
        path = FOLDER / name
        if name not in made:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made[name])
        print(f"wrote docs/reference/{name}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
