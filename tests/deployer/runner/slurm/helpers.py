"""What the tests of the Slurm runner share."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tradewind.deployer.runner.slurm.options import SlurmSettings
from tradewind.deployer.runner.slurm.runner import SlurmRunner

PROGRAMS = ("sbatch", "squeue", "scontrol", "scancel", "sacct")


def slurm_runner(base: Path, /, **settings: Any) -> SlurmRunner:
    """A runner that loses no time."""
    given = {"interval": 0.1, "settle": 2.0, "grace": 0.3, "margin": 0.0, "patience": 0.0, **settings}
    return SlurmRunner(settings=SlurmSettings(**given), data_folder=base / "data")


def programs(folder: Path, **instead: str) -> Path:
    """A folder with Slurm's programs, for the setting ``bin``.

    Args:
        folder: The folder; it is made.
        instead: Shell scripts in the place of some of them; ``$REAL`` there is the real one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        real = shutil.which(name) or "/bin/false"
        path = folder / name
        if name in instead:
            path.write_text(f"#!/bin/sh\nREAL={real}\n{instead[name]}\n")
            path.chmod(0o755)
        elif not path.is_symlink():
            path.symlink_to(real)
    return folder
