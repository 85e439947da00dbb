"""The replay runner and the recorded runs that it answers from."""

from __future__ import annotations

import gzip
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tests.deployer.helpers import OFFER, OWNER, deployer_over, drive, request_for, row

from tradewind import plugins
from tradewind.deployer.runner.exit_reasons import timeout_reason
from tradewind.deployer.runner.recorded_runs import canonical_text
from tradewind.deployer.runner.replay import ReplayRunner, ReplaySettings
from tradewind.errors import RecordError, SpecError
from tradewind.problem import (
    Categorical,
    Configuration,
    Fault,
    Float,
    Handle,
    Instance,
    Integer,
    Nodes,
    Offer,
    Ordinal,
    RunRequest,
    RunState,
    RunStatus,
    Space,
)

ROWS = """\
workers,vm,ms,state,accuracy,price
1,small,10000,ok,0.5,0.01
2,small,6000,ok,0.6,0.012
2,small,8000,ok,0.7,0.014
4,small,3000,crashed,,
4,large,2000,ok,0.8,
"""


def make(folder: Path, text: str = ROWS, **settings: Any) -> ReplayRunner:
    (folder / "rows.csv").write_text(text)
    given = {"file": str(folder / "rows.csv"), "time": "ms", "unit": 0.001, "status": "state", **settings}
    made = plugins.create("runner", "replay", given, data_folder=folder / "data")
    assert isinstance(made, ReplayRunner)
    return made


def ask(folder: Path, run_id: str = "run-1", wall: float | None = None, **values: Any) -> RunRequest:
    return request_for(folder, ("none",), run_id, configuration=Configuration(values), wall=wall)


def outcome(runner: ReplayRunner, request: RunRequest) -> RunStatus:
    handle = runner.submit(request, [])
    while True:
        status = runner.poll([handle])[handle.run_id]
        if status.state.ended:
            return status
        runner.wait([handle], 1e9)


def metrics(request: RunRequest) -> dict[str, float]:
    read: dict[str, float] = json.loads((request.folder / "metrics.jsonl").read_text())
    return read


def test_time_jumps_and_metrics_are_written(tmp_path: Path) -> None:
    runner = make(tmp_path, metrics=["accuracy"], cost="price", start=1000)
    request = ask(tmp_path, workers=1, vm="small")
    status = outcome(runner, request)
    assert (status.state, status.runtime, status.exit_code) == (RunState.DONE, 10.0, 0)
    assert runner.clock.now() == 1010.0
    assert metrics(request) == {"accuracy": 0.5, "recorded_cost": 0.01}


def test_the_clock_stops_at_the_next_end(tmp_path: Path) -> None:
    runner = make(tmp_path, start=0)
    slow = runner.submit(ask(tmp_path, "run-1", workers=1, vm="small"), [])
    fast = runner.submit(ask(tmp_path, "run-2", workers=4, vm="large"), [])
    runner.wait([slow, fast], 0.5)
    assert runner.clock.now() == 0.5
    assert runner.poll([slow])["run-1"].runtime == 0.5
    runner.wait([slow, fast], 100)
    assert runner.clock.now() == 2.0
    assert {k: v.state for k, v in runner.poll([slow, fast]).items()} == {
        "run-1": RunState.EXECUTING,
        "run-2": RunState.DONE,
    }


def test_the_time_limit_is_exact(tmp_path: Path) -> None:
    runner = make(tmp_path)
    cut = ask(tmp_path, "run-1", wall=4.0, workers=1, vm="small")
    status = outcome(runner, cut)
    assert (status.state, status.runtime, status.exit_code) == (RunState.TIMED_OUT, 4.0, None)
    assert not (cut.folder / "metrics.jsonl").exists()
    assert outcome(runner, ask(tmp_path, "run-2", wall=10.0, workers=1, vm="small")).state is RunState.DONE


def test_what_failed_when_recorded_fails_again(tmp_path: Path) -> None:
    status = outcome(make(tmp_path), ask(tmp_path, workers=4, vm="small"))
    assert (status.state, status.fault, status.runtime, status.exit_code) == (RunState.FAILED, Fault.JOB, 3.0, 1)
    assert "crashed" in status.reason


