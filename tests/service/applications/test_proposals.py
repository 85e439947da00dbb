"""What is proposed for what was typed into a form."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.service.applications.past_requests import DOCUMENT, add_runs, law

from tradewind.engine.search_builder import build_problem
from tradewind.errors import ConfigurationError, FormError, NoOfferError, NotFoundError
from tradewind.problem import Configuration, Value
from tradewind.reporting.proposal_charts import proposal_charts
from tradewind.searcher.done.expansion import Array
from tradewind.searcher.done.regression import ExpansionFamily, ExpansionShape
from tradewind.service.accounts.identity import Principal
from tradewind.service.api.routes.proposals import proposal_of
from tradewind.service.applications.proposals import FEW_RUNS, ConfigurationProposal, ProposalService
from tradewind.service.context import Context
from tradewind.service.settings import ServiceSettings
from tradewind.service.web.configuration_choices import choice_of
from tradewind.store.service.applications import ApplicationRow


def people(context: Context) -> tuple[Principal, Principal, Principal]:
    """An administrator, a user of ``physics`` and one of ``biology``."""
    made = [context.accounts.add_user(n, role=r, tenant=t) for n, r, t in _PEOPLE]  # type: ignore[arg-type]
    return tuple(Principal(u.id, u.name, u.role, u.tenant) for u in made)  # type: ignore[return-value]


_PEOPLE = (("root", "admin", "operations"), ("ann", "user", "physics"), ("bob", "user", "biology"))


def some(count: int, seed: int = 1) -> list[dict[str, int]]:
    """Random parameters."""
    rng = np.random.default_rng(seed)
    return [{"size": int(rng.integers(10, 5000)), "steps": int(rng.integers(1, 50))} for _ in range(count)]


@pytest.fixture
def solver(context: Context) -> tuple[Context, Principal, Principal, ApplicationRow]:
    """A server with an application of all tenants."""
    root, ann, bob = people(context)
    return context, ann, bob, context.applications.register(root, DOCUMENT, shared=True)


World = tuple[Context, Principal, Principal, ApplicationRow]


def best_cost(context: Context, proposal: ConfigurationProposal, parameters: dict[str, int]) -> float:
    """What the first candidate really costs, in costs of the best one."""
    root = Principal(0, "root", "admin", "")
    row = context.applications.get(root, "solver")
    spec = context.applications.spec(row, parameters, context.backends.get(root))
    problem = build_problem(spec, context.data_folder)
    costs = {}
    for i in range(len(problem.candidates)):
        configuration, offer = problem.candidates.configuration(i), problem.candidates.offer(i)
        costs[configuration] = spec.billing.cost(law(spec.job.parameters.values, configuration), offer.hourly)
    return costs[Configuration(proposal.candidates[0].configuration)] / min(costs.values())


def test_without_a_run_it_is_the_cheapest_and_says_so(solver: World) -> None:
    context, ann, _, _ = solver
    found = context.proposals.propose(ann, "solver", {"size": 100})
    assert (found.application, found.backend, found.runs, found.searcher) == ("solver@1", "local", 0, "")
    assert found.deadline == 300.0
    first = found.candidates[0]
    assert (first.runtime, first.cost, first.chance) == (None, None, None)
    assert first.offer.hourly == min(one.offer.hourly for one in found.candidates)
    assert "cheapest" in first.reason
    assert len({one.difference for one in found.candidates[:3]}) == 3
    assert found.candidates[1].difference == "time not known yet; threads 2 instead of 1"
    assert found.space is None
    assert found.basis == ("nothing is known of solver yet: nobody has run it here",)
    assert "search" in found.advice
    assert len(found.candidates) == 5


@pytest.mark.slow
def test_past_runs_make_a_prediction(solver: World) -> None:
    context, ann, _, row = solver
    add_runs(context, ann, row, some(40), seed=40)
    within, excess = 0, []
    for typed in some(10, seed=5):
        found = context.proposals.propose(ann, "solver", typed, count=3)
        assert (found.runs, found.searcher, len(found.candidates), found.advice) == (40, "done", 3, "")
        first = found.candidates[0]
        assert first.runtime is not None
        assert first.cost_low <= first.cost <= first.cost_high  # type: ignore[operator]
        within += first.runtime_low <= law(typed, Configuration(first.configuration)) <= first.runtime_high  # type: ignore[operator]
        excess.append(best_cost(context, found, typed))
        assert found.basis[0] == "40 runs of solver, 0 of them with these job parameters"
        assert found.search_cost is not None
        assert found.search_cost > 5 * first.cost  # type: ignore[operator]
    assert within >= 8
    assert sorted(excess)[5] < 1.1, excess


@pytest.mark.slow
def test_each_choice_says_in_what_it_differs(solver: World) -> None:
    context, ann, _, row = solver
    add_runs(context, ann, row, some(20), seed=4)
    typed = {"size": 2000, "steps": 20}
    found = context.proposals.propose(ann, "solver", typed, count=5, whole=True)
    every = context.proposals.propose(ann, "solver", typed, count=200).candidates
    of = {mark: one for one in found.candidates for mark in one.marks}
    assert {"best", "cheapest", "fastest"} <= of.keys()
    likely = [one for one in every if one.runtime is not None and (one.chance or 0.0) > 0.9]
    assert of["fastest"].runtime <= 1.1 * min(one.runtime for one in likely)  # type: ignore[operator, type-var]
    assert of["cheapest"].cost <= 1.1 * min(one.cost for one in likely)  # type: ignore[operator, type-var]
    assert len({one.difference for one in found.candidates}) == 5
    assert of["best"].difference == "least expected cost"
    assert "less time and costs " in of["fastest"].difference or "as long" in of["fastest"].difference
    sent = proposal_of(found).model_dump()["candidates"][0]
    assert (sent["marks"], sent["difference"]) == (list(found.candidates[0].marks), found.candidates[0].difference)
    charts = proposal_charts(found.space, [(one.configuration, one.offer, one.marks) for one in found.candidates])
    assert list(charts) == ["time", "cost", "distance"]
    assert [place for place, _ in charts["time"].x.labels] == [1.0, 2.0, 4.0, 8.0]
    assert len(charts["time"].layer("runs with other parameters").rows) == 20
    assert "distance" in charts["distance"].note or charts["distance"].table is not None
    alone = context.proposals.propose(ann, "solver", typed, count=1)
    assert len(alone.candidates) == 1


@pytest.mark.slow
def test_a_metric_of_its_own_is_predicted_too(context: Context) -> None:
    root, ann, _ = people(context)
    document = DOCUMENT.replace("minimise: cost", "maximise: rate").replace("name: solver", "name: rated")
    document += "interpret: {use: json_lines, metrics: [rate]}\n"
    row = context.applications.register(root, document, shared=True)
    first = context.proposals.propose(ann, "rated", {}).candidates[0]
    assert first.objective is None
    add_runs(context, ann, row, some(20), metric=lambda given, chosen: 7.0 * float(chosen["threads"]))
    found = context.proposals.propose(ann, "rated", {"size": 100})
    assert (found.metric, found.goal) == ("rate", "maximise")
    best = found.candidates[0]
    assert best.configuration["threads"] == 4
    assert best.objective == pytest.approx(28.0, rel=0.2)
    assert best.objective_low <= best.objective <= best.objective_high  # type: ignore[operator]
    sent = proposal_of(found).model_dump()
    assert (sent["metric"], sent["candidates"][0]["objective"]) == ("rate", best.objective)
    choice = choice_of(best, found)
    assert choice.objective == f"rate {best.objective:.4g}"
    assert " to " in choice.objective_range
    plain = choice_of(best, replace(found, metric="cost"))
    assert (plain.objective, plain.objective_range) == ("", "")
    assert choice.likelihood.endswith("to finish within 5m 00s"), "the application has a deadline"
    exact = replace(best, cost=1.0, cost_low=1.0000001, cost_high=1.0000002)
    assert choice_of(exact, found).cost_range == ""
    cheap = replace(best, cost=0.000067, cost_low=0.00005, cost_high=0.00008)
    choice = choice_of(cheap, replace(found, candidates=(cheap,)))
    assert (choice.cost, choice.cost_range, choice.cost_unit) == (
        "$0.0670", "$0.0500 to $0.0800", "per 1,000 runs",
    )  # fmt: skip


def test_a_new_run_changes_what_is_known_at_once(solver: World) -> None:
    context, ann, _, row = solver
    add_runs(context, ann, row, some(3))
    found = context.proposals.propose(ann, "solver", {"size": 500})
    assert (found.runs, found.advice) == (3, "only 3 runs are known: a search with a budget would tell more")
    add_runs(context, ann, row, some(FEW_RUNS, seed=2))
    found = context.proposals.propose(ann, "solver", {"size": 500})
    assert (found.runs, found.advice) == (3 + FEW_RUNS, "")


@pytest.mark.slow
def test_scales_are_chosen_once_for_the_same_past(solver: World, monkeypatch: pytest.MonkeyPatch) -> None:
    context, ann, _, row = solver
    add_runs(context, ann, row, some(12))
    chosen: list[int] = []
    choose = ExpansionFamily.choose

    def counted(self: ExpansionFamily, z: Array, y: Array, dropped: frozenset[str] = frozenset()) -> ExpansionShape:
        chosen.append(len(y))
        return choose(self, z, y, dropped)

    monkeypatch.setattr(ExpansionFamily, "choose", counted)
    first = context.proposals.propose(ann, "solver", {"size": 500})
    known = len(chosen)
    assert known
    assert context.proposals.propose(ann, "solver", {"size": 500}) == first
    context.proposals.propose(ann, "solver", {"size": 500}, deadline="20s", count=50)
    assert len(chosen) == known, "neither a deadline nor another number of candidates changes the past"
    context.proposals.propose(ann, "solver", {"size": 501})
    assert len(chosen) > known
    known = len(chosen)
    add_runs(context, ann, row, some(1, seed=3))
    assert context.proposals.propose(ann, "solver", {"size": 501}).runs == 13
    assert len(chosen) > known


@pytest.mark.slow
def test_a_deadline_that_cannot_be_kept_is_said(solver: World) -> None:
    context, ann, _, row = solver
    add_runs(context, ann, row, some(30))
    typed = {"size": 5000, "steps": 50}
    tight = context.proposals.propose(ann, "solver", typed, deadline="5s")
    assert tight.deadline == 5.0
    assert tight.candidates[0].chance is not None
    assert tight.candidates[0].chance < 0.1
    assert tight.advice.startswith("none is likely to keep deadline and bounds")
    loose = context.proposals.propose(ann, "solver", typed, deadline=3600)
    assert loose.candidates[0].chance == pytest.approx(1.0, abs=0.01)
    assert loose.candidates[0].offer.hourly < tight.candidates[0].offer.hourly, "less haste, less money"


def test_other_tenants_runs_are_theirs(solver: World) -> None:
    context, ann, bob, row = solver
    add_runs(context, ann, row, some(12))
    assert context.proposals.propose(bob, "solver", {}).runs == 0
    assert context.proposals.propose(ann, "solver", {}).runs == 12


def test_all_tenants_runs_where_the_administrator_allows_it(solver: World) -> None:
    context, ann, bob, row = solver
    add_runs(context, ann, row, some(12))
    home = context.data_folder
    sharing = ProposalService(context.applications, context.backends, ServiceSettings(shared_history=True), home)
    assert sharing.propose(bob, "solver", {}).runs == 12


@pytest.mark.slow
def test_the_first_proposal_is_one_to_learn_from_and_the_second_the_best_known(solver: World) -> None:
    context, ann, _, row = solver
    add_runs(context, ann, row, some(3))
    typed = {"size": 500, "steps": 5}
    plain, found = (one.propose(ann, "solver", typed) for one in (_cautious(context), context.proposals))
    assert not any(one.trying for one in plain.candidates)
    assert [one.trying for one in found.candidates] == [True, False, False, False, False]
    assert found.candidates[0].reason.startswith("to learn from; never run")
    assert (
        found.candidates[1:]
        == tuple(one for one in plain.candidates if one.configuration != found.candidates[0].configuration)[:4]
    )
    assert [choice_of(one, found).marks[0] for one in found.candidates[:2]] == ["try", "best"]
    assert plain.candidates[0].marks[0] == "best"
    assert [one["trying"] for one in proposal_of(found).model_dump()["candidates"][:2]] == [True, False]
    in_haste = context.proposals.propose(ann, "solver", {"size": 5000, "steps": 50}, deadline="2s")
    assert not in_haste.candidates[0].trying, "nobody learns where the deadline is at stake"


def _cautious(context: Context) -> ProposalService:
    """Proposals of a server whose administrator has switched learning off."""
    settings = ServiceSettings(explore=False)
    return ProposalService(context.applications, context.backends, settings, context.data_folder)


_STARS = """\
name: stars
job: {command: [stars, "--stars={{ stars }}", "--steps={{ steps }}", "--workers={{ workers }}"]}
space:
  instance: {provider: local, vcpu: 1, limit: 1}
  workers: [1, 2, 4, 8, 16, 32]
