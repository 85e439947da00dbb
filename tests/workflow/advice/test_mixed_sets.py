"""Mixed sets of machines: found where they are better, and never taken where they are not."""

from __future__ import annotations

import itertools
import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.workflow.advice.samples import OFFERS, TERMS, drawn, store, wanted

from tradewind.errors import NoOfferError, NothingFeasibleError, WorkflowError
from tradewind.plugins import Settings
from tradewind.problem import Billing, Offer
from tradewind.workflow.advice import mixed_sets
from tradewind.workflow.advice.advice import Advice, advise, choice_to_json, to_json, vms_yaml
from tradewind.workflow.advice.mixed_sets import kinds_of, mix_sets
from tradewind.workflow.advice.offers import MachineSetBounds, billable_seconds, fitting_power, probable_makespan
from tradewind.workflow.advice.set_search import AdviceRequest, search_sets
from tradewind.workflow.bounds import lower_bound
from tradewind.workflow.files import open_platform, read_workflow
from tradewind.workflow.graph import Workflow
from tradewind.workflow.planner.heft import HeftPlanner
from tradewind.workflow.platform import Platform, Storage, Vm
from tradewind.workflow.schedule import check

HERE = (
    Offer("here", "slow-1", 1, 2, 0.05, region="a", family="slow"),
    Offer("here", "slow-4", 4, 8, 0.21, region="a", family="slow"),
    Offer("here", "fast-2", 2, 4, 0.36, region="a", family="fast"),
)
MOST = 5


def ask(question: AdviceRequest, folder: Path, offers: tuple[Offer, ...] = HERE) -> Advice:
    return advise(question, offers, store(folder), folder / "data")


def mixed(path: Path, flow: Workflow, **changes: object) -> AdviceRequest:
    return wanted(path, flow, **{"max_vms": MOST, "mix": 2, "trials": 1000, **changes})


def every_mixed(flow: Workflow, most_kinds: int = 2) -> dict[str, tuple[float, float]]:
    """Makespan and cost of every set of up to so many kinds, written out; by the names and counts of its kinds."""
    speeds = {"slow": 1.0, "fast": 2.5}
    found = {}
    for counts in itertools.product(range(MOST + 1), repeat=len(HERE)):
        used = [(offer, count) for offer, count in zip(HERE, counts, strict=True) if count]
        if not 0 < len(used) <= most_kinds or sum(counts) > MOST:
            continue
        used.sort(key=lambda pair: (-speeds[pair[0].family], -pair[0].vcpu))
        vms = [
            Vm(f"{offer.instance_type}-{place}", speeds[offer.family], int(offer.vcpu), 0.0, boot_seconds=20.0)
            for offer, count in used
            for place in range(count)
        ]
        span = HeftPlanner(settings=Settings()).plan(flow, Platform(tuple(vms))).makespan
        seconds = max(60, math.ceil(span - 1e-6))
        cost = sum(seconds / 3600 * offer.price_per_hour * count for offer, count in used)
        found[" + ".join(f"{count} x {offer.instance_type}" for offer, count in used)] = span, cost
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [2, 3])
@pytest.mark.parametrize(
    ("seed", "deadline", "budget"),
    [(1, 400.0, None), (1, 250.0, None), (2, 420.0, 0.1), (3, None, 0.08), (4, None, None), (5, 300.0, None)],
)
def test_the_best_of_all_mixed_sets_is_found_and_proven(
    tmp_path: Path, seed: int, deadline: float | None, budget: float | None, kinds: int
) -> None:
    path, flow = drawn(tmp_path, seed)
    found = ask(mixed(path, flow, deadline=deadline, budget=budget, mix=kinds), tmp_path)
    sets = every_mixed(flow, kinds)
    good = [
        (span, cost)
        for span, cost in sets.values()
        if (deadline is None or span <= deadline) and (budget is None or cost <= budget)
    ]
    quickest = deadline is None and budget is not None
    best = min(span if quickest else cost for span, cost in good)
    seen = found.best.figures
    value = seen.makespan if quickest else seen.cost
    assert best * (1 - 1e-6) <= value <= best * (1 + mixed_sets.TRIFLE + 1e-6)
    assert found.searched.proven
    assert found.mixing.proven
    assert (
        found.mixing.sets
        == sum(math.comb(len(HERE), size) * math.comb(MOST, size) for size in range(2, kinds + 1))
        == sum(" + " in name for name in sets)
    )
    for planned in found.mixing.planned:
        name = " + ".join(f"{offer.nodes} x {offer.instance_type}" for offer in planned.offers)
        assert sets[name] == pytest.approx((planned.makespan, planned.cost), abs=1e-8)


