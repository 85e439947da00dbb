"""What a node of a Ray cluster gets to watch a run."""

from __future__ import annotations

import ast
from pathlib import Path

from tradewind.deployer.runner.ray.driver_client import warden_sources


def test_the_sources_of_the_warden_import_nothing_that_a_node_does_not_get() -> None:
    sources = warden_sources()
    there = {path.removesuffix(".py").replace("/", ".") for path in sources}
    wanted = {
        f"{node.module}.{name.name}" if Path(*node.module.split(".")).name in ("runner",) else node.module
        for text in sources.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.startswith("tradewind")
        for name in node.names
    }
    assert wanted, "it is a warden of several modules"
    assert wanted <= there
