from __future__ import annotations

import os
import threading
import tracemalloc
from pathlib import Path

import pytest
from tests.waiting import eventually

from tradewind import plugins
from tradewind.deployer.runner.base import Runner, StreamsLogs, StreamsReports
from tradewind.engine.report_listener import ReportListener, why_reports_unavailable
from tradewind.engine.state_machine.events import RunReported
from tradewind.errors import UnreachableError
from tradewind.plugins import CallsNetwork
from tradewind.problem import Handle, Run, RunState
from tradewind.stopper.base import LearningCurve, StopperSettings


class _Source(Runner, StreamsLogs, StreamsReports):
    """Gives what it is told to; nothing else of a runner is asked for."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.down = False
        self.asked = 0

    submit = poll = cancel = find = None  # type: ignore[assignment]

    def read_log(self, handle: Handle, stream: str, offset: int) -> bytes:
        self.asked += 1
        if self.down:
            raise UnreachableError("the engine does not answer")
        return self.content.get(f"{handle.run_id}/{stream}", b"")[offset : offset + 30]

    def read_report(self, handle: Handle, offset: int) -> bytes:
        return self.read_log(handle, "metrics", offset)


class _Far(_Source, CallsNetwork):
    """The same across a network."""


def run(name: str, state: RunState = RunState.EXECUTING, folder: Path | None = None) -> Run:
    return Run(name, 0, state=state, handle=Handle(name, "source"), folder=str(folder or ""))


LINES = b'{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n'


def test_what_is_new_is_read_once_and_no_oftener_than_asked() -> None:
    source = _Source()
    listener = ReportListener(source, StopperSettings(every=2.0), "loss")
    source.content["a/metrics"] = LINES[:30]
    assert listener.look([run("a")], 0.0) == [RunReported("a", ((1, 0.5),))]
    source.content["a/metrics"] = LINES
    assert listener.look([run("a")], 1.9) == []
    assert listener.look([run("a"), run("b", RunState.SUBMITTING)], 2.0) == [RunReported("a", ((2, 0.25),))]
    assert listener.look([run("a")], 9.0) == []


def test_a_log_is_read_where_the_settings_say_so() -> None:
    source = _Source()
    source.content["a/stdout"] = b"epoch 1 loss 0.5\nepoch 2 loss 0.25\n"
    settings = StopperSettings(file="stdout", pattern=r"epoch (?P<step>\d+) loss (?P<value>\S+)")
    assert ReportListener(source, settings, "loss").look([run("a")], 0.0) == [RunReported("a", ((1, 0.5), (2, 0.25)))]


def test_an_engine_that_does_not_answer_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    source = _Source()
    source.content["a/metrics"] = LINES
    source.down = True
    listener = ReportListener(source, StopperSettings(), "loss")
    assert listener.look([run("a")], 0.0) == []
    assert "what it reports cannot be read: the engine does not answer" in caplog.text
    source.down = False
    assert listener.look([run("a")], 1.0) == [RunReported("a", ((1, 0.5), (2, 0.25)))]


def test_an_engine_across_a_network_holds_up_nobody() -> None:
    source, gate = _Far(), threading.Event()
    source.content["a/metrics"] = LINES
    read = source.read_log
    source.read_log = lambda *given: (gate.wait(5), read(*given))[1]  # type: ignore[method-assign]
    listener = ReportListener(source, StopperSettings(), "loss")
    assert listener.look([run("a")], 0.0) == []
    assert listener.look([run("a")], 5.0) == [], "it is still being asked"
    gate.set()
    assert eventually(lambda: listener.look([run("a")], 6.0)) == [RunReported("a", ((1, 0.5), (2, 0.25)))]


def test_all_of_an_ended_run_is_read_from_its_folder(tmp_path: Path) -> None:
    listener = ReportListener(_Source(), StopperSettings(), "loss")
    (tmp_path / "metrics.jsonl").write_bytes(LINES + b'{"step": 3, "loss": 0.125}')
    points = [(1, 0.5), (2, 0.25), (3, 0.125)]
    ended = run("a", RunState.DONE, tmp_path)
    (told,) = listener.whole(ended)
    assert (told.run_id, list(told.points), told.final) == ("a", points, True)
    assert {number: list(known) for number, known in listener.earlier([ended, run("b")]).items()} == {0: points}
    assert listener.whole(run("b", RunState.DONE, tmp_path / "gone")) == []
    (tmp_path / "metrics.jsonl").unlink()
    os.mkfifo(tmp_path / "metrics.jsonl")
    assert listener.whole(ended) == []


@pytest.mark.slow
def test_what_a_resumed_search_reads_of_earlier_trials_takes_little_memory(tmp_path: Path) -> None:
    trials, steps = 4, 2000
    lines = "".join(f'{{"step": {step}, "loss": {1 / step}}}\n' for step in range(1, steps + 1))
    (tmp_path / "metrics.jsonl").write_text(lines)
    listener = ReportListener(_Source(), StopperSettings(), "loss")
    ended = [Run(f"a{n}", n, state=RunState.DONE, folder=str(tmp_path)) for n in range(trials)]
    tracemalloc.start()
    try:
        told = listener.earlier(ended)
        curves = [LearningCurve() for _ in told]
        for curve, points in zip(curves, told.values(), strict=True):
            assert curve.extend(points)
        # What others keep at this time, such as a thread or a cache of Python's own, is not counted.
        ours = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/tradewind/*")])
    finally:
        tracemalloc.stop()
    assert [len(curve.steps) for curve in curves] == [len(points) for points in told.values()] == [steps] * trials
    kept = sum(each.size for each in ours.statistics("filename"))
    assert (
        16 * steps * trials < kept < 72 * steps * trials
    )  # bytes: 16 a point as it was read, 32 in its curve, and room to grow


@pytest.mark.parametrize(
    ("name", "file", "expected"),
    [
        ("process", "metrics", ""),
        ("process", "stdout", ""),
        ("slurm", "metrics", ""),
        ("ssh", "metrics", ""),
        ("ray", "metrics", ""),
        ("docker", "stdout", ""),
        ("docker", "metrics", "the docker runner cannot read metrics while a run is running"),
        ("htcondor", "stdout", "the htcondor runner tells nothing of a run while it is running"),
        ("replay", "metrics", "the replay runner tells nothing of a run while it is running"),
    ],
)
def test_runners_that_cannot_tell_are_refused(name: str, file: str, expected: str) -> None:
    runner = plugins.load("runner", name)
    assert issubclass(runner, Runner)
    why, hint = why_reports_unavailable(runner, name, file)
    assert why == expected
    assert bool(hint) is bool(why)