@pytest.mark.slow
def test_mixing_is_never_worse_and_sometimes_much_better(tmp_path: Path) -> None:
    saved = []
    for seed in range(1, 9):
        path, flow = drawn(tmp_path, seed)
        sets = every_mixed(flow, 1)
        deadline = 1.1 * min(span for span, _ in sets.values())
        pure = ask(mixed(path, flow, deadline=deadline, mix=1), tmp_path)
        both = ask(mixed(path, flow, deadline=deadline), tmp_path)
        assert pure.mixing.planned == ()
        assert [trial.offer.key for trial in both.searched.trials] == [t.offer.key for t in pure.searched.trials]
        saved.append(1.0 - both.best.figures.cost / pure.best.figures.cost)
    assert min(saved) >= 0.0
    assert max(saved) > 0.05
    assert sum(each > 0.0 for each in saved) >= 3


@pytest.mark.slow
def test_a_case_that_pen_and_paper_solve(tmp_path: Path) -> None:
    # A chain of 250 s at speed 1 must be on the fast machine to end in 130 s; the short tasks beside it need not.
    tasks = {f"c{place}": {"command": ["x"], "runtime": 50, "after": [f"c{place - 1}"] if place else []}
             for place in range(5)}  # fmt: skip
    tasks |= {f"s{place}": {"command": ["x"], "runtime": 90} for place in range(3)}
    path = tmp_path / "chain.yaml"
    path.write_text(json.dumps({"name": "chain", "tasks": tasks}))
    offers = (
        Offer("here", "slow-1", 1, 2, 0.036, family="slow"),
        Offer("here", "fast-1", 1, 2, 0.36, family="fast"),
    )
    found = ask(mixed(path, read_workflow(path), deadline=130.0), tmp_path, offers)
    assert [(offer.instance_type, offer.nodes) for offer in found.best.offers] == [("fast-1", 1), ("slow-1", 3)]
    assert found.best.figures.makespan == pytest.approx(120.0)
    assert found.best.figures.cost == pytest.approx(120 * (0.36 + 3 * 0.036) / 3600)
    assert "The cheapest set of one type found is 2 x fast-1: 2m 08s, $0.0256." in found.reasons


@pytest.mark.slow
def test_a_mixed_set_is_told_and_written_as_others_are(tmp_path: Path) -> None:
    path, flow = drawn(tmp_path, 1)
    question = mixed(path, flow, deadline=250.0, refine=0.05)
    found = ask(question, tmp_path)
    best = found.best
    assert len(best.offers) == 2
    check(flow, best.platform, best.schedule)
    assert best.figures.makespan <= 250.0
    assert lower_bound(flow, best.platform) == best.figures.lower_bound
    assert best in found.front
    document = choice_to_json(best, question)
    assert document["count"] == len(best.platform.vms) == sum(each["count"] for each in document["machines"])
    assert document["type"] is None
    hourly = sum(each["price_per_hour"] * each["count"] for each in document["machines"])
    assert document["cost"] == pytest.approx(math.ceil(best.figures.makespan) / 3600 * hourly, abs=1e-8)
    assert to_json(found, question)["mixed"]["proven"]
    (tmp_path / "vms.yaml").write_text(vms_yaml(best))
    assert open_platform(str(tmp_path / "vms.yaml")) == best.platform


@pytest.mark.slow
@pytest.mark.parametrize("differs", [{"region": "b"}, {"provider": "there"}, {"arch": "arm64"}])
def test_machines_of_two_places_or_processors_are_not_mixed(tmp_path: Path, differs: dict[str, str]) -> None:
    path, flow = drawn(tmp_path, 1)
    pair = (HERE[0], HERE[2])
    together = ask(mixed(path, flow, deadline=250.0), tmp_path, pair)
    assert len(together.best.offers) == 2
    apart = ask(mixed(path, flow, deadline=250.0), tmp_path, (pair[0], replace(pair[1], **differs)))  # type: ignore[arg-type]
    assert apart.mixing.sets == 0
    assert len(apart.best.offers) == 1
    assert not any("types" in words for words in apart.reasons)


