"""Programs that are for one processor architecture, in searches over machines of several."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.engine.searchers import in_order
from tests.engine.simulated_runs import Fate, World

from tradewind import plugins
from tradewind.engine.search_builder import build_search, new_study
from tradewind.engine.state_machine.architectures import ArchitectureFailures
from tradewind.engine.state_machine.search_policy import SearchPolicy
from tradewind.engine.state_machine.stopping_rules import make_stopping_rules
from tradewind.problem import Billing, Configuration, Fault, Integer, Offer, Problem, Run, RunState, Trial, TrialState
from tradewind.problem.job_spec.spec import parse_spec
from tradewind.testing.problems import KnownOutcome, machine_parameters, make_problem
from tradewind.utils.paths import store_url

BOTH = frozenset({"arm64", "x86_64"})


@dataclass
class _WithArchitectures:
    """Offers of the first instance type have one architecture, all others another."""

    inner: Any
    first: str
    names: tuple[str, str]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def resolve(self, configuration: Configuration) -> Offer:
        offer: Offer = self.inner.resolve(configuration)
        return replace(offer, arch=self.names[offer.instance_type != self.first])


def problem_of(first: str = "arm64", others: str = "x86_64", **options: object) -> Problem:
    """24 configurations, of which those of the first instance type come first."""
    parameters = [*machine_parameters(2, (1, 2)), Integer(name="workers", low=1, high=6)]
    made = make_problem(parameters, lambda _c, _o: KnownOutcome(10.0), billing=Billing(), **options)  # type: ignore[arg-type]
    one = made.candidates.offer(0).instance_type
    return replace(made, resolver=_WithArchitectures(made.resolver, one, (first, others)))


def only_on(*architectures: str) -> Callable[[Trial, Run], Fate]:
    def fate(trial: Trial, run: Run) -> Fate:
        if trial.offer.arch in architectures:
            return Fate(10.0)
        words = f"./solve is for another processor architecture than the machine's ({trial.offer.arch})"
        return Fate(1.0, RunState.FAILED, Fault.ARCHITECTURE, words)

    return fate


def world_of(problem: Problem, fate: Callable[[Trial, Run], Fate], offered: frozenset[str] = BOTH) -> World:
    rules = make_stopping_rules([])
    return World(problem, in_order(problem), fate, SearchPolicy(owner="t", rules=rules, architectures=offered))


def test_the_search_goes_on_with_the_other_architecture_after_one_run() -> None:
    world = world_of(problem_of(), only_on("x86_64"))
    world.open()
    world.drive()
    trials = world.trial_rows.values()
    assert len(world.launched) == 13
    failed = [trial for trial in trials if trial.offer.arch == "arm64"]
    assert len(failed) == 12
    assert {trial.state for trial in failed} == {TrialState.FAILED}
    assert [trial.attempts for trial in failed] == [1] + [0] * 11
    assert sum(trial.spent for trial in failed[1:]) == 0
    why = failed[-1].observation
    assert why is not None
    assert why.reason.startswith("not run on arm64: ./solve is for another processor architecture")
    best = world.machine.history.best
    assert best is not None
    assert best.offer.arch == "x86_64"
    assert sorted(world.told) == sorted(trial.number for trial in trials), "the searcher learns of all"


def test_it_is_never_tried_again_as_the_infrastructures_fault() -> None:
    world = world_of(problem_of(trials=13), only_on("x86_64"), frozenset())
    world.open()
    world.drive()
    assert world.trial_rows[0].attempts == 1
    assert world.trial_rows[0].state is TrialState.FAILED


def test_what_is_not_run_is_no_trial_of_the_budget() -> None:
    world = world_of(problem_of(trials=3), only_on("x86_64"))
    world.open()
    assert world.drive().reason == "the budget of 3 trials is used up"
    assert len(world.launched) == 3
    assert [trial.offer.arch for trial in world.trial_rows.values() if trial.state is TrialState.SUCCEEDED] == [
        "x86_64", "x86_64",
    ]  # fmt: skip


def test_runs_that_are_on_their_way_do_not_count_against_the_program() -> None:
    problem = problem_of()
    world = world_of(replace(problem, terms=replace(problem.terms, parallel=10)), only_on("x86_64"))
    world.machine.parallel = 10
    world.open()
    world.drive()
    assert world.machine.history.best is not None, "ten have failed, and the search went on"


def test_it_ends_where_no_other_architecture_is_on_offer() -> None:
    world = world_of(problem_of("arm64", "arm64"), only_on(), frozenset({"arm64"}))
    world.open()
    reason = world.drive().reason
    assert len(world.launched) == 1
    assert reason.startswith("no offer has machines that the program runs on (arm64): ./solve is for another")
    both = world_of(problem_of(), only_on())
    both.open()
    assert "(arm64, x86_64)" in both.drive().reason
    assert len(both.launched) == 2


def test_an_architecture_on_which_it_has_run_stays() -> None:
    """Some machines of an offer may be others than it says."""

    def fate(trial: Trial, run: Run) -> Fate:
        return Fate(10.0) if trial.number != 1 else Fate(1.0, RunState.FAILED, Fault.ARCHITECTURE, "odd")

    world = world_of(problem_of(), fate)
    world.open()
    world.drive()
    assert len(world.launched) == 24


def test_offers_of_an_unknown_architecture_are_all_tried() -> None:
    world = world_of(problem_of("", "x86_64"), only_on("x86_64"), frozenset({"", "x86_64"}))
    world.open()
    assert "first 8 trials all failed" in world.drive().reason


def test_a_new_process_knows_what_the_program_is_not_for() -> None:
    problem = problem_of(trials=4)
    world = world_of(problem, only_on("x86_64"))
    world.open()
    while len(world.launched) < 3:
        world.step()
    again = world_of(problem, only_on("x86_64"))
    again.open(list(world.trial_rows.values()), list(world.run_rows.values()))
    again.drive()
    runs = [run for run in again.run_rows.values() if run.fault is Fault.ARCHITECTURE]
    assert len(runs) == 1
    assert len([trial for trial in again.trial_rows.values() if trial.state is TrialState.SUCCEEDED]) == 3


def test_a_searcher_that_proposes_nothing_else_is_stopped() -> None:
    failures = ArchitectureFailures(BOTH)
    trial = Trial(0, None, Offer("aws", "c7g", 1, 1, 1.0, arch="arm64"), TrialState.PENDING, "k")  # type: ignore[arg-type]
    failures.note(Run("r", 0, state=RunState.FAILED, fault=Fault.ARCHITECTURE, reason="other"), trial)
    for number in range(1000):
        assert failures.why_over() == ""
        assert failures.refused(replace(trial, number=number), 0.0) is not None
    assert "1000 in a row on arm64" in failures.why_over()
    assert failures.refused(replace(trial, offer=replace(trial.offer, arch="x86_64")), 0.0) is None
    assert failures.why_over() == ""


_JOB = """\
name: j
job: {command: [%s], image: %s}
space: {instance: {provider: local, limit: 1}, workers: 1..3, kind: [fast, small]}
budget: {trials: 1}
deploy: {%s}
"""


@pytest.mark.parametrize(
    ("command", "image", "deploy", "known"),
    [
        ("./solve, '--workers={{ workers }}', '--on={{ instance }}'", "i", "runner: process", True),
        ("'./solve-{{ workers }}'", "i", "runner: process", False),
        ("./solve, '--kind={{ kind }}'", "i", "runner: process", False),
        ("./solve", "'i:{{ workers }}'", "runner: process", False),
        ("./solve", "i", "provisioner: {use: none, hosts: [a]}, runner: ssh", False),
    ],
)
def test_one_run_tells_of_others_where_all_run_the_same_program(
    tmp_path: Path, command: str, image: str, deploy: str, known: bool
) -> None:
    spec = parse_spec(_JOB % (command, image, deploy), base=tmp_path)
    with contextlib.closing(plugins.create("store", "sql", {}, url=store_url())) as store:
        search = build_search(spec, new_study(spec), store, tmp_path)
        found = search.parts.machine.policy.architectures
        search.parts.deployer.close()
    assert bool(found) is known
