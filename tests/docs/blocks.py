"""The code blocks of a Markdown page, and how each is tried.

The rules, which CONTRIBUTING.md repeats for writers:

- A block whose first line is a comment with a file name (``# job.yaml``, ``# score.py``) becomes that file.
- ``python``: executed, all of a page in one namespace, unless it is a file; a file must compile.
- ``yaml``: a job, or keys of a job, must load as one; other YAML must parse.
- ``console``: each line after ``$`` is run; it must end with code 0, or with N where ``<!-- exit code: N -->``
  stands before the block. ``pip`` and ``make`` are not run: the extra or the target must exist.
- ``bash``: must parse, as bash sees it.
- ``json`` and ``toml``: must parse.
- ``<!-- not tested: reason -->`` leaves the next block out; ``<!-- slow -->`` anywhere makes the page a slow test.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent.parent
TESTED = ("python", "yaml", "console", "bash", "json", "toml")
PLAIN = ("text", "csv", "html", "jinja", "sql", "")

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<language>[\w-]*)[^\n]*$")
_COMMENT = re.compile(r"^\s*<!--\s*(?P<text>.*?)\s*-->\s*$")
_FILE = re.compile(r"^# (?P<name>[\w./-]+\.\w+)$")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block.

    Attributes:
        language: The word after the backquotes.
        text: What is between them.
        line: Line of the opening fence, from 1.
        notes: HTML comments directly before it.
    """

    language: str
    text: str
    line: int
    notes: tuple[str, ...]

    @property
    def skipped(self) -> bool:
        """True where a note says why it is not tested."""
        return any(note.startswith("not tested: ") for note in self.notes)

    @property
    def file(self) -> str | None:
        """The name of the file that it stands for, or None."""
        match = _FILE.match(self.text.partition("\n")[0])
        return match["name"] if match else None

    @property
    def exit_code(self) -> int:
        """What its commands end with."""
        codes = [note.removeprefix("exit code:") for note in self.notes if note.startswith("exit code:")]
        return int(codes[0]) if codes else 0


def blocks(page: str) -> Iterator[Block]:
    """The blocks of a page, in order."""
    notes: list[str] = []
    lines = iter(enumerate(page.splitlines(), 1))
    for number, line in lines:
        if comment := _COMMENT.match(line):
            notes.append(comment["text"])
        elif fence := _FENCE.match(line):
            body = []
            for _, inner in lines:
                if inner.strip() == fence["ticks"]:
                    break
                body.append(inner.removeprefix(fence["indent"]))
            yield Block(fence["language"], "\n".join(body) + "\n", number, tuple(notes))
            notes = []
        elif line.strip():
            notes = []


class Page:
    """Tries the blocks of one page, in order, in one folder.

    Args:
        folder: An empty folder.
        programs: Where ``tradewind`` is.
    """

    def __init__(self, folder: Path, programs: Path | None = None) -> None:
        self.folder = folder
        self.path = [str(programs)] if programs else []
        self.names: dict[str, Any] = {"__name__": "__page__"}

    def run(self, block: Block) -> None:
        """Try one block; what is wrong with it is raised."""
        if block.file is not None:
            path = self.folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        if block.language in TESTED:
            getattr(self, f"_{block.language}")(block)

    def _python(self, block: Block) -> None:
        code = compile(block.text, f"<line {block.line}>", "exec", dont_inherit=True)
        if block.file is None:
            exec(code, self.names)

    def _yaml(self, block: Block) -> None:
        from tradewind.problem.job_spec.model import JobFile
        from tradewind.problem.job_spec.spec import load_spec

        document = yaml.safe_load(block.text)
        if not isinstance(document, dict) or not document.keys() <= JobFile.model_fields.keys():
            return
        name = block.file or f"block-{block.line}.yaml"
        whole = {"name": "page", "job": {"command": "true"}, "space": {"size": [1, 2]}, **document}
        text = block.text if whole.keys() == document.keys() or block.file else yaml.safe_dump(whole)
        path = self.folder / name
        path.write_text(text)
        load_spec(path)

    def _console(self, block: Block) -> None:
        joined = block.text.replace("\\\n", " ")
        commands = [line.removeprefix("$ ") for line in joined.splitlines() if line.startswith("$ ")]
        assert commands, "a console block needs a line that starts with '$ '"
        for command in commands:
            self._command(command, block.exit_code)

    def _command(self, command: str, exit_code: int) -> None:
        words = shlex.split(command, comments=True)
        if words[0] == "make":
            targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert {w for w in words[1:] if "=" not in w} <= set(targets), f"no such target: {command}"
        elif "pip" in words[:3]:
            extras = re.findall(r"tradewind\[([\w,]+)\]|\.\[([\w,]+)\]", command)
            project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            wanted = {extra for pair in extras for extra in ",".join(pair).split(",") if extra}
            assert wanted <= set(project["optional-dependencies"]), f"no such extra: {command}"
        elif words[0] not in ("git", "cd"):
            self._shell(command, exit_code)

    def _shell(self, command: str, exit_code: int) -> None:
        examples = self.folder / "examples"
        if not examples.exists():
            examples.symlink_to(ROOT / "examples")
        path = os.pathsep.join([*self.path, str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env={**os.environ, "PATH": path, "COLUMNS": "120"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )
        said = done.stdout[-2000:] + done.stderr[-2000:]
        assert done.returncode == exit_code, f"{command} ended with {done.returncode}:\n{said}"

    def _bash(self, block: Block) -> None:
        done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, timeout=10)
        assert done.returncode == 0, done.stderr

    def _json(self, block: Block) -> None:
        json.loads(block.text)

    def _toml(self, block: Block) -> None:
        tomllib.loads(block.text)
