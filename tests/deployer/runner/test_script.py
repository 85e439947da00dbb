"""Jobs that a script of the user's own runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.deployer.helpers import example_script

from tradewind import plugins
from tradewind.deployer.runner.base import Runner
from tradewind.errors import DeployError, PrerequisiteError
from tradewind.problem import Machine, RunState
from tradewind.testing.runners import RunnerBench, RunnerConformance, wait_for_end


class ScriptBench(RunnerBench):
    """The script of the guide."""

    def make(self) -> Runner:
        made = plugins.create(
            "runner", "script", {"program": example_script(self.folder), "grace": 0.5}, data_folder=self.folder / "data"
        )
        assert isinstance(made, Runner)
        return made


@pytest.mark.slow
class TestScriptRunner(RunnerConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> Iterator[RunnerBench]:
        bench = ScriptBench(tmp_path)
        yield bench
        bench.close()


class Told(RunnerBench):
    """A script that writes down what it is told."""

    collect = 'cp "$2" collected.json; echo kept > $TRADEWIND_OUTPUTS/kept'

    def make(self) -> Runner:
        script = self.folder / "own.sh"
        script.write_text(
            f'#!/bin/sh\ncase $1 in\nrun) cp "$2" run.json; shift 2; "$@" ;;\ncollect) {self.collect} ;;\nesac\n'
        )
        script.chmod(0o755)
        made = plugins.create("runner", "script", {"program": script}, data_folder=self.folder / "data")
        assert isinstance(made, Runner)
        return made


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    monkeypatch.chdir(tmp_path)
    told = Told(tmp_path)
    yield told
    told.close()


def test_the_script_is_told_all_but_secrets(bench: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SESAME", "sesame opens")
    runner = bench.runner()
    request = bench.request("good")
    job = ("sh", "-c", "echo $KEY $TRADEWIND_NODES $A")
    request = replace(request, argv=job, env={"A": "b"}, secrets={"KEY": "env:SESAME"}, offer=request.offer.times(2))
    handle = runner.submit(request, [Machine("i-1", "10.0.0.7", {"user": "me"}), Machine("i-2", "10.0.0.8")])
    assert wait_for_end(runner, handle).state is RunState.DONE
    assert (request.folder / "stdout").read_text() == "sesame opens 2 b\n"
    text = (request.workdir / "run.json").read_text()
    assert "sesame opens" not in text
    seen = json.loads(text)
    assert seen["machines"] == [
        {"id": "i-1", "address": "10.0.0.7", "user": "me"},
        {"id": "i-2", "address": "10.0.0.8"},
    ]
    assert (seen["command"], seen["secrets"], seen["offer"]["nodes"]) == ([*job], ["KEY"], 2)
    assert (seen["offer"]["vcpu"], seen["workdir"]) == (1, str(request.workdir))


def test_results_are_collected_by_the_script(bench: Told) -> None:
    runner, request = bench.runner(), bench.request("good")
    handle = runner.submit(request, ())
    wait_for_end(runner, handle)
    runner.collect(handle, request)
    assert (request.folder / "outputs" / "kept").read_text() == "kept\n"


def test_a_collection_that_fails_says_so_and_can_be_tried_again(bench: Told) -> None:
    bench.collect = "echo gone away >&2; exit 1"
    runner, request = bench.runner(), bench.request("good")
    handle = runner.submit(request, ())
    wait_for_end(runner, handle)
    with pytest.raises(DeployError, match="could not collect run run-1: gone away") as caught:
        runner.collect(handle, request)
    assert caught.value.retryable


def test_a_script_that_is_not_there_is_one_line(bench: Told) -> None:
    runner = bench.runner()
    (bench.folder / "own.sh").unlink()
    with pytest.raises(PrerequisiteError, match="there is no script"):
        runner.submit(bench.request("good"), ())