def test_a_configuration_without_a_record(tmp_path: Path) -> None:
    status = outcome(make(tmp_path), ask(tmp_path, workers=3, vm="large"))
    assert (status.state, status.fault, status.runtime) == (RunState.FAILED, Fault.JOB, 0.0)
    assert status.reason == "no run was recorded for vm=large, workers=3"
    part = replace(ask(tmp_path, "run-0", workers=1, vm="large"), fidelity=0.25)
    assert outcome(make(tmp_path), part).reason.endswith("vm=large, workers=1, fraction=0.25")
    near = make(tmp_path, nearest=True)
    assert outcome(near, ask(tmp_path, "run-2", workers=3, vm="large")).runtime == 2.0
    assert outcome(near, ask(tmp_path, "run-3", workers=1.4, vm="small")).runtime == 10.0
    assert outcome(near, ask(tmp_path, "run-4", workers="many", vm="small")).state is not RunState.PREEMPTED


@pytest.mark.parametrize(("repeat", "seconds"), [("first", {6.0}), ("mean", {7.0}), ("random", {6.0, 8.0})])
def test_repeated_configurations(tmp_path: Path, repeat: str, seconds: set[float]) -> None:
    runner = make(tmp_path, repeat=repeat, metrics={"acc": "accuracy"})
    seen = set()
    for i in range(20):
        request = ask(tmp_path, f"run-{i}", workers=2, vm="small")
        seen.add(outcome(runner, request).runtime)
        expected = {"first": 0.6, "mean": 0.65}.get(repeat)
        assert metrics(request)["acc"] == pytest.approx(expected) if expected else metrics(request)["acc"] in (0.6, 0.7)
    assert seen == seconds


@pytest.mark.slow
def test_noise_is_seeded_by_the_run_and_has_mean_one(tmp_path: Path) -> None:
    def times(runner: ReplayRunner, owner: str, count: int = 400) -> list[float]:
        found = []
        for i in range(count):
            request = replace(ask(tmp_path, f"{owner}-{i}", workers=1, vm="small"), owner=owner)
            found.append(outcome(runner, request).runtime)
        return found

    first = times(make(tmp_path, noise=0.2), "a")
    assert times(make(tmp_path, noise=0.2), "b", 20) == first[:20], "equal seeds give equal searches"
    assert times(make(tmp_path, noise=0.2, seed=1), "c", 20) != first[:20]
    assert statistics.mean(first) == pytest.approx(10, rel=0.04)
    assert statistics.stdev(map(math.log, first)) == pytest.approx(0.2, rel=0.15)


def test_columns_may_have_other_names_and_offers_are_looked_up(tmp_path: Path) -> None:
    runner = make(tmp_path, columns={"w": "workers", "instance_type": "vm"})
    request = replace(ask(tmp_path, w=4), offer=replace(OFFER, instance_type="large"))
    assert outcome(runner, request).runtime == 2.0


def test_rows_are_chosen_and_read_from_gzip_with_another_delimiter(tmp_path: Path) -> None:
    text = "\ufeffjob;x;t\na;1;5\nb;1;7\n\n"
    with gzip.open(tmp_path / "rows.csv.gz", "wt", encoding="utf-8") as file:
        file.write(text)
    settings: dict[str, Any] = {
        "file": str(tmp_path / "rows.csv.gz"),
        "time": "t",
        "unit": 1,
        "status": "",
        "delimiter": ";",
    }
    runner = make(tmp_path, **settings, where={"job": "b"})
    assert outcome(runner, ask(tmp_path, x=1)).runtime == 7.0
    with pytest.raises(RecordError, match="no recorded run"):
        make(tmp_path, **settings, where={"job": "c"})


def test_the_share_of_the_input_is_looked_up_where_it_was_recorded(tmp_path: Path) -> None:
    runner = make(tmp_path, "x,fraction,ms,state\n1,0.5,500,ok\n1,1,1000,ok\n")
    assert outcome(runner, replace(ask(tmp_path, x=1), fidelity=0.5)).runtime == 0.5
    assert outcome(runner, ask(tmp_path, "run-2", x=1)).runtime == 1.0


