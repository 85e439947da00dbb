"""The best set of machines is found, and it is proven that none is better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.workflow.advice.samples import OFFERS, TERMS, drawn, every_set, store, wanted

from tradewind.errors import NoOfferError, NothingFeasibleError
from tradewind.problem import Billing, Offer, TrialState
from tradewind.workflow.advice.advice import Advice, advise, choice_to_json, to_json, vms_yaml
from tradewind.workflow.advice.offers import kept_cost
from tradewind.workflow.advice.set_search import AdviceRequest
from tradewind.workflow.files import open_platform
from tradewind.workflow.schedule import check


def ask(question: AdviceRequest, folder: Path, offers: Sequence[Offer] = OFFERS) -> Advice:
    return advise(question, offers, store(folder), folder / "data")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "deadline", "budget"),
    [(1, 400.0, None), (1, 250.0, 0.5), (2, 900.0, 0.1), (3, None, 0.08), (4, None, None), (5, None, 5.0)],
)
def test_the_advice_is_the_optimum_of_an_exhaustive_search(
    tmp_path: Path, seed: int, deadline: float | None, budget: float | None
) -> None:
    path, flow = drawn(tmp_path, seed)
    found = ask(wanted(path, flow, deadline=deadline, budget=budget), tmp_path)
    sets = every_set(flow)
    good = {
        key: (span, cost)
        for key, (span, cost) in sets.items()
        if (deadline is None or span <= deadline) and (budget is None or cost <= budget)
    }
    assert good
    quickest = deadline is None and budget is not None
    best = min(good.values(), key=lambda pair: pair if quickest else pair[::-1])
    seen = found.best.figures
    assert (seen.makespan if quickest else seen.cost) == pytest.approx(best[0] if quickest else best[1], abs=2e-9)
    assert sets[found.best.key] == pytest.approx((seen.makespan, seen.cost), abs=2e-9)
    assert found.searched.proven
    assert len(found.searched.trials) <= found.searched.sets
    for trial in found.searched.trials:
        assert trial.state is TrialState.SUCCEEDED
        assert trial.observation is not None
        assert sets[trial.offer.key] == pytest.approx((trial.observation.runtime, trial.observation.cost), abs=2e-9)


@pytest.mark.slow
def test_the_front_is_one_and_holds_the_best(tmp_path: Path) -> None:
    path, flow = drawn(tmp_path, 6)
    question = wanted(path, flow, deadline=500.0, front=12)
    found = ask(question, tmp_path)
    costs = [row.figures.cost for row in found.front]
    spans = [row.figures.makespan for row in found.front]
    assert costs == sorted(costs)
    assert spans == sorted(spans, reverse=True)
    assert found.best in found.front
    assert len(found.front) > 3
    for row in found.front:
        check(flow, row.platform, row.schedule)
        assert row.figures.lower_bound <= row.figures.makespan * (1 + 1e-9)
        assert row.figures.cost == kept_cost(row.platform, row.figures.makespan)
    assert choice_to_json(found.best, question)["fits"]
    assert to_json(found, question)["proven"]
    assert "cheapest set found that ends within 8m 20s" in found.reasons[0]


@pytest.mark.slow
def test_a_better_plan_lets_a_set_win_that_the_quick_plan_left_too_slow(tmp_path: Path) -> None:
    path, flow = drawn(tmp_path, 7, 30)
    quick = ask(wanted(path, flow, deadline=500.0), tmp_path)
    sets = every_set(flow)
    # A deadline just below what HEFT makes of the cheapest set, and above what a better plan does.
    late = quick.best.figures.makespan - 0.5
    without = ask(wanted(path, flow, deadline=late), tmp_path)
    refined = ask(wanted(path, flow, deadline=late, refine=0.2), tmp_path)
    assert refined.best.figures.cost <= without.best.figures.cost
    assert refined.best.figures.makespan <= late
    assert refined.best.planner == "search"
    assert refined.best.figures.makespan < sets[refined.best.key][0]


@pytest.mark.slow
def test_what_cannot_be_done_says_what_comes_closest(tmp_path: Path) -> None:
    path, flow = drawn(tmp_path, 1)
    with pytest.raises(NothingFeasibleError, match=r"no set of up to 6 VMs can end within 30\.0 s") as raised:
        ask(wanted(path, flow, deadline=30.0), tmp_path)
    fastest = min(span for span, _ in every_set(flow).values())
    assert "the quickest found is" in str(raised.value)
    assert f"{int(fastest // 60)}m {round(fastest) % 60:02d}s" in str(raised.value)
    with pytest.raises(NothingFeasibleError, match=r"for at most 0\.1¢ .*the cheapest"):
        ask(wanted(path, flow, budget=0.001), tmp_path)
    big = replace(flow, tasks=(replace(flow.tasks[0], cores=99), *flow.tasks[1:]))
    with pytest.raises(NoOfferError, match="99 cores"):
        ask(wanted(path, big), tmp_path)


def test_too_few_trials_prove_nothing_and_say_so(tmp_path: Path) -> None:
    path, flow = drawn(tmp_path, 2)
    found = ask(wanted(path, flow, deadline=300.0, trials=1, searcher="random"), tmp_path, OFFERS[3:])
    assert not found.searched.proven
    assert "11 of 12 sets were not tried" in found.reasons[1]


@pytest.mark.slow
@pytest.mark.parametrize("searcher", ["exhaustive", "tradewind"])
def test_other_searchers_work_on_the_same_study(tmp_path: Path, searcher: str) -> None:
    path, flow = drawn(tmp_path, 3, 12)
    question = wanted(path, flow, deadline=300.0, searcher=searcher, trials=12, max_vms=3)
    found = ask(question, tmp_path)
    good = [cost for span, cost in every_set(flow, most=3).values() if span <= 300.0]
    assert found.best.figures.makespan <= 300.0
    assert found.best.figures.cost >= min(good) - 1e-9
    if searcher == "exhaustive":
        assert found.best.figures.cost == pytest.approx(min(good), abs=2e-9)


@pytest.mark.slow
def test_the_machines_are_written_as_other_commands_read_them(tmp_path: Path) -> None:
    path, flow = drawn(tmp_path, 3, 12)
    terms = replace(TERMS, storage="shared", latency=0.25, billing=Billing(5.0, 61.5, 0.25))
    found = ask(wanted(path, flow, deadline=400.0, terms=terms), tmp_path)
    (tmp_path / "vms.yaml").write_text(vms_yaml(found.best))
    read = open_platform(str(tmp_path / "vms.yaml"))
    assert read == found.best.platform


@pytest.mark.slow
def test_what_was_assumed_is_said(tmp_path: Path) -> None:
    path, flow = drawn(tmp_path, 3, 12)
    arm = replace(OFFERS[0], instance_type="arm-1", price_per_hour=0.01, arch="arm64")
    found = ask(wanted(path, flow, max_vms=2), tmp_path, (*OFFERS, arm))
    assert found.best.offers[0].instance_type == "arm-1"
    assert "arm-1 has arm64 processors" in found.warnings[1]
    assert "2 of 4 types count as speed 1" in found.warnings[0]
    usual = ask(wanted(path, flow, max_vms=2, terms=replace(TERMS, speeds={"*": 1.0})), tmp_path)
    assert [words.split()[0] for words in usual.warnings] == ["each"]


@pytest.mark.slow
def test_the_same_question_gets_the_same_answer(tmp_path: Path) -> None:
    path, flow = drawn(tmp_path, 8)
    one, other = (ask(wanted(path, flow, deadline=500.0), tmp_path) for _ in range(2))
    assert one.best.offers == other.best.offers
    assert one.best.schedule.start.tolist() == other.best.schedule.start.tolist()
    tried = [[trial.offer.key for trial in each.searched.trials] for each in (one, other)]
    assert tried[0] == tried[1]
    assert one.searched.study != other.searched.study
