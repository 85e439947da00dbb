"""The jobs of the measurement: paper 5's two programs, programs of our own, and families of recorded runs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.done.scenarios import Scenario, synthetic
from benchmarks.proposals.programs import DEVELOPED, HELD_OUT, STARTED, WORDS
from benchmarks.proposals.recorded import recorded_jobs


def jobs(folder: Path) -> dict[str, Scenario]:
    """All by name; the recorded ones only where the folder of the tables is there."""
    found = {f"paper 5, {law}": synthetic(law, levels=slice(2, 5)) for law in ("dynamic", "static")}
    found |= {one.name: one for make in (*STARTED, *DEVELOPED, *HELD_OUT, *WORDS) for one in (make(),)}
    found |= recorded_jobs(folder)
    return {name: replace(one, name=name) for name, one in found.items()}