@pytest.mark.parametrize(
    ("recorded", "asked", "found"),
    [
        ("0.333333", 1 / 3, True),
        ("0.666667", 2 / 3, True),
        ("0.666666", 2 / 3, True),
        ("0.3333333333333333", 0.333333, True),
        ("0.33333", 1 / 3, False),
        ("0.5", 0.500001, False),
        ("0.000012", 0.0000125, False),
        ("0.001", 0.0010004, True),
    ],
)
def test_a_share_of_the_input_is_found_by_six_decimals(
    tmp_path: Path, recorded: str, asked: float, found: bool
) -> None:
    runner = make(tmp_path, f"x,fraction,ms,state\n1,{recorded},500,ok\n1,1,1000,ok\n")
    part = replace(ask(tmp_path, x=1), fidelity=asked)
    status = outcome(runner, part)
    assert (status.state is RunState.DONE) is found


def test_shares_that_were_recorded_apart_are_not_mixed_up(tmp_path: Path) -> None:
    runner = make(tmp_path, "x,fraction,ms,state\n1,0.3333330,100,ok\n1,0.3333335,200,ok\n")
    assert outcome(runner, replace(ask(tmp_path, x=1), fidelity=0.3333335)).runtime == 0.2
    assert outcome(runner, replace(ask(tmp_path, "run-2", x=1), fidelity=0.333333)).runtime == 0.1


def test_a_parameter_that_no_column_answers_is_refused(tmp_path: Path) -> None:
    one, two = Categorical(name="level", values=(1,)), Categorical(name="level", values=(1, 2))
    workers, real = Integer(name="workers", low=1, high=4), Float(name="rate", low=0, high=1)
    runner = make(tmp_path, columns={"kind": "vm"})
    runner.covers(Space([workers, one]), {})
    runner.covers(Space([workers, Categorical(name="kind", values=("small", "large"))]), {})
    for parameter in (two, real):
        with pytest.raises(
            RecordError, match=rf"no column '{parameter.name}' \(columns: workers, vm, ms, state, accuracy, price\)"
        ) as caught:
            runner.covers(Space([workers, parameter]), {})
        assert caught.value.hint == f"map it with columns: {{{parameter.name}: COLUMN}}, or list it under ignore:"
        make(tmp_path, ignore=[parameter.name]).covers(Space([workers, parameter]), {})
    ignoring = make(tmp_path, ignore=["workers"])
    assert outcome(ignoring, ask(tmp_path, workers=77, vm="large")).runtime == 2.0


def test_machines_need_a_column_of_their_own(tmp_path: Path) -> None:
    small, large = (replace(OFFER, instance_type=name, facts={}) for name in ("small", "large"))
    far, twin = replace(small, region="far"), replace(small, instance_type="twin")
    nodes = Nodes(name="nodes", values=(1, 2))

    def instance(**offers: Offer) -> Instance:
        return Instance(name="instance", values=tuple(offers), offers=offers)

    one = instance(a=small)
    with pytest.raises(RecordError, match="no column 'nodes'"):
        make(tmp_path).covers(Space([one, nodes]), {})
    make(tmp_path, columns={"nodes": "workers"}).covers(Space([one, nodes]), {})
    several = Space([instance(a=small, b=large, c=far)])
    for columns in ({}, {"region": "vm"}, {"vcpu": "workers"}):
        with pytest.raises(RecordError, match="no column 'instance'"):
            make(tmp_path, columns=columns).covers(several, {})
    make(tmp_path, columns={"instance_type": "vm"}).covers(several, {})
    cpus = Ordinal(name="cpus", values=(2, 4), attribute="vcpu")  # a machine that is looked up by its type
    make(tmp_path, columns={"instance_type": "vm"}).covers(Space([cpus]), {})
    with pytest.raises(RecordError, match="no column 'cpus'"):
        make(tmp_path, columns={"region": "vm"}).covers(Space([cpus]), {})
    make(tmp_path, columns={"vcpu": "workers"}).covers(Space([instance(a=small, b=replace(large, vcpu=64.0))]), {})
    with pytest.raises(RecordError, match="no column 'instance'"):
        make(tmp_path, columns={"vcpu": "workers"}).covers(Space([instance(a=small, b=twin)]), {})