objective: {minimise: runtime}
application:
  title: Stars
  fields:
    stars: {type: integer, min: 1, default: 5000}
    steps: {type: integer, min: 1, default: 1000}
"""


def _stars(given: Mapping[str, Any], chosen: Configuration) -> float:
    workers = float(chosen["workers"])
    return float(given["stars"]) * float(given["steps"]) / 1e6 / workers + 0.15 * workers


def _distances(context: Context, proposals: ProposalService, who: Principal, row: ApplicationRow) -> list[float]:
    """Distance by run, as a share of the range, of somebody who takes what comes first."""
    rng, found = np.random.default_rng(3), []
    levels = (1, 2, 4, 8, 16, 32)
    for number in range(1, 16):
        typed = {"stars": int(rng.choice([5_000, 10_000, 20_000])), "steps": int(rng.choice([500, 1_000, 2_000]))}
        first = Configuration(proposals.propose(who, "stars", typed, count=1).candidates[0].configuration)
        times = [_stars(typed, Configuration({**first, "workers": level})) for level in levels]
        found.append((_stars(typed, first) - min(times)) / (max(times) - min(times)))
        add_runs(context, who, row, [typed], seconds=_stars, seed=number, on=first)
    return found


@pytest.mark.slow
def test_whoever_takes_the_first_proposal_comes_near_the_optimum_by_the_eighth_run(context: Context) -> None:
    root, ann, bob = people(context)
    row = context.applications.register(root, _STARS, shared=True)
    distances = _distances(context, context.proposals, ann, row)
    assert statistics.mean(distances[7:]) < 0.1, distances
    cautious = _distances(context, _cautious(context), bob, row)
    assert statistics.mean(cautious[7:]) > 0.5, "without learning it stays with the first machine"


def test_a_range_that_says_nothing_is_not_known_yet(solver: World) -> None:
    context, ann, _, row = solver
    add_runs(context, ann, row, [{"size": 10, "steps": 1}, {"size": 11, "steps": 1}], noise=0.0)
    found = _cautious(context).propose(ann, "solver", {"size": 100_000, "steps": 1000}, deadline="1000d")
    assert found.runs == 2
    first = found.candidates[0]
    assert (first.runtime, first.runtime_high, first.cost, first.cost_high) == (None, None, None, None)
    assert (first.marks, first.likelihood) == ((), "")
    assert first.difference == "time not known yet"
    assert choice_of(first, found).runtime == ""


@pytest.mark.slow
def test_runs_of_older_versions_count_as_far_as_their_fields_are_there(solver: World) -> None:
    context, ann, _, row = solver
    root = Principal(0, "root", "admin", "")
    add_runs(context, ann, row, some(10))
    more = DOCUMENT + "    order: {type: integer, default: 2}\n"
    assert context.applications.register(root, more, shared=True).version == 2
    found = context.proposals.propose(ann, "solver", {"size": 500})
    assert (found.application, found.runs) == ("solver@2", 10), "the old ones had the default"
    fewer = DOCUMENT.replace("    steps: {type: integer, min: 1, max: 1000, default: 10}\n", "").replace(
        ', "--steps={{ steps }}"', ""
    )
    context.applications.register(root, fewer, shared=True)
    assert context.proposals.propose(ann, "solver", {"size": 500}).runs == 0, "nobody knows what the steps were"


@pytest.mark.slow
def test_wrong_questions(solver: World) -> None:
    context, ann, _, _ = solver
    with pytest.raises(FormError, match="size: 0 is below 1"):
        context.proposals.propose(ann, "solver", {"size": 0})
    with pytest.raises(NotFoundError):
        context.proposals.propose(ann, "slover", {})
    with pytest.raises(NotFoundError):
        context.proposals.propose(ann, "solver", {}, backend="cloud")
    with pytest.raises(NoOfferError):
        context.proposals.propose(ann, "solver", {}, resources={"cpu": 100_000})


# ---------------------------------------------------------------------- settling


def settle(world: World, given: dict[str, Any]) -> Configuration:
    context, ann, _, row = world
    spec = context.applications.spec(row, {"size": 800}, context.backends.choose(ann, row))
    return context.proposals.settle(ann, row, spec, given)


@pytest.mark.slow
def test_what_the_user_chose_stays_and_the_rest_is_proposed(solver: World) -> None:
    context, ann, _, row = solver
    assert settle(solver, {}) == Configuration({"instance": "local.c1", "nodes": 1, "threads": 1})
    assert settle(solver, {"nodes": "4"}) == Configuration({"instance": "local.c1", "nodes": 4, "threads": 1})
    whole: dict[str, Value] = {"instance": "local.m1", "nodes": 2, "threads": 4}
    assert settle(solver, whole) == Configuration(whole)
    add_runs(context, ann, row, some(30))
    proposed = context.proposals.propose(ann, "solver", {"size": 800}).candidates[0]
    assert settle(solver, {}) == Configuration(proposed.configuration)
    assert settle(solver, {"nodes": 8})["nodes"] == 8
    assert settle(solver, {"nodes": 8})["threads"] == 4, "threads cost nothing here"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"node": 1}, "there is no parameter 'node' in the space"),
        ({"nodes": 3}, "nodes"),
        ({"instance": "local.x1"}, "instance"),
        ({"instance": "local.c1", "nodes": 2, "threads": 7}, "threads"),
    ],
)
def test_values_that_are_not_in_the_space(solver: World, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        settle(solver, given)


def test_conditions_between_what_was_chosen_and_the_rest(context: Context) -> None:
    root, ann, _ = people(context)
    text = DOCUMENT.replace("threads: [1, 2, 4]", "threads: [1, 2, 4]\nwhere: threads <= nodes")
    row = context.applications.register(root, text, shared=True)
    assert settle((context, ann, ann, row), {"threads": 4})["nodes"] == 4


# ---------------------------------------------------------------------- time


@pytest.mark.thorough
@pytest.mark.slow
def test_a_thousand_past_runs_answer_at_once(solver: World) -> None:
    """In processor time, and the middle one, for the machine of the tests is not idle; the first takes longer."""
    context, ann, _, row = solver
    add_runs(context, ann, row, some(1000))
    begun = time.perf_counter()
    assert context.proposals.propose(ann, "solver", {"size": 1}).runs >= 200
    first = time.perf_counter() - begun
    spent = []
    for size in range(100, 105):
        before = time.thread_time()
        found = context.proposals.propose(ann, "solver", {"size": size, "steps": 7})
        spent.append(time.thread_time() - before)
        assert found.candidates[0].cost is not None
    add_runs(context, ann, row, some(1, seed=9))
    before = time.thread_time()
    context.proposals.propose(ann, "solver", {"size": 300})
    spent.append(time.thread_time() - before)
    assert statistics.median(spent) < 0.3, (first, spent, os.getloadavg())
