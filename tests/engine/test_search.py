from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tradewind import plugins
from tradewind.deployer.runner.warden.slots import SlotRegistry
from tradewind.engine import search as loop
from tradewind.engine.search import Search
from tradewind.engine.search_builder import build_problem, build_search, find_or_create_study
from tradewind.engine.state_machine.snapshot import SearchSnapshot
from tradewind.errors import NoOfferError, SpecError, StoreFullError, StudyBusyError, TeardownError
from tradewind.problem import Run, RunState, TrialState
from tradewind.problem.job_spec.spec import JobSpec, parse_spec
from tradewind.store.base import Change, Store, this_process
from tradewind.utils.paths import data_folder, slots_folder, store_url

JOB = """
name: recorded
job: {command: [unused]}
space:
  instance: {provider: local, vcpu: 1, limit: 1}
  x: 1..8
deploy:
  runner: {use: replay, file: runs.csv}
searcher: {use: exhaustive, order: declared}
parallel: 2
abort: false
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    rows = [f"{x},{100 - 10 * x}" for x in range(1, 9)]
    (tmp_path / "runs.csv").write_text("\n".join(["x,runtime", *rows]) + "\n")
    return tmp_path


@pytest.fixture
def store() -> Any:
    opened: Store = plugins.create("store", "sql", {}, url=store_url())
    yield opened
    opened.close()


def spec_of(base: Path, text: str = JOB) -> JobSpec:
    return parse_spec(text, file="job.yaml", base=base)


def search_of(spec: JobSpec, store: Store, seen: list[SearchSnapshot] | None = None) -> Search:
    study, _ = find_or_create_study(spec, store)
    return build_search(spec, study, store, data_folder(), observer=None if seen is None else seen.append)


@pytest.mark.slow
def test_recorded_runs_are_searched_through_the_same_engine(base: Path, store: Store) -> None:
    seen: list[SearchSnapshot] = []
    spec = spec_of(base)
    search = search_of(spec, store, seen)
    stop = search.run()
    assert "every configuration" in stop.reason or "tried" in stop.reason
    study = store.find_studies("recorded")[0]
    assert study.state == "finished"
    summary = store.summaries()[0]
    assert summary.best is not None
    assert summary.best.configuration["x"] == 8
    assert summary.holder == ""
    assert seen[-1].finished
    assert seen[-1].size == 8
    assert max(len(s.running) for s in seen) == 2
    # 8 runs of 90, 80, ... 20 s on two machines: simulated time passes, real time does not.
    assert study.elapsed == pytest.approx(240.0, rel=0.2)


def test_long_runs_on_a_clock_that_jumps_take_few_rounds(base: Path, store: Store) -> None:
    (base / "runs.csv").write_text("\n".join(["x,runtime", *(f"{x},{36000 + x}" for x in range(1, 9))]) + "\n")
    seen: list[SearchSnapshot] = []
    search_of(spec_of(base), store, seen).run()
    trials = store.trials(store.find_studies("recorded")[0].id)
    assert [trial.observation.runtime for trial in trials if trial.observation] == [36000 + x for x in range(1, 9)]
    assert len(seen) < 200  # ten hours each, two at a time: a look every quarter of a second would be half a million


@pytest.mark.slow
def test_a_study_is_stopped_and_goes_on_where_it_was(base: Path, store: Store) -> None:
    spec = spec_of(base)
    asked = 0

    def until_third() -> bool:
        nonlocal asked
        asked += 1
        return asked < 4

    stop = search_of(spec, store).run(until_third)
    assert stop.interrupted
    study = store.find_studies("recorded")[0]
    assert study.state == "interrupted"
    before = {t.number: t for t in store.trials(study.id) if t.state.ended}
    search_of(spec, store).run()
    after = store.trials(study.id)
    assert [t.number for t in after] == list(range(8))
    assert all(after[number] == trial for number, trial in before.items())
    cancelled = [r for r in store.runs(study.id) if r.state == RunState.CANCELLED]
    assert cancelled
    assert sum(r.cost for r in store.runs(study.id)) == pytest.approx(sum(t.spent for t in after))


def calls_of(search: Search, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, frozenset[str]]]:
    """Which runs a deployer is told to end, in the order in which it is."""
    found: list[tuple[str, frozenset[str]]] = []
    deployer = search.parts.deployer
    stop, cancel = deployer.stop, deployer.cancel

    def stopped(reasons: Mapping[str, str]) -> None:
        found.append(("stop", frozenset(reasons)))
        stop(reasons)

    def cancelled(run_id: str, reason: str) -> Run | None:
        found.append(("cancel", frozenset([run_id])))
        return cancel(run_id, reason)

    monkeypatch.setattr(deployer, "stop", stopped)
    monkeypatch.setattr(deployer, "cancel", cancelled)
    return found


@pytest.mark.parametrize("broken", [False, True], ids=["interrupted", "error"])
def test_all_that_runs_is_told_to_end_before_the_first_is_waited_for(
    base: Path, store: Store, monkeypatch: pytest.MonkeyPatch, broken: bool
) -> None:
    search = search_of(spec_of(base), store)
    calls = calls_of(search, monkeypatch)
    going: set[str] = set()

    def wanted() -> bool:
        going.update(search.parts.machine.runs)
        if broken and going:
            raise StoreFullError("the disk is full")
        return not going

    with contextlib.suppress(StoreFullError):
        assert search.run(wanted).interrupted is not broken
    assert len(going) == 2
    assert calls[0] == ("stop", frozenset(going))
    assert sorted(calls[1:], key=str) == sorted((("cancel", frozenset([name])) for name in going), key=str)
    assert search.parts.deployer.poll() == []


def test_a_full_disk_cancels_what_runs_and_lets_the_study_go(
    base: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(base)
    search = search_of(spec, store)
    cancelled: list[str] = []
    cancel = search.parts.deployer.cancel

    def noting(run_id: str, reason: str) -> Run | None:
        cancelled.append(run_id)
        return cancel(run_id, reason)

    monkeypatch.setattr(search.parts.deployer, "cancel", noting)
    write, left = store.write, 5

    def failing(study_id: int, change: Change, token: str | None = None) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            raise StoreFullError("the disk is full")
        write(study_id, change, token)

    monkeypatch.setattr(store, "write", failing)
    with pytest.raises(StoreFullError):
        search.run()
    assert cancelled
    monkeypatch.undo()
    study = store.find_studies("recorded")[0]
    assert store.summaries([study.id])[0].holder == ""
    search_of(spec, store).run()
    assert {t.state for t in store.trials(study.id)} == {TrialState.SUCCEEDED}


def test_a_searcher_that_breaks_leaves_nothing_running(
    base: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = search_of(spec_of(base), store)
    asked = search.parts.searcher.ask
    calls = 0

    def breaking(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > 2:
            raise ValueError("a bug of an outside searcher")
        return asked(*args)

    monkeypatch.setattr(search.parts.searcher, "ask", breaking)
    with pytest.raises(ValueError, match="a bug"):
        search.run()
    assert store.summaries()[0].holder == ""
    assert search.parts.deployer.active == {}  # type: ignore[attr-defined]


def test_the_hold_is_renewed_and_a_lost_one_ends_the_search(
    base: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_SIGN_OF_LIFE", 0.0)
    search = search_of(spec_of(base), store)
    renewed = 0

    def renew(study_id: int, token: str, seconds: float) -> None:
        nonlocal renewed
        renewed += 1
        if renewed == 3:
            raise StudyBusyError("taken by another")

    monkeypatch.setattr(store, "renew", renew)
    with pytest.raises(StudyBusyError):
        search.run()
    assert renewed == 3


def test_who_lost_the_study_leaves_its_runs_to_the_one_who_took_it(
    base: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = search_of(spec_of(base), store)
    cancelled: list[str] = []
    monkeypatch.setattr(search.parts.deployer, "cancel", lambda run_id, reason: cancelled.append(run_id))
    deployer_wait = search.parts.deployer.wait

    def wait(seconds: float) -> None:
        # The hold has run out, and another process takes the study while two runs are on their way.
        store.hold(search.parts.study.id, this_process(), 30.0)
        deployer_wait(seconds)

    monkeypatch.setattr(search.parts.deployer, "wait", wait)
    with pytest.raises(StudyBusyError):
        search.run()
    assert search.parts.machine.runs
    assert cancelled == []


def test_a_run_that_does_not_end_does_not_keep_the_others_running(
    base: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = search_of(spec_of(base), store)
    tried: list[str] = []

    def cancel(run_id: str, reason: str) -> Run | None:
        tried.append(run_id)
        raise TeardownError(f"run {run_id} has not ended")

    def breaking() -> list[Run]:
        raise ValueError("a bug")

    monkeypatch.setattr(search.parts.deployer, "cancel", cancel)
    monkeypatch.setattr(search.parts.deployer, "poll", breaking)
    with pytest.raises(TeardownError):
        search.run()
    assert len(tried) == 2
    assert store.summaries()[0].holder == ""


def test_what_nobody_sells_is_a_failed_trial_with_the_reason(
    base: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(base, JOB + "budget: {trials: 3}\n")
    search = search_of(spec, store)
    problem = search.parts.problem

    class Choosy:
        machine_parameters = problem.resolver.machine_parameters

        def resolve(self, configuration: Any) -> Any:
            if configuration["x"] == 2:
                raise NoOfferError("nobody sells x=2")
            return problem.resolver.resolve(configuration)

    _ = problem.candidates  # computed while everything was sold
    object.__setattr__(search.parts.machine, "problem", replace(problem, resolver=Choosy()))
    search.run()
    trials = store.trials(store.find_studies("recorded")[0].id)
    assert trials[1].state == TrialState.FAILED
    assert trials[1].observation is not None
    assert trials[1].observation.reason == "nobody sells x=2"
    assert trials[1].spent == 0


def test_a_space_without_machines_runs_on_this_whole_machine(base: Path) -> None:
    text = JOB.replace("  instance: {provider: local, vcpu: 1, limit: 1}\n", "")
    problem = build_problem(spec_of(base, text), data_folder())
    offer = problem.resolver.resolve(problem.candidates.configuration(0))
    assert offer.provider == "local"
    assert len(problem.candidates) == 8


def test_offers_that_nobody_sells_are_said_so(base: Path) -> None:
    text = JOB.replace("  instance: {provider: local, vcpu: 1, limit: 1}\n", "") + "offers: {vcpu: 5000..}\n"
    with pytest.raises(NoOfferError, match="no offer"):
        build_problem(spec_of(base, text), data_folder())


def test_the_process_runner_refuses_machines_of_a_cloud(base: Path, store: Store) -> None:
    text = JOB.replace("provider: local, vcpu: 1", "provider: aws, vcpu: 2").replace(
        "  runner: {use: replay, file: runs.csv}", "  runner: process"
    )
    with pytest.raises(SpecError, match="the process runner runs on this machine, it cannot make aws"):
        search_of(spec_of(base, text), store)


@pytest.mark.parametrize(
    ("provisioner", "runner", "why"),
    [
        ("{use: none, hosts: [a]}", "process", "process runs on this machine only"),
        ("none", "ssh", "0 hosts of its own, the provisioner gives none, 1 wanted"),
        ("{use: none, hosts: [a]}", "slurm", "the engine of slurm has its own machines"),
    ],
)
def test_parts_whose_settings_do_not_go_together(
    base: Path, store: Store, provisioner: str, runner: str, why: str
) -> None:
    given = f"  runner: {runner}\n  provisioner: {provisioner}"
    text = JOB.replace("  runner: {use: replay, file: runs.csv}", given)
    with pytest.raises(SpecError, match=why) as caught:
        search_of(spec_of(base, text), store)
    assert "cannot run on local/" in str(caught.value)


def test_an_exit_code_that_the_user_accepts_is_a_success(base: Path, store: Store) -> None:
    text = """
