"""The shipped modules against what the providers' plugins take; those for Google and Azure are in no package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.deployer.provisioner.terraform.hcl import Block, blocks_of

from tradewind.deployer.provisioner import terraform

MODULES = Path(terraform.__file__).parent / "modules"
_TABLE: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("schemas.json").read_text())["blocks"]
_TERRAFORMS = {"count", "depends_on", "for_each"}
"""Arguments that every resource may have."""


def wrong_in(block: Block) -> list[str]:
    """What a plugin would refuse of a block."""
    schema = _TABLE[f"{block.kind} {block.labels[0]}"]
    found = []
    for path, each in block.nested():
        if path not in schema:
            found.append(f"no block {path}")
            continue
        known = {name.rstrip("!"): name.endswith("!") for name in schema[path].split()}
        given = each.arguments | {inner.kind for inner in each.blocks}
        found += [f"no argument {path}.{name}" for name in sorted(given - set(known) - _TERRAFORMS)]
        found += [f"{path}.{name} is missing" for name, needed in known.items() if needed and name not in given]
    return found


@pytest.mark.parametrize("module", ["aws", "gcp", "azure"])
def test_a_plugin_takes_every_argument_of_a_module(module: str) -> None:
    blocks = [
        block for block in blocks_of(MODULES / module / "main.tf") if block.kind in ("provider", "resource", "data")
    ]
    assert len(blocks) >= 6
    assert {f"{block.kind} {' '.join(block.labels)}": wrong for block in blocks if (wrong := wrong_in(block))} == {}


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("      seconds = ", "      second = ", "no argument scheduling.max_run_duration.second"),
        ("    max_run_duration {", "    max_runtime {", "no block scheduling.max_runtime"),
        ("  machine_type = var.instance_type\n", "", ".machine_type is missing"),
    ],
)
def test_what_a_plugin_refuses_is_seen(tmp_path: Path, right: str, wrong: str, words: str) -> None:
    text = (MODULES / "gcp/main.tf").read_text()
    assert text.count(right) == 1
    (tmp_path / "main.tf").write_text(text.replace(right, wrong))
    [machine] = [block for block in blocks_of(tmp_path / "main.tf") if block.labels[:1] == ("google_compute_instance",)]
    assert words in wrong_in(machine)