def test_trials_without_a_parameter_that_was_not_active_are_told_apart(tmp_path: Path) -> None:
    def record(seconds: float, **values: Any) -> dict[str, Any]:
        return {**RECORD, "configuration": values, "observation": {**RECORD["observation"], "runtime": seconds}}  # type: ignore[dict-item]

    trials = [record(1, codec="a", level=1), record(2, codec="a", level=2), record(3, codec="b")]
    runner = from_records(tmp_path, trials)
    asked: list[dict[str, Any]] = [{"codec": "a", "level": 2}, {"codec": "b"}]
    assert [outcome(runner, ask(tmp_path, f"r{i}", **each)).runtime for i, each in enumerate(asked)] == [2, 3]
    level = Categorical(name="level", values=(1, 2))
    runner.covers(Space([Categorical(name="codec", values=("a", "b")), level]), {})


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("workers,state\n1,ok\n", 1, "no column 'ms'"),
        ("workers,ms,state\n1,ok\n", 2, "2 columns"),
        ("workers,ms,state\n1,fast,ok\n", 2, "ms is 'fast'"),
        ("workers,ms,state\n1,1,ok\n2,-1,ok\n", 3, "ms is '-1'"),
        ("workers,ms,state\n1,nan,ok\n", 2, "ms is 'nan'"),
        ("workers,ms,state\n1,,ok\n", 2, "ms is ''"),
        ("", 1, "no column 'ms'"),
        ("workers,ms,state\n", None, "no recorded run"),
    ],
)
def test_a_wrong_file_is_one_clear_error(tmp_path: Path, text: str, line: int | None, words: str) -> None:
    with pytest.raises(RecordError, match=words) as caught:
        make(tmp_path, text)
    assert caught.value.file == str(tmp_path / "rows.csv")
    assert caught.value.line == line


def test_other_wrong_files(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot be read: No such file"):
        make(tmp_path, file=str(tmp_path / "gone.csv"))
    (tmp_path / "latin.csv").write_bytes(b"workers,ms,state\n\xe9,1,ok\n")
    with pytest.raises(RecordError, match="not a CSV file in UTF-8"):
        make(tmp_path, file=str(tmp_path / "latin.csv"))
    (tmp_path / "plain.gz").write_text("workers,ms,state\n")
    with pytest.raises(RecordError, match="not a CSV file"):
        make(tmp_path, file=str(tmp_path / "plain.gz"))
    with pytest.raises(RecordError, match="accuracy is 'high', not a number"):
        make(tmp_path, ROWS.replace("0.5", "high"), metrics=["accuracy"])
    with pytest.raises(RecordError, match="no column has the name of a parameter"):
        make(tmp_path).submit(ask(tmp_path, colour="red"), [])
    with pytest.raises(SpecError, match="either file"):
        plugins.create("runner", "replay", {}, data_folder=tmp_path)


RECORD = {
    "record": 1,
    "state": "succeeded",
    "configuration": {"x": 1},
    "proposal": {"fidelity": 1.0},
    "observation": {"runtime": 12.5, "metrics": {"runtime": 12.5, "loss": 0.25, "odd": {"float": "nan"}}, "reason": ""},
}


def from_records(folder: Path, records: Sequence[Any]) -> ReplayRunner:
    text = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in records)
    (folder / "records.jsonl").write_text(text + "\n\n")
    settings = ReplaySettings(records=folder / "records.jsonl")
    return ReplayRunner(settings=settings, data_folder=folder / "data")


def test_low_level_metrics_come_back(tmp_path: Path) -> None:
    observation = {**RECORD["observation"], "profile": {"cpu_seconds": 7.5, "odd": {"float": "nan"}}}  # type: ignore[dict-item]
    runner = from_records(tmp_path, [{**RECORD, "observation": observation}])
    assert outcome(runner, ask(tmp_path, "run-1", x=1)).usage.profile == {"cpu_seconds": 7.5}


def test_answers_from_the_stores_own_trials(tmp_path: Path) -> None:
    failed = {**RECORD, "state": "failed", "configuration": {"x": 2}}
    failed["observation"] = {"runtime": 3, "metrics": {}, "reason": "out of memory"}
    aborted = {**RECORD, "state": "aborted", "configuration": {"x": 3}}
    lost = {**RECORD, "state": "lost", "configuration": {"x": 4}, "observation": None}
    runner = from_records(tmp_path, [RECORD, failed, aborted, lost])
    good = ask(tmp_path, "run-1", x=1)
    assert outcome(runner, good).runtime == 12.5
    assert metrics(good) == {"loss": 0.25}
    bad = outcome(runner, ask(tmp_path, "run-2", x=2))
    assert (bad.state, bad.runtime, bad.reason) == (RunState.FAILED, 3.0, "out of memory")
    for x in (3, 4):
        assert "no run was recorded" in outcome(runner, ask(tmp_path, f"run-{x + 2}", x=x)).reason


