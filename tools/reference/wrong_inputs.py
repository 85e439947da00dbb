"""wrong-inputs.md: what is said to a wrong input, from the table that the tests run."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from reference.text import page, table

INTRO = """\
Each row is a test: the command is given, one line comes on the standard error, the process ends with the exit code,
nothing that was there is changed, and no process is left behind. `…` stands for what differs from case to case.
[Errors and exit codes](errors.md) says what the exit codes mean."""


def write() -> str:
    """The page."""
    root = str(Path(__file__).resolve().parent.parent.parent)
    if root not in sys.path:
        sys.path.append(root)
    groups = importlib.import_module("tests.wrong_inputs.cases").GROUPS
    blocks = []
    for title, cases in groups.items():
        rows = [
            [case.did, f"`` {case.says} ``" if "`" in case.says else f"`{case.says}`", str(case.code)] for case in cases
        ]
        blocks += [f"## {title}", table(["what you did", "what it says, after `tradewind: `", "exit code"], rows)]
    return page("Wrong inputs", INTRO, *blocks)