def test_a_kind_that_another_one_replaces_is_left_out(tmp_path: Path) -> None:
    _, flow = drawn(tmp_path, 1)
    arm = replace(OFFERS[0], instance_type="arm-1", price_per_hour=0.01, arch="arm64")
    dear = replace(OFFERS[0], instance_type="slow-3", vcpu=3, price_per_hour=0.25)
    found = [[offer.instance_type for offer in here] for here in kinds_of((*OFFERS, arm, dear), flow, TERMS)]
    # slow-1b is as slow-1, slow-3 is less than slow-4 for more; arm-1 and fast-8 are alone where they are.
    assert found == [["fast-2", "slow-4", "slow-1"]]


@pytest.mark.slow
def test_too_many_sets_are_drawn_and_nothing_is_called_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, flow = drawn(tmp_path, 1)
    question = mixed(path, flow, deadline=250.0, trials=60)
    every = ask(question, tmp_path)
    monkeypatch.setattr(mixed_sets, "_MOST", 12)
    some = [ask(question, tmp_path) for _ in range(2)]
    assert some[0].mixing.planned == some[1].mixing.planned
    assert 0 < some[0].mixing.sets <= 12
    assert not some[0].mixing.proven
    assert "could be cheaper" in some[0].reasons[-1]
    # Neighbours of the best set are looked at, drawn or not.
    assert some[0].best.figures.cost <= every.best.figures.cost * 1.05
    other = ask(replace(question, seed=5), tmp_path)
    assert other.mixing.planned != some[0].mixing.planned


def test_sets_that_are_drawn_keep_the_limits() -> None:
    kinds, counts = mixed_sets._drawn(9, 2000, 3, 12, 100, np.random.default_rng(1))
    assert len(kinds) > 500
    assert counts.sum(axis=1).max() <= 12
    used = counts > 0
    assert set(used.sum(axis=1).tolist()) == {2, 3}
    assert ((kinds >= 100) & (kinds < 109))[used].all()
    assert (np.diff(np.where(used, kinds, 1000), axis=1) >= 0).all()
    assert not kinds[~used].any()


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.sampled_from([0.5, 1.0, 2.5]), st.integers(1, 8)), min_size=1, max_size=3, unique=True),
    st.sampled_from(["none", "shared"]),
)
def test_no_plan_on_a_mixed_set_beats_its_bound(kinds: list[tuple[float, int]], storage: Storage) -> None:
    tasks = {f"t{i}": {"command": ["x"], "runtime": 7 + i * 5 % 11, "inputs": ["a"],
                       "after": [f"t{i - 4}"] if i > 5 else []}
             for i in range(14)}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flow.yaml"
        path.write_text(json.dumps({"files": {"a": "45MB"}, "tasks": tasks}))
        flow = read_workflow(path)
    terms = replace(TERMS, storage=storage)
    speeds, slots = (np.array([values], dtype=float) for values in zip(*kinds, strict=True))
    path_, work = MachineSetBounds(flow, terms).parts_together(speeds, slots)
    vms = tuple(Vm(str(place), speed, count) for place, (speed, count) in enumerate(kinds))
    made = HeftPlanner(settings=Settings()).plan(flow, Platform(vms, storage))
    assert made.makespan >= max(path_[0], work[0]) * (1 - 1e-9)


@pytest.mark.slow
@given(
    st.lists(st.floats(0.0, 1e6), min_size=1, max_size=5),
    st.sampled_from([Billing(), Billing(5.0, 61.5, 0.25), Billing(0.0, 60.0, 3600.0), Billing(0.0, 0.0, 0.1)]),
)
def test_many_times_are_billed_as_one_is(times: list[float], billing: Billing) -> None:
    expected = [billing.billed_seconds(each) for each in times]
    assert billable_seconds(billing, np.array(times)).tolist() == pytest.approx(expected)


def test_the_expected_makespan_is_between_the_bound_and_the_sum() -> None:
    path, work = np.array([10.0, 50.0, 30.0]), np.array([40.0, 5.0, 30.0])
    for power in (1.2, 4.0, 30.0):
        seen = probable_makespan(path, work, power)
        assert (seen >= np.maximum(path, work)).all()
        assert (seen <= path + work).all()
        assert fitting_power(path, work, 20.0 + seen, 20.0) == power


