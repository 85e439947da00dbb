"""CP-SAT as the judge of bounds and of the search."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from tests.workflow.datasets import dax, needs_datasets
from tests.workflow.planner.test_planners import paper_vms
from tests.workflow.simulator.test_reference import platforms, workflows

from tradewind.errors import MissingProgramError
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.graph import Task, Workflow
from tradewind.workflow.planner.cp_sat import CpSatPlanner, CpSatSettings
from tradewind.workflow.planner.search import SearchPlanner, SearchSettings
from tradewind.workflow.platform import Platform, Vm


def solver(**given: float) -> CpSatPlanner:
    return CpSatPlanner(settings=CpSatSettings.model_validate(given))


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(workflows(8), platforms())
def test_bound_optimum_and_search_stand_in_this_order(flow: Workflow, platform: Platform) -> None:
    judge = solver(work=2.0)
    optimum = judge.plan(flow, platform)
    close = 1e-5 * max(1.0, optimum.makespan)
    found = SearchPlanner(settings=SearchSettings(turns=300), seed=1).plan(flow, platform)
    if judge.proven:
        assert lower_bound(flow, platform) <= optimum.makespan + close
        assert found.makespan >= optimum.makespan - close
    assert judge.bound <= found.makespan + close


def test_it_says_what_it_has_proven() -> None:
    flow = Workflow("four", tuple(Task(str(i), "a", t) for i, t in enumerate((3.0, 3.0, 2.0, 2.0, 2.0))), ((),) * 5)
    judge = solver(seconds=20.0)
    # HEFT in the order of ranks makes 7.
    assert judge.plan(flow, Platform((Vm("a"), Vm("b")))).makespan == pytest.approx(6.0)
    assert judge.proven and judge.said == "proven optimal"
    assert judge.bound == pytest.approx(6.0, rel=1e-5)


def test_without_its_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    with pytest.raises(MissingProgramError, match="ortools is not installed") as caught:
        solver().plan(Workflow("one", (Task("a", "a", 1.0),), ((),)), Platform((Vm("a"),)))
    assert caught.value.hint == "pip install 'tradewind[optimal]'"


@needs_datasets
@pytest.mark.slow
@pytest.mark.parametrize(
    ("graph", "vcpu"), [("Inspiral_30", 16), ("CyberShake_30", 64), ("Epigenomics_46", 64), ("Sipht_60", 16)]
)
def test_the_search_is_equal_to_what_is_proven_here(graph: str, vcpu: int) -> None:
    judge = solver(work=10.0)
    optimum = judge.plan(dax(graph), paper_vms(vcpu))
    assert judge.proven
    found = SearchPlanner(settings=SearchSettings(turns=30_000), seed=1).plan(dax(graph), paper_vms(vcpu))
    assert found.makespan == pytest.approx(optimum.makespan, rel=1e-5)