def trial_record(number: int, *runs: dict[str, Any], state: str = "succeeded", **seen: Any) -> dict[str, Any]:
    """A record of a trial with x=1 and its runs."""
    observation = {"runtime": 12.5, "metrics": {"loss": 0.25}, "reason": "", **seen}
    listed = [{"attempt": place, **one} for place, one in enumerate(runs, start=1)]
    return {
        **RECORD,
        "number": number,
        "state": state,
        "observation": None if state == "lost" else observation,
        "runs": listed,
    }


DONE: dict[str, Any] = {"state": "done", "exit_code": 0, "usage": {"cpu_seconds": 3.0, "profile": {"reads": 7.0}}}
LOGS: dict[str, Any] = {
    "stdout": {"text": "loss 0.5\n", "bytes": 9, "cut": False},
    "outputs/a/b.txt": {"base64": "/w==", "bytes": 1, "cut": False},
}


def test_the_trial_of_the_same_number_answers_and_otherwise_the_first(tmp_path: Path) -> None:
    trials = [trial_record(number, DONE, runtime=10.0 + number) for number in range(3)]
    runner = from_records(tmp_path, trials)
    for run_id, seconds in ((f"{OWNER}-00002-1", 12.0), (f"{OWNER}-00001-1", 11.0), (f"{OWNER}-00009-1", 10.0)):
        assert outcome(runner, ask(tmp_path, run_id, x=1)).runtime == seconds
    settings = ReplaySettings(records=tmp_path / "records.jsonl", repeat="first")
    first = ReplayRunner(settings=settings, data_folder=tmp_path / "other")
    assert outcome(first, ask(tmp_path, f"{OWNER}-00002-1", x=1)).runtime == 10.0


def test_logs_of_the_record_are_put_into_the_runs_folder(tmp_path: Path) -> None:
    runner = from_records(tmp_path, [trial_record(0, {**DONE, "logs": LOGS})])
    request = ask(tmp_path, f"{OWNER}-00000-1", x=1)
    status = outcome(runner, request)
    assert (status.exit_code, status.usage.cpu_seconds, status.usage.profile) == (0, 3.0, {"reads": 7.0})
    assert (request.folder / "stdout").read_text() == "loss 0.5\n"
    assert (request.folder / "outputs/a/b.txt").read_bytes() == b"\xff"
    assert not (request.folder / "metrics.jsonl").exists()
    assert runner.recorded_metrics(request) is None, "interpreters read the logs"


def test_recorded_metrics_count_where_logs_are_cut_or_not_there(tmp_path: Path) -> None:
    part = {"stdout": {"text": "loss", "bytes": 9000, "cut": True}}
    runner = from_records(tmp_path, [trial_record(0, {**DONE, "logs": part}), trial_record(1, DONE, metrics={"a": 2})])
    for number, known in ((0, {"loss": 0.25}), (1, {"a": 2.0})):
        request = ask(tmp_path, f"{OWNER}-0000{number}-1", x=1)
        outcome(runner, request)
        assert runner.recorded_metrics(request) == known
        assert not (request.folder / "stdout").exists()
    table = make(tmp_path, metrics=["accuracy"])
    assert table.recorded_metrics(ask(tmp_path, workers=1, vm="small")) is None, "a CSV has what a program reports"


def test_a_run_that_was_cut_short_is_cut_short_again(tmp_path: Path) -> None:
    cut = {"state": "timed_out", "reason": timeout_reason(12.0)}
    runner = from_records(tmp_path, [trial_record(0, cut, state="aborted", reason="too dear")])

    def ended(number: int, wall: float | None) -> RunStatus:
        run_id = f"{OWNER}-{number:05d}-1"
        runner.forget(Handle(run_id, "replay", {"owner": OWNER}))
        return outcome(runner, ask(tmp_path, run_id, wall=wall, x=1))

    for number, wall, seconds in ((0, 12.0, 12.5), (0, None, 12.5), (0, 20.0, 12.5), (0, 5.0, 5.0), (9, 5.0, 5.0)):
        status = ended(number, wall)
        assert (status.state, status.runtime) == (RunState.TIMED_OUT, seconds), (number, wall)
    beyond = ended(9, 20.0)
    assert beyond.state is RunState.FAILED
    assert beyond.reason == "no run was recorded for x=1 that went on for longer than 12.5 s"