name: grep-like
job: {command: [sh, -c, "exit {{ code }}"]}
space:
  instance: {provider: local, vcpu: 1, limit: 1}
  code: [0, 1, 2]
interpret:
- {use: exit_code, allowed: [0, 1]}
searcher: {use: exhaustive, order: declared}
"""
    search_of(spec_of(base, text), store).run()
    trials = store.trials(store.find_studies("grep-like")[0].id)
    assert [t.state for t in trials] == [TrialState.SUCCEEDED, TrialState.SUCCEEDED, TrialState.FAILED]


def test_the_users_price_list_is_seen_from_the_yamls_folder(base: Path) -> None:
    (base / "prices.csv").write_text("API Name,Provider,CPU,Memory,Category,Price\nbox.1,mine,2,4,General,0.5\n")
    text = JOB.replace("instance: {provider: local, vcpu: 1, limit: 1}", "instance: {provider: mine}")
    problem = build_problem(spec_of(base, text + "catalogues: {csv: {path: prices.csv}}\n"), data_folder())
    assert problem.candidates.offer(0).instance_type == "box.1"
    with pytest.raises(SpecError, match=r"job\.yaml:\d+: .*pth"):
        spec_of(base, text + "catalogues: {csv: {pth: prices.csv}}\n")


@pytest.mark.slow
def test_a_program_that_ignores_its_end_does_not_break_the_budget(base: Path, store: Store) -> None:
    text = """
