"""Compile what numba compiles before the tests begin, while packages are still being installed.

Otherwise each worker, and each program that a test starts, would come to the same functions at the same time, and
either compile them again or wait. ``python -m tests.compile_kernels``; the second time it takes some seconds.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import chdir
from pathlib import Path

import pytest
from tests.workflow.planner.test_conformance import QUICK

from tradewind import plugins
from tradewind.cli.app import run
from tradewind.testing.planners import PLATFORMS, example_flow
from tradewind.testing.problems import drive, table_problem
from tradewind.workflow.planner.base import Planner

KERNEL_TESTS = (
    "tests/workflow/simulator/test_compiled.py",
    "tests/workflow/planner/test_partial_fit.py::test_the_compiled_simulator_passes_over_the_same_machines",
    "tests/workflow/learning/test_kernel.py::test_a_list_of_priorities",
)
"""Tests that call kernels with figures of types that no command passes: to compile these takes far longer."""

_FLOW = "name: made\ntasks:\n" + "".join(
    f"  t{i}: {{activity: a{i % 3}, runtime: {1 + i % 5}{f', after: [t{i // 2}]' if i else ''}}}\n" for i in range(12)
)
_VMS = "vms: [{kind: slow, count: 2, price: $0.1/h}, {kind: fast, speed: 3, price: $0.2/h}]\n"


def main() -> None:
    """Call each kernel as the tests call it."""
    for name in plugins.names("planner"):
        planner: Planner = plugins.create("planner", name, QUICK.get(name, {}), seed=0)
        for kind, platform in PLATFORMS.items():
            planner.plan(example_flow(cores=2 if kind == "local" else 1), platform)
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        os.environ["TRADEWIND_HOME"] = folder
        Path("flow.yaml").write_text(_FLOW)
        Path("vms.yaml").write_text(_VMS)
        both = ("flow.yaml", "--vms", "vms.yaml", "--json")
        for words in (
            ("learn", *both, "--search", "0.1", "--method", "q_learning", "--episodes", "2"),
            (
                "learn",
                *both,
                "--search",
                "0.1",
                "--noise",
                "0.2",
                "--unknown",
                "0.5",
                "--episodes",
                "3",
                "--worlds",
                "2",
            ),
            ("simulate", *both, "--planner", "heft", "--noise", "0.1"),
        ):
            assert run(["workflow", *words]) == 0
    problem = table_problem(dollars=4.0)
    for depth in (0, 2):
        drive(plugins.create("searcher", "obol", {"depth": depth}, problem=problem, seed=1), problem, 6)
    assert pytest.main(["-n0", "-q", "-p", "no:cacheprovider", *KERNEL_TESTS]) == 0


if __name__ == "__main__":
    main()