def test_machines_that_were_lost_are_lost_again(tmp_path: Path) -> None:
    lost = {"state": "preempted", "fault": "infrastructure", "runtime": 4.0, "reason": "the spot machine is gone"}
    stopped = {"state": "cancelled", "runtime": 1.0, "reason": "the user stopped the search"}
    runner = from_records(tmp_path, [trial_record(0, lost, stopped, DONE), trial_record(1, lost, state="lost")])
    first = outcome(runner, ask(tmp_path, f"{OWNER}-00000-1", x=1))
    assert (first.state, first.fault, first.runtime) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE, 4.0)
    assert outcome(runner, ask(tmp_path, f"{OWNER}-00000-2", x=1)).state is RunState.DONE, "nobody stops it this time"
    assert outcome(runner, ask(tmp_path, f"{OWNER}-00001-1", x=1)).state is RunState.PREEMPTED


def test_exit_codes_are_those_of_the_record(tmp_path: Path) -> None:
    odd = {"state": "failed", "fault": "job", "exit_code": 3, "reason": "the program exited with code 3", "logs": LOGS}
    unread = trial_record(1, DONE, state="failed", metrics={}, reason="regex loss: nothing in stdout")
    runner = from_records(tmp_path, [trial_record(0, odd), unread])
    status = outcome(runner, ask(tmp_path, f"{OWNER}-00000-1", x=1))
    assert (status.state, status.exit_code, status.reason) == (RunState.FAILED, 3, "the program exited with code 3")
    again = outcome(runner, ask(tmp_path, f"{OWNER}-00001-1", x=1))
    assert (again.state, again.exit_code, again.reason) == (RunState.FAILED, 1, "regex loss: nothing in stdout")


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "outputs/../../evil", "inputs/x", "outputs"])
def test_logs_stay_in_the_folder_of_their_run(tmp_path: Path, name: str) -> None:
    with pytest.raises(RecordError, match="is no file of a run") as caught:
        from_records(tmp_path, [trial_record(0, {**DONE, "logs": {name: {"text": "x"}}})])
    assert caught.value.line == 1