name: stubborn
job: {command: [sh, -c, "trap '' TERM; while true; do sleep 0.05; done # {{ x }}"]}
space:
  instance: {provider: local, vcpu: 1, limit: 1}
  x: [1, 2]
budget: {dollars: 0.00003}
deploy: {billing: {granularity: 10ms}}
searcher: {use: exhaustive, order: declared}
"""
    stop = search_of(spec_of(base, text), store).run()
    summary = store.summaries()[0]
    second = 0.045 / 3600  # USD: a busy machine kills later
    assert 0.000015 < summary.spent <= 0.00003 + second
    assert "budget" in stop.reason
    assert set(summary.counts) == {"aborted"}


def test_a_searcher_gets_back_its_own_state_and_never_anothers(
    base: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(base)
    search = search_of(spec, store)
    monkeypatch.setattr(search.parts.searcher, "state", lambda: {"seen": 7})
    search.run()
    restored: list[object] = []
    again = search_of(spec, store)
    monkeypatch.setattr(again.parts.searcher, "restore", restored.append)
    again.run()
    other = search_of(spec_of(base, JOB.replace("use: exhaustive, order: declared", "use: random")), store)
    monkeypatch.setattr(other.parts.searcher, "restore", restored.append)
    other.run()
    assert restored == [{"seen": 7}]


def test_the_present_budget_is_stored_with_a_study_that_goes_on(base: Path, store: Store) -> None:
    search_of(spec_of(base, JOB + "budget: {trials: 2}\n"), store).run()
    search_of(spec_of(base, JOB + "budget: {trials: 3}\n"), store).run()
    study = store.find_studies("recorded")[0]
    assert study.spec["budget"]["trials"] == 3
    assert len(store.trials(study.id)) == 3


def test_time_that_another_process_stored_after_the_study_was_found_counts(base: Path, store: Store) -> None:
    search = search_of(spec_of(base), store)
    store.write(search.parts.study.id, Change(study={"elapsed": 77.0}))
    search.begin()
    try:
        assert search.parts.machine.elapsed >= 77.0
    finally:
        search.end()


def test_a_run_that_is_given_up_does_not_hold_up_the_others_until_its_machines_are_gone(
    base: Path, store: Store
) -> None:
    (base / "runs.csv").write_text("x,runtime\n1,10\n2,5000\n3,10\n4,10\n")
    text = JOB.replace("abort: false\n", "").replace("1..8", "1..4")
    provisioned = "  provisioner: {use: simulated, boot: 0, shutdown: 600}\nsearcher"
    seen: list[SearchSnapshot] = []
    search = search_of(spec_of(base, text.replace("searcher", provisioned, 1)), store, seen)
    search.run()
    study = store.find_studies("recorded")[0]
    trials = {trial.configuration["x"]: trial for trial in store.trials(study.id)}
    runs = {run.trial: run for run in store.runs(study.id)}
    assert trials[2].state == TrialState.ABORTED
    aborted, next_one = runs[trials[2].number], runs[trials[3].number]
    assert aborted.ended is not None and next_one.started is not None
    # Trial 3 has the place of trial 1; it was there before the machines of trial 2 were on their way down.
    assert next_one.started <= aborted.ended - 600
    ending = [one for snapshot in seen for one in snapshot.running if one.ending]
    assert {one.trial.number for one in ending} == {trials[2].number}
    assert trials[2].observation is not None
    assert ending[0].ending == trials[2].observation.reason
    assert study.elapsed < 4 * 620


def test_after_a_crash_what_was_being_ended_is_ended_and_not_repeated(
    base: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    (base / "runs.csv").write_text("x,runtime\n1,10\n2,5000\n3,5000\n4,5000\n")
    text = JOB.replace("abort: false\n", "").replace("1..8", "1..4")
    spec = spec_of(base, text.replace("searcher", "  provisioner: {use: simulated, shutdown: 600}\nsearcher", 1))

    class Killed(BaseException):
        pass

    def seeing(snapshot: SearchSnapshot) -> None:
        if any(one.ending for one in snapshot.running):
            raise Killed

    study, _ = find_or_create_study(spec, store)
    first = build_search(spec, study, store, data_folder(), observer=seeing)
    monkeypatch.setattr(first, "end", lambda: None)  # kill -9 leaves everything as it is
    with pytest.raises(Killed):
        first.run()
    (left,) = [run for run in store.runs(study.id, open_only=True) if run.reason.startswith("being ended: ")]
    store.release(study.id, store.hold(study.id, this_process(), 1.0, force=True))

    second = search_of(spec, store)
    made: list[str] = []
    provisioner = second.parts.deployer.provisioner  # type: ignore[attr-defined]
    make = provisioner.make

    def noted(run_id: str, *rest: Any) -> Any:
        made.append(run_id)
        return make(run_id, *rest)

    monkeypatch.setattr(provisioner, "make", noted)
    second.run()
    trial = store.trials(study.id)[left.trial]
    assert (trial.state, trial.attempts) == (TrialState.ABORTED, 1)
    assert trial.observation is not None
    assert trial.observation.reason == left.reason.removeprefix("being ended: ")
    assert left.run_id not in made


WAITS = """
name: waits
job: {command: ["true"]}
space: {x: [1]}
objective: {minimise: runtime}
offers: {provider: local, vcpu: 1}
deploy: {runner: {use: process, share: true}}
budget: {trials: 1}
"""


def test_a_run_that_waits_says_for_whom_in_the_store_at_once(
    base: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_SIGN_OF_LIFE", math.inf)
    held, every = SlotRegistry.of_this_process(), os.sched_getaffinity(0)
    nothing = {"memory": 0, "memory_here": 1, "device": 0, "devices_here": [], "group": ""}
    wanted = {"folder": str(slots_folder()), "cpu": len(every), "search": "other", "name": "tea", **nothing}
    held.take("held", wanted, every)
    search, said = search_of(spec_of(base, WAITS), store), list[str]()

    def look() -> bool:
        if not said and any(run.reason for run in search.parts.machine.runs.values()):
            said.extend(run.reason for run in store.runs(search.parts.study.id, open_only=True))
            held.give_back("held")
        return True

    search.run(look)
    assert said == [f"it waits: {len(every)} of {len(every)} CPUs are used by search tea"]
