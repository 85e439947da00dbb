"""Cases of real life that are kept beside the repository: the script of each ends with 0 where we behave rightly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "tuning"


OTHERWISE = {
    "13-ssh-url-as-host": "it wants ssh://user@host to be refused; here it is understood wherever a host is",
}
"""Cases that we answer in another way than their scripts want, and why."""


@pytest.mark.slow
@pytest.mark.skipif(not CASES.is_dir(), reason=f"the cases are not at {CASES}")
@pytest.mark.parametrize("case", sorted(path.parent.name for path in CASES.glob("*/run.sh")))
def test_a_case_of_real_life(case: str, tmp_path: Path, quick: Path) -> None:
    if case in OTHERWISE:
        pytest.skip(OTHERWISE[case])
    environment = {**os.environ, "TRADEWIND": str(quick), "PYTHON": sys.executable, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        ["bash", str(CASES / case / "run.sh")],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
