"""What a load generator used, beside what its application did."""

from __future__ import annotations

import pytest

from tradewind.deployer.runner.load_generators import with_load_usage
from tradewind.problem import Observation, Usage
from tradewind.reporting.study.tables import load_warning, usage_facts


def test_the_usage_is_the_applications_and_the_generators_is_in_its_profile() -> None:
    used = with_load_usage(Usage(100, 5.0, {"x": 1.0}), Usage(200, 19.0), 10.0, 2)
    assert (used.peak_memory_bytes, used.cpu_seconds) == (100, 5.0)
    assert used.profile == {
        "x": 1.0,
        "load_peak_memory_bytes": 200.0,
        "load_cpu_seconds": 19.0,
        "load_cpu_share": 0.95,
    }


@pytest.mark.parametrize("cpus", [None, 0])
def test_without_limits_nobody_knows_whether_its_cpus_were_full(cpus: int | None) -> None:
    assert "load_cpu_share" not in with_load_usage(Usage(), Usage(None, 3.0), 3.0, cpus).profile
    assert with_load_usage(Usage(), Usage(), 3.0, 1) == Usage()


def test_a_generator_that_was_the_bottleneck_is_warned_of() -> None:
    seen = Observation(1.0, 1.0, 10.0, feasible=True, profile={"load_cpu_seconds": 9.7, "load_cpu_share": 0.97})
    assert load_warning(seen).startswith("the load generator used 97% of its CPUs")
    assert [name for name, _ in usage_facts(seen)] == ["load generator", "warning"]
    calm = Observation(1.0, 1.0, 10.0, feasible=True, profile={"load_cpu_seconds": 1.0, "load_cpu_share": 0.1})
    assert load_warning(calm) == load_warning(None) == ""
