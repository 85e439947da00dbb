"""What the shipped Terraform modules decide, told by Terraform itself where it can; no provider is asked."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.engines import moto as engine

from tradewind.deployer import provisioner

pytestmark = pytest.mark.xdist_group("terraform")

MODULES = Path(provisioner.__file__).parent / "modules"


def block(module: str, head: str) -> str:
    """A block of a module's main.tf, from its head to the brace that ends it."""
    found = re.search(rf"^{re.escape(head)} {{\n(.*?)^}}", (MODULES / module / "main.tf").read_text(), re.M | re.S)
    assert found is not None, head
    return found[1]


def decided(folder: Path, module: str, local: str, given: Mapping[str, Any]) -> str:
    """A local value of a module of one line, with variables filled in."""
    found = re.search(rf"^  {local} += (.+)$", block(module, "locals"), re.M)
    assert found is not None, local
    expression = re.sub(r"\bvar\.(\w+)", lambda name: json.dumps(given[name[1]]), found[1])
    words = [engine.program_or_skip(), "console"]
    done = subprocess.run(words, cwd=folder, input=expression, capture_output=True, text=True, timeout=60, check=True)
    return str(json.loads(done.stdout))


@pytest.mark.parametrize(
    ("kind", "spot", "wanted"),
    [
        ("e2-standard-4", False, "MIGRATE"),  # Google refuses TERMINATE
        ("e2-standard-4", True, "TERMINATE"),  # and here MIGRATE
        ("n2-standard-4", False, "TERMINATE"),
        ("g2-standard-4", False, "TERMINATE"),  # a machine with GPUs cannot move
        ("c3-highcpu-192-metal", False, "TERMINATE"),
    ],
)
def test_when_google_maintains_a_host(tmp_path: Path, kind: str, spot: bool, wanted: str) -> None:
    assert decided(tmp_path, "gcp", "maintenance", {"instance_type": kind, "spot": spot}) == wanted
    machine = block("gcp", 'resource "google_compute_instance" "node"')
    assert re.search(r"^    on_host_maintenance += local\.maintenance$", machine, re.M)