@pytest.mark.slow
def test_the_time_and_the_number_of_plans_are_limited(tmp_path: Path) -> None:
    path, flow = drawn(tmp_path, 1)
    few = ask(mixed(path, flow, deadline=250.0, trials=1), tmp_path)
    assert (len(few.mixing.planned), few.mixing.proven) == (1, False)
    question = mixed(path, flow, deadline=250.0)
    pure = search_sets(question, HERE, store(tmp_path), tmp_path / "data")
    late = mix_sets(question, HERE, pure, HeftPlanner(settings=Settings()), 0.0)
    assert (late.planned, late.proven) == ((), False)


def test_what_no_mixed_set_can_do_is_said(tmp_path: Path) -> None:
    path, flow = drawn(tmp_path, 1)
    with pytest.raises(NothingFeasibleError, match=r"no set of up to 5 VMs can end within 30\.0 s"):
        ask(mixed(path, flow, deadline=30.0), tmp_path)


@pytest.mark.slow
def test_a_mixed_set_keeps_limits_that_no_set_of_one_type_does(tmp_path: Path) -> None:
    path, flow = drawn(tmp_path, 1)
    deadline = 250.0
    cheapest = min(cost for span, cost in every_mixed(flow, 1).values() if span <= deadline)
    best = min(cost for span, cost in every_mixed(flow).values() if span <= deadline)
    question = mixed(path, flow, deadline=deadline, budget=(cheapest + best) / 2)
    with pytest.raises(NothingFeasibleError):
        ask(replace(question, mix=1), tmp_path)
    found = ask(question, tmp_path)
    assert found.best.figures.cost == pytest.approx(best, rel=1e-6)
    assert "No set of one type was found that does so." in found.reasons


@pytest.mark.slow
def test_small_machines_beside_a_large_one_for_the_task_that_needs_it(tmp_path: Path) -> None:
    """One task of 20 GiB and twenty of 1 GiB: the large type alone is dear, the small type alone is no set."""
    tasks = {"large": {"command": ["x"], "runtime": 100, "memory": "20GiB"}}
    tasks |= {f"s{place}": {"command": ["x"], "runtime": 100, "memory": "1GiB"} for place in range(20)}
    path = tmp_path / "one-large.yaml"
    path.write_text(json.dumps({"name": "one-large", "tasks": tasks}))
    flow = read_workflow(path)
    offers = (
        Offer("here", "small-2", 2, 4, 0.10, family="small"),
        Offer("here", "smaller-1", 1, 0.5, 0.01, family="small"),  # no task fits
        Offer("here", "large-2", 2, 32, 0.60, family="large"),
    )
    assert TERMS.room(offers[0], flow) == 0
    assert [TERMS.some_room(offer, flow) for offer in offers] == [2, 0, 2]
    assert [TERMS.sure_room(offer, flow) for offer in offers] == [2, 0, 1]
    question = mixed(path, flow, deadline=400.0, max_vms=6)
    found = ask(question, tmp_path, offers)
    best = found.best
    assert [(offer.instance_type, offer.nodes) for offer in best.offers] == [("large-2", 1), ("small-2", 5)]
    assert best.figures.makespan == pytest.approx(220.0)  # boot, and two rounds on twelve slots
    assert best.figures.cost == pytest.approx(220.0 / 3600 * (5 * 0.10 + 0.60))
    check(flow, best.platform, best.schedule)
    assert best.platform.vms[best.schedule.vm[flow.index["large"]]].kind == "large-2"
    assert best.figures.lower_bound <= best.figures.makespan
    assert found.mixing.proven
    assert all(any(offer.instance_type == "large-2" for offer in row.offers) for row in found.mixing.planned)
    pure = ask(replace(question, mix=1, max_vms=8), tmp_path, offers)
    assert {offer.instance_type for offer in pure.best.offers} == {"large-2"}
    assert best.figures.cost < pure.best.figures.cost * 0.5
    # What is written can be planned on again: the machines say what memory they have.
    (tmp_path / "vms.yaml").write_text(vms_yaml(best))
    assert open_platform(str(tmp_path / "vms.yaml")).holding(flow) == best.platform
    with pytest.raises(WorkflowError, match="'large' needs 20 GiB of memory, and no machine has as much"):
        TERMS.together((replace(offers[0], nodes=2),), flow)