@pytest.mark.parametrize(
    "wrong", ["{", "[]", '{"state": "succeeded"}', json.dumps({**RECORD, "observation": {"runtime": "NaN"}})]
)
def test_a_wrong_record_is_one_clear_error(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(RecordError) as caught:
        from_records(tmp_path, [RECORD, wrong])
    assert caught.value.line == 2
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(RecordError, match="UTF-8"):
        ReplayRunner(settings=ReplaySettings(records=tmp_path / "binary"), data_folder=tmp_path)


def test_another_process_goes_on_where_the_clock_stood(tmp_path: Path) -> None:
    first = make(tmp_path, start=5000)
    first.clock.sleep(100)
    request = ask(tmp_path, workers=1, vm="small")
    handle = first.submit(request, [])
    second = make(tmp_path, start=0)
    assert second.clock.now() == 5100
    assert second.submit(request, []) == handle
    assert outcome(second, request).runtime == 10.0
    # Even without its note the handle tells all.
    second.forget(handle)
    third = make(tmp_path, start=5109)
    assert third.poll([handle])["run-1"].state is RunState.EXECUTING
    third.cancel(handle)
    status = third.poll([handle])["run-1"]
    assert (status.state, status.runtime) == (RunState.CANCELLED, 9.0)
    assert make(tmp_path).poll([handle])["run-1"].state is RunState.CANCELLED
    assert [each.run_id for each in third.find(OWNER)] == ["run-1"]


def test_a_run_that_nobody_planned(tmp_path: Path) -> None:
    runner = make(tmp_path)
    status = runner.poll([Handle("ghost", "replay", {})])["ghost"]
    assert (status.state, status.fault) == (RunState.PREEMPTED, Fault.INFRASTRUCTURE)


def test_folders_that_cannot_be_written(tmp_path: Path) -> None:
    from tradewind.errors import DeployError

    runner = make(tmp_path)
    (tmp_path / "file").write_text("")
    request = replace(ask(tmp_path, workers=1, vm="small"), folder=tmp_path / "file" / "run")
    with pytest.raises(DeployError, match="cannot be written"):
        runner.submit(request, [])


def test_a_whole_search_of_runs_takes_no_time(tmp_path: Path) -> None:
    deployer = deployer_over(tmp_path, runner=make(tmp_path))
    deployer.launch(row(), ask(tmp_path, workers=1, vm="small"))
    last = drive(deployer)[-1]
    assert (last.state, last.cost, last.runtime) == (RunState.DONE, 10.0, 10.0)
    assert last.ended is not None
    assert last.started is not None
    assert last.ended - last.started == 10.0
    deployer.close()


def test_values_have_one_spelling() -> None:
    assert canonical_text(1) == canonical_text("1.0") == canonical_text(1.0) == canonical_text(" 1e0 ")
    assert canonical_text(True) == canonical_text("True") == canonical_text("yes") != canonical_text(1)
    assert canonical_text(False) == canonical_text("no")
    assert canonical_text(2**53) == canonical_text("9007199254740992.0") != canonical_text(2**53 - 1)
    assert canonical_text(3 * 0.05) == canonical_text("0.15")
    assert canonical_text(None) == ""
    assert canonical_text("t2.small") == "t2.small"


SIZED = """\
size,workers,s
10,1,100
10,2,60
20,1,200
20,2,120
"""


def test_job_parameters_choose_among_the_recorded_runs(tmp_path: Path) -> None:
    runner = make(tmp_path, SIZED, time="s", unit=1.0, status="", repeat="mean")
    for size, other, took in ((10.0, 5.0, 60.0), (20.0, 7.0, 120.0)):
        request = replace(ask(tmp_path, f"run-{size}", workers=2), parameters={"size": size, "unknown": other})
        assert outcome(runner, request).runtime == took
    mapped = make(tmp_path, SIZED, time="s", unit=1.0, status="", columns={"scale": "size"})
    assert outcome(mapped, replace(ask(tmp_path, "run-3", workers=1), parameters={"scale": 20})).runtime == 200.0
    ignored = make(tmp_path, SIZED, time="s", unit=1.0, status="", ignore=["size"])
    assert outcome(ignored, replace(ask(tmp_path, "run-4", workers=1), parameters={"size": 30})).runtime == 100.0


def test_job_parameters_that_nobody_recorded_are_refused_before_the_first_trial(tmp_path: Path) -> None:
    space = Space([Integer(name="workers", low=1, high=2)])
    given: dict[str, Any] = {"time": "s", "unit": 1.0, "status": ""}
    runner = make(tmp_path, SIZED, **given)
    runner.covers(space, {"size": 20.0, "unknown": 5.0})
    with pytest.raises(RecordError, match=r"no run was recorded with size=30 \(size is 10, 20 there; nearest: true"):
        runner.covers(space, {"size": 30.0})
    make(tmp_path, SIZED, **given, nearest=True).covers(space, {"size": 30.0})
    make(tmp_path, SIZED, **given, ignore=["size"]).covers(space, {"size": 30.0})


def test_a_mapped_name_that_nothing_has(tmp_path: Path) -> None:
    offers = {"a": OFFER, "b": replace(OFFER, instance_type="b", facts={"ghz": 3.0})}
    space = Space([Instance(name="instance", values=("a", "b"), offers=offers)])
    for name in ("instance_type", "ghz", "nodes", "fraction"):
        with pytest.raises(RecordError) as caught:
            make(tmp_path, columns={name: "vm", "instance_typ": "vm"}).covers(space, {})
        assert "columns maps 'instance_typ', which is no parameter and no fact of an offer" in str(caught.value)


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ("\t", r"by tabs \(write delimiter: \"\\t\"\)"),
        (";", "by semicolons"),
        ("|", r"by '\|'"),
    ],
)
def test_other_separators_are_named(tmp_path: Path, mark: str, words: str) -> None:
    with pytest.raises(RecordError, match=words):
        make(tmp_path, ROWS.replace(",", mark))
    assert len(make(tmp_path, ROWS.replace(",", mark), delimiter=mark).table) == 5


@pytest.mark.parametrize("wrong", [[{"a": "b"}], [["a"]], [1]])
def test_metrics_that_are_no_names_are_refused(wrong: list[Any]) -> None:
    with pytest.raises(ValidationError, match="metrics"):
        ReplaySettings.model_validate({"file": "runs.csv", "metrics": wrong})