def _wide_and_dense(folder: Path) -> tuple[Path, Workflow]:
    """A task for many cores, one for much memory: no type of `_APART` is for both."""
    tasks = {"dense": {"command": ["x"], "runtime": 100, "memory": "20GiB"},
             "wide": {"command": ["x"], "runtime": 50, "cores": 8}}  # fmt: skip
    path = folder / "apart.yaml"
    path.write_text(json.dumps({"name": "apart", "tasks": tasks}))
    return path, read_workflow(path)


_APART = (Offer("here", "wide-8", 8, 8, 0.8, region="a"), Offer("here", "dense-1", 1, 32, 0.4, region="a"))


def test_where_no_type_has_room_for_every_task_several_types_are_looked_for(tmp_path: Path) -> None:
    path, flow = _wide_and_dense(tmp_path)
    question = mixed(path, flow)
    found = ask(question, tmp_path, _APART)
    assert {(offer.instance_type, offer.nodes) for offer in found.best.offers} == {("wide-8", 1), ("dense-1", 1)}
    assert found.best.figures.makespan == 120.0
    assert found.reasons[1] == "No type alone has room for every task."
    assert not any("All 0 sets" in reason or "of one type" in reason for reason in found.reasons)
    assert to_json(found, question)["study"] is None


def test_a_workflow_that_nothing_on_offer_has_room_for_gets_one_line(tmp_path: Path) -> None:
    path, flow = _wide_and_dense(tmp_path)
    question = mixed(path, flow)
    with pytest.raises(NoOfferError, match=r"^no offer has room for task 'dense', which takes 1 core and 20 GiB of "):
        ask(question, tmp_path, _APART[:1])
    with pytest.raises(NoOfferError, match=r"no type alone has room for every task \(.*--mix 2 looks"):
        ask(replace(question, mix=1), tmp_path, _APART)
    far = (_APART[0], replace(_APART[1], region="b"))
    with pytest.raises(NoOfferError, match="no type alone has room for every task, nor have 2 types of one provider"):
        ask(question, tmp_path, far)
    with pytest.raises(NothingFeasibleError, match=r"can end within 25\.0 s \(no type alone has room .* lower bounds"):
        ask(replace(question, deadline=25.0), tmp_path, _APART)
    # Without a limit there is none to name.
    with pytest.raises(NothingFeasibleError, match=r"no set of up to 6 VMs was planned \(the search took its 0\.00 s"):
        ask(mixed(*drawn(tmp_path, 1), seconds=1e-9, max_vms=6), tmp_path)


@pytest.mark.slow
def test_tasks_of_unlike_shares_share_a_machine_of_the_set(tmp_path: Path) -> None:
    tasks = {"dense": {"command": ["x"], "runtime": 100, "memory": "20GiB"}}
    tasks |= {f"s{place}": {"command": ["x"], "runtime": 100, "memory": "1GiB"} for place in range(7)}
    path = tmp_path / "bag.yaml"
    path.write_text(json.dumps({"name": "bag", "tasks": tasks}))
    question = mixed(path, read_workflow(path), deadline=150.0, mix=1)
    best = ask(question, tmp_path, (Offer("here", "eight", 8, 32, 1.0),)).best
    assert (best.offers[0].nodes, best.figures.makespan) == (1, 120.0)  # it was one slot for every task
    check(question.flow, best.platform, best.schedule)


def test_a_kind_is_replaced_only_by_one_that_takes_its_tasks(tmp_path: Path) -> None:
    tasks = {f"t{gib}": {"command": ["x"], "runtime": 10, "memory": f"{gib}GiB"} for gib in (1, 3, 6)}
    path = tmp_path / "three.yaml"
    path.write_text(json.dumps({"tasks": tasks}))
    flow = read_workflow(path)
    sizes = {"one": (2, 0.1), "three": (3, 0.2), "dear-three": (4, 0.3), "six": (6, 0.4), "dear-six": (7, 0.5)}
    offers = [Offer("here", name, 1, gib, price) for name, (gib, price) in sizes.items()]
    assert [[offer.instance_type for offer in here] for here in kinds_of(offers, flow, TERMS)] == [
        ["one", "six", "three"]
    ]
    assert kinds_of(offers[:3], flow, TERMS) == []  # the task of 6 GiB would have no machine
